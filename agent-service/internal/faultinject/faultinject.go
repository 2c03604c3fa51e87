// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faultinject crashes processes of tests in the middle of what they do: at the n-th transaction that changes something, or the n-th write to the Kubernetes
// API. The database and the API server are real, and go on.
package faultinject

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// ErrCrashed is the result of all that a crashed process tries.
var ErrCrashed = errors.New("the process crashed")

// Injector crashes one process. Calls that begin later do not take place; those that run already may end, as it may in a database or an API server whose client
// is gone.
type Injector struct {
	// End is called at the moment of the crash, nil for nothing.
	End func()

	at   int
	late bool

	mu      sync.Mutex
	writes  int
	crashed chan struct{}
}

// At crashes at the n-th write: before it, or late, when it is done and its answer is lost. Zero is never.
func At(n int, late bool) *Injector {
	return &Injector{at: n, late: late, crashed: make(chan struct{})}
}

// Never does not crash a process.
func Never() *Injector { return At(0, false) }

// Sequence is processes that follow each other. Every Period-th write of theirs, from the First on, crashes one: a process crashes before it, and the next one, which
// does it again, after it. So sequences of one Period with First from 1 to Period leave out no write. A Period of 1 is too short for writes that are done again where
// their answer was lost.
type Sequence struct {
	First, Period int

	begun atomic.Int64
}

// Next is the injector of the next process.
func (s *Sequence) Next() *Injector {
	switch begun := s.begun.Add(1); {
	case begun == 1:
		return At(s.First, false)
	case begun%2 == 0:
		return At(1, true)
	}
	return At(s.Period, false)
}

// Crashes is how many processes crashed.
func (s *Sequence) Crashes() int { return int(s.begun.Load()) - 1 }

// Crashed is closed by the crash.
func (f *Injector) Crashed() <-chan struct{} { return f.crashed }

// Writes are those that were begun.
func (f *Injector) Writes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writes
}

// Err is an error for a process that crashed.
func (f *Injector) Err() error {
	select {
	case <-f.crashed:
		return ErrCrashed
	default:
		return nil
	}
}

// begin counts a write, which does not take place where that is an error.
func (f *Injector) begin() (last bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.Err(); err != nil {
		return false, err
	}
	f.writes++
	if f.writes != f.at {
		return false, nil
	}
	if f.late {
		return true, nil
	}
	return false, f.crash()
}

// finish is an error where the answer to the write is lost.
func (f *Injector) finish(last bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last {
		return f.crash()
	}
	return f.Err()
}

func (f *Injector) crash() error {
	// The end comes first: a process that crashed tells nothing.
	if f.End != nil {
		f.End()
	}
	close(f.crashed)
	return ErrCrashed
}

// Store is a store as the process uses it. Writes are transactions that change something.
func (f *Injector) Store(s transaction.Store) transaction.Store { return store{s, f} }

type store struct {
	transaction.Store
	injector *Injector
}

// observer sees whether a transaction changes something.
type observer struct {
	transaction.Tx
	changes bool
}

// Announce implements transaction.Tx.
func (w *observer) Announce(changes ...domain.Change) {
	w.changes = w.changes || len(changes) > 0
	w.Tx.Announce(changes...)
}

// Update implements transaction.Store.
func (s store) Update(ctx context.Context, do func(context.Context, transaction.Tx) error) error {
	var counted, last bool
	err := s.Store.Update(ctx, func(ctx context.Context, tx transaction.Tx) (err error) {
		w := &observer{Tx: tx}
		if err := do(ctx, w); err != nil {
			return err
		}
		if w.changes && !counted { // it runs again where another one was in the way
			counted = true
			last, err = s.injector.begin()
		}
		return err
	})
	if err != nil {
		return err
	}
	return s.injector.finish(last)
}

// View implements transaction.Store.
func (s store) View(ctx context.Context, do func(context.Context, transaction.Reader) error) error {
	if err := s.injector.Err(); err != nil {
		return err
	}
	return s.Store.View(ctx, do)
}

// SavePolls implements transaction.Store.
func (s store) SavePolls(ctx context.Context, polls []domain.Poll) error {
	if err := s.injector.Err(); err != nil {
		return err
	}
	return s.Store.SavePolls(ctx, polls)
}

// Crash crashes the process now.
func (f *Injector) Crash() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Err() == nil {
		_ = f.crash()
	}
}

// Transport is the way to the Kubernetes API as the process uses it. Writes are all requests that write, but for events, which may be lost.
func (f *Injector) Transport(next http.RoundTripper) http.RoundTripper {
	return transport{next, f, func(r *http.Request) bool {
		return strings.Contains(r.URL.Path, "/namespaces/") && !strings.Contains(r.URL.Path, "/events")
	}}
}

// ClusterTransport is the way to the API of a cluster that takes nodes. Writes are all requests that write.
func (f *Injector) ClusterTransport(next http.RoundTripper) http.RoundTripper {
	return transport{next, f, func(*http.Request) bool { return true }}
}

type transport struct {
	next     http.RoundTripper
	injector *Injector
	counts   func(*http.Request) bool
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	last := false
	if err := t.injector.Err(); err != nil {
		return nil, err
	}
	if r.Method != http.MethodGet && t.counts(r) {
		var err error
		if last, err = t.injector.begin(); err != nil {
			return nil, err
		}
	}
	answer, err := t.next.RoundTrip(r)
	if crashed := t.injector.finish(last); crashed != nil {
		if err == nil {
			_ = answer.Body.Close()
		}
		return nil, crashed
	}
	return answer, err
}
