// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/faultinject"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/controller/baremetalhost"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

func TestADiscoveredHostIsAvailableWithoutCredentialsAndInspection(t *testing.T) {
	w := newTestEnv(t)
	uuid, h, _ := w.available()
	assert.False(t, h.HasPowerControl())
	assert.Equal(t, metal3v1.OperationalStatusDiscovered, h.Status.OperationalStatus)
	assert.Equal(t, uuid, h.Status.Provisioning.ID)
	assert.Equal(t, "SN00000001", h.Status.HardwareDetails.SystemVendor.SerialNumber)
	assert.Equal(t, []string{metal3v1.BareMetalHostFinalizer}, h.Finalizers)
	assert.NotContains(t, h.Annotations, metal3v1.PausedAnnotation)
	w.says(h, metal3v1.ConditionPowerControl, metal3v1.ReasonNoCredentials)
	w.says(h, metal3v1.ConditionReady, "Available")

	t.Run("its power is not changed, and the condition says that a reboot is not done", func(t *testing.T) {
		w.patch(h, `{"spec":{"online":false},"metadata":{"annotations":{"reboot.metal3.io/x":"{\"mode\":\"hard\"}"}}}`)
		c := w.says(h, metal3v1.ConditionPowerControl, metal3v1.ReasonRebootNotPossible)
		assert.Contains(t, c.Message, "is not done")
		assert.Empty(t, w.rack.Power(uuid), "its power was not asked for")
		assert.Empty(t, h.Status.ErrorMessage)
		assert.Equal(t, metal3v1.StateAvailable, h.Status.Provisioning.State)
		w.hasEvent(h, metal3v1.ReasonRebootNotPossible, "is not done")
	})
	t.Run("it can be externally provisioned, and be given back", func(t *testing.T) {
		w.patch(h, `{"spec":{"externallyProvisioned":true}}`)
		w.reaches(h, metal3v1.StateExternallyProvisioned)
		w.patch(h, `{"spec":{"externallyProvisioned":false}}`)
		w.reaches(h, metal3v1.StateAvailable)
	})
	t.Run("without changes there are no writes", func(t *testing.T) {
		w.says(h, metal3v1.ConditionReady, "Available")
		before := h.ResourceVersion
		w.stays("no object is written", func() bool {
			require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(h), h))
			return h.ResourceVersion == before
		}, 2*time.Second)
	})
	t.Run("its deletion removes the node", func(t *testing.T) {
		require.NoError(t, w.Delete(t.Context(), h))
		w.gone(h)
		_, err := w.node(uuid)
		require.ErrorIs(t, err, inventory.ErrNotFound)
		_, err = w.reservation(demo.MAC(1, 0))
		require.Error(t, err)
	})
}

func TestAManagedHostWaitsForApproval(t *testing.T) {
	w := newTestEnv(t)
	uuid := w.enrol(1)
	w.operate(managing)
	w.discover("reviewed", func(d *metal3v1.BareMetalHostDiscovery) { d.Spec.Approval = metal3v1.ApprovalManual })
	h := w.host("node-00001")
	w.credentials(h, redfish, true)
	w.says(h, metal3v1.ConditionReady, metal3v1.ReasonWaitingForApproval)
	assert.Equal(t, metal3v1.StateUnmanaged, h.Status.Provisioning.State)
	node, err := w.rack.Managed(t.Context(), uuid)
	require.NoError(t, err)
	assert.Equal(t, "fake-hardware", node.Driver, "no credentials are sent before the approval")
	w.patch(h, `{"metadata":{"annotations":{"discovery.metal3.io/approved":"true"}}}`)
	w.reaches(h, metal3v1.StateAvailable)
	w.is(h, "it is marked approved", func() bool { return h.Labels[metal3v1.ApprovalLabel] == "approved" })
}

