// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/discovery-operator/internal/fleet"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// entrance is one set of credentials, on the way to a rack.
type entrance struct {
	*counted
	refused atomic.Bool
}

func (e *entrance) refuse() error {
	if e.refused.Load() {
		return inventory.Failf(inventory.ProblemCredentials, "wrong password")
	}
	return nil
}

func (e *entrance) Nodes(ctx context.Context, after string) ([]inventory.Node, error) {
	if err := e.refuse(); err != nil {
		return nil, err
	}
	return e.counted.Nodes(ctx, after)
}

func (e *entrance) Enter(ctx context.Context) error {
	_ = e.counted.Enter(ctx)
	return e.refuse()
}

func refused(t *testing.T, v *fleet.View, what string) {
	t.Helper()
	assert.Empty(t, v.Machines(), what)
	require.ErrorIs(t, v.Health().Err, &inventory.EndpointError{Problem: inventory.ProblemCredentials}, what)
	assert.Empty(t, v.Health().Version, what)
}

func sees(t *testing.T, v *fleet.View, machines int, what string) {
	t.Helper()
	require.NoError(t, v.Health().Err, what)
	assert.True(t, v.Health().Polled, what)
	assert.Len(t, v.Machines(), machines, what)
}

func TestManySessionsCostNoMorePollsThanOne(t *testing.T) {
	c := newCounted()
	enrol(t, c, 1)
	p := fleet.NewPoller(func() {}, nil)
	views := make([]*fleet.View, 0, 10)
	for i := range 10 {
		views = append(views, p.Open(fleet.Session{Key: string(rune('a' + i)), Connect: leads(&entrance{counted: c})}, usual))
	}
	for _, v := range views {
		assert.False(t, v.Health().Polled)
		assert.Empty(t, v.Machines())
	}
	p.Poll(t.Context())
	assert.Equal(t, map[string]int{"nodes": 1, "ports": 1, "enter": 9}, c.taken(), "each set of credentials is tried once")
	for _, v := range views {
		sees(t, v, 1, "an accepted session sees the machines")
	}
	p.Poll(t.Context())
	assert.Equal(t, map[string]int{"nodes": 1, "ports": 1}, c.taken(), "no news")
}

func TestASessionWithRefusedCredentialsSeesNoMachines(t *testing.T) {
	c := newCounted()
	enrol(t, c, 1)
	p := fleet.NewPoller(func() {}, nil)
	right, wrong := &entrance{counted: c}, &entrance{counted: c}
	wrong.refused.Store(true)
	// The wrong one stands first in the row.
	outside, inside := p.Open(fleet.Session{Key: "a", Connect: leads(wrong)}, usual), p.Open(fleet.Session{Key: "b", Connect: leads(right)}, usual)
	for range 3 {
		p.Poll(t.Context())
		sees(t, inside, 1, "one that works is found")
		refused(t, outside, "the other is not")
	}
	t.Run("credentials that are corrected are tried at once", func(t *testing.T) {
		p := fleet.NewPoller(func() {}, nil)
		source := atomic.Pointer[entrance]{}
		source.Store(right)
		p.Open(fleet.Session{Key: "b", Connect: leads(right)}, usual)
		changing := p.Open(fleet.Session{Key: "c", Connect: func(context.Context) (fleet.Source, error) { return source.Load(), nil }}, usual)
		p.Poll(t.Context())
		sees(t, changing, 1, "right")
		source.Store(wrong)
		p.Poll(t.Context())
		refused(t, changing, "changed to wrong ones")
	})
	t.Run("credentials that are taken away are seen when everything is read", func(t *testing.T) {
		p := fleet.NewPoller(func() {}, nil)
		other := &entrance{counted: c}
		p.Open(fleet.Session{Key: "b", Connect: leads(right)}, fleet.Pace{News: time.Second, Full: time.Nanosecond})
		v := p.Open(fleet.Session{Key: "c", Connect: leads(other)}, fleet.Pace{News: time.Second, Full: time.Nanosecond})
		p.Poll(t.Context())
		sees(t, v, 1, "right")
		other.refused.Store(true)
		p.Poll(t.Context())
		refused(t, v, "taken away")
		other.refused.Store(false)
		p.Poll(t.Context())
		sees(t, v, 1, "given again")
	})
	t.Run("the poll goes on through another session", func(t *testing.T) {
		right.refused.Store(true)
		wrong.refused.Store(false)
		p.Poll(t.Context())
		refused(t, inside, "now this one is wrong")
		sees(t, outside, 1, "and that one right")
		wrong.refused.Store(true)
		p.Poll(t.Context())
		refused(t, inside, "both are wrong")
		refused(t, outside, "both are wrong")
		right.refused.Store(false)
		wrong.refused.Store(false)
		p.Poll(t.Context())
		sees(t, inside, 1, "both are right")
		sees(t, outside, 1, "both are right")
	})
}

// TestUnverifiedResultsAreNotShownToVerifyingSessions reads through a session that verifies no certificate, until one is there that does.
func TestUnverifiedResultsAreNotShownToVerifyingSessions(t *testing.T) {
	foreign, own := newCounted(), newCounted()
	enrol(t, foreign, 1)
	enrol(t, foreign, 2)
	enrol(t, own, 3)
	strict := &entrance{counted: own}
	strict.refused.Store(true)
	p := fleet.NewPoller(func() {}, nil)
	trusting := p.Open(fleet.Session{Key: "a", Unverified: true, Connect: leads(foreign)}, usual)
	careful := p.Open(fleet.Session{Key: "b", Connect: leads(strict)}, fleet.Pace{News: time.Nanosecond, Full: time.Hour})
	p.Poll(t.Context())
	sees(t, trusting, 2, "an unverified server is believed")
	refused(t, careful, "the one behind the certificate refuses")
	strict.refused.Store(false)
	require.Eventually(t, func() bool {
		p.Poll(t.Context())
		machines := careful.Machines()
		for _, m := range machines {
			_, err := own.Rack.Node(t.Context(), m.Node.UUID)
			require.NoError(t, err, "only what came from the right one")
		}
		return len(machines) == 1
	}, time.Minute, time.Millisecond)
	sees(t, trusting, 1, "this is better for all")
}

func TestASessionWithoutUsersEnds(t *testing.T) {
	c := newCounted()
	enrol(t, c, 1)
	r := fleet.NewRegistry(nil)
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { defer close(done); _ = r.Start(ctx) }()
	defer func() { cancel(); <-done }()
	use := func(name, session string) *fleet.View {
		return r.Use(name, "one", "one", fleet.Session{Key: session, Connect: leads(&entrance{counted: c})}, usual, func() {})
	}
	a, b := use("a", "x"), use("b", "y")
	visible := func(v *fleet.View) func() bool { return func() bool { return len(v.Machines()) == 1 } }
	require.Eventually(t, visible(a), time.Minute, time.Millisecond)
	require.Eventually(t, visible(b), time.Minute, time.Millisecond, "a new session is tried soon")
	use("b", "x")
	assert.Empty(t, b.Machines(), "its last user went to another one")
	assert.Len(t, a.Machines(), 1)
}
