// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostcache keeps in memory what the service looks at with each poll: all hosts, when they polled last and what they were asked, and recent InfraEnvs and
// clusters. Its locks never leave it.
package hostcache

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/intern"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// Cache is all hosts.
type Cache struct {
	clock           *UpClock
	wall            func() time.Time
	disconnectAfter time.Duration

	mu        sync.RWMutex
	entries   map[domain.HostKey]*Entry
	byCluster map[string]map[domain.HostKey]struct{}
	// byMAC are the hosts of an InfraEnv that report a MAC: mostly one, for which a map would be large.
	byMAC map[nic][]domain.HostKey
	// epoch grows with all that other replicas change, and with each host that is deleted.
	epoch int64
	// unread are hosts that other replicas made or changed since this one read them.
	unread map[domain.HostKey]struct{}
	// messages are those of results. Most are those of other hosts too.
	messages intern.Texts
}

// nic is a network interface as machines of an InfraEnv report it. Machines may report what is not theirs, also one another's.
type nic struct{ infraEnv, mac string }

// New returns an empty cache, in which hosts are connected that polled within disconnectAfter.
func New(clock *UpClock, wall func() time.Time, disconnectAfter time.Duration) *Cache {
	return &Cache{
		clock: clock, wall: wall, disconnectAfter: disconnectAfter,
		entries: map[domain.HostKey]*Entry{}, byCluster: map[string]map[domain.HostKey]struct{}{}, byMAC: map[nic][]domain.HostKey{}, unread: map[domain.HostKey]struct{}{},
	}
}

// Get returns the entry of a host, nil where there is none.
func (c *Cache) Get(key domain.HostKey) *Entry {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.entries[key]
}

// All returns the entries of all hosts, without an order.
func (c *Cache) All() []*Entry {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Collect(maps.Values(c.entries))
}

// Keys returns the keys of all hosts, without an order.
func (c *Cache) Keys() []domain.HostKey {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Collect(maps.Keys(c.entries))
}

// OfCluster returns the hosts of a cluster, without an order. They are not to be changed.
func (c *Cache) OfCluster(id string) []*domain.Host {
	return c.of(func() []domain.HostKey { return slices.Collect(maps.Keys(c.byCluster[id])) })
}

// OfMAC returns the hosts of an InfraEnv that report a MAC, without an order. They are not to be changed.
func (c *Cache) OfMAC(infraEnvID, mac string) []*domain.Host {
	return c.of(func() []domain.HostKey { return c.byMAC[nic{infraEnvID, strings.ToLower(mac)}] })
}

// of returns the hosts whose keys an index has, which found reads while the cache is held.
func (c *Cache) of(found func() []domain.HostKey) []*domain.Host {
	c.mu.RLock()
	keys := found()
	entries := make([]*Entry, 0, len(keys))
	for _, key := range keys {
		entries = append(entries, c.entries[key])
	}
	c.mu.RUnlock()
	hosts := make([]*domain.Host, 0, len(entries))
	for _, e := range entries {
		hosts = append(hosts, e.Host())
	}
	return hosts
}

// ClusterOf is the cluster that a host is bound to as far as this process knows, empty for none.
func (c *Cache) ClusterOf(key domain.HostKey) string {
	e := c.Get(key)
	if e == nil {
		return ""
	}
	return e.Host().ClusterID
}

// Known is a host as it is in memory, nil where it is not there or another replica changed it.
func (c *Cache) Known(key domain.HostKey) *domain.Host {
	e := c.Get(key)
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

// Connected is true for hosts that polled within the time-out. One that this process does not know yet, because it began just now, counts as it will then.
func (c *Cache) Connected(h *domain.Host) bool {
	e := c.Get(h.HostKey)
	if e == nil {
		return !lifecycle.Silent(h.State)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.connected() || e.backSince(h)
}

// Epoch is that of now: what is read from now on has all changes of other replicas until it.
func (c *Cache) Epoch() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.epoch
}

// Put replaces a host, unless what is there is newer, with what was read after an epoch. Hosts that are new to the cache count as seen now, unless they are known to be
// away: after a start every host has the whole time-out.
func (c *Cache) Put(h *domain.Host, read int64) *Entry {
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[h.HostKey]
	if e == nil {
		e = &Entry{cache: c, wake: make(chan struct{}), seen: now, stateSince: now, stageSince: now, staleAt: c.epoch}
		if lifecycle.Silent(h.State) {
			e.seen = never
		}
		c.entries[h.HostKey] = e
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
		if e.host.State != h.State || e.host.Release.Left() != h.Release.Left() {
			e.stateSince = now // what a host waits for is another thing when its cluster is rid of it
		}
		if e.host.Progress != h.Progress {
			e.stageSince = now
		}
	}
	c.index(e.host, h)
	h.Validations = c.once(e.host, h.Validations)
	e.host, e.stale, e.gone = h, e.staleAt > read, false
	e.changed()
	return e
}

// Confirm returns the entry of a host that is as it was read after an epoch, nil where it is not. No poll is answered: two polls of a host would answer each other.
func (c *Cache) Confirm(h *domain.Host, read int64) *Entry {
	e := c.Get(h.HostKey)
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

// once returns results whose messages are in memory once.
func (c *Cache) once(before *domain.Host, results []validate.Result) []validate.Result {
	if len(results) == 0 || before != nil && len(before.Validations) > 0 && &before.Validations[0] == &results[0] {
		return results
	}
	results = slices.Clone(results)
	for i := range results {
		results[i].Message = c.messages.Once(results[i].Message)
	}
	return results
}

// Remove forgets a host that was deleted, and answers its poll. One that was read before and is kept after that is read again.
func (c *Cache) Remove(key domain.HostKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	delete(c.unread, key)
	e := c.entries[key]
	if e == nil {
		return
	}
	delete(c.entries, key)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.host != nil {
		c.leave(e.host)
	}
	e.gone = true
	e.changed()
}

// index finds a host by what it has now, not by what it had before; before is nil for one that is new.
func (c *Cache) index(before, now *domain.Host) {
	if before == nil {
		before = &domain.Host{}
	}
	if before.ClusterID != now.ClusterID {
		c.leaveCluster(before)
		if now.ClusterID != "" {
			if c.byCluster[now.ClusterID] == nil {
				c.byCluster[now.ClusterID] = map[domain.HostKey]struct{}{}
			}
			c.byCluster[now.ClusterID][now.HostKey] = struct{}{}
		}
	}
	if slices.Equal(before.Summary.MACAddresses, now.Summary.MACAddresses) {
		return
	}
	c.leaveMACs(before)
	for _, mac := range now.Summary.MACAddresses {
		if at := (nic{now.InfraEnvID, mac}); !slices.Contains(c.byMAC[at], now.HostKey) {
			c.byMAC[at] = append(c.byMAC[at], now.HostKey)
		}
	}
}

// leave takes a host out of the indexes.
func (c *Cache) leave(h *domain.Host) {
	c.leaveCluster(h)
	c.leaveMACs(h)
}

func (c *Cache) leaveCluster(h *domain.Host) {
	delete(c.byCluster[h.ClusterID], h.HostKey)
	if len(c.byCluster[h.ClusterID]) == 0 {
		delete(c.byCluster, h.ClusterID)
	}
}

func (c *Cache) leaveMACs(h *domain.Host) {
	for _, mac := range h.Summary.MACAddresses {
		at := nic{h.InfraEnvID, mac}
		c.byMAC[at] = slices.DeleteFunc(c.byMAC[at], func(key domain.HostKey) bool { return key == h.HostKey })
		if len(c.byMAC[at]) == 0 {
			delete(c.byMAC, at)
		}
	}
}

// Silence makes a host count as never seen, also where a poll from before is read later.
func (c *Cache) Silence(key domain.HostKey) {
	if e := c.Get(key); e != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.seen, e.saved = never, 0
	}
}

// MarkStale makes the next look at a host read it again: another replica changed it.
func (c *Cache) MarkStale(key domain.HostKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	c.unread[key] = struct{}{}
	if e := c.entries[key]; e != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.stale, e.staleAt = true, c.epoch
		e.changed()
	}
}

