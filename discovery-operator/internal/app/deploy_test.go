// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/faultinject"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

func TestADiscoveredMachineIsDeployedWithoutCredentials(t *testing.T) {
	w := newTestEnv(t)
	uuid, h, _ := w.available()
	w.configure("user", "userData", "#cloud-config\n")
	w.configure("network", "value", "links: []\n")
	t.Run("an image is deployed once, with its configuration", func(t *testing.T) {
		w.patch(h, `{"spec":{`+image+`,"userData":{"name":"user"},"networkData":{"name":"network"}}}`)
		w.reaches(h, metal3v1.StateProvisioned)
		deployments, cleanings, config := w.rack.Deployed(uuid)
		assert.Equal(t, 1, deployments)
		assert.Equal(t, 1, cleanings, "before the first use")
		assert.Equal(t, "#cloud-config\n", config.UserData)
		assert.JSONEq(t, `{"links":[]}`, string(config.NetworkData))
		assert.Equal(t, "node-00001", config.MetaData["metal3-name"])
		assert.Equal(t, "http://images/a.qcow2", h.Status.Provisioning.Image.URL)
		assert.NotNil(t, h.Status.OperationHistory.Provision.End)
		assert.Equal(t, metal3v1.OperationalStatusOK, h.Status.OperationalStatus)
		n, err := w.rack.Managed(t.Context(), uuid)
		require.NoError(t, err)
		assert.Equal(t, hoststate.ManualDriver, n.Driver)
		assert.Equal(t, string(h.UID), n.Instance)
		w.hasEvent(h, metal3v1.EventDeploymentStarted, "http://images/a.qcow2")
	})
	t.Run("another checksum of the same image changes nothing", func(t *testing.T) {
		w.patch(h, `{"spec":{"image":{"checksum":"`+strings.Repeat("f00d", 16)+`"}}}`)
		w.is(h, "it was looked at", func() bool {
			return len(h.Status.Conditions) > 0 && h.Status.Conditions[0].ObservedGeneration == h.Generation
		})
		assert.Equal(t, metal3v1.StateProvisioned, h.Status.Provisioning.State)
	})
	t.Run("its user has to restart it to have it cleaned", func(t *testing.T) {
		w.patch(h, noImage)
		w.is(h, "the host says so", func() bool {
			return h.Status.Provisioning.State == metal3v1.StateDeprovisioning && len(h.Status.Conditions) > 0 && w.tells(h, "restart the machine")
		})
		w.restarts(uuid)
		w.reaches(h, metal3v1.StateAvailable)
		_, cleanings, _ := w.rack.Deployed(uuid)
		assert.Equal(t, 2, cleanings)
		assert.Empty(t, h.Status.Provisioning.Image.URL)
		assert.NotNil(t, h.Status.OperationHistory.Deprovision.End)
	})
	t.Run("it can be used again, with an image whose URL holds a token that Ironic masks, and be deleted while it is used", func(t *testing.T) {
		w.patch(h, `{"spec":{"networkData":null,"preprovisioningNetworkDataName":"network"}}`)
		w.patch(h, strings.Replace(withImage, "a.qcow2", "a.qcow2?token=hush", 1))
		w.reaches(h, metal3v1.StateProvisioned)
		deployments, _, config := w.rack.Deployed(uuid)
		assert.Equal(t, 2, deployments)
		assert.JSONEq(t, `{"links":[]}`, string(config.NetworkData), "of the ramdisk, where the system has none of its own")
		require.NoError(t, w.Delete(t.Context(), h))
		w.restarts(uuid)
		w.gone(h)
		_, err := w.node(uuid)
		require.ErrorIs(t, err, inventory.ErrNotFound)
	})
}

