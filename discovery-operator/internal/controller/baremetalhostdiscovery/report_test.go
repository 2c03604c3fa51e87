// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhostdiscovery

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/events"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// TestARestartRepeatsNoEvents has a process without memory, whose predecessor reported two machines, of which the status names one.
func TestARestartRepeatsNoEvents(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	r := New(Deps{Recorder: recorder, Counter: crashing{}})
	o := &observation{discovery: &metal3v1.BareMetalHostDiscovery{}, memory: &memory{refused: map[string]string{}}}
	o.discovery.Status.Reasons = []metal3v1.ReasonCount{{Reason: metal3v1.RefusedDuplicateSerial, Count: 2}}
	o.discovery.Status.Machines = []metal3v1.MachineReport{{Node: "a", Reason: metal3v1.RefusedDuplicateSerial}}
	refused := func(nodes ...string) (d inventory.Decision) {
		for _, node := range nodes {
			d.Verdicts = append(d.Verdicts, inventory.Verdict{Node: node, Reason: metal3v1.RefusedDuplicateSerial, Message: "Twin."})
		}
		return d
	}
	r.tell(t.Context(), o, refused("a", "b"))
	assert.Empty(t, recorder.Events)
	r.tell(t.Context(), o, refused("a", "b", "c"))
	assert.Len(t, recorder.Events, 1, "the new one is reported")
	r.tell(t.Context(), o, refused("a", "b", "c"))
	assert.Len(t, recorder.Events, 1)
}

func TestASummaryIsASentence(t *testing.T) {
	for want, status := range map[string]metal3v1.BareMetalHostDiscoveryStatus{
		"1 host made, 0 machines wait, 0 machines are refused.": {Counts: metal3v1.DiscoveryCounts{Hosts: 1}},
		"2 hosts made, 1 machine waits, 3 machines are refused (DuplicateSerial 3, WaitingForRate 1).": {
			Counts:  metal3v1.DiscoveryCounts{Hosts: 2, Waiting: 1, Refused: 3},
			Reasons: []metal3v1.ReasonCount{{Reason: metal3v1.RefusedDuplicateSerial, Count: 3}, {Reason: metal3v1.WaitingForRate, Count: 1}},
		},
		"0 hosts made, 2 machines wait, 1 machine is refused, 1 host has lost its node.": {
			Counts: metal3v1.DiscoveryCounts{Waiting: 2, Refused: 1, Lost: 1}},
	} {
		assert.Equal(t, want, summary(&status))
	}
}

func TestHardwareDataWaitsForTheFirstReading(t *testing.T) {
	r := New(Deps{Counter: crashing{}}) // there is no API server: what asks it panics
	o := &observation{memory: &memory{looked: true, lacking: []inventory.Host{{}}}}
	after, err := r.hardwareData(t.Context(), o, inventory.Decision{Counts: metal3v1.DiscoveryCounts{Nodes: 2, Read: 1}})
	require.NoError(t, err)
	assert.Zero(t, after)
	assert.False(t, o.memory.looked, "hosts that are made meanwhile are seen")
}
