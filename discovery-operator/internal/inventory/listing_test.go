// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// listing plays the object store: it applies what a pass decides.
type listing struct {
	present map[string]inventory.Listed
	waits   map[string]time.Time
	writes  int
}

func (l *listing) pass(at time.Time, verdicts []inventory.Verdict) inventory.Listing {
	d := inventory.List(at, verdicts, l.present, l.waits)
	if l.present == nil {
		l.present = map[string]inventory.Listed{}
	}
	for _, m := range d.Write {
		l.present[m.Node] = m
	}
	for _, node := range d.Remove {
		delete(l.present, node)
	}
	l.waits, l.writes = d.Waits, l.writes+len(d.Write)+len(d.Remove)
	return d
}

func verdicts(n int, reason string, waiting bool) []inventory.Verdict {
	out := make([]inventory.Verdict, n)
	for i := range out {
		out[i] = inventory.Verdict{Node: fmt.Sprintf("node-%05d", i), Reason: reason, Waiting: waiting}
	}
	return out
}

func TestEveryRefusedMachineIsListedInBoundedPasses(t *testing.T) {
	const fleet, bound = 10_000, 250
	l := &listing{}
	all := verdicts(fleet, metal3v1.RefusedDuplicateSerial, false)
	passes := 0
	for {
		passes++
		d := l.pass(now, all)
		require.LessOrEqual(t, len(d.Write)+len(d.Remove), bound)
		if d.RequeueAfter == 0 {
			break
		}
	}
	assert.Len(t, l.present, fleet)
	assert.Equal(t, fleet/bound, passes)
	assert.Equal(t, fleet, l.writes)

	d := l.pass(now.Add(time.Hour), all)
	assert.Empty(t, d.Write, "without changes there are no writes")
	assert.Zero(t, d.RequeueAfter)
	for range fleet / bound {
		l.pass(now, nil)
	}
	assert.Empty(t, l.present, "machines that became hosts, or went, are listed no more")
}

func TestAMachineThatWaitsForAMomentIsNotListed(t *testing.T) {
	l := &listing{}
	reading := verdicts(3, metal3v1.WaitingForReading, true)
	d := l.pass(now, reading)
	assert.Empty(t, d.Write)
	assert.Equal(t, 5*time.Minute, d.RequeueAfter)
	d = l.pass(now.Add(time.Minute), verdicts(3, metal3v1.WaitingForCreation, true))
	assert.Empty(t, d.Write)
	assert.Equal(t, 4*time.Minute, d.RequeueAfter, "it waits since it was first seen, whatever the reason")
	d = l.pass(now.Add(5*time.Minute), verdicts(2, metal3v1.WaitingForRate, true))
	require.Len(t, d.Write, 2)
	assert.Equal(t, now, d.Write[0].Since)
	assert.Empty(t, l.waits)
}

func TestAMachineThatWaitsForAUserIsListedAtOnce(t *testing.T) {
	for _, reason := range []string{metal3v1.WaitingForName, metal3v1.WaitingForResume, metal3v1.WaitingForDryRunEnd} {
		assert.Len(t, (&listing{}).pass(now, verdicts(1, reason, true)).Write, 1, reason)
	}
}

func TestAnotherReasonIsWrittenWithItsOwnTime(t *testing.T) {
	l := &listing{}
	l.pass(now, verdicts(1, metal3v1.RefusedDuplicateSerial, false))
	later := now.Add(time.Hour)
	d := l.pass(later, verdicts(1, metal3v1.RefusedMaxHosts, false))
	require.Len(t, d.Write, 1)
	assert.Equal(t, later, d.Write[0].Since)
	d = l.pass(later.Add(time.Hour), []inventory.Verdict{{Node: "node-00000", Reason: metal3v1.RefusedMaxHosts, Message: "now 7"}})
	require.Len(t, d.Write, 1)
	assert.Equal(t, later, d.Write[0].Since, "the same reason in other words is as old as it was")
}

// TestARestartLeavesTheListAsItIs has a process that has not read the inventories yet for whose sake another one listed machines.
func TestARestartLeavesTheListAsItIs(t *testing.T) {
	l := &listing{}
	l.pass(now, verdicts(3, metal3v1.RefusedDuplicateSerial, false))
	l.waits = nil
	d := l.pass(now.Add(time.Second), verdicts(3, metal3v1.WaitingForReading, true))
	assert.Empty(t, d.Write)
	assert.Empty(t, d.Remove)
	assert.Len(t, l.present, 3)
}
