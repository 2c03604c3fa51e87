// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// never is the time of a poll that there was not.
const never = time.Duration(-1 << 62)

// awake is time that passes only while this process runs and its store can be reached: hosts that are silent because
// nobody could hear them are not silent. It does not follow the clock on the wall.
type awake struct {
	mu   sync.Mutex
	sum  time.Duration
	last time.Time
}

func newAwake(now time.Time) *awake { return &awake{last: now} }

func (a *awake) now() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sum
}

// advance counts the time since the last call, at most longest, and nothing while away.
func (a *awake) advance(now time.Time, longest time.Duration, away bool) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	passed := min(max(now.Sub(a.last), 0), longest)
	a.last = now
	if !away {
		a.sum += passed
	}
	return a.sum
}

// entry is what is kept in memory of a host. Its fields are guarded by mu; the host is never changed, only replaced.
type entry struct {
	mu   sync.Mutex
	host *domain.Host
	// seen is when it polled last, in awake time, and seenAt on the wall.
	seen   time.Duration
	seenAt time.Time
	// dirty: seenAt is not saved yet. saved is of the poll that was read last.
	dirty bool
	saved int64
	// stateSince and stageSince are when state and stage began, in awake time.
	stateSince time.Duration
	stageSince time.Duration
	// told is what the agent's instructions were made for, and toldAt when it was asked for each step last.
	told   string
	toldAt map[agentproto.StepType]time.Duration
	// replies are hashes of the last reply to each step.
	replies map[agentproto.StepType]uint64
	// wake is closed when the host changed.
	wake chan struct{}
	// stale: another replica changed the host, at an epoch of the directory.
	stale   bool
	staleAt int64
	gone    bool
	// eventsUntil is until when the events that it reported last count against how many it may report.
	eventsUntil time.Time
}

// backSince is true where the host was away as it is in memory, and is not now: another replica heard it, whose polls are read later. The caller holds the entry.
func (e *entry) backSince(h *domain.Host) bool {
	return e.host != nil && h.Revision > e.host.Revision && lifecycle.Silent(e.host.State) && !lifecycle.Silent(h.State)
}

func (e *entry) isStale() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stale
}

func (e *entry) changed() {
	close(e.wake)
	e.wake = make(chan struct{})
}

// directory is all hosts.
type directory struct {
	mu        sync.RWMutex
	entries   map[domain.HostKey]*entry
	byCluster map[string]map[domain.HostKey]struct{}
	// epoch grows with all that other replicas change.
	epoch int64
	// unread are hosts that other replicas made or changed since this one read them.
	unread map[domain.HostKey]struct{}
}

func newDirectory() *directory {
	return &directory{entries: map[domain.HostKey]*entry{}, byCluster: map[string]map[domain.HostKey]struct{}{}, unread: map[domain.HostKey]struct{}{}}
}

func (d *directory) get(key domain.HostKey) *entry {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.entries[key]
}

func (d *directory) all() []*entry {
	d.mu.RLock()
	defer d.mu.RUnlock()
	entries := make([]*entry, 0, len(d.entries))
	for _, e := range d.entries {
		entries = append(entries, e)
	}
	return entries
}

// clusterOf is the cluster that a host is bound to as far as this process knows, empty for none.
func (d *directory) clusterOf(key domain.HostKey) string {
	e := d.get(key)
	if e == nil {
		return ""
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.host.ClusterID
}

// now is the epoch: what is read from now on has all changes of other replicas until it.
func (d *directory) now() int64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.epoch
}

func (d *directory) keys() []domain.HostKey {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.Collect(maps.Keys(d.entries))
}

func (d *directory) ofCluster(id string) []domain.HostKey {
	d.mu.RLock()
	defer d.mu.RUnlock()
	keys := make([]domain.HostKey, 0, len(d.byCluster[id]))
	for key := range d.byCluster[id] {
		keys = append(keys, key)
	}
	return keys
}

// put replaces a host, unless what is there is newer, with what was read after an epoch. Hosts that are new to the directory count as seen now, unless they
// are known to be away: after a start everybody has the whole time-out.
func (d *directory) put(h *domain.Host, now time.Duration, read int64) *entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entries[h.HostKey]
	if e == nil {
		e = &entry{wake: make(chan struct{}), seen: now, stateSince: now, stageSince: now, staleAt: d.epoch}
		if lifecycle.Silent(h.State) {
			e.seen = never
		}
		d.entries[h.HostKey] = e
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.host != nil {
		if again := e.host.CreatedAt.Equal(h.CreatedAt); again && e.host.Revision > h.Revision || !again && !e.stale && e.host.CreatedAt.After(h.CreatedAt) {
			e.stale = e.staleAt > read
			return e
		}
		if e.backSince(h) {
			e.seen = max(e.seen, now)
		}
		if e.host.State != h.State {
			e.stateSince = now
		}
		if e.host.Progress != h.Progress {
			e.stageSince = now
		}
		d.leave(e.host)
	}
	if h.ClusterID != "" {
		if d.byCluster[h.ClusterID] == nil {
			d.byCluster[h.ClusterID] = map[domain.HostKey]struct{}{}
		}
		d.byCluster[h.ClusterID][h.HostKey] = struct{}{}
	}
	h.Validations = onceInMemory(e.host, h.Validations)
	e.host, e.stale, e.gone = h, e.staleAt > read, false
	e.changed()
	return e
}

