// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Service knows which claims are being served right now: they were found to be next, and the pass that looks after them has not ended. Others that write much
// can let them go first.
type Service struct {
	mu     sync.Mutex
	claims map[types.NamespacedName]bool
	// idle is closed while no claim is being served.
	idle chan struct{}
}

// NewService returns a Service without claims.
func NewService() *Service {
	s := &Service{claims: map[types.NamespacedName]bool{}, idle: make(chan struct{})}
	close(s.idle)
	return s
}

// Idle returns a channel that is closed when no claim is being served any more; it is closed already if none is now.
func (s *Service) Idle() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idle
}

func (s *Service) begin(claim types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.claims) == 0 {
		s.idle = make(chan struct{})
	}
	s.claims[claim] = true
}

func (s *Service) end(claim types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.claims[claim] {
		return
	}
	delete(s.claims, claim)
	if len(s.claims) == 0 {
		close(s.idle)
	}
}
