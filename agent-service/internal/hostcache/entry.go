// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"sync"
	"time"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

// Entry is what is kept in memory of a host. The host is never changed, only replaced. All methods are safe for concurrent use.
type Entry struct {
	cache *Cache

	mu   sync.Mutex
	host *domain.Host
	// seen is when it polled last, in the time of the UpClock, and seenAt on the wall.
	seen   time.Duration
	seenAt time.Time
	// dirty: seenAt is not saved yet. saved is of the poll that was read last.
	dirty bool
	saved int64
	// stateSince and stageSince are when state and stage began, in the time of the UpClock.
	stateSince time.Duration
	stageSince time.Duration
	// lastInstruction is what the agent's instructions were made for, and askedAt when it was asked for each step last.
	lastInstruction string
	askedAt         map[agentproto.StepType]time.Duration
	// issued are the stamps of the last token that the agent was given when it registered, and issuedIn is the cluster that its host was in, as far as that was in this process.
	issued   domain.Stamps
	issuedIn string
	// replies are sums of the last reply to each step.
	replies map[agentproto.StepType]uint64
	// wake is closed when the host changed.
	wake chan struct{}
	// stale: another replica changed the host, at an epoch of the cache.
	stale   bool
	staleAt int64
	gone    bool
	// eventsUntil is until when the events that it reported last count against how many it may report.
	eventsUntil time.Time
}

// Host is the host as it is in memory. It is not to be changed.
func (e *Entry) Host() *domain.Host {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.host
}

// Watch returns the host and what is closed when it changes. gone is true for a host that was deleted.
func (e *Entry) Watch() (host *domain.Host, changed <-chan struct{}, gone bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.host, e.wake, e.gone
}

// Stale is true where another replica changed the host since it was read.
func (e *Entry) Stale() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stale
}

// Touch counts a poll.
func (e *Entry) Touch() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.touch()
}

// touch is Touch for a caller who holds the entry.
func (e *Entry) touch() {
	e.seen, e.seenAt, e.dirty = e.cache.clock.Now(), e.cache.wall(), true
}

// Seen is when the host polled last, on the wall, and whether that was within the time-out.
func (e *Entry) Seen() (at time.Time, connected bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seenAt, e.connected()
}

// connected is true where the host polled within the time-out. The caller holds the entry.
func (e *Entry) connected() bool {
	return e.seen != never && e.cache.clock.Now()-e.seen < e.cache.disconnectAfter
}

// backSince is true where the host was away as it is in memory, and is not now: another replica got its poll, which is read later. The caller holds the entry.
func (e *Entry) backSince(h *domain.Host) bool {
	return e.host != nil && h.Revision > e.host.Revision && lifecycle.Silent(e.host.State) && !lifecycle.Silent(h.State)
}

// Age is for how long a host is as it is.
type Age struct {
	// Silent is true where it did not poll within the time-out.
	Silent           bool
	InState, InStage time.Duration
}

// Age returns the host and its age; nil for one that was deleted.
func (e *Entry) Age(now time.Duration) (*domain.Host, Age) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.host == nil || e.gone {
		return nil, Age{}
	}
	return e.host, Age{Silent: e.seen == never || now-e.seen >= e.cache.disconnectAfter, InState: now - e.stateSince, InStage: now - e.stageSince}
}

// Register notes that the agent was given a token of the host as it is, and forgets what it was asked and answered: it begins anew. It counts as a poll.
func (e *Entry) Register(h *domain.Host) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.register(h)
}

// RegisterAgain is Register for an agent whose token ended because its host changed its cluster, and of whose registration unchanged says that nothing is to be stored. It returns the
// host, nil where another one has the token of its present stamps, or where that is not known.
func (e *Entry) RegisterAgain(unchanged func(*domain.Host) bool) *domain.Host {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.host == nil || e.gone {
		return nil
	}
	stamps := e.host.Stamps
	moved := e.issued != (domain.Stamps{}) && e.issued.Registration != stamps.Registration && e.issued.Binding != stamps.Binding && e.issuedIn != e.host.ClusterID
	if !moved || !e.connected() || !unchanged(e.host) {
		return nil
	}
	e.register(e.host)
	return e.host
}

// register is Register for a caller who holds the entry.
func (e *Entry) register(h *domain.Host) {
	e.touch()
	e.issued, e.issuedIn, e.lastInstruction, e.askedAt, e.replies = h.Stamps, h.ClusterID, "", nil, nil
}

// AskAgain makes all steps due again, and answers a poll that is held.
func (e *Entry) AskAgain() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.askedAt, e.replies = nil, nil
	e.changed()
}

// Due returns the host, and the steps of it that are due: all where its instructions are made for another situation (news), else those whose period is over.
func (e *Entry) Due(of func(h *domain.Host) (situation string, steps []agentproto.StepType), period func(*domain.Host, agentproto.StepType) time.Duration) (h *domain.Host, due []agentproto.StepType, news bool) {
	now := e.cache.clock.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	situation, steps := of(e.host)
	news = e.lastInstruction != situation
	for _, t := range steps {
		if at, ever := e.askedAt[t]; news || !ever || now-at >= period(e.host, t) {
			due = append(due, t)
		}
	}
	return e.host, due, news
}

// Asked keeps that the agent of a host is asked for steps. It is false where the host is another one by now: nothing is kept then.
func (e *Entry) Asked(h *domain.Host, situation string, steps []agentproto.StepType) bool {
	now := e.cache.clock.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.host != h {
		return false
	}
	e.lastInstruction = situation
	if e.askedAt == nil {
		e.askedAt = map[agentproto.StepType]time.Duration{}
	}
	for _, t := range steps {
		e.askedAt[t] = now
	}
	return true
}

// AskAgainFor makes one step due again.
func (e *Entry) AskAgainFor(step agentproto.StepType) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.askedAt, step)
}

// Replied is true for a reply with the sum of the last one that was kept.
func (e *Entry) Replied(step agentproto.StepType, sum uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.replies[step] == sum
}

// KeepReply keeps the sum of a reply.
func (e *Entry) KeepReply(step agentproto.StepType, sum uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.replies == nil {
		e.replies = map[agentproto.StepType]uint64{}
	}
	e.replies[step] = sum
}

// TakeEvent counts an event that the host reports. It returns how long the host has to wait where it reports more than burst at once, and one each pause.
func (e *Entry) TakeEvent(burst int, pause time.Duration) (wait time.Duration) {
	now := e.cache.wall()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.eventsUntil.Before(now) {
		e.eventsUntil = now
	}
	if wait := e.eventsUntil.Sub(now) - time.Duration(burst-1)*pause; wait > 0 {
		return wait
	}
	e.eventsUntil = e.eventsUntil.Add(pause)
	return 0
}

// merge counts a poll that another replica saved. Clocks are not compared: a poll is news where it was saved again since it was read last.
func (e *Entry) merge(one domain.Poll, longest, now time.Duration, wall time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	news := e.saved != 0 && e.saved != one.Saved
	e.saved = one.Saved
	if ago := min(one.Ago, longest); news && now-ago > e.seen {
		e.seen, e.seenAt = now-ago, wall.Add(-ago)
	}
}

func (e *Entry) changed() {
	close(e.wake)
	e.wake = make(chan struct{})
}
