// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package journeys_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// The rack that discovery-operator makes up has eight machines. Each journey takes some of its own, by name.

// discover makes hosts of some machines.
func (w *testEnv) discover(name string, machines []int, change func(*metal3v1.BareMetalHostDiscoverySpec)) *metal3v1.BareMetalHostDiscovery {
	w.t.Helper()
	quoted := make([]string, 0, len(machines))
	for _, i := range machines {
		quoted = append(quoted, fmt.Sprintf("'node-%05d'", i))
	}
	d := &metal3v1.BareMetalHostDiscovery{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	d.Spec.ResourceNameTemplate = metal3v1.ResourceNameTemplate{Prefix: name + "-", HardwareDetails: metal3v1.DetailSerialNumber}
	d.Spec.Selector = "hardware.hostname in [" + strings.Join(quoted, ", ") + "]"
	d.Spec.Interval = &metav1.Duration{Duration: time.Second}
	change(&d.Spec)
	w.create(d)
	w.t.Cleanup(func() { w.undiscover(d) })
	return d
}

// undiscover deletes what a journey discovered.
func (w *testEnv) undiscover(d *metal3v1.BareMetalHostDiscovery) {
	if w.t.Failed() {
		_ = w.admin.Get(context.WithoutCancel(w.ctx), client.ObjectKeyFromObject(d), d)
		w.t.Logf("discovery %s: %+v", d.Name, d.Status)
	}
	ctx := context.WithoutCancel(w.ctx)
	require.NoError(w.t, client.IgnoreNotFound(w.admin.Delete(ctx, d)))
	require.NoError(w.t, w.admin.DeleteAllOf(ctx, &metal3v1.BareMetalHost{}, client.InNamespace(w.namespace)))
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		var hosts metal3v1.BareMetalHostList
		require.NoError(c, w.admin.List(ctx, &hosts, client.InNamespace(w.namespace)))
		assert.Empty(c, hosts.Items)
	}, patience, interval, "hosts of the journey are still there")
}

func serialHost(d *metal3v1.BareMetalHostDiscovery, i int) string {
	return fmt.Sprintf("%s-sn%08d", d.Name, i)
}

// untilDiscovered waits for the host of a machine.
func (w *testEnv) untilDiscovered(d *metal3v1.BareMetalHostDiscovery, i int) *metal3v1.BareMetalHost {
	w.t.Helper()
	h := &metal3v1.BareMetalHost{}
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		require.NoError(c, w.admin.Get(w.ctx, types.NamespacedName{Namespace: w.namespace, Name: serialHost(d, i)}, h))
		require.True(c, h.HasStatus())
	}, patience, interval, "machine %d does not become a host", i)
	assert.Equal(w.t, metal3v1.OperationalStatusDiscovered, h.Status.OperationalStatus)
	require.NotNil(w.t, h.Status.HardwareDetails)
	return h
}

// giveCredentials makes a host manageable, as its administrator does.
func (w *testEnv) giveCredentials(h *metal3v1.BareMetalHost) {
	w.t.Helper()
	w.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: h.Name + "-bmc"},
		StringData: map[string]string{"username": "admin", "password": "secret"},
	})
	w.update(h, func() {
		h.Spec.BMC = &metal3v1.BMCDetails{Address: "redfish://192.0.2.1/redfish/v1/Systems/" + h.Name, CredentialsName: h.Name + "-bmc"}
	})
}

// untilReleased waits until the operator that manages hosts may have the host.
func (w *testEnv) untilReleased(h *metal3v1.BareMetalHost) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		w.refresh(c, h)
		assert.NotContains(c, h.Annotations, metal3v1.PausedAnnotation)
		assert.Empty(c, h.Finalizers)
	}, moment, interval, "host %s is not released", h.Name)
	assert.NotEmpty(w.t, h.Status.Provisioning.ID, "the status names the node")
}

func (w *testEnv) untilHandedOver(h *metal3v1.BareMetalHost, reason string) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		w.refresh(c, h)
		condition := meta.FindStatusCondition(h.Status.Conditions, metal3v1.ConditionHandedOver)
		require.NotNil(c, condition)
		assert.Equal(c, reason, condition.Reason, condition.Message)
	}, moment, interval)
}

