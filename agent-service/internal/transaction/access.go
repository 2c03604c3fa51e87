// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"context"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// Stake is that of a principal in a host of this transaction.
func (w *Work) Stake(ctx context.Context, by domain.Principal, h *domain.Host) (domain.Stake, error) {
	if by.Admin {
		return domain.Stake{Owns: true, Uses: true}, nil
	}
	c, err := w.TrackCluster(ctx, h.ClusterID)
	if err != nil || c == nil {
		return domain.StakeIn(by, h, nil), err
	}
	return domain.StakeIn(by, h, &c.Owner), nil
}

// Keeps refuses what only the owner of the InfraEnv does: to bind a host, to move it, to delete it and to revoke its tokens.
func (w *Work) Keeps(by domain.Principal, h *domain.Host) error {
	if by.Owns(h.Owner) {
		return nil
	}
	return domain.Refuse(domain.Conflict, "HostOfAnother", "host %s belongs to the owner of its InfraEnv, who alone binds, moves and deletes it", h.HostID)
}

// Settles refuses what only the user of the cluster does while the host is in it.
func (w *Work) Settles(ctx context.Context, by domain.Principal, h *domain.Host) error {
	s, err := w.Stake(ctx, by, h)
	if err != nil || s.Settles(h) {
		return err
	}
	return domain.Refuse(domain.Conflict, "HostUsedByAnother", "host %s is in a cluster of another user, who alone says how it is used: unbind it first", h.HostID)
}

// OwnInfraEnv reads an InfraEnv of the principal; NotFound for those of others.
func OwnInfraEnv(ctx context.Context, r InfraEnvReader, by domain.Principal, id string) (*domain.InfraEnv, error) {
	e, err := r.InfraEnv(ctx, id)
	if err != nil {
		return nil, err
	}
	if e == nil || !by.Owns(e.Owner) {
		return nil, domain.RefuseUnknown("InfraEnv", id)
	}
	return e, nil
}

// OwnCluster reads a cluster of the principal; NotFound for those of others.
func OwnCluster(ctx context.Context, r ClusterReader, by domain.Principal, id string) (*domain.Cluster, error) {
	c, err := r.Cluster(ctx, id)
	if err != nil {
		return nil, err
	}
	if c == nil || !by.Owns(c.Owner) {
		return nil, domain.RefuseUnknown("Cluster", id)
	}
	return c, nil
}
