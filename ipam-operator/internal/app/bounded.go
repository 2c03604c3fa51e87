// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

const (
	// maxReview is how large a request to convert may be, in bytes: a list of some thousand templates.
	maxReview = 16 << 20
	// reviewTimeout is how long a request may take to be received, converted and answered.
	reviewTimeout = 10 * time.Second
)

// boundedServer is a webhook server whose requests cost little memory, from any client: its port is open to all that reach the pod, and the conversion of controller-runtime
// reads requests of any size. Requests are served one at a time, each for a limited time.
type boundedServer struct {
	webhook.Server
	timeout time.Duration
}

// Register implements webhook.Server.
func (s *boundedServer) Register(path string, hook http.Handler) {
	turn := make(chan struct{}, 1)
	bounded := http.MaxBytesHandler(hook, maxReview)
	s.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case turn <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		defer func() { <-turn }()
		// A connection without deadlines serves as long as its client likes. The one for writes would last for later requests of the connection.
		connection, end := http.NewResponseController(w), time.Now().Add(s.timeout)
		if connection.SetReadDeadline(end) != nil || connection.SetWriteDeadline(end) != nil {
			http.Error(w, "a request cannot be limited in time", http.StatusInternalServerError)
			return
		}
		defer func() { _ = connection.SetWriteDeadline(time.Time{}) }()
		bounded.ServeHTTP(w, r)
	}))
}
