// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/discovery-operator/internal/fleet"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// paged is a rack that lists page by page.
type paged struct {
	*counted
	// before is called before each page of nodes, with the marker.
	before func(after string) error
	limits []int
}

func (s *paged) NodesPage(ctx context.Context, after string, limit int) ([]inventory.Node, bool, error) {
	if s.before != nil {
		if err := s.before(after); err != nil {
			return nil, false, err
		}
	}
	s.limits = append(s.limits, limit)
	rows, err := s.Nodes(ctx, after)
	return rows[:min(limit, len(rows))], len(rows) > limit, err
}

func (s *paged) PortsPage(ctx context.Context, after string, limit int) ([]inventory.Port, bool, error) {
	rows, err := s.Ports(ctx, after)
	return rows[:min(limit, len(rows))], len(rows) > limit, err
}

// ports are those of a machine.
func ports(v *fleet.View, uuid string) (macs []string) {
	for _, m := range v.Machines() {
		if m.Node.UUID == uuid {
			for _, p := range m.Ports {
				macs = append(macs, p.MAC)
			}
		}
	}
	return macs
}

// TestTheFirstMachinesAreSeenWhileOthersAreListed reads a fleet for the first time, and again.
func TestTheFirstMachinesAreSeenWhileOthersAreListed(t *testing.T) {
	const machines = 1500
	s := &paged{counted: newCounted()}
	var uuids []string
	for i := range machines {
		uuids = append(uuids, enrol(t, s.counted, i+1))
	}
	p := fleet.NewPoller(func() {}, nil)
	v := p.Open(fleet.Session{Connect: leads(s)}, usual)
	var seen []int
	s.before = func(string) error {
		seen = append(seen, len(v.Machines()))
		if h := v.Health(); len(seen) > 1 {
			assert.True(t, h.Polled && h.Partial && h.Err == nil)
			assert.Len(t, ports(v, uuids[0]), 2)
			assert.Len(t, ports(v, uuids[seen[1]-1]), 2, "also the last one has its ports")
		}
		return nil
	}
	p.Poll(t.Context())
	assert.Equal(t, []int{0, 200, 1200}, seen)
	assert.Equal(t, []int{200, 1000, 1000}, s.limits)
	require.Len(t, v.Machines(), machines)
	assert.False(t, v.Health().Partial)
	assert.True(t, v.Health().Full)
	for _, uuid := range uuids {
		require.Len(t, ports(v, uuid), 2)
	}
	s.taken()
	seen = nil
	p.Poll(t.Context())
	assert.Equal(t, map[string]int{"nodes": 1, "ports": 1}, s.taken(), "news are read at once")
	assert.Empty(t, seen)
}

// TestAFirstReadingThatFailsBeginsAgain loses Ironic after the first page, and a node until it is back.
func TestAFirstReadingThatFailsBeginsAgain(t *testing.T) {
	const machines = 500
	s := &paged{counted: newCounted()}
	var uuids []string
	for i := range machines {
		uuids = append(uuids, enrol(t, s.counted, i+1))
	}
	p := fleet.NewPoller(func() {}, nil)
	v := p.Open(fleet.Session{Connect: leads(s)}, usual)
	s.before = func(after string) error {
		if after != "" {
			return inventory.Failf(inventory.ProblemUnreachable, "down")
		}
		return nil
	}
	p.Poll(t.Context())
	assert.Len(t, v.Machines(), 200)
	assert.True(t, v.Health().Partial)
	require.Error(t, v.Health().Err)
	require.NoError(t, s.DeleteNode(t.Context(), uuids[0]))
	s.before = nil
	p.Poll(t.Context())
	require.NoError(t, v.Health().Err)
	assert.False(t, v.Health().Partial)
	assert.Len(t, v.Machines(), machines-1, "the node that went is not in the mirror")
	assert.Len(t, ports(v, uuids[machines-1]), 2)
}

// TestAnAnswerThatIsYoungerThanAListStays reads a report while a fleet is listed.
func TestAnAnswerThatIsYoungerThanAListStays(t *testing.T) {
	s := &paged{counted: newCounted()}
	var uuids []string
	for i := range 300 {
		uuids = append(uuids, enrol(t, s.counted, i+1))
	}
	p := fleet.NewPoller(func() {}, nil)
	v := p.Open(fleet.Session{Connect: leads(s)}, usual)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	defer func() { cancel(); <-done }()
	first := func() *inventory.Machine {
		i := slices.IndexFunc(v.Machines(), func(m *inventory.Machine) bool { return m.Node.UUID == uuids[0] })
		return v.Machines()[i]
	}
	var read time.Time
	s.before = func(after string) error {
		if after != "" {
			v.Want(uuids[0])
			assert.Eventually(t, func() bool { return first().Report != nil }, time.Minute, time.Millisecond)
			read = first().Seen
		}
		return nil
	}
	go func() { defer close(done); p.Run(ctx) }()
	require.Eventually(t, func() bool { return len(v.Machines()) == 300 && !v.Health().Partial }, time.Minute, time.Millisecond)
	assert.Equal(t, read, first().Seen)
	assert.NotNil(t, first().Report)
}
