// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"time"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// Tick does what Run does once a second.
func Tick(ctx context.Context, s *Service) { s.tick(ctx) }

// Listen hears other replicas as Run does, until ctx ends.
func Listen(ctx context.Context, s *Service) error {
	return s.engine.Store.Listen(ctx, s.notified, s.disconnect)
}

// Review makes the next refresh of a cluster assess all of its hosts, or only those that it changes.
func Review(s *Service, id string, due bool) {
	if due {
		s.engine.Reviews.Forget(id)
	} else {
		s.engine.Reviews.Done(id, s.engine.Clock.Now()+time.Hour)
	}
}

// Woken returns what says whether a host was shown another version since.
func Woken(s *Service, key domain.HostKey) func() bool {
	_, wake, _ := s.engine.Hosts.Get(key).Watch()
	return func() bool {
		select {
		case <-wake:
			return true
		default:
			return false
		}
	}
}

// Notify is what the service does when other replicas committed changes.
func Notify(s *Service, changes ...domain.Change) { s.notified(changes) }
