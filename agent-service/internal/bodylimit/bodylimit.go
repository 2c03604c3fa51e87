// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bodylimit bounds how much memory the bodies of HTTP requests take together, and what each caller takes of it.
package bodylimit

import (
	"context"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// Memory that the bodies of requests may take together. To read and decode one takes about six times its size. Small ones have memory of their own,
// so that heartbeats and reports of machines do not wait for large ones.
const (
	smallBody   = 256 << 10
	smallBodies = 16 << 20
	largeBodies = 32 << 20
	// smallShare is what small bodies of one caller may take. Of large ones each caller has one at a time.
	smallShare = 2 << 20
	// maxWait is how long a request waits for memory.
	maxWait = 10 * time.Second
	// smallTime and largeTime are how long a body may take to arrive: its memory is reserved from the beginning.
	smallTime = 30 * time.Second
	largeTime = 2 * time.Minute
)

// Limiter reserves memory for the bodies of requests.
type Limiter struct {
	small, large *semaphore.Weighted

	mu sync.Mutex
	// shares are what each caller has reserved for small bodies, and whether it has a large one.
	shares map[string]share
}

type share struct {
	small int64
	large bool
}

// New returns a Limiter without reservations.
func New() *Limiter {
	return &Limiter{small: semaphore.NewWeighted(smallBodies), large: semaphore.NewWeighted(largeBodies), shares: map[string]share{}}
}

// Reserve reserves memory for the body of a caller's request until release is called. A body whose size is not known may have up to limit bytes. Errors: a
// refusal TooMany where the caller has its share already, Unavailable where no memory is free within ten seconds.
func (l *Limiter) Reserve(w http.ResponseWriter, r *http.Request, caller string, limit int64) (release func(), err error) {
	size := r.ContentLength
	switch {
	case size == 0 || r.Body == nil || r.Body == http.NoBody:
		return func() {}, nil
	case size < 0:
		size = limit
	}
	if err := l.charge(caller, size); err != nil {
		return nil, err
	}
	of, arrives := l.small, smallTime
	if size > smallBody {
		of, arrives = l.large, largeTime
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxWait)
	defer cancel()
	if err := of.Acquire(ctx, size); err != nil {
		l.refund(caller, size)
		return nil, domain.Refuse(domain.Unavailable, "Busy", "the service has no room for requests of this size at the moment; try again")
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(arrives)) // tests have writers without one
	return func() {
		of.Release(size)
		l.refund(caller, size)
	}, nil
}

// charge refuses callers that have their share already.
func (l *Limiter) charge(caller string, size int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	has := l.shares[caller]
	if size > smallBody && has.large || size <= smallBody && has.small+size > smallShare {
		refusal := domain.Refuse(domain.TooMany, "BodiesTooMany", "another request of this size is not finished yet; send one after the other")
		refusal.RetryAfter = 2 * time.Second
		return refusal
	}
	if size > smallBody {
		has.large = true
	} else {
		has.small += size
	}
	l.shares[caller] = has
	return nil
}

func (l *Limiter) refund(caller string, size int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	has := l.shares[caller]
	if size > smallBody {
		has.large = false
	} else {
		has.small -= size
	}
	if l.shares[caller] = has; has == (share{}) {
		delete(l.shares, caller)
	}
}

// Arrived lets the connection go on without a deadline once the body is read.
func Arrived(w http.ResponseWriter) { _ = http.NewResponseController(w).SetReadDeadline(time.Time{}) }