// A rack is switched on. No MAC was collected; the hosts carry labels by which a MachineSet selects them, and are released for provisioning as
// soon as they have credentials.
func TestMachinesOfANewRackAreReadyToBeProvisioned(t *testing.T) {
	w := newTestEnv(t)
	d := w.discover("rack", []int{1, 2}, func(s *metal3v1.BareMetalHostDiscoverySpec) {
		s.HostTemplate.Labels = map[string]metal3v1.TemplateValue{"memory": "${int(hardware.ramMebibytes) / 1024}Gi"}
	})
	for _, i := range []int{1, 2} {
		h := w.untilDiscovered(d, i)
		assert.Equal(t, "64Gi", h.Labels["memory"])
		assert.Len(t, h.Status.HardwareDetails.NIC, 2)
		w.untilHandedOver(h, metal3v1.ReasonWaitingForCredentials)
		w.giveCredentials(h)
		w.untilReleased(h)
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		w.refresh(c, d)
		assert.EqualValues(c, 2, d.Status.Counts.Hosts)
		assert.True(c, meta.IsStatusConditionTrue(d.Status.Conditions, metal3v1.ConditionReady))
		hardware := &metal3v1.HardwareDataList{}
		require.NoError(c, w.admin.List(w.ctx, hardware, client.InNamespace(w.namespace)))
		assert.Len(c, hardware.Items, 2, "each host has its hardware, which the operator has the right to write")
	}, moment, interval)
}

// A user approves each machine before anything may be written to its disks.
func TestAMachineIsReviewedBeforeItIsProvisioned(t *testing.T) {
	w := newTestEnv(t)
	d := w.discover("reviewed", []int{3}, func(s *metal3v1.BareMetalHostDiscoverySpec) { s.Approval = metal3v1.ApprovalManual })
	h := w.untilDiscovered(d, 3)
	w.giveCredentials(h)
	w.untilHandedOver(h, metal3v1.ReasonWaitingForApproval)
	assert.Contains(t, h.Annotations, metal3v1.PausedAnnotation, "credentials alone do not release it")
	w.update(h, func() { h.Annotations[metal3v1.ApprovedAnnotation] = "true" })
	w.untilReleased(h)
}

// A machine breaks. Its host is deleted, the one that stands in for it is taken in without registration, and no user can give the
// same machine to two hosts meanwhile.
func TestAFaultyMachineIsReplaced(t *testing.T) {
	w := newTestEnv(t)
	d := w.discover("spare", []int{4, 5}, func(s *metal3v1.BareMetalHostDiscoverySpec) { s.RateLimit.MaxHosts = new(int32(1)) })
	var faulty *metal3v1.BareMetalHost
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		w.refresh(c, d)
		require.Len(c, d.Status.Machines, 1)
		assert.Equal(c, metal3v1.RefusedMaxHosts, d.Status.Machines[0].Reason)
	}, patience, interval, "the spare machine does not show")
	faulty = w.untilDiscovered(d, 4)

	twin := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "twin"}}
	twin.Spec = metal3v1.BareMetalHostSpec{Online: true, BootMACAddress: strings.ToUpper(faulty.Spec.BootMACAddress)}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		err := w.admin.Create(w.ctx, twin.DeepCopy())
		if err == nil { // the API server does not call the check yet
			require.NoError(c, w.admin.Delete(w.ctx, twin.DeepCopy()))
		}
		require.True(c, apierrors.IsForbidden(err), "%v", err)
		assert.ErrorContains(c, err, faulty.Namespace+"/"+faulty.Name)
	}, moment, interval, "a second host of the same machine is not refused")

	require.NoError(t, w.admin.Delete(w.ctx, faulty))
	w.untilGone(faulty, moment)
	w.untilDiscovered(d, 5)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		w.refresh(c, d)
		assert.EqualValues(c, 1, d.Status.Counts.Hosts)
		assert.Empty(c, d.Status.Machines, "the node of the faulty machine went with its host")
	}, moment, interval)
}