func TestCredentialsUpdateTheNodeAndAreVerified(t *testing.T) {
	w := newTestEnv(t)
	uuid, h, _ := w.available()

	t.Run("a missing Secret is named", func(t *testing.T) {
		w.patch(h, `{"spec":{"bmc":{"address":"`+redfish+`","credentialsName":"node-00001-bmc"}}}`)
		c := w.says(h, metal3v1.ConditionReady, metal3v1.ReasonCredentialsNotFound)
		assert.Contains(t, c.Message, "node-00001-bmc")
	})
	secret := w.secret(h, demo.WrongPassword)
	t.Run("a wrong password is one clear error", func(t *testing.T) {
		c := w.says(h, metal3v1.ConditionReady, metal3v1.ReasonBMCCredentialsRefused)
		assert.Contains(t, c.Message, "refuses the credentials")
		assert.NotContains(t, c.Message, demo.WrongPassword)
		assert.Equal(t, metal3v1.OperationalStatusError, h.Status.OperationalStatus)
		assert.Equal(t, metal3v1.RegistrationError, h.Status.ErrorType)
		assert.Equal(t, 1, h.Status.ErrorCount)
		w.says(h, metal3v1.ConditionPowerControl, metal3v1.ReasonCredentialsUnverified)
	})
	t.Run("the right one is accepted, and the machine is switched on", func(t *testing.T) {
		w.patch(secret, `{"stringData":{"password":"right"}}`)
		w.reaches(h, metal3v1.StateAvailable)
		w.is(h, "the machine is on", func() bool { return h.Status.PoweredOn && w.rack.Power(uuid) == hoststate.PowerOn })
		assert.Empty(t, h.Status.ErrorType)
		assert.Equal(t, metal3v1.OperationalStatusOK, h.Status.OperationalStatus)
		assert.Equal(t, uuid, h.Status.Provisioning.ID, "the node is updated, not doubled")
		nodes, err := w.rack.Nodes(t.Context(), "")
		require.NoError(t, err)
		assert.Len(t, nodes, 1)
		assert.Equal(t, "redfish", nodes[0].Driver)
		assert.Equal(t, w.ns+"~node-00001", nodes[0].Name)
		w.says(h, metal3v1.ConditionPowerControl, metal3v1.ReasonCredentialsVerified)
	})
	t.Run("the power follows the host", func(t *testing.T) {
		w.patch(h, `{"spec":{"online":false}}`)
		w.is(h, "the machine is off", func() bool { return !h.Status.PoweredOn && w.rack.Power(uuid) == hoststate.PowerDown })
		w.patch(h, `{"spec":{"online":true}}`)
		w.is(h, "the machine is on", func() bool { return h.Status.PoweredOn && w.rack.Power(uuid) == hoststate.PowerOn })
	})
	t.Run("a reboot is done once", func(t *testing.T) {
		w.patch(h, `{"metadata":{"annotations":{"reboot.metal3.io":""}}}`)
		w.is(h, "the annotation is gone and the machine on", func() bool {
			_, asked := h.Annotations[metal3v1.RebootAnnotation]
			return !asked && w.rack.Power(uuid) == hoststate.PowerOn
		})
	})
	t.Run("a reboot with a key lasts as long as the annotation", func(t *testing.T) {
		w.patch(h, `{"metadata":{"annotations":{"reboot.metal3.io/me":"{\"mode\":\"hard\"}"}}}`)
		w.is(h, "the machine is off", func() bool { return !h.Status.PoweredOn && w.rack.Power(uuid) == hoststate.PowerDown })
		w.patch(h, `{"metadata":{"annotations":{"reboot.metal3.io/me":null}}}`)
		w.is(h, "the machine is on", func() bool { return h.Status.PoweredOn })
	})
	t.Run("a password that stops working is noticed when the Secret says so", func(t *testing.T) {
		w.patch(secret, `{"stringData":{"password":"`+demo.WrongPassword+`"}}`)
		w.patch(h, `{"spec":{"description":"look again"}}`)
		w.says(h, metal3v1.ConditionReady, metal3v1.ReasonBMCCredentialsRefused)
		w.patch(secret, `{"stringData":{"password":"right"}}`)
		w.reaches(h, metal3v1.StateAvailable)
	})
	t.Run("the machine is switched off before the host goes", func(t *testing.T) {
		require.NoError(t, w.Delete(t.Context(), h))
		w.gone(h)
		_, err := w.node(uuid)
		require.ErrorIs(t, err, inventory.ErrNotFound)
	})
}