func TestDeploymentFailuresHaveAMessage(t *testing.T) {
	w := newTestEnv(t)
	for i, name := range []string{"checksum", demo.MarkAgentless, demo.MarkUncleanable, "secret", "namespace", "method", "iso"} {
		w.enrol(i+1, hostname("m-"+name))
	}
	w.operate(managing)
	w.discover("all")
	for name, c := range map[string]struct{ patch, reason, text string }{
		"checksum":           {`{"spec":{"image":{"url":"http://me:hush@images/a","checksum":"` + demo.WrongChecksum + `","checksumType":"sha256"}}}`, metal3v1.ReasonDeploymentFailed, "failed to verify"},
		demo.MarkAgentless:   {withImage, metal3v1.ReasonAgentAway, "restart the machine"},
		demo.MarkUncleanable: {withImage, metal3v1.ReasonCleaningFailed, "The machine was not cleaned"},
		"secret":             {`{"spec":{` + image + `,"userData":{"name":"none"}}}`, metal3v1.ReasonConfigUnusable, "there is no Secret none"},
		"namespace":          {`{"spec":{` + image + `,"userData":{"name":"x","namespace":"kube-system"}}}`, metal3v1.ReasonConfigUnusable, "namespace of the host"},
		"method":             {`{"spec":{"customDeploy":{"method":"x"}}}`, metal3v1.ReasonImageUnusable, "spec.customDeploy"},
	} {
		h := w.host("m-" + name)
		w.reaches(h, metal3v1.StateAvailable)
		w.patch(h, c.patch)
		condition := w.says(h, metal3v1.ConditionReady, c.reason)
		assert.Contains(t, condition.Message, c.text, name)
		assert.NotContains(t, condition.Message, "hush", name)
		assert.Equal(t, c.reason != metal3v1.ReasonAgentAway, h.Status.ErrorType == metal3v1.ProvisioningError, name)
		assert.Equal(t, metal3v1.StateProvisioning, h.Status.Provisioning.State, name)
	}
	t.Run("a checksum that is corrected is tried", func(t *testing.T) {
		h := w.host("m-checksum")
		w.patch(h, `{"spec":{"image":{"checksum":"`+sum+`","checksumType":"sha256"}}}`)
		// The machine is restarted each time that Ironic waits for it: the first time may be for the attempt before.
		w.eventually("the host is provisioned", func() bool {
			w.rack.Restart(h.Status.Provisioning.ID)
			return w.Get(t.Context(), client.ObjectKeyFromObject(h), h) == nil && h.Status.Provisioning.State == metal3v1.StateProvisioned
		})
		assert.Empty(t, h.Status.ErrorType)
	})
	t.Run("so is an ISO that was not said to be one", func(t *testing.T) {
		h := w.host("m-iso")
		w.reaches(h, metal3v1.StateAvailable)
		w.patch(h, `{"spec":{"image":{"url":"http://images/a.iso","checksum":"`+demo.WrongChecksum+`","checksumType":"sha256"}}}`)
		w.says(h, metal3v1.ConditionReady, metal3v1.ReasonDeploymentFailed)
		w.patch(h, `{"spec":{"image":{"format":"live-iso"}}}`)
		w.eventually("the host is provisioned", func() bool {
			w.rack.Restart(h.Status.Provisioning.ID)
			return w.Get(t.Context(), client.ObjectKeyFromObject(h), h) == nil && h.Status.Provisioning.State == metal3v1.StateProvisioned
		})
		assert.Empty(t, h.Status.ErrorType)
	})
	t.Run("an image that is taken back leaves a host that can be used", func(t *testing.T) {
		for _, name := range []string{demo.MarkAgentless, "secret", "method"} {
			h := w.host("m-" + name)
			w.patch(h, `{"spec":{"image":null,"customDeploy":null}}`)
			if name == demo.MarkAgentless {
				w.restarts(h.Status.Provisioning.ID)
			}
			w.reaches(h, metal3v1.StateAvailable)
			assert.Empty(t, h.Status.ErrorType, name)
			n, err := w.rack.Managed(t.Context(), h.Status.Provisioning.ID)
			require.NoError(t, err)
			assert.Empty(t, n.Instance, name)
		}
	})
}

