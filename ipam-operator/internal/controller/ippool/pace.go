// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ippool

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// rest is how many times as long as a pass that wrote a status takes, the next pass is put off: the statuses of a large pool cost at most a twentieth of the time.
	rest = 20
	// slowest is how many status intervals a pass is put off at most.
	slowest = 10
)

// pace says how far apart the passes over a pool are that its addresses cause. It is safe for concurrent use.
type pace struct {
	interval time.Duration

	mu    sync.Mutex
	pools map[types.NamespacedName]time.Duration // of the last pass that wrote a status
}

func newPace(interval time.Duration) *pace {
	return &pace{interval: interval, pools: map[types.NamespacedName]time.Duration{}}
}

// note records how long a pass took that wrote a status.
func (p *pace) note(pool types.NamespacedName, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pools[pool] = took
}

// of is how long the next pass over a pool is put off.
func (p *pace) of(pool types.NamespacedName) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(max(p.interval, rest*p.pools[pool]), slowest*p.interval)
}

func (p *pace) drop(pool types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pools, pool)
}
