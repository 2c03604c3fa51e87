// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"sync"
	"time"
)

// Registry holds the pollers, one per endpoint, for as long as some resource uses them.
type Registry struct {
	mu      sync.Mutex
	entries map[string]*entry
	// base ends all pollers; it is set when the registry starts.
	base    context.Context //nolint:containedctx // pollers outlive the call that asks for them
	wg      sync.WaitGroup
	observe func(endpoint, kind string, took time.Duration, err error)
}

type entry struct {
	poller *Poller
	// endpoint names the Ironic for people, began is when a resource first asked for it.
	endpoint string
	began    time.Time
	cancel   context.CancelFunc
	users    map[string]user
}

type user struct {
	session string
	pace    Pace
	notify  func()
}

// NewRegistry makes an empty registry. observe is called for each reading and may be nil.
func NewRegistry(observe func(endpoint, kind string, took time.Duration, err error)) *Registry {
	return &Registry{entries: map[string]*entry{}, observe: observe}
}

// Start lets pollers run until the context ends. It implements a manager's Runnable.
func (r *Registry) Start(ctx context.Context) error {
	r.mu.Lock()
	r.base = ctx
	for _, e := range r.entries {
		r.run(e) //nolint:contextcheck // it runs with the context that was just stored
	}
	r.mu.Unlock()
	<-ctx.Done()
	r.mu.Lock()
	r.base = nil // no poller begins any more
	r.mu.Unlock()
	r.wg.Wait()
	return nil
}

// NeedLeaderElection makes only the leader poll.
func (r *Registry) NeedLeaderElection() bool { return true }

// run starts the poller of an entry. The lock is held.
func (r *Registry) run(e *entry) {
	ctx, cancel := context.WithCancel(r.base)
	e.cancel = cancel
	r.wg.Go(func() { e.poller.Run(ctx) })
}

// Use returns the view of a session at an endpoint, and counts the user among those who share it. The key tells endpoints apart; the
// fastest pace of all users who may see it counts.
func (r *Registry) Use(name, key, endpoint string, to Session, pace Pace, notify func()) *View {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[key]
	fresh := e == nil
	if fresh {
		e = &entry{users: map[string]user{}, endpoint: endpoint, began: time.Now()}
		e.poller = NewPoller(func() { r.notify(key) }, func(kind string, took time.Duration, err error) {
			if r.observe != nil {
				r.observe(endpoint, kind, took, err)
			}
		})
		r.entries[key] = e
	}
	old, moved := e.users[name]
	e.users[name] = user{to.Key, pace, notify}
	for _, u := range e.users {
		if u.session == to.Key {
			pace.News, pace.Full = min(pace.News, u.pace.News), min(pace.Full, u.pace.Full)
		}
	}
	view := e.poller.Open(to, pace)
	if moved {
		e.leave(old.session)
	}
	r.release(name, key)
	if fresh && r.base != nil {
		r.run(e)
	}
	return view
}

// leave ends a session that has no users any more.
func (e *entry) leave(session string) {
	for _, u := range e.users {
		if u.session == session {
			return
		}
	}
	e.poller.end(session)
}

// Release ends a user's share of all pollers.
func (r *Registry) Release(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.release(name, "")
}

// release takes the user out of all entries but the one to keep, and ends those without users. The lock is held.
func (r *Registry) release(name, keep string) {
	for key, e := range r.entries {
		u, uses := e.users[name]
		if !uses || key == keep {
			continue
		}
		delete(e.users, name)
		if len(e.users) > 0 {
			e.leave(u.session)
			continue
		}
		if e.cancel != nil {
			e.cancel()
		}
		delete(r.entries, key)
	}
}

func (r *Registry) notify(key string) {
	r.mu.Lock()
	var calls []func()
	if e := r.entries[key]; e != nil {
		for _, u := range e.users {
			calls = append(calls, u.notify)
		}
	}
	r.mu.Unlock()
	for _, call := range calls {
		call()
	}
}

// Reading is when one Ironic was last read.
type Reading struct {
	Endpoint string
	// News is the last success of any reading, Full that of a reading of everything; until then, when a resource first asked for it.
	News, Full time.Time
	Pace       Pace
}

// Readings are those of all pollers.
func (r *Registry) Readings() []Reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Reading, 0, len(r.entries))
	for _, e := range r.entries {
		reading := e.poller.reading()
		reading.Endpoint = e.endpoint
		if reading.News.IsZero() {
			reading.News = e.began
		}
		if reading.Full.IsZero() {
			reading.Full = e.began
		}
		out = append(out, reading)
	}
	return out
}

// Len is the number of pollers.
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.entries)
}
