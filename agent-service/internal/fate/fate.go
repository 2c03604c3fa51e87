// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fate lets processes of tests die in the middle of what they do: at the n-th transaction that changes something, or the n-th write to the Kubernetes
// API. The database and the API server are real, and go on.
package fate

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/service"
)

// ErrDead is what a dead process gets of everything that it tries.
var ErrDead = errors.New("the process is dead")

// Fate is the death of one process. Nothing that it begins later happens; what runs already may end, as it may in a database or an API server whose client
// is gone.
type Fate struct {
	// End is called at the moment of death, nil for nothing.
	End func()

	at   int
	late bool

	mu   sync.Mutex
	acts int
	dead chan struct{}
}

// At is a death at the n-th act: before it, or late, when it is done and nobody knows. Zero is never.
func At(n int, late bool) *Fate { return &Fate{at: n, late: late, dead: make(chan struct{})} }

// Never is the fate of a process that does not die.
func Never() *Fate { return At(0, false) }

// Succession is processes that follow each other. Every Period-th act of theirs, from the First on, is deadly: a process dies before it, and the next one,
// which does it again, after it. So successions of one Period with First from 1 to Period leave out no act. A Period of 1 is too short for acts that are
// done again where their answer was lost.
type Succession struct {
	First, Period int

	begun int
}

// Next is the fate of the next process.
func (s *Succession) Next() *Fate {
	s.begun++
	switch {
	case s.begun == 1:
		return At(s.First, false)
	case s.begun%2 == 0:
		return At(1, true)
	}
	return At(s.Period, false)
}

// Deaths is how many processes died.
func (s *Succession) Deaths() int { return s.begun - 1 }

// Dead is closed by death.
func (f *Fate) Dead() <-chan struct{} { return f.dead }

// Acts are those that were begun.
func (f *Fate) Acts() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.acts
}

// Alive is an error for a dead process.
func (f *Fate) Alive() error {
	select {
	case <-f.dead:
		return ErrDead
	default:
		return nil
	}
}

// begin counts an act. The act does not happen where that is an error.
func (f *Fate) begin() (last bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.Alive(); err != nil {
		return false, err
	}
	f.acts++
	if f.acts != f.at {
		return false, nil
	}
	if f.late {
		return true, nil
	}
	return false, f.die()
}

// finish is an error where nobody may know that the act is done.
func (f *Fate) finish(last bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last {
		return f.die()
	}
	return f.Alive()
}

func (f *Fate) die() error {
	// The end comes first: nobody is told of a death by the one who dies.
	if f.End != nil {
		f.End()
	}
	close(f.dead)
	return ErrDead
}

// Store is a store as the process uses it. Its acts are transactions that change something.
func (f *Fate) Store(s service.Store) service.Store { return store{s, f} }

type store struct {
	service.Store
	fate *Fate
}

// witness sees whether a transaction changes something.
type witness struct {
	service.Tx
	changes bool
}

// Announce implements service.Tx.
func (w *witness) Announce(changes ...domain.Change) {
	w.changes = w.changes || len(changes) > 0
	w.Tx.Announce(changes...)
}

// Update implements service.Store.
func (s store) Update(ctx context.Context, do func(context.Context, service.Tx) error) error {
	var counted, last bool
	err := s.Store.Update(ctx, func(ctx context.Context, tx service.Tx) (err error) {
		w := &witness{Tx: tx}
		if err := do(ctx, w); err != nil {
			return err
		}
		if w.changes && !counted { // it runs again where another one was in the way
			counted = true
			last, err = s.fate.begin()
		}
		return err
	})
	if err != nil {
		return err
	}
	return s.fate.finish(last)
}

// View implements service.Store.
func (s store) View(ctx context.Context, do func(context.Context, service.Reader) error) error {
	if err := s.fate.Alive(); err != nil {
		return err
	}
	return s.Store.View(ctx, do)
}

// SavePolls implements service.Store.
func (s store) SavePolls(ctx context.Context, polls []domain.Poll) error {
	if err := s.fate.Alive(); err != nil {
		return err
	}
	return s.Store.SavePolls(ctx, polls)
}

// Kill is a death at any time.
func (f *Fate) Kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Alive() == nil {
		_ = f.die()
	}
}

// Transport is the way to the Kubernetes API as the process uses it. Its acts are writes, but for events, which may be lost.
func (f *Fate) Transport(next http.RoundTripper) http.RoundTripper { return transport{next, f} }

type transport struct {
	next http.RoundTripper
	fate *Fate
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	last := false
	if err := t.fate.Alive(); err != nil {
		return nil, err
	}
	if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/namespaces/") && !strings.Contains(r.URL.Path, "/events") {
		var err error
		if last, err = t.fate.begin(); err != nil {
			return nil, err
		}
	}
	answer, err := t.next.RoundTrip(r)
	if dead := t.fate.finish(last); dead != nil {
		if err == nil {
			_ = answer.Body.Close()
		}
		return nil, dead
	}
	return answer, err
}
