// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package externalipam

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/space"
)

// stuck is how long an event may take on a busy machine before a test gives up.
const stuck = time.Minute

// answers is an inventory whose answers a test decides about, by pool. A question without a function is answered with nothing taken.
type answers struct {
	mu    sync.Mutex
	pools map[string]func(ctx context.Context) string
	asked chan string
}

// ServeHTTP implements http.Handler.
func (a *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pool := r.URL.Query().Get("pool")
	a.mu.Lock()
	answer := a.pools[pool]
	a.mu.Unlock()
	a.asked <- pool
	text := `{"addresses":[]}`
	if answer != nil {
		text = answer(r.Context())
	}
	_, _ = w.Write([]byte(text))
}

func (a *answers) next(t *testing.T) string {
	t.Helper()
	select {
	case pool := <-a.asked:
		return pool
	case <-time.After(stuck):
		require.Fail(t, "the inventory is not asked")
		return ""
	}
}

// hangs answers when the request is given up.
func hangs(ctx context.Context) string {
	<-ctx.Done()
	return ""
}

// newFollower returns a Follower of an inventory, whose requests never time out, and a channel that gets the pools of which something else is known.
func newFollower(t *testing.T, a *answers, clock clock.WithTicker, pools ...string) (*Follower, chan string) {
	t.Helper()
	a.asked = make(chan string, 100)
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	c := NewClient(server.URL, "", func(string, error) {})
	c.http.Timeout = 0
	index, changed := space.New(), make(chan string, 100)
	for _, pool := range pools {
		spec := &ipamv1.IPPoolSpec{NamePrefix: pool, Pools: []ipamv1.Pool{{Subnet: new(ipamv1.IPSubnetStr("10.0.0.0/24"))}}}
		index.SetPool(types.NamespacedName{Name: pool}, allocate.Parse(spec, ipamv1.SequentialAllocation))
	}
	return New(Deps{
		Client: c, Index: index, Clock: clock, Interval: time.Minute, Freed: func(types.NamespacedName, map[netip.Addr]bool) {},
		Changed: func(_ context.Context, pool types.NamespacedName) { changed <- pool.Name },
	}), changed
}

// run starts a Follower until the test ends, and returns when its ticker is there.
func run(t *testing.T, f *Follower, clock tickingClock) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		assert.NoError(t, f.Start(ctx))
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	select {
	case <-clock.made:
	case <-time.After(stuck):
		require.Fail(t, "there is no ticker")
	}
}

// tickingClock reports that its ticker was made.
type tickingClock struct {
	*clocktesting.FakeClock
	made chan struct{}
}

// NewTicker implements clock.WithTicker.
func (c tickingClock) NewTicker(d time.Duration) clock.Ticker {
	defer close(c.made)
	return c.FakeClock.NewTicker(d)
}

// TestANewPoolIsAskedAboutWhileARoundHangs lets a round hang at the first of three pools, and a claim wait for another one.
func TestANewPoolIsAskedAboutWhileARoundHangs(t *testing.T) {
	a := &answers{pools: map[string]func(context.Context) string{
		"new": func(context.Context) string { return `{"addresses":["10.0.0.7"]}` },
	}}
	for i := range 3 {
		a.pools[fmt.Sprintf("p%d", i)] = hangs
	}
	clock := tickingClock{clocktesting.NewFakeClock(time.Unix(0, 0)), make(chan struct{})}
	f, changed := newFollower(t, a, clock, "p0", "p1", "p2", "new")
	f.Selects = func(_ context.Context, pool types.NamespacedName) bool { return pool.Name != "new" }
	run(t, f, clock)
	clock.Step(f.Interval)
	require.NotEqual(t, "new", a.next(t), "a round has begun")

	pool := types.NamespacedName{Name: "new"}
	require.NotZero(t, f.Wait(pool))
	select {
	case got := <-changed:
		assert.Equal(t, "new", got)
	case <-time.After(stuck):
		require.Fail(t, "the claim waits for pools that it does not name")
	}
	assert.Zero(t, f.Wait(pool))
	assert.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.0.0.7/32")}, f.Index.External(pool))
}

// TestALateAnswerDoesNotReplaceANewerOne answers the first question after the second one.
func TestALateAnswerDoesNotReplaceANewerOne(t *testing.T) {
	release := make(chan struct{})
	a := &answers{pools: map[string]func(context.Context) string{"p": func(context.Context) string {
		<-release
		return `{"addresses":[]}`
	}}}
	f, _ := newFollower(t, a, clocktesting.NewFakeClock(time.Unix(0, 0)), "p")
	pool := types.NamespacedName{Name: "p"}
	late := make(chan struct{})
	go func() {
		defer close(late)
		f.follow(t.Context(), pool)
	}()
	a.next(t)
	a.mu.Lock()
	a.pools["p"] = func(context.Context) string { return `{"addresses":["10.0.0.7"]}` }
	a.mu.Unlock()
	f.follow(t.Context(), pool)
	close(release)
	<-late
	assert.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.0.0.7/32")}, f.Index.External(pool))
}

// TestAnAnswerWithoutAddressesChangesNothing answers with success and something else than the contract says.
func TestAnAnswerWithoutAddressesChangesNothing(t *testing.T) {
	answer := ""
	a := &answers{pools: map[string]func(context.Context) string{"p": func(context.Context) string { return answer }}}
	f, _ := newFollower(t, a, clocktesting.NewFakeClock(time.Unix(0, 0)), "p")
	pool, known := types.NamespacedName{Name: "p"}, []netip.Prefix{netip.MustParsePrefix("10.0.0.7/32")}
	for _, answer = range []string{`{"addresses":["10.0.0.7"]}`, `{}`, `{"error":"no such pool"}`, `null`, `{"addresses":null}`, `[]`, ``} {
		f.follow(t.Context(), pool)
		require.Equal(t, known, f.Index.External(pool), answer)
	}
	answer = `{"addresses":[]}`
	f.follow(t.Context(), pool)
	assert.Empty(t, f.Index.External(pool))
}

// TestARoundAsksAboutPoolsThatAreServed has a pool of another instance, and one of another instance that a claim of this one waits for.
func TestARoundAsksAboutPoolsThatAreServed(t *testing.T) {
	a := &answers{}
	f, _ := newFollower(t, a, clocktesting.NewFakeClock(time.Unix(0, 0)), "ours", "theirs", "wanted")
	f.Selects = func(_ context.Context, pool types.NamespacedName) bool { return pool.Name == "ours" }
	f.Wait(types.NamespacedName{Name: "wanted"})
	f.round(t.Context())
	assert.ElementsMatch(t, []string{"ours", "wanted"}, []string{a.next(t), a.next(t)})
	assert.Empty(t, a.asked)
}
