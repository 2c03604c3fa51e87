// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
)

// TestATemplateCarriesWhatUsersSetByHand makes hosts with a full template. One that a rule approves is handed over without input by a user; the
// other waits for approval, and an event says who approved it.
func TestATemplateCarriesWhatUsersSetByHand(t *testing.T) {
	w := newTestEnv(t)
	w.enrol(1)
	w.enrol(2)
	w.operate()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "rack-bmc"}}
	secret.Data = map[string][]byte{"username": []byte("admin"), "password": []byte("secret")}
	require.NoError(t, w.Create(t.Context(), secret))
	dry := w.discover("all", func(d *metal3v1.BareMetalHostDiscovery) {
		d.Spec.Mode, d.Spec.Approval, d.Spec.ApprovalRule = metal3v1.ModeDryRun, metal3v1.ApprovalManual, "hardware.hostname == 'node-00001'"
		d.Spec.HostTemplate = metal3v1.HostTemplate{
			Online: new(false), BootMode: "UEFI", AutomatedCleaningMode: "disabled", RootDeviceHints: &metal3v1.RootDeviceHints{DeviceName: "/dev/sda"},
			Taints: []metal3v1.Taint{{Key: "k", Value: "v", Effect: "NoSchedule"}},
			BMC:    &metal3v1.BMCTemplate{Address: "ipmi://${bmcAddress}", CredentialsName: "rack-bmc"},
		}
	})
	w.status(dry, "the hosts that would be made are listed", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool {
		return len(s.Machines) == 2 && s.Machines[0].Reason == metal3v1.WaitingForDryRunEnd && s.Machines[0].Name == "node-00001"
	})
	assert.Empty(t, w.hosts())
	w.patch(dry, `{"spec":{"mode":"Discover"}}`)

	first := w.host("node-00001")
	assert.False(t, first.Spec.Online)
	assert.Equal(t, "UEFI", first.Spec.BootMode)
	assert.Equal(t, "disabled", first.Spec.AutomatedCleaningMode)
	assert.Equal(t, "/dev/sda", first.Spec.RootDeviceHints.DeviceName)
	assert.Equal(t, []metal3v1.Taint{{Key: "k", Value: "v", Effect: "NoSchedule"}}, first.Spec.Taints)
	assert.Equal(t, &metal3v1.BMCDetails{Address: "ipmi://172.0.0.1", CredentialsName: "rack-bmc"}, first.Spec.BMC)
	w.hasEvent(first, metal3v1.EventHostApproved, "approvalRule")
	w.released(first)

	second := w.host("node-00002")
	w.handedOver(second, metal3v1.ReasonWaitingForApproval)
	w.approveAs("jane", second)
	w.released(second)
	w.hasEvent(second, metal3v1.EventHostApproved, "jane")
}

// TestATemplateChoosesCredentialsByMachine has a Secret by selector, one by MAC prefix and one for the rest, and follows all to the hand-over.
func TestATemplateChoosesCredentialsByMachine(t *testing.T) {
	w := newTestEnv(t)
	for i := range 3 {
		w.enrol(i + 1)
	}
	for _, name := range []string{"usual", "by-selector", "by-prefix"} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
		secret.Data = map[string][]byte{"username": []byte("admin"), "password": []byte("secret")}
		require.NoError(t, w.Create(t.Context(), secret))
	}
	w.operate()
	w.discover("all", func(d *metal3v1.BareMetalHostDiscovery) {
		d.Spec.HostTemplate.BMC = &metal3v1.BMCTemplate{
			Address: "ipmi://${bmcAddress}", CredentialsName: "usual", Credentials: []metal3v1.BMCCredentials{
				{Selector: "hardware.hostname == 'node-00001'", CredentialsName: "by-selector"},
				{MACPrefix: demo.MAC(2, 0), CredentialsName: "by-prefix"},
			},
		}
	})
	for i, secret := range []string{"by-selector", "by-prefix", "usual"} {
		h := w.machine(i + 1)
		assert.Equal(t, secret, h.Spec.BMC.CredentialsName)
		w.released(h)
	}
}

