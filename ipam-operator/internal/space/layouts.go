// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package space

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

// Layouts reads the spec of every pool once per generation, for all controllers. It is safe for concurrent use.
type Layouts struct {
	strategy ipamv1.AllocationStrategy

	mu    sync.Mutex
	pools map[types.NamespacedName]*parsed
}

// parsed is the layout of one generation of a pool. The first callers that need it wait only for each other.
type parsed struct {
	uid        types.UID
	generation int64
	once       sync.Once
	layout     *allocate.Layout
}

// NewLayouts returns a Layouts that knows no pool. Strategy is the allocation strategy of pools that state none.
func NewLayouts(strategy ipamv1.AllocationStrategy) *Layouts {
	return &Layouts{strategy: strategy, pools: map[types.NamespacedName]*parsed{}}
}

// Of is the layout of a pool as the object states it.
func (l *Layouts) Of(pool *ipamv1.IPPool) *allocate.Layout {
	p := l.entry(pool)
	p.once.Do(func() { p.layout = allocate.Parse(&pool.Spec, l.strategy) })
	return p.layout
}

// entry is what is kept for the generation of a pool. An object without a generation was not read from an API server, and nothing is kept for it, nor for an
// older generation than the one that is known.
func (l *Layouts) entry(pool *ipamv1.IPPool) *parsed {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := client.ObjectKeyFromObject(pool)
	known, ok := l.pools[name]
	if ok && known.uid == pool.UID && known.generation == pool.Generation {
		return known
	}
	p := &parsed{uid: pool.UID, generation: pool.Generation}
	if pool.Generation != 0 && (!ok || known.uid != pool.UID || known.generation < pool.Generation) {
		l.pools[name] = p
	}
	return p
}

// Drop forgets a pool.
func (l *Layouts) Drop(name types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pools, name)
}
