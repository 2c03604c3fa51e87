// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package coalesce_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/coalesce"
)

func TestCallersShareTheCallThatBeginsAfterTheyAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var group coalesce.Group[string, int64]
		var calls atomic.Int64
		proceed := make(chan struct{})
		ask := func(context.Context) (int64, error) {
			n := calls.Add(1)
			<-proceed
			return n, nil
		}
		answers := make(chan int64, 10)
		begin := func(ctx context.Context, key string) {
			go func() {
				if n, err := group.Do(ctx, key, ask); err == nil {
					answers <- n
				}
			}()
			synctest.Wait()
		}
		begin(t.Context(), "a")
		leaves, leave := context.WithCancel(t.Context())
		begin(leaves, "a")
		begin(t.Context(), "a")
		begin(t.Context(), "a")
		require.Equal(t, int64(1), calls.Load(), "the others wait for the next call")
		leave()
		synctest.Wait()
		proceed <- struct{}{}
		assert.Equal(t, int64(1), <-answers)
		synctest.Wait()
		require.Equal(t, int64(2), calls.Load(), "the caller that left takes the call from no other")
		begin(t.Context(), "b")
		require.Equal(t, int64(3), calls.Load(), "other keys do not wait")
		close(proceed)
		synctest.Wait()
		got := []int64{<-answers, <-answers, <-answers}
		assert.ElementsMatch(t, []int64{2, 2, 3}, got)
		assert.Empty(t, answers)
		begin(t.Context(), "a")
		assert.Equal(t, int64(4), <-answers, "nothing is kept")
	})
}

func TestErrorsAndPanicsAreAnswers(t *testing.T) {
	var group coalesce.Group[int, int]
	away := errors.New("away")
	_, err := group.Do(t.Context(), 1, func(context.Context) (int, error) { return 0, away })
	require.ErrorIs(t, err, away)
	_, err = group.Do(t.Context(), 1, func(context.Context) (int, error) { panic("broken") })
	require.ErrorContains(t, err, "broken")
	n, err := group.Do(t.Context(), 1, func(context.Context) (int, error) { return 7, nil })
	require.NoError(t, err)
	assert.Equal(t, 7, n)
}
