// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package precedence_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/muster-io/muster/agent-service/internal/controller/precedence"
)

// follower counts the requests that it is given.
type follower struct {
	served int
	after  reconcile.TypedReconciler[string]
}

func newFollower(order *precedence.Order) *follower {
	f := &follower{}
	f.after = precedence.Yield[string](order, reconcile.TypedFunc[string](func(context.Context, string) (reconcile.Result, error) {
		f.served++
		return reconcile.Result{}, nil
	}), func(_ context.Context, request string) bool { return request == "first" })
	return f
}

// serve tries a request until it is served, as a queue does, and returns how long that took.
func (f *follower) serve(t *testing.T) time.Duration {
	began, before := time.Now(), f.served
	for f.served == before {
		result, err := f.after.Reconcile(t.Context(), "agent")
		require.NoError(t, err)
		<-time.After(result.RequeueAfter)
	}
	return time.Since(began)
}

func TestWhatGoesFirstDoesNotWaitForOthersThatDo(t *testing.T) {
	order := &precedence.Order{Clock: clock.RealClock{}}
	defer order.Begin()()
	f := newFollower(order)
	result, err := f.after.Reconcile(t.Context(), "first")
	require.NoError(t, err)
	assert.Zero(t, result)
	assert.Equal(t, 1, f.served)
}

func TestWithoutPoolsThatBindNothingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		assert.Zero(t, newFollower(&precedence.Order{Clock: clock.RealClock{}}).serve(t))
	})
}

func TestWhatFollowsWaitsUntilThePoolHasBoundItsMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		order := &precedence.Order{Clock: clock.RealClock{}}
		first, second := order.Begin(), order.Begin()
		time.AfterFunc(800*time.Millisecond, first)
		time.AfterFunc(1600*time.Millisecond, second)
		took := newFollower(order).serve(t)
		assert.GreaterOrEqual(t, took, 1600*time.Millisecond)
		assert.Less(t, took, 2*time.Second)
	})
}

func TestOthersDoNotWaitForARequestThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		order := &precedence.Order{Clock: clock.RealClock{}}
		defer order.Begin()()
		f := newFollower(order)
		assert.Less(t, f.serve(t), 1500*time.Millisecond)
		assert.Zero(t, f.serve(t), "as long as it hangs")
	})
}

func TestPoolsThatBindWithoutAPauseDoNotKeepOthersForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		order := &precedence.Order{Clock: clock.RealClock{}}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for ctx.Err() == nil {
				done := order.Begin()
				<-time.After(100 * time.Millisecond)
				done()
				<-time.After(10 * time.Millisecond) // the next pool follows before anything is served
			}
		}()
		synctest.Wait()
		f := newFollower(order)
		for range 3 {
			took := f.serve(t)
			assert.Greater(t, took, 8*time.Second)
			assert.Less(t, took, 11*time.Second)
			assert.Zero(t, f.serve(t), "others have their turn")
			<-time.After(time.Second)
		}
		cancel()
		<-time.After(time.Second)
		done := order.Begin()
		time.AfterFunc(500*time.Millisecond, done)
		assert.GreaterOrEqual(t, f.serve(t), 500*time.Millisecond, "after a pause pools go first again")
	})
}
