// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bodyroom bounds how much memory the bodies of HTTP requests take together, and what each caller takes of it.
package bodyroom

import (
	"context"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// Memory that the bodies of requests may take together. To read and understand one takes about six times its size. Small ones have a room of their own,
// so that large ones do not keep heartbeats and reports of machines waiting.
const (
	smallBody   = 256 << 10
	smallBodies = 16 << 20
	largeBodies = 32 << 20
	// smallShare is what small bodies of one caller may take. Of large ones each caller has one at a time.
	smallShare = 2 << 20
	// roomWait is how long a request waits for room.
	roomWait = 10 * time.Second
	// smallTime and largeTime are how long a body may take to arrive: it takes its room from the beginning.
	smallTime = 30 * time.Second
	largeTime = 2 * time.Minute
)

// Room bounds how much memory the bodies of requests take.
type Room struct {
	small, large *semaphore.Weighted

	mu sync.Mutex
	// shares are what each caller takes of the small room, and whether it has a large body.
	shares map[string]share
}

type share struct {
	small int64
	large bool
}

// New returns a room in which no body is yet.
func New() *Room {
	return &Room{small: semaphore.NewWeighted(smallBodies), large: semaphore.NewWeighted(largeBodies), shares: map[string]share{}}
}

// Enter takes room for the body of a request of a caller until leave is called. A body whose size is not known may have up to limit bytes. Errors: a
// refusal TooMany where the caller has its share already, Unavailable where there is no room within ten seconds.
func (m *Room) Enter(w http.ResponseWriter, r *http.Request, who string, limit int64) (leave func(), err error) {
	size := r.ContentLength
	switch {
	case size == 0 || r.Body == nil || r.Body == http.NoBody:
		return func() {}, nil
	case size < 0:
		size = limit
	}
	if err := m.charge(who, size); err != nil {
		return nil, err
	}
	of, arrives := m.small, smallTime
	if size > smallBody {
		of, arrives = m.large, largeTime
	}
	ctx, cancel := context.WithTimeout(r.Context(), roomWait)
	defer cancel()
	if err := of.Acquire(ctx, size); err != nil {
		m.refund(who, size)
		return nil, domain.Refuse(domain.Unavailable, "Busy", "the service has no room for requests of this size at the moment; try again")
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(arrives)) // tests have writers without one
	return func() {
		of.Release(size)
		m.refund(who, size)
	}, nil
}

// charge refuses callers that have their share already.
func (m *Room) charge(who string, size int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	has := m.shares[who]
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
	m.shares[who] = has
	return nil
}

func (m *Room) refund(who string, size int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	has := m.shares[who]
	if size > smallBody {
		has.large = false
	} else {
		has.small -= size
	}
	if m.shares[who] = has; has == (share{}) {
		delete(m.shares, who)
	}
}

// Arrived lets the connection go on without a deadline once the body is read.
func Arrived(w http.ResponseWriter) { _ = http.NewResponseController(w).SetReadDeadline(time.Time{}) }
