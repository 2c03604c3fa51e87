// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package space

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Waiter is a claim that waits for any address of a pool.
type Waiter struct {
	// Created is when the claim was created: the oldest one is served first.
	Created time.Time
	// Name and UID of the claim, of whatever kind.
	Name types.NamespacedName
	UID  types.UID
}

func (w Waiter) compare(other Waiter) int {
	return cmp.Or(w.Created.Compare(other.Created), cmp.Compare(w.Name.Name, other.Name.Name), cmp.Compare(w.UID, other.UID))
}

// Queue is what claims wait for: any address of a pool, or any prefix of a length.
type Queue struct {
	Pool         types.NamespacedName
	PrefixLength int
}

// Line is the queues of the claims that wait for any address of a pool: claims of all kinds stand in one queue, the oldest first. It is safe for concurrent use.
type Line struct {
	mu     sync.Mutex
	queues map[Queue][]Waiter
	at     map[types.UID]Queue
}

// NewLine returns a Line without claims.
func NewLine() *Line {
	return &Line{queues: map[Queue][]Waiter{}, at: map[types.UID]Queue{}}
}

// Enter puts a claim into a queue, unless it is there.
func (l *Line) Enter(queue Queue, w Waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if was, ok := l.at[w.UID]; ok && was != queue {
		l.leave(w.UID)
	}
	at, found := slices.BinarySearchFunc(l.queues[queue], w, Waiter.compare)
	if !found {
		l.queues[queue] = slices.Insert(l.queues[queue], at, w)
		l.at[w.UID] = queue
	}
}

// Leave takes a claim out of its queue and returns that; false means that it was in none.
func (l *Line) Leave(claim types.UID) (queue Queue, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leave(claim)
}

func (l *Line) leave(claim types.UID) (queue Queue, ok bool) {
	if queue, ok = l.at[claim]; !ok {
		return queue, false
	}
	delete(l.at, claim)
	l.queues[queue] = slices.DeleteFunc(l.queues[queue], func(w Waiter) bool { return w.UID == claim })
	if len(l.queues[queue]) == 0 {
		delete(l.queues, queue)
	}
	return queue, true
}

// Ahead is how many claims of a queue are to be served before a claim, in the queue or not.
func (l *Line) Ahead(queue Queue, w Waiter) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, _ := slices.BinarySearchFunc(l.queues[queue], w, Waiter.compare)
	return at
}
