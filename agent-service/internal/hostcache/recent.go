// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"sync"
	"sync/atomic"
)

// Recent keeps objects that were read since they changed last.
type Recent[T any] struct {
	// disconnected is set while changes of other replicas are not known: nothing is kept then.
	disconnected *atomic.Bool
	mu           sync.Mutex
	objects      map[string]*T
	// epoch grows with each change: what was read before it is not kept.
	epoch int64
}

// NewRecent returns an empty cache, which keeps nothing while disconnected is set.
func NewRecent[T any](disconnected *atomic.Bool) *Recent[T] {
	return &Recent[T]{disconnected: disconnected, objects: map[string]*T{}}
}

// Get returns an object from memory, or reads it. It is not to be changed.
func (r *Recent[T]) Get(id string, read func() (*T, error)) (*T, error) {
	if r.disconnected.Load() {
		return read()
	}
	r.mu.Lock()
	object, epoch := r.objects[id], r.epoch
	r.mu.Unlock()
	if object != nil {
		return object, nil
	}
	object, err := read()
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.epoch == epoch {
		r.objects[id] = object
	}
	return object, nil
}

// Known is an object that is in memory, or nil.
func (r *Recent[T]) Known(id string) *T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.objects[id]
}

// Put keeps an object that was written, unless the one that is there is newer.
func (r *Recent[T]) Put(id string, object *T, newer func(a, b *T) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch++
	if there := r.objects[id]; there == nil || newer(object, there) {
		r.objects[id] = object
	}
}

// Forget drops an object, all of them without an id.
func (r *Recent[T]) Forget(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch++
	if id == "" {
		clear(r.objects)
	}
	delete(r.objects, id)
}
