// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package logarchive

import (
	"context"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

const (
	// atOnce is how many archives are in memory at a time, and maxWait how long a download waits for its turn.
	atOnce  = 4
	maxWait = 30 * time.Second
	// stall is how long a client may take for a part of an archive, and whole for all of it: it has a turn meanwhile.
	stall    = 30 * time.Second
	whole    = 10 * time.Minute
	partSize = 256 << 10
)

// Turns bound how many archives of logs are in memory at a time.
type Turns struct{ free *semaphore.Weighted }

// NewTurns returns turns of which none is taken.
func NewTurns() *Turns { return &Turns{semaphore.NewWeighted(atOnce)} }

// Take waits for a turn. It fails with a refusal Unavailable where none is free in time.
func (t *Turns) Take(ctx context.Context) (release func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	if err := t.free.Acquire(waiting, 1); err != nil {
		refusal := domain.Refuse(domain.Unavailable, "LogsBusy", "others download logs at the moment; try again")
		refusal.RetryAfter = maxWait
		return nil, refusal
	}
	return func() { t.free.Release(1) }, nil
}

// paced writes in parts, each of which the client has to take in time, and all of one Write in another time.
func paced(w http.ResponseWriter) *pacedWriter {
	return &pacedWriter{w, http.NewResponseController(w), stall, whole}
}

type pacedWriter struct {
	http.ResponseWriter
	connection   *http.ResponseController
	stall, whole time.Duration
}

// Write implements io.Writer. The connection has no deadline between parts: the next archive is read then.
func (p *pacedWriter) Write(b []byte) (written int, err error) {
	until := time.Now().Add(p.whole)
	for written < len(b) && err == nil {
		deadline := time.Now().Add(p.stall)
		if until.Before(deadline) {
			deadline = until
		}
		_ = p.connection.SetWriteDeadline(deadline) // the console has a writer without one
		var n int
		n, err = p.ResponseWriter.Write(b[written:min(len(b), written+partSize)])
		written += n
	}
	_ = p.connection.SetWriteDeadline(time.Time{})
	return written, err
}