// TestATemplateMakesInstalledMachinesHosts has machines that something else installed: a rule approves one, and a user another.
func TestATemplateMakesInstalledMachinesHosts(t *testing.T) {
	w := newTestEnv(t)
	w.enrol(1)
	w.enrol(2)
	w.operate(managing)
	installed := func(d *metal3v1.BareMetalHostDiscovery) { d.Spec.HostTemplate.ExternallyProvisioned = true }
	d := &metal3v1.BareMetalHostDiscovery{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "automatic"}}
	d.Spec.ResourceNameTemplate = metal3v1.ResourceNameTemplate{HardwareDetails: metal3v1.DetailHostname}
	installed(d)
	err := w.Create(t.Context(), d)
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	require.ErrorContains(t, err, "needs approval: Manual")

	w.discover("all", installed, func(d *metal3v1.BareMetalHostDiscovery) {
		d.Spec.Approval, d.Spec.ApprovalRule = metal3v1.ApprovalManual, "hardware.hostname == 'node-00001'"
	})
	first, second := w.machine(1), w.machine(2)
	assert.True(t, first.Spec.ExternallyProvisioned)
	w.reaches(first, metal3v1.StateExternallyProvisioned)
	w.is(second, "it waits for approval", func() bool { return second.Labels[metal3v1.ApprovalLabel] == "pending" })
	assert.NotEqual(t, metal3v1.StateExternallyProvisioned, second.Status.Provisioning.State)
	w.approveAs("jane", second)
	w.reaches(second, metal3v1.StateExternallyProvisioned)
}

// TestManyHostsAreApprovedByOneRule has hosts that wait for approval, then a rule for all but one of them. The last one has no credentials, and is approved by a user.
func TestManyHostsAreApprovedByOneRule(t *testing.T) {
	w := newTestEnv(t)
	const machines = 12
	for i := range machines {
		w.enrol(i + 1)
	}
	stop := w.operate()
	d := w.discover("all", func(d *metal3v1.BareMetalHostDiscovery) { d.Spec.Approval = metal3v1.ApprovalManual })
	for i := range machines {
		w.handedOver(w.machine(i+1), metal3v1.ReasonWaitingForApproval)
	}
	w.patch(d, `{"spec":{"approvalRule":"hardware.hostname != 'node-00012'"}}`)
	for i := range machines - 1 {
		h := w.machine(i + 1)
		w.is(h, "the rule approves it", func() bool { return h.Labels[metal3v1.ApprovalLabel] == "approved" })
		w.handedOver(h, metal3v1.ReasonWaitingForCredentials)
	}
	w.hasEvent(w.machine(1), metal3v1.EventHostApproved, "spec.approvalRule")
	last := w.machine(machines)
	w.handedOver(last, metal3v1.ReasonWaitingForApproval)
	w.approveAs("jane", last)
	w.is(last, "it is approved before it has credentials", func() bool { return last.Labels[metal3v1.ApprovalLabel] == "approved" })
	w.hasEvent(last, metal3v1.EventHostApproved, "field manager jane")

	stop()
	w.patch(d, `{"spec":{"approvalRule":"hardware.hostname == 'none'"}}`)
	w.enrol(machines + 1)
	w.operate(managing)
	managed := w.machine(machines + 1)
	w.is(managed, "it waits for approval", func() bool {
		return managed.Labels[metal3v1.ApprovalLabel] == "pending" && len(managed.Status.Conditions) > 0
	})
	w.approveAs("joe", managed)
	w.hasEvent(managed, metal3v1.EventHostApproved, "field manager joe")
	w.is(managed, "it is approved", func() bool { return managed.Labels[metal3v1.ApprovalLabel] == "approved" })
}

// approveAs approves a host as a client with a name.
func (w *testEnv) approveAs(manager string, h *metal3v1.BareMetalHost) {
	w.Helper()
	require.NoError(w, w.Patch(w.Context(), h, client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"annotations":{"`+metal3v1.ApprovedAnnotation+`":"true"}}}`)), client.FieldOwner(manager)))
}
