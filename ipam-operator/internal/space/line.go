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

// Line is the queues of the claims that wait for any address of a pool: claims of all kinds stand in one queue, the oldest first. It is safe for concurrent use.
type Line struct {
	mu    sync.Mutex
	pools map[types.NamespacedName][]Waiter
	at    map[types.UID]types.NamespacedName
}

// NewLine returns a Line without claims.
func NewLine() *Line {
	return &Line{pools: map[types.NamespacedName][]Waiter{}, at: map[types.UID]types.NamespacedName{}}
}

// Enter puts a claim into the queue of a pool, unless it is there.
func (l *Line) Enter(pool types.NamespacedName, w Waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if was, ok := l.at[w.UID]; ok && was != pool {
		l.leave(w.UID)
	}
	at, found := slices.BinarySearchFunc(l.pools[pool], w, Waiter.compare)
	if !found {
		l.pools[pool] = slices.Insert(l.pools[pool], at, w)
		l.at[w.UID] = pool
	}
}

// Leave takes a claim out of its queue and returns the pool; false means that it was in none.
func (l *Line) Leave(claim types.UID) (pool types.NamespacedName, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leave(claim)
}

func (l *Line) leave(claim types.UID) (pool types.NamespacedName, ok bool) {
	if pool, ok = l.at[claim]; !ok {
		return pool, false
	}
	delete(l.at, claim)
	l.pools[pool] = slices.DeleteFunc(l.pools[pool], func(w Waiter) bool { return w.UID == claim })
	if len(l.pools[pool]) == 0 {
		delete(l.pools, pool)
	}
	return pool, true
}

// Ahead is how many claims of a pool are to be served before a claim, in the queue or not.
func (l *Line) Ahead(pool types.NamespacedName, w Waiter) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, _ := slices.BinarySearchFunc(l.pools[pool], w, Waiter.compare)
	return at
}
