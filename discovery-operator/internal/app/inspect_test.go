// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/faultinject"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

func TestAHostIsInspectedAgainOnRequest(t *testing.T) {
	w := newTestEnv(t)
	uuid, h, _ := w.available()
	t.Run("without credentials it is not, and says so", func(t *testing.T) {
		w.patch(h, again)
		w.says(h, metal3v1.ConditionPowerControl, metal3v1.ReasonInspectionNotPossible)
		assert.Equal(t, metal3v1.StateAvailable, h.Status.Provisioning.State)
		assert.Empty(t, h.Status.ErrorMessage)
		assert.Zero(t, w.rack.Inspections(uuid))
	})
	t.Run("with credentials it is, once, and the annotation goes", func(t *testing.T) {
		w.credentials(h, redfish, true)
		w.is(h, "it was inspected", func() bool {
			return !h.InspectionRequested() && h.Status.PoweredOn && h.Status.Provisioning.State == metal3v1.StateAvailable
		})
		assert.Equal(t, 1, w.rack.Inspections(uuid))
		assert.NotNil(t, h.Status.OperationHistory.Inspect.End)
	})
	t.Run("where inspection is disabled it is not", func(t *testing.T) {
		w.patch(h, `{"spec":{"inspectionMode":"disabled"},"metadata":{"annotations":{"inspect.metal3.io":""}}}`)
		w.is(h, "the operator has seen that", func() bool { return h.Status.Conditions[0].ObservedGeneration == h.Generation })
		assert.Equal(t, metal3v1.StateAvailable, h.Status.Provisioning.State)
		assert.Equal(t, 1, w.rack.Inspections(uuid))
	})
}

// TestANodeIsToldHowItsMachineBoots registers a host with boot mode and network data of the ramdisk, and inspects it after both have changed.
func TestANodeIsToldHowItsMachineBoots(t *testing.T) {
	w := newTestEnv(t)
	uuid, h, _ := w.available()
	w.patch(h, `{"spec":{"bootMode":"UEFI","preprovisioningNetworkDataName":"network"}}`)
	w.credentials(h, redfish, true)
	w.says(h, metal3v1.ConditionReady, metal3v1.ReasonConfigUnusable)
	assert.True(t, w.tells(h, "there is no Secret network"), h.Status.Conditions)
	assert.Equal(t, metal3v1.RegistrationError, h.Status.ErrorType)
	node := func() hoststate.Node {
		n, err := w.rack.Managed(t.Context(), uuid)
		require.NoError(t, err)
		return n
	}
	w.configure("network", "networkData", "links: [{id: eth0}]\n")
	w.patch(h, `{"metadata":{"annotations":{"inspect.metal3.io":""}},"spec":{"description":"now"}}`)
	inspected := func() bool { return !h.InspectionRequested() && h.Status.Provisioning.State == metal3v1.StateAvailable }
	w.is(h, "it was inspected", inspected)
	assert.Empty(t, h.Status.ErrorType)
	assert.Equal(t, map[string]any{"links": []any{map[string]any{"id": "eth0"}}}, node().Network)
	assert.Equal(t, map[string]any{"capabilities": "boot_mode:uefi", "cpu_arch": "x86_64"}, node().Properties)

	w.patch(h, `{"metadata":{"annotations":{"inspect.metal3.io":""}},"spec":{"bootMode":"legacy"}}`)
	w.is(h, "it was inspected again", inspected)
	assert.Equal(t, "boot_mode:bios", node().Properties["capabilities"])
}

// TestADeathAtEveryChangeOfAnInspection kills the operator after each change at the API server or in Ironic in an inspection, and in a
// deletion while another one is under way. Another process continues, after Ironic has done what it was asked for: the machine is
// inspected once, and a deletion ends the next one.
func TestADeathAtEveryChangeOfAnInspection(t *testing.T) { diesAtEveryChange(t, inspectAndDie) }

func inspectAndDie(t *testing.T, f *faultinject.Injector) {
	w := newSerialTestEnv(t)
	uuid := w.enrol(1)
	stop := w.operate(managing)
	w.discover("all")
	h := w.host("node-00001")
	w.credentials(h, redfish, true)
	w.is(h, "the machine is on", func() bool { return h.Status.PoweredOn && h.Status.Provisioning.State == metal3v1.StateAvailable })
	stop()
	w.patch(h, again)
	until := w.crashes(f, func() {
		for node, err := w.rack.Managed(t.Context(), uuid); err == nil && node.Busy(); node, err = w.rack.Managed(t.Context(), uuid) {
		}
	}, managing)
	see := func() bool { return w.Get(t.Context(), client.ObjectKeyFromObject(h), h) == nil }
	until("it was inspected", func() bool {
		return see() && !h.InspectionRequested() && h.Status.Provisioning.State == metal3v1.StateAvailable && h.Status.PoweredOn
	})
	assert.Equal(t, 1, w.rack.Inspections(uuid), "it was inspected once")
	assert.Empty(t, h.Status.ErrorType)
	w.patch(h, again)
	until("it is being inspected again", func() bool { return w.rack.Inspections(uuid) == 2 })
	require.NoError(t, w.Delete(t.Context(), h))
	until("the host is gone", func() bool { return !see() })
	_, err := w.rack.Managed(t.Context(), uuid)
	require.ErrorIs(t, err, inventory.ErrNotFound)
}