func TestEveryStateOfALifeIsReachedByAName(t *testing.T) {
	w := newTestEnv(t)
	for i, name := range []string{"refuses", "silent", "powerless", "stuck", "busy"} {
		w.enrol(i+1, hostname("m-"+name))
	}
	w.operate(managing)
	w.discover("all")
	for name, reason := range map[string]string{
		"refuses": metal3v1.ReasonBMCCredentialsRefused, "silent": metal3v1.ReasonBMCUnreachable, "powerless": metal3v1.ReasonPowerChangeFailed,
		"stuck": metal3v1.ReasonNodeRefused,
	} {
		h := w.host("m-" + name)
		w.credentials(h, redfish, true)
		w.says(h, metal3v1.ConditionReady, reason)
		assert.Equal(t, metal3v1.OperationalStatusError, h.Status.OperationalStatus, name)
	}
	h := w.host("m-busy")
	w.credentials(h, redfish, true)
	w.is(h, "the machine is on", func() bool { return h.Status.PoweredOn })
	t.Run("and a deletion ends in each of them", func(t *testing.T) {
		for _, name := range []string{"refuses", "silent", "stuck", "busy"} {
			h := w.host("m-" + name)
			require.NoError(t, w.Delete(t.Context(), h))
			w.gone(h)
		}
		nodes, err := w.rack.Nodes(t.Context(), "")
		require.NoError(t, err)
		assert.Len(t, nodes, 1, "the nodes are gone with their hosts")
	})
}

func TestAHostByHandTakesADiscoveredNodeOver(t *testing.T) {
	w := newTestEnv(t)
	uuid := w.enrol(1)
	w.operate(managing)
	mine := w.register("mine", 1)
	w.secret(mine, "right")
	t.Run("without credentials it gets the hardware", func(t *testing.T) {
		w.reaches(mine, metal3v1.StateAvailable)
		assert.Equal(t, uuid, mine.Status.Provisioning.ID)
		assert.Equal(t, "SN00000001", mine.Status.HardwareDetails.SystemVendor.SerialNumber)
	})
	t.Run("with credentials it gets the node", func(t *testing.T) {
		w.patch(mine, `{"spec":{"bmc":{"address":"`+redfish+`","credentialsName":"mine-bmc"}}}`)
		w.is(mine, "the machine is on", func() bool { return mine.Status.PoweredOn })
		node, err := w.rack.Managed(t.Context(), uuid)
		require.NoError(t, err)
		assert.Equal(t, w.ns+"~mine", node.Name)
		assert.Equal(t, "redfish", node.Driver)
	})
	t.Run("another host of the machine names the owner", func(t *testing.T) {
		other := w.register("other", 1)
		w.secret(other, "right")
		w.patch(other, `{"spec":{"bmc":{"address":"`+redfish+`","credentialsName":"other-bmc"}}}`)
		c := w.says(other, metal3v1.ConditionReady, metal3v1.ReasonMachineUsedByOther)
		assert.Contains(t, c.Message, "mine")
		require.NoError(t, w.Delete(t.Context(), other))
		w.gone(other)
		_, err := w.node(uuid)
		require.NoError(t, err, "the node is not the other's")
	})
}

