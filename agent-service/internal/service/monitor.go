// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hostcache"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

const (
	tickInterval = time.Second
	// longestTick is how much time one tick counts at most: a process that was suspended got no polls.
	longestTick = 3 * tickInterval
)

// tick does what is due.
func (s *Service) tick(ctx context.Context) {
	away := s.storeAway.Load()
	if away {
		away = s.noted(s.engine.Store.Ping(ctx)) != nil
	}
	now := s.engine.Clock.Advance(s.Now(), longestTick, away)
	if away {
		return
	}
	if !s.memory.Loaded() {
		if err := s.memory.Load(ctx); err != nil {
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
	// Should a replica be lost before it saves its heartbeats, this one has to see its hosts time out.
	if err := s.memory.ReadChanged(ctx); err != nil {
		s.Log.Warn("did not read hosts that other replicas changed", zap.Error(err))
	}
	if s.EventRetention > 0 && now-s.prunedAt >= pruneInterval {
		s.pruneEvents(ctx, now)
	}
	for _, e := range s.engine.Hosts.All() {
		h, age := e.Age(now)
		if verb, due := hostplan.Overdue(h, age.Silent, age.InState, age.InStage); due {
			if err := s.applyTimeout(ctx, h, verb); err != nil {
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

// pruneEvents deletes events that are older than they are kept. The rest of many is deleted with the next ticks.
func (s *Service) pruneEvents(ctx context.Context, now time.Duration) {
	for range pruneBatches {
		n, err := s.engine.Store.PruneEvents(ctx, s.Now().Add(-s.EventRetention), pruneBatch)
		if s.noted(err) != nil {
			s.Log.Warn("did not delete old events", zap.Error(err))
		}
		if err != nil || n < pruneBatch {
			s.prunedAt = now
			return
		}
	}
}

// applyTimeout applies silence or a time-out to a host. One that is not there any more is forgotten.
func (s *Service) applyTimeout(ctx context.Context, h *domain.Host, verb lifecycle.Verb) error {
	key, state := h.HostKey, h.State
	var err error
	if verb == lifecycle.Refresh {
		err = s.Refresh(ctx, key)
	} else {
		s.Timeouts.Add(1)
		err = s.timeOut(ctx, key, state)
	}
	if domain.KindOf(err) == domain.NotFound {
		s.engine.Hosts.Remove(key)
		return nil
	}
	return err
}

func (s *Service) timeOut(ctx context.Context, key domain.HostKey, state lifecycle.State) error {
	return s.learn(ctx, key, func(ctx context.Context, w *transaction.Work, h *domain.Host) error {
		if h.State != state {
			return nil
		}
		return w.Act(ctx, h, lifecycle.TimeOut, nil)
	})
}

// savePolls writes the heartbeats since the last time, in few statements.
func (s *Service) savePolls(ctx context.Context) error {
	polls := s.engine.Hosts.UnsavedPolls()
	if len(polls) == 0 {
		return nil
	}
	if err := s.noted(s.engine.Store.SavePolls(ctx, polls)); err != nil {
		s.engine.Hosts.SaveLater(polls)
		return err
	}
	s.Saved.Add(int64(len(polls)))
	return nil
}

// mergePolls counts polls of other replicas.
func (s *Service) mergePolls(ctx context.Context) {
	if !s.engine.Store.Shared() {
		return
	}
	polls, mark, err := s.engine.Store.PollsSince(ctx, s.pollsRead)
	if s.noted(err) != nil {
		return
	}
	s.pollsRead = mark
	// New reports were saved since the last look, and came not longer than that before.
	longest := 2 * s.SaveInterval
	for _, one := range polls {
		if s.engine.Hosts.Merge(one, longest) {
			continue
		}
		// It registered elsewhere. If that replica goes, this one sees whether the host does, too.
		if _, err := s.memory.Entry(ctx, one.HostKey); err == nil {
			s.engine.Hosts.Merge(one, longest)
		}
	}
}

// Census counts hosts by state, from memory, and how many of them are connected.
func (s *Service) Census() (states map[lifecycle.State]int, connected int) {
	return s.engine.Hosts.Census()
}

// Waits counts hosts by situation.
func (s *Service) Waits() map[domain.Situation]hostcache.Wait { return s.engine.Hosts.Waits() }

// StoreAway is true while the store cannot be reached.
func (s *Service) StoreAway() bool { return s.storeAway.Load() }
