// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/fleet"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// requestTime is how long a request to Ironic may take, unless its context ends before.
const requestTime = 30 * time.Second

// outage is an Ironic that is away for some time, and refuses connections or never answers the requests that it gets meanwhile.
type outage struct {
	*demo.Rack
	from, to time.Time
	silent   bool
}

func (o *outage) answer(ctx context.Context) error {
	if now := time.Now(); now.Before(o.from) || !now.Before(o.to) {
		return nil
	}
	if !o.silent {
		return inventory.Failf(inventory.ProblemUnreachable, "connection refused")
	}
	select {
	case <-ctx.Done():
	case <-time.After(requestTime):
	}
	return inventory.Failf(inventory.ProblemTimedOut, "no answer in time")
}

func (o *outage) Nodes(ctx context.Context, after string) ([]inventory.Node, error) {
	if err := o.answer(ctx); err != nil {
		return nil, err
	}
	return o.Rack.Nodes(ctx, after)
}

func (o *outage) Enter(ctx context.Context) error { return o.answer(ctx) }

// running lets a poller read a source as often as operators do, until the test ends.
func running(t *testing.T, from fleet.Source) *fleet.View {
	t.Helper()
	p := fleet.NewPoller(func() {}, nil)
	v := p.Open(fleet.Session{Connect: leads(from)}, fleet.Pace{News: 10 * time.Second, Full: 15 * time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return v
}

// TestAnIronicThatReturnsIsReadWithin15Seconds has outages of many lengths, because the return may come at any moment between two requests.
func TestAnIronicThatReturnsIsReadWithin15Seconds(t *testing.T) {
	for name, silent := range map[string]bool{"it refuses connections": false, "it never answers": true} {
		for _, long := range []time.Duration{requestTime, 5 * time.Minute, 2 * time.Hour} {
			for offset := range 20 {
				synctest.Test(t, func(t *testing.T) {
					began := time.Now().Add(time.Minute)
					o := &outage{Rack: demo.New(), from: began, to: began.Add(long + time.Duration(offset)*time.Second + time.Second), silent: silent}
					v := running(t, o)
					<-time.After(time.Until(o.to) - time.Millisecond)
					require.Error(t, v.Health().Err, "%s: %s", name, o.to.Sub(o.from))
					<-time.After(15*time.Second + time.Millisecond)
					require.NoError(t, v.Health().Err, "%s: %s", name, o.to.Sub(o.from))
				})
			}
		}
	}
}

// late is an Ironic that needs most of the time of a request for each answer, and until some time more than that.
type late struct {
	*demo.Rack
	to time.Time
}

func (l late) answer(ctx context.Context) error {
	takes := requestTime - 2*time.Second
	if time.Now().Before(l.to) {
		takes = requestTime
	}
	select {
	case <-ctx.Done():
	case <-time.After(takes):
		if takes < requestTime {
			return nil
		}
	}
	return inventory.Failf(inventory.ProblemTimedOut, "no answer in time")
}

func (l late) Nodes(ctx context.Context, after string) ([]inventory.Node, error) {
	if err := l.answer(ctx); err != nil {
		return nil, err
	}
	return l.Rack.Nodes(ctx, after)
}

func (l late) Enter(ctx context.Context) error { return l.answer(ctx) }

func TestASlowIronicIsReadAgainAfterItWasAway(t *testing.T) {
	for _, away := range []time.Duration{time.Second, 5 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			v := running(t, late{demo.New(), time.Now().Add(away)})
			<-time.After(max(away, requestTime) + time.Second)
			require.Error(t, v.Health().Err, away)
			<-time.After(4 * time.Minute)
			require.NoError(t, v.Health().Err, away)
		})
	}
}

// overloaded is an Ironic that answers small questions and no large ones.
type overloaded struct{ *counted }

func (o overloaded) Nodes(ctx context.Context, _ string) ([]inventory.Node, error) {
	_ = o.count("nodes")
	select {
	case <-ctx.Done():
	case <-time.After(requestTime):
	}
	return nil, inventory.Failf(inventory.ProblemTimedOut, "no answer in time")
}

func TestAnIronicWithTooMuchToDoIsAskedLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := overloaded{newCounted()}
		running(t, o)
		<-time.After(time.Hour)
		asked := o.taken()
		assert.Less(t, asked["nodes"], 35, "each two and a half minutes in the end, and more often at first")
		assert.Greater(t, asked["nodes"], 15)
		assert.LessOrEqual(t, asked["enter"], asked["nodes"])
	})
}