func TestAHostByHandGetsANodeOfItsOwn(t *testing.T) {
	w := newTestEnv(t)
	w.operate(managing)
	h := w.register("by-hand", 1)
	w.says(h, metal3v1.ConditionReady, metal3v1.ReasonWaitingForMachine)
	assert.Equal(t, metal3v1.StateUnmanaged, h.Status.Provisioning.State)
	w.secret(h, "right")
	w.patch(h, `{"spec":{"bmc":{"address":"`+redfish+`","credentialsName":"by-hand-bmc"}}}`)
	w.says(h, metal3v1.ConditionReady, metal3v1.ReasonInspecting)
	assert.Equal(t, metal3v1.StateInspecting, h.Status.Provisioning.State)
	w.eventually("the machine boots the ramdisk", func() bool {
		_, err := w.rack.Boot(demo.Machine(1))
		return err == nil
	})
	w.reaches(h, metal3v1.StateAvailable)
	assert.Equal(t, "SN00000001", h.Status.HardwareDetails.SystemVendor.SerialNumber)
	require.NoError(t, w.Delete(t.Context(), h))
	w.gone(h)
	nodes, err := w.rack.Nodes(t.Context(), "")
	require.NoError(t, err)
	assert.Empty(t, nodes)
}

func TestDeletionWorksInImporting(t *testing.T) {
	w := newTestEnv(t)
	uuid := w.enrol(1, hostname("m-"+demo.MarkNoInventory))
	w.operate(managing)
	h := w.register("importing", 1)
	w.reaches(h, metal3v1.StateImporting)
	w.says(h, metal3v1.ConditionReady, metal3v1.ReasonWaitingForData)
	assert.Empty(t, h.Status.ErrorMessage)
	require.NoError(t, w.Delete(t.Context(), h))
	w.gone(h)
	_, err := w.node(uuid)
	require.ErrorIs(t, err, inventory.ErrNotFound)
}

func TestAMachineWithoutInspectionDataIsInspectedOnceItHasCredentials(t *testing.T) {
	w := newTestEnv(t)
	w.enrol(1, hostname("m-"+demo.MarkNoInventory))
	w.enrol(2, hostname("m-"+demo.MarkNoInventory+"-"+demo.MarkUninspectable))
	w.operate(managing)
	good, bad := w.register("good", 1), w.register("bad", 2)
	w.reaches(good, metal3v1.StateImporting)
	w.reaches(bad, metal3v1.StateImporting)
	w.credentials(good, redfish, true)
	w.credentials(bad, redfish, true)
	w.reaches(good, metal3v1.StateAvailable)
	assert.Equal(t, "SN00000001", good.Status.HardwareDetails.SystemVendor.SerialNumber)
	c := w.says(bad, metal3v1.ConditionReady, metal3v1.ReasonInspectionFailed)
	assert.Equal(t, "The inspection failed: timeout reached while inspecting the node. It is tried again.", c.Message)
	assert.Equal(t, metal3v1.StateInspecting, bad.Status.Provisioning.State)
	assert.Equal(t, metal3v1.InspectionError, bad.Status.ErrorType)
	w.patch(bad, `{"metadata":{"annotations":{"inspect.metal3.io":"disabled"}}}`)
	w.reaches(bad, metal3v1.StateAvailable)
	assert.Empty(t, bad.Status.ErrorType)
	w.patch(bad, `{"metadata":{"annotations":{"inspect.metal3.io":""}}}`)
	w.says(bad, metal3v1.ConditionReady, metal3v1.ReasonInspectionFailed)
	require.NoError(t, w.Delete(t.Context(), bad))
	w.gone(bad)
}

