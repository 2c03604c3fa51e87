// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bindfirst lets MachinePools bind and release machines before other controllers follow up.
//
// A bind is one write, and some seven others follow from it: statuses of the Agent, of its cluster and of its pool. When many pools are
// made at once, the API server would serve those of the first pools before the binds of the last. What follows waits, and then tells of
// several changes with one write.
package bindfirst

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// longest is how long pools go first, and turn for how long what follows is then done beside them, however many pools there are.
	longest = 10 * time.Second
	turn    = time.Second
	// linger is how long after a bind the next one is expected.
	linger = 20 * time.Millisecond
	// again is how soon a request that waits is tried again.
	again = 200 * time.Millisecond
)

// Order knows whether pools bind machines at the moment. Several goroutines may use it.
type Order struct {
	// Clock tells the time; required.
	Clock clock.PassiveClock

	mu sync.Mutex
	// binding is how many pools bind machines now; began is since when some do without a pause, ended when the last one was done.
	binding      int
	began, ended time.Time
}

// Begin says that a pool binds or releases machines until done is called.
func (o *Order) Begin() (done func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := o.Clock.Now(); o.binding == 0 && now.Sub(o.ended) > linger { // a pause
		o.began = now
	}
	o.binding++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.binding--
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
	case o.binding > 0:
		return again
	default:
		return max(0, o.ended.Add(linger).Sub(now))
	}
}

// After returns a reconciler whose requests wait while pools bind machines.
func After[Request comparable](o *Order, next reconcile.TypedReconciler[Request]) reconcile.TypedReconciler[Request] {
	return reconcile.TypedFunc[Request](func(ctx context.Context, request Request) (reconcile.Result, error) {
		if wait := o.Wait(); wait > 0 {
			return reconcile.Result{RequeueAfter: wait}, nil
		}
		return next.Reconcile(ctx, request)
	})
}
