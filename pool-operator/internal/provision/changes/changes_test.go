// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package changes_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/pool-operator/internal/provision"
	"github.com/muster-io/muster/pool-operator/internal/provision/changes"
)

func TestChangesAreASetThatNeverBlocks(t *testing.T) {
	pending := changes.New()
	a, b := provision.ClusterRef{Name: "a"}, provision.ClusterRef{Name: "b"}
	for range 1000 { // no reader takes them, and Add does not block
		pending.Add(a)
		pending.Add(b)
	}
	refs, err := pending.Wait(t.Context())
	require.NoError(t, err)
	assert.ElementsMatch(t, []provision.ClusterRef{a, b}, refs)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = pending.Wait(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestNoChangeIsLost(t *testing.T) {
	pending := changes.New()
	const count = 500
	var group sync.WaitGroup
	for n := range count {
		group.Go(func() { pending.Add(provision.ClusterRef{Name: fmt.Sprint(n)}) })
	}
	seen := map[provision.ClusterRef]bool{}
	for len(seen) < count {
		refs, err := pending.Wait(t.Context())
		require.NoError(t, err)
		for _, ref := range refs {
			seen[ref] = true
		}
	}
	group.Wait()
}
