// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/pool-operator/internal/claimplan"
)

func TestNeighboursSeeWhatIsBeingAssigned(t *testing.T) {
	r := newReservations()
	seen := func(version string) string {
		w := claimplan.Waiter{UID: "a"}
		r.apply(&w, version)
		return w.Namespace
	}
	require.True(t, r.take("a", "x"))
	require.True(t, r.take("a", "x"), "again is fine")
	require.False(t, r.take("b", "x"), "a neighbour has it")
	require.Equal(t, "x", seen("5"), "before it is written")
	r.written("a", "7")
	require.Equal(t, "x", seen("6"), "before a cache shows it")
	require.Empty(t, seen("7"), "the cache shows it")
	require.True(t, r.take("b", "x"), "the cache shows the assignment, so the reservation is dropped")

	require.True(t, r.take("a", "y"))
	require.True(t, r.take("a", "z"))
	require.True(t, r.take("c", "y"), "a claim has one cluster")
	r.release("a")
	require.Empty(t, seen("1"))
	require.True(t, r.take("d", "z"))
}
