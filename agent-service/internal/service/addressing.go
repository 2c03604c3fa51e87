// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// ChoosePools makes a bound host that is not being installed wait for addresses of other pools.
func (s *Machines) ChoosePools(ctx context.Context, key domain.HostKey, clusterID string, pools []domain.AddressPool) error {
	return s.learn(ctx, key, func(_ context.Context, w *transaction.Work, h *domain.Host) error {
		if h.ClusterID == clusterID && h.NeedsAddresses() {
			w.Address(h, pools)
		}
		return nil
	})
}

// NoteAddressing keeps what the claims of a host say, where the host is as it was when they were read: was is its former Addressing, and state its former state.
func (s *Machines) NoteAddressing(ctx context.Context, was *domain.Host, is domain.Addressing) error {
	return s.learn(ctx, was.HostKey, func(_ context.Context, _ *transaction.Work, h *domain.Host) error {
		if !h.AddressedAs(was) {
			return nil // its change is notified, and the claims are looked at again
		}
		is.Missing = domain.Truncate(domain.WithoutSecrets(is.Missing), 1000)
		h.Addressing = is
		return nil
	})
}
