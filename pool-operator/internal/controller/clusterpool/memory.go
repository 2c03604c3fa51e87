// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
)

// replayAfter is how long an operation that this process carried out may stay out of view before it is carried out again.
const replayAfter = time.Minute

// memory is what the controller remembers between passes. All of it can be lost: it saves requests, and holds answers of the API server until they were planned with.
type memory struct {
	mu    sync.Mutex
	pools map[types.NamespacedName]*poolMemory
}

type poolMemory struct {
	uid types.UID
	// done is when an operation was carried out, by doneKey.
	done map[string]time.Time
	// refused is why the API server refused a creation, by namespace.
	refused map[string]string
	// absent are withdrawn clusters that the API server does not have.
	absent map[string]bool
	// secrets are the versions of Secrets that hold the key that is needed.
	secrets map[string]string
	// contents are digests of what new clusters are made from, and changedAt is when one of them was last seen to change. They never leave this process.
	contents  map[string][sha256.Size]byte
	changedAt time.Time
	// resumed says that what the pool's status says about the versions of all that was compared with what this process found first.
	resumed bool
	// arrivals is when claims were created that were seen within the window of the recommendation.
	arrivals map[types.UID]time.Time
	// recalled says that arrivals before this process began were taken from the pool's status.
	recalled bool
	// changed are the versions of objects that this process changed or lost to another writer, as the cache had them then. While the cache has nothing newer, the API server could
	// only refuse. They are forgotten after replayAfter: an API server that was restored from a backup has the same versions again.
	changed map[string]change
	written time.Time
	// reports is how many reports were written without a pause of quietPool between them and what was written before.
	reports int
	waits   int
	// skips is how many passes in a row skipped an action because the cache is behind.
	skips int
}

// change is a write to an object.
type change struct {
	// version is the one that the cache had of the object then.
	version string
	at      time.Time
}

func newMemory() *memory { return &memory{pools: map[types.NamespacedName]*poolMemory{}} }

// of returns what is remembered of a pool. One reconcile at a time works on a pool, but its actions run in parallel: they go through methods of memory.
func (m *memory) of(key types.NamespacedName, uid types.UID) *poolMemory {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pools[key]
	if p == nil || p.uid != uid {
		p = &poolMemory{uid: uid, done: map[string]time.Time{}, refused: map[string]string{}, absent: map[string]bool{}, secrets: map[string]string{}, contents: map[string][sha256.Size]byte{},
			arrivals: map[types.UID]time.Time{}, changed: map[string]change{}}
		m.pools[key] = p
	}
	return p
}

// sees remembers the content of something that new clusters are made from, and when it changed.
func (p *poolMemory) sees(what string, content [sha256.Size]byte, now time.Time) {
	if before, known := p.contents[what]; known && before != content {
		p.changedAt = now
	}
	p.contents[what] = content
}

// resume compares what this process finds first with what the pool's status says that its predecessor saw last: what changed between the two, no process saw change.
func (p *poolMemory) resume(last *hivev1.ClusterPoolProvisioning, sources string, now time.Time) {
	if !p.resumed && last != nil && last.SourcesHash != "" && last.SourcesHash != sources {
		p.changedAt = now
	}
	p.resumed = true
}

func (m *memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pools, key)
}

// Rhythm of reports: a pool that changes all the time writes its counts less and less often, and takes them along with the next ticket instead.
const (
	// quietPool is how long nothing was written of a pool that may report at once again.
	quietPool = 30 * time.Second
	// mostDoublings bounds how many times the interval of reports doubles: to eight times.
	mostDoublings = 3
)

// reported notes that a report is written.
func (p *poolMemory) reported(now time.Time) {
	if now.Sub(p.written) > quietPool {
		p.reports = 0
	}
	p.reports++
}

// countsInterval is how long counts wait since the last write.
func (p *poolMemory) countsInterval(shortest time.Duration) time.Duration {
	return shortest << min(max(0, p.reports-1), mostDoublings)
}

// waited counts a pass that waited for the cache and returns how many did in a row.
func (m *memory) waited(key types.NamespacedName) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pools[key]
	if p == nil {
		return 0
	}
	p.waits++
	return p.waits
}

// change runs f while nothing else reads or changes the memory.
func (m *memory) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// remember notes that an action was carried out.
func (p *poolMemory) remember(a poolplan.Action, now time.Time) {
	if key := operationKey(a); key != "" {
		p.done[key] = now
	}
	if object, version := objectOf(a); object != "" {
		p.changed[object] = change{version: version, at: now}
	}
}

// keep drops what is remembered of operations that are over.
func (p *poolMemory) keep(outstanding map[string]bool) {
	prune(p.done, outstanding)
	prune(p.refused, outstanding)
	prune(p.absent, outstanding)
}

func prune[V any](answers map[string]V, outstanding map[string]bool) {
	for key := range answers {
		if !outstanding[key] {
			delete(answers, key)
		}
	}
}

// recallArrivals makes up for claims that came and went before this process began: their number is what the pool's last recommendation counted beyond the claims that
// are there. When each of them came is not known, so they leave the window one after the other.
func (p *poolMemory) recallArrivals(claims []poolplan.Claim, last *hivev1.RunningCountRecommendation, now time.Time) {
	if p.recalled {
		return
	}
	p.recalled = true
	if last == nil {
		return
	}
	gone := int(last.ClaimsPerHour)
	for _, c := range claims {
		if now.Sub(c.Created) <= poolplan.RecommendationWindow {
			gone--
		}
	}
	for i := range gone {
		p.arrivals[types.UID(fmt.Sprint("recalled-", i))] = now.Add(-poolplan.RecommendationWindow * time.Duration(i) / time.Duration(gone))
	}
}

// countArrivals remembers the claims and counts those that were created within the window.
func (p *poolMemory) countArrivals(claims []poolplan.Claim, now time.Time) int {
	for _, c := range claims {
		p.arrivals[c.UID] = c.Created
	}
	for uid, created := range p.arrivals {
		if now.Sub(created) > poolplan.RecommendationWindow {
			delete(p.arrivals, uid)
		}
	}
	return len(p.arrivals)
}
