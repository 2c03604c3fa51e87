// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package changes carries wake-ups from a runtime of hosted clusters to the controller that observes them.
package changes

import (
	"context"
	"sync"

	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// Changes carries wake-ups from a runtime to the controller of its clusters. Adding never blocks and loses nothing: what is not yet
// taken is a set, so a cluster that changes a hundred times costs one wake-up. It is safe for concurrent use; one taker at a time.
type Changes struct {
	mu      sync.Mutex
	pending map[provision.ClusterRef]struct{}
	signal  chan struct{}
}

// New returns an empty set of changes.
func New() *Changes {
	return &Changes{pending: map[provision.ClusterRef]struct{}{}, signal: make(chan struct{}, 1)}
}

// Add says that something about the cluster may have changed and is worth an observation.
func (c *Changes) Add(ref provision.ClusterRef) {
	c.mu.Lock()
	c.pending[ref] = struct{}{}
	c.mu.Unlock()
	select {
	case c.signal <- struct{}{}:
	default: // a signal that has not been taken yet covers this change too
	}
}

// Wait returns the clusters that changed since the last call, at least one, in no particular order. The error is that of ctx.
func (c *Changes) Wait(ctx context.Context) ([]provision.ClusterRef, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.signal:
		}
		if refs := c.take(); len(refs) > 0 {
			return refs, nil
		}
	}
}

func (c *Changes) take() []provision.ClusterRef {
	c.mu.Lock()
	defer c.mu.Unlock()
	refs := make([]provision.ClusterRef, 0, len(c.pending))
	for ref := range c.pending {
		refs = append(refs, ref)
	}
	clear(c.pending)
	return refs
}
