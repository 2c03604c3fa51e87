// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package precedence lets controllers do what others wait for before what only says how things are.
//
// A MachinePool binds a machine with one write, and some seven others follow from it: statuses of the Agent, of its cluster and of the pool.
// When many pools are made at once, the API server would serve those of the first pools before the binds of the last. So it would when many
// machines register at once, of which users see nothing before they have an Agent. Later changes wait, and a pass then tells of several changes with
// one write.
package precedence

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// longest is how long some go first, and turn for how long what follows is then done beside them, however many they are.
	longest = 10 * time.Second
	turn    = time.Second
	// linger is how long after one of them the next one is expected.
	linger = 20 * time.Millisecond
	// stalled is for how long one that goes first is waited for: more than that is an API server that hangs, and no crowd.
	stalled = time.Second
	// again is how soon a request that waits is tried again.
	again = 200 * time.Millisecond
)

// Order knows whether something goes first at the moment. Several goroutines may use it.
type Order struct {
	// Clock tells the time; required.
	Clock clock.PassiveClock

	mu sync.Mutex
	// busy is how many go first now; began is since when some do without a pause, ended when the last one was done.
	busy         int
	began, ended time.Time
}

// Begin says that the caller goes first until it calls done.
func (o *Order) Begin() (done func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := o.Clock.Now(); o.busy == 0 && now.Sub(o.ended) > linger { // a pause
		o.began = now
	}
	o.busy++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.busy--
		o.ended = o.Clock.Now()
	}
}

// Wait is how long what follows waits before it asks again, zero where it need not wait.
func (o *Order) Wait() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.Clock.Now()
	switch {
	case now.Sub(o.began)%(longest+turn) >= longest:
		return 0
	case o.busy == 0:
		return max(0, o.ended.Add(linger).Sub(now))
	case now.Sub(o.began) < stalled || now.Sub(o.ended) < stalled:
		return again
	default:
		return 0
	}
}

// Yield returns a reconciler whose requests wait while others go first, but for those that go first themselves: nil means that none does.
func Yield[Request comparable](o *Order, next reconcile.TypedReconciler[Request], first func(ctx context.Context, request Request) bool) reconcile.TypedReconciler[Request] {
	return reconcile.TypedFunc[Request](func(ctx context.Context, request Request) (reconcile.Result, error) {
		if wait := o.Wait(); wait > 0 && (first == nil || !first(ctx, request)) {
			return reconcile.Result{RequeueAfter: wait}, nil
		}
		return next.Reconcile(ctx, request)
	})
}
