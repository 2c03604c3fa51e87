// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/fleet"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// counted counts the requests for a rack, and fails on request.
type counted struct {
	*demo.Rack
	mu    sync.Mutex
	calls map[string]int
	fail  error
	// hidden nodes are left out of lists.
	hidden map[string]bool
}

func (c *counted) count(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[name]++
	return c.fail
}

func (c *counted) taken() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.calls
	c.calls = map[string]int{}
	return out
}

func (c *counted) Nodes(ctx context.Context, after string) ([]inventory.Node, error) {
	if err := c.count("nodes"); err != nil {
		return nil, err
	}
	all, err := c.Rack.Nodes(ctx, after)
	var out []inventory.Node
	for _, n := range all {
		if !c.hidden[n.UUID] {
			out = append(out, n)
		}
	}
	return out, err
}

func (c *counted) Ports(ctx context.Context, after string) ([]inventory.Port, error) {
	if err := c.count("ports"); err != nil {
		return nil, err
	}
	return c.Rack.Ports(ctx, after)
}

func (c *counted) Node(ctx context.Context, uuid string) (inventory.Node, error) {
	if err := c.count("node"); err != nil {
		return inventory.Node{}, err
	}
	return c.Rack.Node(ctx, uuid)
}

func (c *counted) Report(ctx context.Context, uuid string) (*inventory.Report, error) {
	if err := c.count("report"); err != nil {
		return nil, err
	}
	return c.Rack.Report(ctx, uuid)
}

func (c *counted) Enter(context.Context) error { return c.count("enter") }

// looked is a poller with the view of one of its sessions.
type looked struct {
	*fleet.Poller
	*fleet.View
}

var usual = fleet.Pace{News: time.Second, Full: time.Hour}

func newCounted() *counted {
	return &counted{Rack: demo.New(), calls: map[string]int{}, hidden: map[string]bool{}}
}

func leads(to fleet.Source) fleet.Connect {
	return func(context.Context) (fleet.Source, error) { return to, nil }
}

func setup(t *testing.T) (*counted, looked) {
	t.Helper()
	c := newCounted()
	p := fleet.NewPoller(func() {}, nil)
	return c, looked{p, p.Open(fleet.Session{Connect: leads(c)}, usual)}
}

func enrol(t *testing.T, c *counted, i int, change ...func(map[string]any)) string {
	t.Helper()
	uuid, err := c.Enrol(demo.Machine(i, change...))
	require.NoError(t, err)
	return uuid
}

func TestNewsCostTwoRequests(t *testing.T) {
	c, p := setup(t)
	for i := range 50 {
		enrol(t, c, i+1)
	}
	p.Poll(t.Context())
	assert.Equal(t, map[string]int{"nodes": 1, "ports": 1}, c.taken(), "a reading of everything")
	assert.Len(t, p.Machines(), 50)
	p.Poll(t.Context())
	assert.Equal(t, map[string]int{"nodes": 1, "ports": 1}, c.taken(), "no news")
	enrol(t, c, 51)
	p.Poll(t.Context())
	assert.Equal(t, map[string]int{"nodes": 1, "ports": 1}, c.taken(), "one new")
	machines := p.Machines()
	require.Len(t, machines, 51)
	assert.Len(t, machines[50].Ports, 2)
	assert.False(t, p.Health().Full)
}

func TestAMarkerThatIsGoneMakesEverythingRead(t *testing.T) {
	c, p := setup(t)
	enrol(t, c, 1)
	last := enrol(t, c, 2)
	p.Poll(t.Context())
	require.NoError(t, c.DeleteNode(t.Context(), last))
	p.Poll(t.Context())
	assert.Len(t, p.Machines(), 1)
	assert.True(t, p.Health().Full)
	require.NoError(t, p.Health().Err)
}

// shrinking is an Ironic from which the last node of a page goes before the next page is read.
type shrinking struct {
	*counted
	gone int
}

func (s *shrinking) Nodes(ctx context.Context, after string) ([]inventory.Node, error) {
	if s.gone--; s.gone >= 0 {
		return nil, inventory.Failf(inventory.ProblemNotFound, "Node u could not be found.")
	}
	return s.counted.Nodes(ctx, after)
}

func TestAPageWhoseLastNodeGoesMakesEverythingReadAgain(t *testing.T) {
	s := &shrinking{counted: newCounted(), gone: 1}
	enrol(t, s.counted, 1)
	p := fleet.NewPoller(func() {}, nil)
	v := p.Open(fleet.Session{Connect: leads(s)}, usual)
	p.Poll(t.Context())
	require.NoError(t, v.Health().Err, "the resource does not say that Ironic is broken")
	assert.Len(t, v.Machines(), 1)
	s.gone = 10
	p.Poll(t.Context())
	require.Error(t, v.Health().Err, "what stays so is an error")
	assert.Equal(t, 8, s.gone, "and not asked again and again")
}

func TestANodeThatAListLeavesOutIsNotGone(t *testing.T) {
	c, p := setup(t)
	hidden, last := enrol(t, c, 1), enrol(t, c, 2)
	p.Poll(t.Context())
	c.hidden[hidden] = true
	require.NoError(t, c.DeleteNode(t.Context(), last))
	enrol(t, c, 3)
	p.Poll(t.Context())
	var uuids []string
	for _, m := range p.Machines() {
		uuids = append(uuids, m.Node.UUID)
	}
	assert.Contains(t, uuids, hidden)
	assert.NotContains(t, uuids, last)
}

