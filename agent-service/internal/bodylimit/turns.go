// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package bodylimit

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// Turns are taken by those who send something that is large: one by each at a time.
type Turns[K comparable] struct {
	most int

	mu    sync.Mutex
	taken map[K]struct{}
}

// NewTurns returns so many turns.
func NewTurns[K comparable](most int) *Turns[K] {
	return &Turns[K]{most: most, taken: map[K]struct{}{}}
}

// Take returns nil where no turn is free, or the caller has one already.
func (t *Turns[K]) Take(caller K) (release func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, has := t.taken[caller]; has || len(t.taken) >= t.most {
		return nil
	}
	t.taken[caller] = struct{}{}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.taken, caller)
	}
}

// Paced is a body that ends with an error where its client sends nothing for a time, or has not sent it whole in another: who reads it has a turn.
func Paced(w http.ResponseWriter, body io.ReadCloser, pause, whole time.Duration) io.ReadCloser {
	return &paced{ReadCloser: body, connection: http.NewResponseController(w), pause: pause, whole: whole}
}

type paced struct {
	io.ReadCloser
	connection   *http.ResponseController
	pause, whole time.Duration
	// until is when the body has to be there, zero before its first byte is read.
	until time.Time
}

// Read implements io.Reader. The connection has no deadline between reads: one that passes while the request is worked on would end it.
func (p *paced) Read(b []byte) (int, error) {
	now := time.Now()
	if p.until.IsZero() {
		p.until = now.Add(p.whole)
	}
	deadline := now.Add(p.pause)
	if p.until.Before(deadline) {
		deadline = p.until
	}
	_ = p.connection.SetReadDeadline(deadline) // tests have writers without one
	n, err := p.ReadCloser.Read(b)
	if err == nil || errors.Is(err, io.EOF) {
		_ = p.connection.SetReadDeadline(time.Time{})
	}
	return n, err
}
