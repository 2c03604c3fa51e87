// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

type claims struct{ idle chan struct{} }

func (c claims) Idle() <-chan struct{} { return c.idle }

func TestClaimsThatAreBeingServedGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := claims{make(chan struct{})}
		r := New(Deps{Claims: busy})
		took := func(r *Reconciler, p *pass) time.Duration {
			started := time.Now()
			r.yield(t.Context(), p)
			return time.Since(started)
		}
		first := &pass{}
		require.Equal(t, longestYield, took(r, first), "a pool that fills is not held up for ever")
		require.Zero(t, took(r, first), "a pass waits once")
		time.AfterFunc(300*time.Millisecond, func() { close(busy.idle) })
		second := &pass{}
		require.Equal(t, 300*time.Millisecond, took(r, second))
		require.Zero(t, took(r, second))
		require.Zero(t, took(New(Deps{}), &pass{}), "without claims a pool does not wait")
	})
}

func TestACreationThatStepsAsideLeavesItsWriterToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := claims{make(chan struct{})}
		r := New(Deps{Claims: busy, Writers: 1})
		r.free <- struct{}{}
		resumed := false
		go func() {
			r.yieldWriter(t.Context(), &pass{})
			resumed = true
			<-r.free
		}()
		synctest.Wait()
		r.free <- struct{}{}
		close(busy.idle)
		synctest.Wait()
		require.False(t, resumed, "the other one has the writer")
		<-r.free
		synctest.Wait()
		require.True(t, resumed)
	})
}