func TestAUserGivesTheHardwareOfAHost(t *testing.T) {
	w := newTestEnv(t)
	w.operate(managing)
	register := func(name string, machine int, hardware string, mode metal3v1.InspectionMode) *metal3v1.BareMetalHost {
		return w.register(name, machine, func(h *metal3v1.BareMetalHost) {
			h.Spec.InspectionMode = mode
			h.Annotations = map[string]string{metal3v1.HardwareDetailsAnnotation: hardware}
		})
	}
	h := register("given", 1, `{"systemVendor":{"serialNumber":"SN-given"},"ramMebibytes":4096,"nics":[{"name":"eno1","mac":"52:54:00:00:00:01"}]}`,
		metal3v1.InspectionDisabled)
	w.is(h, "it is taken over, and the annotation goes", func() bool {
		return h.Status.HardwareDetails != nil && !metav1.HasAnnotation(h.ObjectMeta, metal3v1.HardwareDetailsAnnotation)
	})
	assert.Equal(t, "SN-given", h.Status.HardwareDetails.SystemVendor.SerialNumber)
	assert.Equal(t, 4096, h.Status.HardwareDetails.RAMMebibytes)
	assert.Equal(t, "eno1", h.Status.HardwareDetails.NIC[0].Name)
	w.reaches(h, metal3v1.StateAvailable)
	for name, c := range map[string]struct {
		hardware string
		mode     metal3v1.InspectionMode
		note     string
	}{
		"misspelt":  {`{"colour":"blue"}`, metal3v1.InspectionDisabled, `unknown field "colour"`},
		"illegal":   {`{"nics":[{"mac":"none"}]}`, metal3v1.InspectionDisabled, "nics"},
		"inspected": {`{"ramMebibytes":1}`, metal3v1.InspectionAgent, "spec.inspectionMode"},
	} {
		h := register(name, 2, c.hardware, c.mode)
		w.hasEvent(h, "InvalidAnnotationValue", c.note)
		assert.Nil(t, h.Status.HardwareDetails)
		require.NoError(t, w.Delete(t.Context(), h))
		w.gone(h)
	}
}

func TestAMachineThatComesBackKeepsItsManagedHost(t *testing.T) {
	w := newTestEnv(t)
	old := w.enrol(1)
	w.operate(managing)
	w.discover("all")
	h := w.host("node-00001")
	w.reaches(h, metal3v1.StateAvailable)
	require.NoError(t, w.rack.DeleteNode(t.Context(), old))
	next := w.enrol(1)
	w.is(h, "the host knows the new node and is available", func() bool {
		return h.Status.Provisioning.ID == next && h.Status.Provisioning.State == metal3v1.StateAvailable
	})
	assert.Len(t, w.hosts(), 1)
	require.NoError(t, w.Delete(t.Context(), h))
	w.gone(h)
	_, err := w.node(next)
	require.ErrorIs(t, err, inventory.ErrNotFound)
}

func TestADeletionThatWaitsForIronicCanBeEnded(t *testing.T) {
	w := newTestEnv(t)
	w.enrol(1)
	down := faultinject.Never()
	w.operate(managing, func(o *setup) {
		o.through = func(m baremetalhost.Manager) baremetalhost.Manager { return unanswered{m, down} }
	})
	w.discover("all")
	h := w.host("node-00001")
	w.credentials(h, redfish, true)
	w.is(h, "the machine is on", func() bool { return h.Status.PoweredOn })
	down.Kill()
	require.NoError(t, w.Delete(t.Context(), h))
	w.says(h, metal3v1.ConditionReady, metal3v1.ReasonEndpointUnreachable)
	assert.Empty(t, h.Status.ErrorMessage)
	w.patch(h, `{"metadata":{"annotations":{"discovery.metal3.io/keep-node":"true"}}}`)
	w.gone(h)
}

// unanswered is an Ironic that does not answer any more once it is killed.
type unanswered struct {
	baremetalhost.Manager
	*faultinject.Injector
}

func (u unanswered) Managed(ctx context.Context, uuid string) (hoststate.Node, error) {
	if u.Crashed() {
		return hoststate.Node{}, inventory.Failf(inventory.ProblemUnreachable, "connection refused")
	}
	return u.Manager.Managed(ctx, uuid)
}

func TestANodeOfAManagedHostCanBeKept(t *testing.T) {
	w := newTestEnv(t)
	uuid := w.enrol(1)
	w.operate(managing)
	d := w.discover("all")
	h := w.host("node-00001")
	w.reaches(h, metal3v1.StateAvailable)
	deletesWithoutNode(w, d, h, uuid)
}

func TestAPausedHostIsNotTouched(t *testing.T) {
	w := newTestEnv(t)
	w.enrol(1)
	w.operate(managing)
	h := w.register("paused", 1, func(h *metal3v1.BareMetalHost) {
		h.Annotations = map[string]string{metal3v1.PausedAnnotation: "user"}
	})
	w.stays("no object is written", func() bool {
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(h), h))
		return !h.HasStatus() && len(h.Finalizers) == 0
	}, 2*time.Second)
}

