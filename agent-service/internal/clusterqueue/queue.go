// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusterqueue lets transactions that change one cluster follow each other.
package clusterqueue

import (
	"context"
	"slices"
	"sync"
)

// Queues let one transaction of this process at a time change a cluster: those that wait hold no connection to the database, of which there are few, and their time there
// begins when it is their turn.
type Queues struct {
	mu sync.Mutex
	of map[string]*queue
}

type queue struct {
	turn chan struct{}
	// users are those that wait or have their turn: a queue without any is forgotten.
	users int
}

// Enter waits until it is the caller's turn at all of the clusters, in the order of their ids. The returned function ends the turn.
func (q *Queues) Enter(ctx context.Context, clusters []string) (leave func(), err error) {
	ids := slices.DeleteFunc(slices.Clone(clusters), func(id string) bool { return id == "" })
	slices.Sort(ids)
	ids = slices.Compact(ids)
	for i, id := range ids {
		if err := q.wait(ctx, id); err != nil {
			q.leave(ids[:i])
			return nil, err
		}
	}
	return func() { q.leave(ids) }, nil
}

func (q *Queues) wait(ctx context.Context, id string) error {
	q.mu.Lock()
	if q.of == nil {
		q.of = map[string]*queue{}
	}
	if q.of[id] == nil {
		q.of[id] = &queue{turn: make(chan struct{}, 1)}
	}
	one := q.of[id]
	one.users++
	q.mu.Unlock()
	select {
	case one.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		q.forget(id)
		return ctx.Err()
	}
}

func (q *Queues) leave(ids []string) {
	for _, id := range ids {
		q.mu.Lock()
		one := q.of[id]
		q.mu.Unlock()
		<-one.turn
		q.forget(id)
	}
}

func (q *Queues) forget(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.of[id].users--; q.of[id].users == 0 {
		delete(q.of, id)
	}
}