// TestAMachineInUseIsAdoptedAndNeverDeployedAgain loses the node of a machine that is deployed.
func TestAMachineInUseIsAdoptedAndNeverDeployedAgain(t *testing.T) {
	w := newTestEnv(t)
	uuid := w.enrol(1)
	stop := w.operate(managing)
	d := w.discover("all")
	h := w.host("node-00001")
	w.reaches(h, metal3v1.StateAvailable)
	w.credentials(h, redfish, true)
	w.is(h, "the machine is on", func() bool { return h.Status.PoweredOn })
	w.patch(h, withImage)
	w.reaches(h, metal3v1.StateProvisioned)
	require.NoError(t, w.Delete(t.Context(), d))
	stop()
	n, err := w.rack.Managed(t.Context(), uuid)
	require.NoError(t, err)
	require.NoError(t, w.rack.Vacate(t.Context(), n.UUID)) // what occupies a node is not deleted
	require.NoError(t, w.rack.DeleteNode(t.Context(), uuid))
	w.operate(managing)
	w.hasEvent(h, metal3v1.EventAdoptionStarted, "as it is")
	adopted := func(lost string) {
		w.is(h, "its node was made anew", func() bool {
			assert.Equal(t, metal3v1.StateProvisioned, h.Status.Provisioning.State, "the host is in use all the time")
			n, err = w.rack.Managed(t.Context(), h.Status.Provisioning.ID)
			return err == nil && n.UUID != lost && n.State == hoststate.Active && h.Status.ErrorType == "" &&
				meta.IsStatusConditionTrue(h.Status.Conditions, metal3v1.ConditionReady)
		})
	}
	adopted(uuid)
	lost := n.UUID
	require.NoError(t, w.rack.Vacate(t.Context(), lost))
	require.NoError(t, w.rack.DeleteNode(t.Context(), lost))
	w.patch(h, `{"metadata":{"annotations":{"example.com/look":"again"}}}`)
	adopted(lost) // by a process that has adopted the machine before, too
	assert.Equal(t, string(h.UID), n.Instance)
	assert.Equal(t, "http://images/a.qcow2", n.Deployment["image_source"])
	deployments, cleanings, _ := w.rack.Deployed(n.UUID)
	assert.Zero(t, deployments, "no image was deployed on it")
	assert.Zero(t, cleanings, "and nothing cleaned")
	w.patch(h, noImage)
	w.reaches(h, metal3v1.StateAvailable)
	_, cleanings, _ = w.rack.Deployed(n.UUID)
	assert.Equal(t, 1, cleanings, "an adopted machine can be deprovisioned")
}

// TestAMachineWhoseNodeIsLostIsCleanedWhenItIsGivenBack takes the image from a machine before Ironic, which has lost its database, could adopt it.
func TestAMachineWhoseNodeIsLostIsCleanedWhenItIsGivenBack(t *testing.T) {
	w := newTestEnv(t)
	uuid, h, stop := w.available()
	w.credentials(h, redfish, true)
	w.is(h, "the machine is on", func() bool { return h.Status.PoweredOn })
	w.patch(h, withImage)
	w.reaches(h, metal3v1.StateProvisioned)
	stop()
	require.NoError(t, w.rack.Vacate(t.Context(), uuid))
	require.NoError(t, w.rack.DeleteNode(t.Context(), uuid))
	w.patch(h, noImage)
	w.operate(managing)
	w.reaches(h, metal3v1.StateAvailable)
	assert.NotEqual(t, uuid, h.Status.Provisioning.ID)
	_, cleanings, _ := w.rack.Deployed(h.Status.Provisioning.ID)
	assert.Equal(t, 1, cleanings)
	assert.Empty(t, h.Status.Provisioning.Image.URL)
}

