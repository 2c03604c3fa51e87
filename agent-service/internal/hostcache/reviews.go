// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"sync"
	"time"
)

// Reviews are when all hosts of a cluster were assessed last, whether anything about the others changed or not: so that what this process does not see change, such as its
// own configuration, is not forgotten.
type Reviews struct {
	mu   sync.Mutex
	last map[string]time.Duration
}

// Due is true where a cluster was not reviewed within the interval.
func (r *Reviews) Due(id string, now, interval time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ever := r.last[id]
	return !ever || now-at >= interval
}

// Done keeps that a cluster was reviewed.
func (r *Reviews) Done(id string, now time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = map[string]time.Duration{}
	}
	r.last[id] = now
}

// Forget makes a review due.
func (r *Reviews) Forget(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, id)
}
