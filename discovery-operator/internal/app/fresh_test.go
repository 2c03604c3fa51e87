// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
)

// TestOneLostNodeIsReported deletes a node behind the operator's back, and has its machine report again.
func TestOneLostNodeIsReported(t *testing.T) {
	w := newTestEnv(t)
	lost, _ := w.enrol(1), w.enrol(2)
	w.operate()
	d := w.discover("all")
	h := w.host("node-00001")
	seen := h.Annotations[metal3v1.LastSeenAnnotation]
	require.NotEmpty(t, seen)
	w.host("node-00002")
	require.NoError(t, w.rack.DeleteNode(t.Context(), lost))
	present := func() *metav1.Condition {
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(h), h))
		return meta.FindStatusCondition(h.Status.Conditions, metal3v1.ConditionNodePresent)
	}
	w.eventually("the host says so", func() bool { c := present(); return c != nil && c.Status == metav1.ConditionFalse })
	assert.Contains(t, present().Message, lost)
	w.hasEvent(h, metal3v1.ReasonNodeGone, lost)
	w.status(d, "the resource counts it", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool {
		c := meta.FindStatusCondition(s.Conditions, metal3v1.ConditionReady)
		return s.Counts.Lost == 1 && c.Status == metav1.ConditionTrue && strings.Contains(c.Message, "1 host has lost its node")
	})
	assert.Equal(t, metal3v1.ReasonWaitingForCredentials, meta.FindStatusCondition(h.Status.Conditions, metal3v1.ConditionHandedOver).Reason)

	back := w.enrol(1)
	w.eventually("the host has the new node", func() bool {
		return present() == nil && h.Status.Provisioning.ID == back && h.Annotations[metal3v1.NodeAnnotation] == back
	})
	w.status(d, "none is lost", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool { return s.Counts.Lost == 0 })
}

// TestHardwareIsReadAgain inspects the machine of a held host in Ironic, after more memory was put in.
func TestHardwareIsReadAgain(t *testing.T) {
	w := newTestEnv(t)
	uuid := w.enrol(1)
	w.operate()
	w.discover("all")
	h := w.host("node-00001")
	w.eventually("it has HardwareData, which goes with it", func() bool {
		var hd metal3v1.HardwareData
		return w.Get(t.Context(), client.ObjectKeyFromObject(h), &hd) == nil && metav1.IsControlledBy(&hd, h) &&
			assert.ObjectsAreEqual(h.Status.HardwareDetails, hd.Spec.HardwareDetails)
	})
	at := time.Now().Add(time.Minute).UTC()
	more := demo.Machine(1, func(m map[string]any) { m["memory"] = map[string]any{"physical_mb": 128 << 10} })
	require.NoError(t, w.rack.Reinspect(uuid, more, at))
	w.eventually("the host has the memory", func() bool {
		return w.Get(t.Context(), client.ObjectKeyFromObject(h), h) == nil && h.Status.HardwareDetails.RAMMebibytes == 128<<10
	})
	w.eventually("and says when its machine reported", func() bool {
		return w.Get(t.Context(), client.ObjectKeyFromObject(h), h) == nil && h.Annotations[metal3v1.LastSeenAnnotation] == at.Format(time.RFC3339)
	})
	w.hasEvent(h, metal3v1.EventHardwareUpdated, "")
	w.eventually("so does its HardwareData", func() bool {
		var hd metal3v1.HardwareData
		return w.Get(t.Context(), client.ObjectKeyFromObject(h), &hd) == nil && hd.Spec.HardwareDetails.RAMMebibytes == 128<<10
	})
	w.stays("it is written once", func() bool {
		var now metal3v1.BareMetalHost
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(h), &now))
		return now.ResourceVersion == h.ResourceVersion
	}, 2*time.Second)
}
