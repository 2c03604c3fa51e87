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
		require.Equal(t, longestYield, r.yield(t.Context(), longestYield), "a pool that fills is not held up for ever")
		require.Zero(t, r.yield(t.Context(), 0), "a pass waits once")
		time.AfterFunc(300*time.Millisecond, func() { close(busy.idle) })
		require.Equal(t, 300*time.Millisecond, r.yield(t.Context(), longestYield))
		require.Zero(t, r.yield(t.Context(), longestYield))
		require.Zero(t, New(Deps{}).yield(t.Context(), longestYield), "without claims a pool does not wait")
	})
}