// TestADetachedHostIsDeletedAndItsMachineRunsOn takes a host with an image out of management and deletes it.
func TestADetachedHostIsDeletedAndItsMachineRunsOn(t *testing.T) {
	w := newTestEnv(t)
	uuid, h, _ := w.available()
	w.credentials(h, redfish, true)
	w.is(h, "the machine is on", func() bool { return h.Status.PoweredOn })
	w.patch(h, withImage)
	w.reaches(h, metal3v1.StateProvisioned)
	const detach = `{"metadata":{"annotations":{"baremetalhost.metal3.io/detached":""}}}`
	detached := func() bool { return h.Status.OperationalStatus == metal3v1.OperationalStatusDetached }
	w.patch(h, detach)
	w.is(h, "it is detached", detached)
	assert.Equal(t, metal3v1.StateProvisioned, h.Status.Provisioning.State)
	_, err := w.node(uuid)
	require.ErrorIs(t, err, inventory.ErrNotFound, "Ironic acts on the machine no more")
	w.hasEvent(h, metal3v1.EventNodeDeleted, uuid)

	w.patch(h, `{"metadata":{"annotations":{"baremetalhost.metal3.io/detached":null}}}`)
	w.is(h, "its machine is adopted when it is managed again", func() bool {
		n, err := w.rack.Managed(t.Context(), h.Status.Provisioning.ID)
		return err == nil && n.State == hoststate.Active && meta.IsStatusConditionTrue(h.Status.Conditions, metal3v1.ConditionReady)
	})
	assert.Equal(t, metal3v1.OperationalStatusOK, h.Status.OperationalStatus)
	w.patch(h, detach)
	require.NoError(t, w.Delete(t.Context(), h))
	w.gone(h)
	var told eventsv1.EventList
	require.NoError(t, w.List(t.Context(), &told, client.InNamespace(h.Namespace)))
	for i := range told.Items {
		assert.NotEqual(t, metal3v1.EventCleaningStarted, told.Items[i].Reason)
	}
}

// TestADeathAtEveryChangeOfADeployment kills the operator after each change at the API server or in Ironic from the image of a host to
// its end; another process continues. The image is deployed once, and the machine cleaned once before and once after.
func TestADeathAtEveryChangeOfADeployment(t *testing.T) { diesAtEveryChange(t, deployAndDie) }

func deployAndDie(t *testing.T, f *faultinject.Injector) {
	w := newSerialTestEnv(t)
	uuid, h, stop := w.available()
	stop()
	w.patch(h, withImage)
	until := w.crashes(f, func() {}, managing)
	until("the host is provisioned", func() bool { return w.sees(h, metal3v1.StateProvisioned) })
	deployments, cleanings, _ := w.rack.Deployed(uuid)
	assert.Equal(t, 1, deployments, "the image is deployed once")
	assert.Equal(t, 1, cleanings)
	w.patch(h, noImage)
	until("the host is available", func() bool {
		w.rack.Restart(uuid)
		return w.sees(h, metal3v1.StateAvailable)
	})
	deployments, cleanings, _ = w.rack.Deployed(uuid)
	assert.Equal(t, 1, deployments)
	assert.Equal(t, 2, cleanings)
}

// TestTwoReplicasDeployOnce lets two operators act on one host at the same time, as they do while one of them does not know yet that it leads no more.
func TestTwoReplicasDeployOnce(t *testing.T) {
	w := newTestEnv(t)
	var uuids []string
	for i := range 4 {
		uuids = append(uuids, w.enrol(i+1))
	}
	w.operate(managing)
	w.discover("all")
	for i := range uuids {
		h := w.machine(i + 1)
		w.reaches(h, metal3v1.StateAvailable)
		w.patch(h, withImage)
	}
	w.operate(managing)
	for i, uuid := range uuids {
		h := w.machine(i + 1)
		w.is(h, "the host is provisioned", func() bool {
			return h.Status.Provisioning.State == metal3v1.StateProvisioned && h.Status.ErrorType == ""
		})
		deployments, cleanings, _ := w.rack.Deployed(uuid)
		assert.Equal(t, 1, deployments)
		assert.Equal(t, 1, cleanings)
		w.patch(h, noImage)
	}
	for i, uuid := range uuids {
		h := w.machine(i + 1)
		w.is(h, "the host is available", func() bool {
			w.rack.Restart(uuid)
			return h.Status.Provisioning.State == metal3v1.StateAvailable && h.Status.ErrorType == ""
		})
		deployments, cleanings, _ := w.rack.Deployed(uuid)
		assert.Equal(t, 1, deployments)
		assert.Equal(t, 2, cleanings)
	}
}