// confirm returns the entry of a host that is as it was read after an epoch, nil where it is not. Nobody is woken: two polls of a host would wake each other.
func (d *directory) confirm(h *domain.Host, read int64) *entry {
	e := d.get(h.HostKey)
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.host == nil || e.gone || e.host.Revision != h.Revision || !e.host.CreatedAt.Equal(h.CreatedAt) {
		return nil
	}
	e.stale = e.staleAt > read
	return e
}

// onceInMemory are results whose messages, most of which are those of other hosts too, are in memory once.
func onceInMemory(before *domain.Host, results []validate.Result) []validate.Result {
	if len(results) == 0 || before != nil && len(before.Validations) > 0 && &before.Validations[0] == &results[0] {
		return results
	}
	results = slices.Clone(results)
	for i := range results {
		results[i].Message = unique.Make(results[i].Message).Value()
	}
	return results
}

// known is a host as it is in memory, nil where it is not there or another replica changed it.
func (d *directory) known(key domain.HostKey) *domain.Host {
	e := d.get(key)
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stale {
		return nil
	}
	return e.host
}

func (d *directory) remove(key domain.HostKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.unread, key)
	e := d.entries[key]
	if e == nil {
		return
	}
	delete(d.entries, key)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.host != nil {
		d.leave(e.host)
	}
	e.gone = true
	e.changed()
}

// quiet makes a host count as never seen, also where a poll from before is read later.
func (d *directory) quiet(key domain.HostKey) {
	if e := d.get(key); e != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.seen, e.saved = never, 0
	}
}

func (d *directory) leave(h *domain.Host) {
	delete(d.byCluster[h.ClusterID], h.HostKey)
	if len(d.byCluster[h.ClusterID]) == 0 {
		delete(d.byCluster, h.ClusterID)
	}
}

// stale makes the next look at a host read it again.
func (d *directory) stale(key domain.HostKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.epoch++
	d.unread[key] = struct{}{}
	if e := d.entries[key]; e != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.stale, e.staleAt = true, d.epoch
		e.changed()
	}
}

// changedElsewhere returns the hosts that other replicas made or changed since the last call, but for those that were read meanwhile.
func (d *directory) changedElsewhere() []domain.HostKey {
	d.mu.Lock()
	defer d.mu.Unlock()
	keys := make([]domain.HostKey, 0, len(d.unread))
	for key := range d.unread {
		if e := d.entries[key]; e == nil || e.isStale() {
			keys = append(keys, key)
		}
	}
	clear(d.unread)
	return keys
}

// readLater returns hosts to those that changedElsewhere returns.
func (d *directory) readLater(keys []domain.HostKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, key := range keys {
		d.unread[key] = struct{}{}
	}
}

// allStale makes the next look at each host read it again.
func (d *directory) allStale() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.epoch++
	for _, e := range d.entries {
		e.mu.Lock()
		e.stale, e.staleAt = true, d.epoch
		e.mu.Unlock()
	}
}

// recent keeps objects in memory that were read since they changed last.
type recent[T any] struct {
	// deaf is set while changes of other replicas are not heard: nothing is kept then.
	deaf    *atomic.Bool
	mu      sync.Mutex
	objects map[string]*T
	// epoch grows with each change: what was read before it is not kept.
	epoch int64
}

func newRecent[T any](deaf *atomic.Bool) *recent[T] {
	return &recent[T]{deaf: deaf, objects: map[string]*T{}}
}

func (r *recent[T]) get(id string, read func() (*T, error)) (*T, error) {
	if r.deaf.Load() {
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

// known is an object that is in memory, or nil.
func (r *recent[T]) known(id string) *T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.objects[id]
}

// put keeps an object that was written, unless the one that is there is newer.
func (r *recent[T]) put(id string, object *T, newer func(a, b *T) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch++
	if there := r.objects[id]; there == nil || newer(object, there) {
		r.objects[id] = object
	}
}

// forget drops an object, all of them without an id.
func (r *recent[T]) forget(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch++
	if id == "" {
		clear(r.objects)
	}
	delete(r.objects, id)
}
