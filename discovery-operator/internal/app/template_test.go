// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// TestATemplateCarriesWhatUsersSetByHand makes hosts with a full template. One that a rule approves is handed over without input by a user; the
// other waits for approval, and an event says who approved it.
func TestATemplateCarriesWhatUsersSetByHand(t *testing.T) {
	w := newWorld(t)
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
	w.told(first, metal3v1.EventHostApproved, "approvalRule")
	w.released(first)

	second := w.host("node-00002")
	w.handedOver(second, metal3v1.ReasonWaitingForApproval)
	require.NoError(t, w.Patch(t.Context(), second, client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"annotations":{"`+metal3v1.ApprovedAnnotation+`":"true"}}}`)), client.FieldOwner("jane")))
	w.released(second)
	w.told(second, metal3v1.EventHostApproved, "jane")
}
