// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

const (
	tickInterval = time.Second
	// longestTick is how much time one tick counts at most: a process that was suspended heard nobody.
	longestTick = 3 * tickInterval
)

// tick does what is due.
func (s *Service) tick(ctx context.Context) {
	away := s.storeAway.Load()
	if away {
		away = s.noted(s.store.Ping(ctx)) != nil
	}
	now := s.clock.advance(s.Now(), longestTick, away)
	if away {
		return
	}
	if !s.loaded.Load() {
		if err := s.load(ctx); err != nil {
			s.Log.Warn("did not load the hosts", zap.Error(err))
			return
		}
		s.pollsRead = 0 // it may be another database, restored from the one before
		s.loadedAt.Store(int64(now))
		s.endDeletions(ctx)
	}
	if now-s.savedAt >= s.SaveInterval {
		s.savedAt = now
		if err := s.savePolls(ctx); err != nil {
			s.Log.Warn("did not save heartbeats", zap.Error(err))
		}
		s.mergePolls(ctx)
	}
	s.readChanged(ctx)
	if s.EventRetention > 0 && now-s.prunedAt >= pruneInterval {
		s.pruneEvents(ctx, now)
	}
	for _, e := range s.hosts.all() {
		if verb, due := s.overdue(e, now); due {
			if err := s.happen(ctx, e, verb); err != nil {
				s.Log.Warn("did not follow a silence or a time-out", zap.Error(err))
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
}

const (
	// pruneInterval is how often old events are deleted.
	pruneInterval = time.Minute
	// pruneBatch is how many one transaction deletes at most, and pruneBatches how many transactions follow each other before other work is done.
	pruneBatch   = 500
	pruneBatches = 10
)

// pruneEvents deletes events that are older than they are kept. What is left of many is deleted with the next ticks.
func (s *Service) pruneEvents(ctx context.Context, now time.Duration) {
	for range pruneBatches {
		n, err := s.store.PruneEvents(ctx, s.Now().Add(-s.EventRetention), pruneBatch)
		if s.noted(err) != nil {
			s.Log.Warn("did not delete old events", zap.Error(err))
		}
		if err != nil || n < pruneBatch {
			s.prunedAt = now
			return
		}
	}
}

// readBatch is how many hosts one statement reads at most.
const readBatch = 500

// readChanged reads the hosts that other replicas made or changed: should such a replica be lost before it saves its heartbeats, this one has to see these hosts time out.
func (s *Service) readChanged(ctx context.Context) {
	keys := s.hosts.changedElsewhere()
	for len(keys) > 0 {
		some := keys[:min(len(keys), readBatch)]
		epoch := s.hosts.now()
		var found []domain.Host
		err := s.view(ctx, func(ctx context.Context, r Reader) (err error) {
			found, err = r.HostsByKey(ctx, some)
			return err
		})
		if err != nil {
			s.hosts.readLater(keys)
			s.Log.Warn("did not read hosts that other replicas changed", zap.Error(err))
			return
		}
		gone := map[domain.HostKey]bool{}
		for _, key := range some {
			gone[key] = true
		}
		for i := range found {
			delete(gone, found[i].HostKey)
			if s.hosts.confirm(&found[i], epoch) == nil {
				s.hosts.put(&found[i], s.clock.now(), epoch)
			}
		}
		for key := range gone {
			s.hosts.remove(key)
		}
		keys = keys[len(some):]
	}
}

// overdue says whether a host is silent for too long, or too long in its state.
func (s *Service) overdue(e *entry, now time.Duration) (lifecycle.Verb, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.host == nil || e.gone {
		return "", false
	}
	silent := e.seen == never || now-e.seen >= s.DisconnectAfter
	if silent {
		facts := s.factsInMemory(e.host)
		o := lifecycle.Apply(e.host.State, lifecycle.Refresh, facts)
		if o.To != e.host.State {
			return lifecycle.Refresh, true
		}
	}
	limit, limited := lifecycle.TimeOuts[e.host.State]
	if !limited {
		return "", false
	}
	since := e.stateSince
	if e.host.State == lifecycle.InstallingInProgress {
		since = max(since, e.stageSince)
	}
	return lifecycle.TimeOut, now-since >= limit
}

// factsInMemory are those of a silent host.
func (s *Service) factsInMemory(h *domain.Host) lifecycle.Facts {
	return lifecycle.Facts{
		HasInventory: h.Summary.Hash != "", DayTwo: h.DayTwo, Rebooted: lifecycle.AfterReboot(h.Progress.Stage), Stage: h.Progress.Stage,
		ClusterPreparing: true, ClusterInstalling: true,
	}
}

// happen applies silence or a time-out to a host. One that is not there any more is forgotten.
func (s *Service) happen(ctx context.Context, e *entry, verb lifecycle.Verb) error {
	e.mu.Lock()
	key, state := e.host.HostKey, e.host.State
	e.mu.Unlock()
	var err error
	if verb == lifecycle.Refresh {
		err = s.Refresh(ctx, key)
	} else {
		s.Timeouts.Add(1)
		err = s.timeOut(ctx, key, state)
	}
	if domain.KindOf(err) == domain.NotFound {
		s.hosts.remove(key)
		return nil
	}
	return err
}

func (s *Service) timeOut(ctx context.Context, key domain.HostKey, state lifecycle.State) error {
	return s.learn(ctx, key, func(ctx context.Context, w *work, h *domain.Host) error {
		if h.State != state {
			return nil
		}
		return w.act(ctx, h, lifecycle.TimeOut, nil)
	})
}

// savePolls writes the heartbeats since the last time, in few statements.
func (s *Service) savePolls(ctx context.Context) error {
	var batch []domain.Poll
	var from []*entry
	now := s.clock.now()
	for _, e := range s.hosts.all() {
		e.mu.Lock()
		if e.dirty && e.host != nil && e.seen != never {
			batch = append(batch, domain.Poll{HostKey: e.host.HostKey, Ago: now - e.seen})
			from = append(from, e)
		}
		e.dirty = false
		e.mu.Unlock()
	}
	if len(batch) == 0 {
		return nil
	}
	if err := s.noted(s.store.SavePolls(ctx, batch)); err != nil {
		for _, e := range from {
			e.mu.Lock()
			e.dirty = true
			e.mu.Unlock()
		}
		return err
	}
	s.Saved.Add(int64(len(batch)))
	return nil
}

// mergePolls counts polls that other replicas heard. Clocks are not compared: a poll is news where it was saved again since it was read last.
func (s *Service) mergePolls(ctx context.Context) {
	if !s.store.Shared() {
		return
	}
	polls, mark, err := s.store.PollsSince(ctx, s.pollsRead)
	if s.noted(err) != nil {
		return
	}
	s.pollsRead = mark
	now := s.clock.now()
	for _, one := range polls {
		e := s.hosts.get(one.HostKey)
		if e == nil {
			// It registered elsewhere. If that replica goes, this one sees whether the host does, too.
			if e, err = s.entry(ctx, one.HostKey); err != nil {
				continue
			}
		}
		e.mu.Lock()
		news := e.saved != 0 && e.saved != one.Saved
		e.saved = one.Saved
		// What is news was saved since the last look, and heard not longer than that before.
		if ago := min(one.Ago, 2*s.SaveInterval); news && now-ago > e.seen {
			e.seen, e.seenAt = now-ago, s.Now().Add(-ago)
		}
		e.mu.Unlock()
	}
}

// Census counts hosts by state, from memory, and how many of them are connected.
func (s *Service) Census() (states map[lifecycle.State]int, connected int) {
	states = map[lifecycle.State]int{}
	now := s.clock.now()
	for _, e := range s.hosts.all() {
		e.mu.Lock()
		if e.host != nil && !e.gone {
			states[e.host.State]++
			if e.seen != never && now-e.seen < s.DisconnectAfter {
				connected++
			}
		}
		e.mu.Unlock()
	}
	return states, connected
}

// StoreAway is true while the store cannot be reached.
func (s *Service) StoreAway() bool { return s.storeAway.Load() }
