// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// clusterOwner is the owner of the cluster that a host is in, nil for a free one.
func clusterOwner(ctx context.Context, r Reader, h *domain.Host) (*domain.Owner, error) {
	if h.ClusterID == "" {
		return nil, nil
	}
	c, err := r.Cluster(ctx, h.ClusterID)
	if err != nil || c == nil {
		return nil, err
	}
	return &c.Owner, nil
}

// stakes are those of a principal in many hosts, in their order.
func stakes(ctx context.Context, r Reader, by domain.Principal, hosts []domain.Host) ([]domain.Stake, error) {
	owners := map[string]*domain.Owner{}
	found := make([]domain.Stake, 0, len(hosts))
	for i := range hosts {
		h := &hosts[i]
		owner, known := owners[h.ClusterID]
		if !known {
			var err error
			if owner, err = clusterOwner(ctx, r, h); err != nil {
				return nil, err
			}
			owners[h.ClusterID] = owner
		}
		found = append(found, domain.StakeIn(by, h, owner))
	}
	return found, nil
}

// stake is that of a principal in a host of this transaction.
func (w *work) stake(ctx context.Context, by domain.Principal, h *domain.Host) (domain.Stake, error) {
	if by.Admin {
		return domain.Stake{Owns: true, Uses: true}, nil
	}
	c, err := w.cluster(ctx, h.ClusterID)
	if err != nil || c == nil {
		return domain.StakeIn(by, h, nil), err
	}
	return domain.StakeIn(by, h, &c.Owner), nil
}

// keeps refuses what only the owner of the InfraEnv does: to bind a host, to move it, to delete it and to revoke its tokens.
func (w *work) keeps(by domain.Principal, h *domain.Host) error {
	if by.Owns(h.Owner) {
		return nil
	}
	return domain.Refuse(domain.Conflict, "HostOfAnother", "host %s belongs to the owner of its InfraEnv, who alone binds, moves and deletes it", h.HostID)
}

// settles refuses what only the user of the cluster does while the host is in it.
func (w *work) settles(ctx context.Context, by domain.Principal, h *domain.Host) error {
	s, err := w.stake(ctx, by, h)
	if err != nil || s.Settles(h) {
		return err
	}
	return domain.Refuse(domain.Conflict, "HostUsedByAnother", "host %s is in a cluster of another user, who alone says how it is used: unbind it first", h.HostID)
}

// MayActAs is nil for people who may do what the agent of a host does, and see what it sees: the owner of a free host, the user of a bound one; else NotFound.
func (s *Service) MayActAs(ctx context.Context, by domain.Principal, key domain.HostKey) error {
	if by.Admin {
		return nil
	}
	return s.view(ctx, func(ctx context.Context, r Reader) error {
		h, err := r.Host(ctx, key)
		if err != nil {
			return err
		}
		if h != nil {
			owner, err := clusterOwner(ctx, r, h)
			if err != nil || domain.StakeIn(by, h, owner).Settles(h) {
				return err
			}
		}
		return domain.RefuseUnknown("Host", key.HostID)
	})
}
