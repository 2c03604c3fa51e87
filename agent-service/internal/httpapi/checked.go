// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"net/http"

	"github.com/muster-io/muster/agent-service/internal/bodylimit"
)

// checked refuses what the description of the interface does not allow, with a reason.
func (s *server) checked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit, operation := int64(maxBody), s.operations[r.Pattern]
		if operation.TakesLogs() {
			limit = maxLogs + 64<<10 // the form around the archive
		}
		r.Body = http.MaxBytesReader(w, r.Body, limit)
		if r.ContentLength > limit {
			s.refuse(w, r, &http.MaxBytesError{Limit: limit})
			return
		}
		if operation.TakesLogs() {
			r.Body = bodylimit.Paced(w, r.Body, logsPause, logsTime)
		} else {
			release, err := s.bodies.Reserve(w, r, callerOf(r.Context()).account(r), limit)
			if err != nil {
				s.refuse(w, r, err)
				return
			}
			defer release()
		}
		if err := operation.Check(r); err != nil {
			s.refuse(w, r, err)
			return
		}
		bodylimit.Arrived(w)
		next.ServeHTTP(&begun{ResponseWriter: w}, r)
	})
}

// begun knows whether an answer has begun: then it is too late for another one.
type begun struct {
	http.ResponseWriter
	has bool
}

// WriteHeader implements http.ResponseWriter.
func (b *begun) WriteHeader(status int) {
	b.has = true
	b.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (b *begun) Write(p []byte) (int, error) {
	b.has = true
	return b.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (b *begun) Unwrap() http.ResponseWriter { return b.ResponseWriter }
