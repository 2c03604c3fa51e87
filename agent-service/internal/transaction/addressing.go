// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"context"
	"slices"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// Address makes a host wait for addresses of pools. Addresses that it has of the same pools stay.
func (w *Work) Address(h *domain.Host, pools []domain.AddressPool) {
	if !slices.Equal(h.Addressing.Pools, pools) {
		h.Addressing = domain.Addressing{Installation: w.NewStamp(), Pools: pools}
	}
}

// beginAddressing makes a host that is being bound wait for addresses of the pools that its InfraEnv names.
func (w *Work) beginAddressing(ctx context.Context, h *domain.Host) error {
	e, err := w.InfraEnv(ctx, h.InfraEnvID)
	if err == nil && e != nil {
		w.Address(h, e.NodeAddresses)
	}
	return err
}
