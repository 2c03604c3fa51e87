// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package feed hands changes to subscribers.
package feed

import (
	"context"
	"slices"
	"sync"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// Feed hands changes to subscriptions. The zero value is ready.
type Feed struct {
	mu   sync.Mutex
	subs []*Subscription
}

// Subscribe begins to collect changes. Repeats are folded, nothing is lost, and no subscriber delays another.
func (f *Feed) Subscribe() *Subscription {
	s := &Subscription{feed: f, pending: map[domain.Change]struct{}{}, wake: make(chan struct{}, 1)}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.subs = append(f.subs, s)
	return s
}

// Publish never blocks.
func (f *Feed) Publish(changes ...domain.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.subs {
		s.add(changes)
	}
}

// Subscription collects changes until they are asked for.
type Subscription struct {
	feed    *Feed
	mu      sync.Mutex
	order   []domain.Change
	pending map[domain.Change]struct{}
	wake    chan struct{}
}

func (s *Subscription) add(changes []domain.Change) {
	s.mu.Lock()
	for _, c := range changes {
		if _, there := s.pending[c]; !there {
			s.pending[c] = struct{}{}
			s.order = append(s.order, c)
		}
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Next waits for changes and returns all that came since the last call, in order, each once. It returns ctx's error when ctx ends.
func (s *Subscription) Next(ctx context.Context) ([]domain.Change, error) {
	for {
		s.mu.Lock()
		changes := s.order
		s.order = nil
		clear(s.pending)
		s.mu.Unlock()
		if len(changes) > 0 {
			return changes, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.wake:
		}
	}
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	s.feed.subs = slices.DeleteFunc(s.feed.subs, func(other *Subscription) bool { return other == s })
}