func TestANodeWithoutInventoryIsGoneWhenIronicDoesNotKnowIt(t *testing.T) {
	c, p := setup(t)
	kept, deleted := enrol(t, c, 1, func(m map[string]any) { m["hostname"] = demo.MarkNoInventory }), enrol(t, c, 2)
	p.Poll(t.Context())
	require.Len(t, p.Machines(), 2)
	require.NoError(t, c.DeleteNode(t.Context(), deleted))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { p.Run(ctx); close(ended) }()
	p.Want(kept)
	p.Want(deleted)
	require.Eventually(t, func() bool { m := p.Machines(); return len(m) == 1 && !m[0].Missing.IsZero() }, 60*time.Second, time.Millisecond)
	assert.Equal(t, kept, p.Machines()[0].Node.UUID)
	cancel()
	<-ended
}

func TestAnErrorChangesNothingButTheHealth(t *testing.T) {
	c, p := setup(t)
	enrol(t, c, 1)
	p.Poll(t.Context())
	c.fail = inventory.Failf(inventory.ProblemUnreachable, "down")
	first := p.Poll(t.Context())
	for range 20 {
		p.Poll(t.Context())
	}
	last := p.Poll(t.Context())
	assert.Greater(t, last, first, "it is asked less and less often")
	assert.LessOrEqual(t, last, 133*time.Second)
	assert.Len(t, p.Machines(), 1)
	require.Error(t, p.Health().Err)
	c.fail = nil
	assert.Equal(t, time.Second, p.Poll(t.Context()))
	require.NoError(t, p.Health().Err)
}

func TestReportsAreReadForWantedMachinesOnly(t *testing.T) {
	c, p := setup(t)
	wanted, other := enrol(t, c, 1), enrol(t, c, 2)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	defer func() { cancel(); <-done }()
	require.Eventually(t, func() bool { return len(p.Machines()) == 2 }, 10*time.Second, time.Millisecond)
	p.Want(wanted)
	find := func(uuid string) *inventory.Machine {
		for _, m := range p.Machines() {
			if m.Node.UUID == uuid {
				return m
			}
		}
		return nil
	}
	require.Eventually(t, func() bool { return find(wanted).Report != nil }, 10*time.Second, time.Millisecond)
	assert.Nil(t, find(other).Report)
	p.Drop(wanted)
	assert.Nil(t, find(wanted).Report)
	assert.Equal(t, demo.MAC(1, 0), find(wanted).BootMAC, "it is known which machine it was")
	assert.Equal(t, 1, c.taken()["report"])
}

func TestOnePollerPerEndpointWhileItHasUsers(t *testing.T) {
	r := fleet.NewRegistry(nil)
	use := func(name, key, session string) *fleet.View {
		return r.Use(name, key, key, fleet.Session{Key: session, Connect: func(context.Context) (fleet.Source, error) { return nil, errors.New("no server") }},
			fleet.Pace{News: time.Minute, Full: time.Hour}, func() {})
	}
	use("a", "one", "x")
	use("b", "one", "x")
	use("c", "one", "y")
	assert.Equal(t, 1, r.Len(), "whatever credentials they use")
	use("d", "two", "x")
	assert.Equal(t, 2, r.Len())
	for _, name := range []string{"a", "b", "c"} {
		use(name, "two", "x")
	}
	assert.Equal(t, 1, r.Len(), "the first one has no users any more")
	for _, name := range []string{"a", "b", "c", "d"} {
		r.Release(name)
	}
	assert.Zero(t, r.Len())
}

func TestAnEmptyIronicIsNoNews(t *testing.T) {
	_, p := setup(t)
	p.Poll(t.Context())
	first := p.Health()
	assert.True(t, first.Full)
	p.Poll(t.Context())
	p.Poll(t.Context())
	assert.Equal(t, first.Changed, p.Health().Changed, "a poll without news does not change the health")
}

// TestANodeThatWentWhileItsMachineWaitedLeavesTheMirror reads a report, which waits, and then looks whether the node is still there.
func TestANodeThatWentWhileItsMachineWaitedLeavesTheMirror(t *testing.T) {
	c, p := setup(t)
	kept, deleted := enrol(t, c, 1), enrol(t, c, 2)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	defer func() { cancel(); <-done }()
	require.Eventually(t, func() bool { return len(p.Machines()) == 2 }, time.Minute, time.Millisecond)
	p.Want(kept)
	p.Want(deleted)
	read := func() bool { m := p.Machines(); return len(m) == 2 && m[0].Report != nil && m[1].Report != nil }
	require.Eventually(t, read, time.Minute, time.Millisecond)
	seen := p.Machines()[0].Seen
	require.NoError(t, c.DeleteNode(t.Context(), deleted))
	require.NoError(t, c.SetDriver(t.Context(), kept, "redfish"))
	p.Confirm(kept)
	p.Confirm(deleted)
	require.Eventually(t, func() bool { m := p.Machines(); return len(m) == 1 && m[0].Seen.After(seen) }, time.Minute, time.Millisecond)
	assert.Equal(t, kept, p.Machines()[0].Node.UUID)
	assert.NotNil(t, p.Machines()[0].Report, "a report is read once")
	assert.Equal(t, "redfish", p.Machines()[0].Node.Driver, "and the answer is in the mirror")
}
