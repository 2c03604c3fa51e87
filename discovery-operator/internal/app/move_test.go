// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
)

// TestAStatusMovesWithItsHost pauses a host as tools do that move objects between clusters, removes it, and makes it anew as they do: without status.
func TestAStatusMovesWithItsHost(t *testing.T) {
	w := newTestEnv(t)
	uuid := w.enrol(1)
	stop := w.operate(managing)
	d := w.discover("all")
	h := w.host("node-00001")
	w.reaches(h, metal3v1.StateAvailable)
	w.patch(h, `{"metadata":{"annotations":{"baremetalhost.metal3.io/paused":"metal3.io/capm3"}}}`)
	w.is(h, "its status stands in its annotation", func() bool { return h.Annotations[metal3v1.StatusAnnotation] != "" })
	version := h.ResourceVersion
	w.stays("it is written once", func() bool {
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(h), h))
		return h.ResourceVersion == version
	}, 2*time.Second)
	stop()

	require.NoError(t, w.Delete(t.Context(), d))
	w.patch(h, `{"metadata":{"finalizers":null}}`)
	require.NoError(t, w.Delete(t.Context(), h))
	w.gone(h)
	moved := &metal3v1.BareMetalHost{}
	moved.Namespace, moved.Name, moved.Labels, moved.Spec = h.Namespace, h.Name, h.Labels, h.Spec
	moved.Annotations = map[string]string{metal3v1.StatusAnnotation: h.Annotations[metal3v1.StatusAnnotation]}
	require.NoError(t, w.Create(t.Context(), moved))
	w.operate(managing)
	w.is(moved, "the status is the one that it had", func() bool {
		return moved.Status.Provisioning.State == metal3v1.StateAvailable && moved.Status.Provisioning.ID == uuid && moved.Status.HardwareDetails != nil
	})
	assert.Equal(t, h.Status.HardwareDetails, moved.Status.HardwareDetails)
	w.is(moved, "and the annotation is gone", func() bool { return moved.Annotations[metal3v1.StatusAnnotation] == "" })

	t.Run("an annotation that is no status stays, and an event says why", func(t *testing.T) {
		odd := w.register("odd", 2, func(h *metal3v1.BareMetalHost) {
			h.Annotations = map[string]string{metal3v1.StatusAnnotation: `{"operationalStatus":"OK","colour":"red"}`}
		})
		w.hasEvent(odd, "InvalidAnnotationValue", "colour")
		w.is(odd, "the host begins its life", func() bool { return odd.HasStatus() })
		assert.NotEmpty(t, odd.Annotations[metal3v1.StatusAnnotation])
	})
	t.Run("a host in use waits for an annotation that can be used: it would be deployed over what its machine runs", func(t *testing.T) {
		odd := w.register("used", 3, func(h *metal3v1.BareMetalHost) {
			h.Spec.Online, h.Spec.Image = true, &metal3v1.Image{URL: "http://images/a.qcow2", Checksum: sum, ChecksumType: "sha256"}
			h.Annotations = map[string]string{metal3v1.StatusAnnotation: `{"operationalStatus":"OK","provisioning":{"state":"provisioned","colour":"red"}}`}
		})
		c := w.says(odd, metal3v1.ConditionReady, metal3v1.ReasonStatusNotRestored)
		assert.Contains(t, c.Message, "colour")
		w.stays("it does not begin its life", func() bool {
			require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(odd), odd))
			return !odd.HasStatus() && odd.Status.Provisioning.State == metal3v1.StateNone && len(odd.Finalizers) == 0
		}, 2*time.Second)
		data := &metal3v1.HardwareData{Spec: metal3v1.HardwareDataSpec{HardwareDetails: &metal3v1.HardwareDetails{Hostname: "moved"}}}
		data.Namespace, data.Name = odd.Namespace, odd.Name
		require.NoError(t, w.Create(t.Context(), data))
		w.patch(odd, `{"metadata":{"annotations":{"baremetalhost.metal3.io/status":"{\"operationalStatus\":\"OK\",\"provisioning\":{\"state\":\"provisioned\",\"image\":{\"url\":\"http://images/a.qcow2\"}}}"}}}`)
		w.is(odd, "it goes on once the annotation is corrected", func() bool {
			return odd.Status.Provisioning.State == metal3v1.StateProvisioned && odd.Status.ErrorType == "" && odd.Status.ErrorMessage == "" && odd.Annotations[metal3v1.StatusAnnotation] == ""
		})
		require.NotNil(t, odd.Status.HardwareDetails, "what Cluster API's provider leaves out of the annotation is in HardwareData")
		assert.Equal(t, "moved", odd.Status.HardwareDetails.Hostname)
	})
}

// TestAHostThatIsMovedAwayKeepsItsMachine deletes hosts as "clusterctl move" does when it has made them in another cluster: it replaces all annotations by its mark, a pause among
// them, deletes the host, and only then takes the finalizers off. Here it is cut off before that.
func TestAHostThatIsMovedAwayKeepsItsMachine(t *testing.T) {
	const mark = `[{"op":"add","path":"/metadata/annotations","value":{"clusterctl.cluster.x-k8s.io/delete-for-move":""}}]`
	cut := func(w *testEnv, h *metal3v1.BareMetalHost) {
		require.NoError(t, w.Patch(t.Context(), h, client.RawPatch(types.JSONPatchType, []byte(mark))))
		require.NoError(t, w.Delete(t.Context(), h))
	}
	t.Run("one that is provisioned", func(t *testing.T) {
		w := newTestEnv(t)
		uuid, h, _ := w.available()
		w.credentials(h, redfish, true)
		w.is(h, "the machine is on", func() bool { return h.Status.PoweredOn })
		w.patch(h, withImage)
		w.reaches(h, metal3v1.StateProvisioned)
		w.patch(h, `{"metadata":{"annotations":{"baremetalhost.metal3.io/paused":"metal3.io/capm3"}}}`)
		_, before, _ := w.rack.Deployed(uuid)
		cut(w, h)
		w.gone(h)
		n, err := w.rack.Managed(t.Context(), uuid)
		require.NoError(t, err, "its node is the other cluster's")
		assert.Equal(t, hoststate.Active, n.State)
		assert.Equal(t, hoststate.PowerOn, n.Power)
		_, cleanings, _ := w.rack.Deployed(uuid)
		assert.Equal(t, before, cleanings, "and its disks are not cleaned")
	})
	t.Run("one that is held for another operator", func(t *testing.T) {
		w := newTestEnv(t)
		uuid := w.enrol(1)
		w.operate()
		w.discover("all")
		h := w.host("node-00001")
		w.is(h, "it is held", func() bool { return h.HasStatus() && h.Annotations[metal3v1.PausedAnnotation] != "" })
		cut(w, h)
		w.gone(h)
		_, err := w.node(uuid)
		require.NoError(t, err)
	})
	t.Run("a move that is repeated leaves no mark on the other side", func(t *testing.T) {
		w := newTestEnv(t)
		w.operate(managing)
		h := w.register("moved", 1, func(h *metal3v1.BareMetalHost) {
			h.Annotations = map[string]string{metal3v1.DeleteForMoveAnnotation: ""}
		})
		w.is(h, "the host begins its life", func() bool {
			_, marked := h.Annotations[metal3v1.DeleteForMoveAnnotation]
			return h.HasStatus() && !marked
		})
	})
}
