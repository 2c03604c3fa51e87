// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

func (w *testEnv) machines(reason string) map[string]metal3v1.DiscoveredMachine {
	var list metal3v1.DiscoveredMachineList
	assert.NoError(w, w.List(w.Context(), &list, client.InNamespace(w.ns), client.MatchingLabels{metal3v1.ReasonLabel: reason}))
	out := map[string]metal3v1.DiscoveredMachine{}
	for i := range list.Items {
		out[list.Items[i].Spec.Node] = list.Items[i]
	}
	return out
}

// TestEveryMachineThatIsNoHostIsListed has more machines of one serial number than a status explains.
func TestEveryMachineThatIsNoHostIsListed(t *testing.T) {
	w := newTestEnv(t)
	const twins = 40
	twin := func(m map[string]any) { m["system_vendor"] = map[string]any{"serial_number": "TWIN-1"} }
	var last string
	for i := range twins + 1 {
		last = w.enrol(i+1, twin)
	}
	stop := w.operate()
	d := w.discover("all")
	w.status(d, "one twin is a host", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool { return s.Counts.Refused == twins })
	assert.Len(t, d.Status.Machines, 32)
	w.eventually("all others are listed", func() bool { return len(w.machines(metal3v1.RefusedDuplicateSerial)) == twins })
	listed := w.machines(metal3v1.RefusedDuplicateSerial)
	m := listed[last]
	assert.Equal(t, metal3v1.DiscoveredMachineSpec{
		Discovery: "all", Node: last, State: metal3v1.MachineRefused, Reason: metal3v1.RefusedDuplicateSerial,
		Message: m.Spec.Message, Since: m.Spec.Since,
	}, m.Spec)
	assert.Contains(t, m.Spec.Message, "twin-1")
	assert.True(t, metav1.IsControlledBy(&m, d), "it goes with the resource")

	t.Run("another process writes nothing anew", func(t *testing.T) {
		stop()
		w.operate()
		w.status(d, "it has read everything", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool { return s.Counts.Refused == twins })
		w.stays("the list is as it was", func() bool {
			now := w.machines(metal3v1.RefusedDuplicateSerial)
			return len(now) == twins && now[last].ResourceVersion == m.ResourceVersion
		}, 3*time.Second)
	})
	t.Run("a machine whose node goes is listed no more", func(t *testing.T) {
		require.NoError(t, w.rack.DeleteNode(t.Context(), last))
		w.eventually("it is gone from the list", func() bool { return len(w.machines(metal3v1.RefusedDuplicateSerial)) == twins-1 })
	})
	t.Run("machines that become hosts are listed no more", func(t *testing.T) {
		w.patch(d, `{"spec":{"duplicateChecks":{"serialNumber":"Ignore"}}}`)
		w.eventually("the list is empty", func() bool {
			var list metal3v1.DiscoveredMachineList
			return w.List(t.Context(), &list, client.InNamespace(w.ns)) == nil && len(list.Items) == 0
		})
		assert.Len(t, w.hosts(), twins)
	})
}

// TestADryRunListsEveryHostThatWouldBeMade shows the names.
func TestADryRunListsEveryHostThatWouldBeMade(t *testing.T) {
	w := newTestEnv(t)
	uuid := w.enrol(1)
	w.operate()
	w.discover("dry", func(d *metal3v1.BareMetalHostDiscovery) { d.Spec.Mode = metal3v1.ModeDryRun })
	w.eventually("it is listed", func() bool { return len(w.machines(metal3v1.WaitingForDryRunEnd)) == 1 })
	m := w.machines(metal3v1.WaitingForDryRunEnd)[uuid]
	assert.Equal(t, metal3v1.MachineWaiting, m.Spec.State)
	assert.Equal(t, "node-00001", m.Spec.HostName)
	assert.NotEmpty(t, m.Spec.BootMAC)
}
