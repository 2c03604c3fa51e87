// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package coalesce lets callers that ask for the same at the same time share one answer.
package coalesce

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// most bounds a call, whose callers may all have left.
const most = 30 * time.Second

// Group shares calls by key. The zero value is ready to use.
//
// An answer is never older than its question: a caller that comes while a call runs waits for the next call, and shares it with all that come before it begins.
type Group[K comparable, V any] struct {
	mu      sync.Mutex
	running map[K]*queue[V]
}

// queue has the call that follows the one that runs, nil for none.
type queue[V any] struct{ next *call[V] }

type call[V any] struct {
	ask   func() (V, error)
	done  chan struct{}
	value V
	err   error
}

// Do returns what ask returns, or what it returned to another caller with the key. The context of ask has the values of one of the callers, and
// does not end with any of them. Callers must not change the value.
func (g *Group[K, V]) Do(ctx context.Context, key K, ask func(context.Context) (V, error)) (V, error) {
	c := g.join(ctx, key, ask)
	select {
	case <-c.done:
		return c.value, c.err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

func (g *Group[K, V]) join(ctx context.Context, key K, ask func(context.Context) (V, error)) *call[V] {
	g.mu.Lock()
	defer g.mu.Unlock()
	q, runs := g.running[key]
	if runs && q.next != nil {
		return q.next
	}
	detached := context.WithoutCancel(ctx)
	c := &call[V]{done: make(chan struct{}), ask: func() (V, error) {
		ctx, cancel := context.WithTimeout(detached, most)
		defer cancel()
		return ask(ctx)
	}}
	if runs {
		q.next = c
		return c
	}
	if g.running == nil {
		g.running = map[K]*queue[V]{}
	}
	q = &queue[V]{}
	g.running[key] = q
	go g.run(key, q, c)
	return c
}

// run makes the calls of a key until none waits.
func (g *Group[K, V]) run(key K, q *queue[V], c *call[V]) {
	for c != nil {
		c.make()
		g.mu.Lock()
		c, q.next = q.next, nil
		if c == nil {
			delete(g.running, key)
		}
		g.mu.Unlock()
	}
}

func (c *call[V]) make() {
	defer close(c.done)
	defer func() {
		if p := recover(); p != nil {
			c.err = fmt.Errorf("a call that several wait for panicked: %v", p)
		}
	}()
	c.value, c.err = c.ask()
}