// MarkAllStale makes the next look at each host read it again.
func (c *Cache) MarkAllStale() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	for _, e := range c.entries {
		e.mu.Lock()
		e.stale, e.staleAt = true, c.epoch
		e.mu.Unlock()
	}
}

// ChangedElsewhere returns the hosts that other replicas made or changed since the last call, but for those that were read meanwhile.
func (c *Cache) ChangedElsewhere() []domain.HostKey {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := make([]domain.HostKey, 0, len(c.unread))
	for key := range c.unread {
		if e := c.entries[key]; e == nil || e.Stale() {
			keys = append(keys, key)
		}
	}
	clear(c.unread)
	return keys
}

// Unread is whether other replicas made or changed hosts of an InfraEnv that were not read since.
func (c *Cache) Unread(infraEnvID string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for key := range c.unread {
		if key.InfraEnvID == infraEnvID {
			return true
		}
	}
	return false
}

// ReadLater returns hosts to those that ChangedElsewhere returns.
func (c *Cache) ReadLater(keys []domain.HostKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		c.unread[key] = struct{}{}
	}
}

// UnsavedPolls returns the last polls of hosts that polled since the last call.
func (c *Cache) UnsavedPolls() []domain.Poll {
	var polls []domain.Poll
	now := c.clock.Now()
	for _, e := range c.All() {
		e.mu.Lock()
		if e.dirty && e.host != nil && e.seen != never {
			polls = append(polls, domain.Poll{HostKey: e.host.HostKey, Ago: now - e.seen})
		}
		e.dirty = false
		e.mu.Unlock()
	}
	return polls
}

// SaveLater returns polls to those that UnsavedPolls returns.
func (c *Cache) SaveLater(polls []domain.Poll) {
	for _, one := range polls {
		if e := c.Get(one.HostKey); e != nil {
			e.mu.Lock()
			e.dirty = true
			e.mu.Unlock()
		}
	}
}

// Merge counts a poll that another replica saved within longest. It is false for a host that is not in memory.
func (c *Cache) Merge(one domain.Poll, longest time.Duration) bool {
	e := c.Get(one.HostKey)
	if e == nil {
		return false
	}
	e.merge(one, longest, c.clock.Now(), c.wall())
	return true
}

// Census counts hosts by state, and how many of them are connected.
func (c *Cache) Census() (states map[lifecycle.State]int, connected int) {
	states = map[lifecycle.State]int{}
	for _, e := range c.All() {
		e.mu.Lock()
		if e.host != nil && !e.gone {
			states[e.host.State]++
			if e.connected() {
				connected++
			}
		}
		e.mu.Unlock()
	}
	return states, connected
}

// Wait is how many hosts are in a situation, and since when the first of them is; zero where there are none.
type Wait struct {
	Hosts int
	Since time.Time
}

// Waits counts hosts by situation.
func (c *Cache) Waits() map[domain.Situation]Wait {
	waits := map[domain.Situation]Wait{}
	for _, e := range c.All() {
		e.mu.Lock()
		if e.host != nil && !e.gone {
			if in, since := e.host.Situation(); in != "" {
				w := waits[in]
				if w.Hosts++; w.Hosts == 1 || since.Before(w.Since) {
					w.Since = since
				}
				waits[in] = w
			}
		}
		e.mu.Unlock()
	}
	return waits
}
