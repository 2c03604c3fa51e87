// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// clusterOwner is the owner of the cluster that a host is in, nil for a free one.
func clusterOwner(ctx context.Context, r transaction.ClusterReader, h *domain.Host) (*domain.Owner, error) {
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
func stakes(ctx context.Context, r transaction.ClusterReader, by domain.Principal, hosts []domain.Host) ([]domain.Stake, error) {
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

// MayActAs is nil for people who may do what the agent of a host does, and see what it sees: the owner of a free host, the user of a bound one; else NotFound.
func (s *Hosts) MayActAs(ctx context.Context, by domain.Principal, key domain.HostKey) error {
	if by.Admin {
		return nil
	}
	return s.engine.View(ctx, func(ctx context.Context, r transaction.Reader) error {
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

// Sees says whether a change is of an object that the principal may see. Of events without another change, only administrators are told; of what was deleted, too.
func (s *Service) Sees(ctx context.Context, by domain.Principal, change domain.Change) (bool, error) {
	if by.Admin || change.Kind == domain.EverythingChanged {
		return true, nil
	}
	var err error
	switch change.Kind {
	case domain.HostChanged:
		_, err = s.GetHost(ctx, by, change.Host)
	case domain.ClusterChanged:
		_, err = s.GetCluster(ctx, by, change.ID)
	case domain.InfraEnvChanged:
		_, err = s.GetInfraEnv(ctx, by, change.ID)
	case domain.EventAdded, domain.EverythingChanged:
		return false, nil
	}
	if domain.KindOf(err) == domain.NotFound {
		return false, nil
	}
	return err == nil, err
}
