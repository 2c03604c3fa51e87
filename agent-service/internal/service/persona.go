// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// stake is what a principal has to do with a host: its InfraEnv is theirs, the cluster that it is in, both, or neither.
type stake struct {
	owns bool
	uses bool
}

// stakeIn is the stake of a principal in a host; owner is that of its cluster, nil for a free host.
func stakeIn(by domain.Principal, h *domain.Host, owner *domain.Owner) stake {
	return stake{owns: by.Owns(h.Owner), uses: owner != nil && by.Owns(*owner)}
}

// settles is true for who says how the host is used: who owns it while it is free, and who uses it while it is bound.
func (s stake) settles(h *domain.Host) bool { return s.uses || s.owns && h.ClusterID == "" }

// shown is what the principal may see of a host. The owner of the InfraEnv does not see what the user of the cluster says of it, who does not see whose it is.
func (s stake) shown(h domain.Host) *domain.Host {
	if !s.owns {
		h.Owner = domain.Owner{}
	}
	if !s.settles(&h) {
		h.HostSettings = domain.HostSettings{Approved: h.Approved, Role: h.Role, RequestedHostname: h.FreeHostname}
		h.StateInfo, h.Validations, h.Progress.Info = "The host is in a cluster of another user", nil, ""
	}
	return &h
}

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
func stakes(ctx context.Context, r Reader, by domain.Principal, hosts []domain.Host) ([]stake, error) {
	owners := map[string]*domain.Owner{}
	found := make([]stake, 0, len(hosts))
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
		found = append(found, stakeIn(by, h, owner))
	}
	return found, nil
}

// stake is that of a principal in a host of this transaction.
func (w *work) stake(ctx context.Context, by domain.Principal, h *domain.Host) (stake, error) {
	if by.Admin {
		return stake{owns: true, uses: true}, nil
	}
	c, err := w.cluster(ctx, h.ClusterID)
	if err != nil || c == nil {
		return stakeIn(by, h, nil), err
	}
	return stakeIn(by, h, &c.Owner), nil
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
	if err != nil || s.settles(h) {
		return err
	}
	return domain.Refuse(domain.Conflict, "HostUsedByAnother", "host %s is in a cluster of another user, who alone says how it is used: unbind it first", h.HostID)
}

// MayActAs implements Hosts.
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
			if err != nil || stakeIn(by, h, owner).settles(h) {
				return err
			}
		}
		return domain.RefuseUnknown("Host", key.HostID)
	})
}