// TestBesideAnotherOperatorNoStateIsNew follows a host from discovery to hand-over while this operator does not manage hosts.
func TestBesideAnotherOperatorNoStateIsNew(t *testing.T) {
	w := newTestEnv(t)
	w.enrol(1)
	w.operate()
	w.discover("all")
	h := w.host("node-00001")
	seen := map[metal3v1.ProvisioningState]bool{h.Status.Provisioning.State: true}
	w.credentials(h, redfish, true)
	w.is(h, "the host is released", func() bool {
		seen[h.Status.Provisioning.State] = true
		_, paused := h.Annotations[metal3v1.PausedAnnotation]
		return !paused
	})
	assert.Equal(t, map[metal3v1.ProvisioningState]bool{metal3v1.StateUnmanaged: true}, seen)
}

// TestAnotherOperatorTakesOver stops the operator that manages hosts and starts one that does not: no state that only the first knows stays.
func TestAnotherOperatorTakesOver(t *testing.T) {
	w := newTestEnv(t)
	uuid := w.enrol(1)
	w.enrol(2, hostname("m-"+demo.MarkNoInventory))
	w.enrol(3)
	stop := w.operate(managing)
	w.discover("reviewed", func(d *metal3v1.BareMetalHostDiscovery) { d.Spec.Approval = metal3v1.ApprovalManual })
	held, used := w.host("node-00001"), w.host("node-00003")
	w.says(held, metal3v1.ConditionReady, metal3v1.ReasonWaitingForApproval)
	w.patch(used, `{"metadata":{"annotations":{"discovery.metal3.io/approved":"true"}}}`)
	w.reaches(used, metal3v1.StateAvailable)
	byHand := w.register("by-hand", 2)
	w.reaches(byHand, metal3v1.StateImporting)
	stop()
	w.operate()
	w.reaches(byHand, metal3v1.StateUnmanaged)
	w.is(held, "discovery holds it again", func() bool {
		return held.Annotations[metal3v1.PausedAnnotation] == metal3v1.DiscoveryPausedValue && len(held.Finalizers) == 1 &&
			held.Finalizers[0] == metal3v1.DiscoveryFinalizer
	})
	w.handedOver(held, metal3v1.ReasonWaitingForApproval)
	assert.Nil(t, meta.FindStatusCondition(held.Status.Conditions, metal3v1.ConditionPowerControl))
	w.credentials(held, redfish, true)
	w.patch(held, `{"metadata":{"annotations":{"discovery.metal3.io/approved":"true"}}}`)
	w.released(held)
	assert.Equal(t, uuid, held.Status.Provisioning.ID)
	w.reaches(used, metal3v1.StateAvailable) // every operator knows this one
}

func TestTwoReplicasManageAHostOnce(t *testing.T) {
	w := newTestEnv(t)
	const machines = 12
	for i := 1; i <= machines; i++ {
		w.enrol(i)
	}
	w.operate(managing)
	w.operate(managing)
	w.discover("all")
	for i := 1; i <= machines; i++ {
		w.credentials(w.machine(i), redfish, true)
	}
	for i := 1; i <= machines; i++ {
		h := w.machine(i)
		w.is(h, "the machine is on", func() bool { return h.Status.PoweredOn && h.Status.Provisioning.State == metal3v1.StateAvailable })
		assert.Empty(t, h.Status.ErrorMessage)
	}
	nodes, err := w.rack.Nodes(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, nodes, machines, "no node is doubled")
	for _, h := range w.hosts() {
		require.NoError(t, w.Delete(t.Context(), &h))
	}
	w.eventually("all hosts and nodes are gone", func() bool {
		nodes, err := w.rack.Nodes(t.Context(), "")
		return err == nil && len(nodes) == 0 && len(w.hosts()) == 0
	})
}
