// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

const infoRestored = "Done; the service lost its data since"

// RestoreCluster makes a cluster installed that was installed before the service lost its data. Nothing changes where it is.
func (s *Service) RestoreCluster(ctx context.Context, by domain.Principal, id string, from domain.Restored) (*domain.Cluster, error) {
	return s.changeCluster(ctx, by, id, func(_ context.Context, w *work, c *domain.Cluster, _ []*domain.Host) error {
		if hostplan.TakesDayTwo(c) {
			return nil
		}
		before := c.Status
		c.Restore(&from, w.Now)
		w.TellCluster(c, domain.Warning, "cluster_status_updated", "Updated status of the cluster from %s to %s: its AgentClusterInstall says that it is installed", before, c.Status)
		return nil
	})
}

// RestoreHost brings back an installed host that the service lost with its data: one that is not known, or that came back without its past. It is not
// installed again. Conflict ClusterNotInstalled unless the cluster is installed.
func (s *Service) RestoreHost(ctx context.Context, by domain.Principal, key domain.HostKey, from domain.RestoredHost) (*domain.Host, error) {
	var h *domain.Host
	err := s.update(ctx, func(ctx context.Context, w *work) (err error) {
		h, err = w.restoreHost(ctx, by, key, from)
		return err
	}, from.ClusterID)
	if err != nil {
		return nil, err
	}
	return new(*h), nil
}

func (w *work) restoreHost(ctx context.Context, by domain.Principal, key domain.HostKey, from domain.RestoredHost) (*domain.Host, error) {
	e, err := w.InfraEnv(ctx, key.InfraEnvID)
	if err != nil {
		return nil, err
	}
	if e == nil || !by.Owns(e.Owner) {
		return nil, domain.RefuseUnknown("InfraEnv", key.InfraEnvID)
	}
	c, err := w.ownCluster(ctx, by, from.ClusterID)
	if err != nil {
		return nil, err
	}
	if !hostplan.TakesDayTwo(c) {
		return nil, domain.Refuse(domain.Conflict, "ClusterNotInstalled", "cluster %s is %s: hosts are restored as installed in installed clusters only", c.ID, c.Status)
	}
	h, err := w.host(ctx, key)
	if err != nil {
		return nil, err
	}
	switch {
	case h == nil:
		h = &domain.Host{HostKey: key, Owner: e.Owner, Stamps: domain.Stamps{Binding: w.NewStamp()}, MediaConnected: true, CreatedAt: w.Now, UpdatedAt: w.Now, HostSettings: domain.HostSettings{Approved: true}}
		w.add(h)
	case h.ClusterID != "" && h.ClusterID != c.ID || h.ClusterID == "" && !lifecycle.Unbound(h.State) || h.ClusterID != "" && !lifecycle.Idle(h.State):
		return h, nil // it is what it is: only one that came back without its past is restored
	}
	h.ClusterID, h.DayTwo, h.Role, h.Bootstrap = c.ID, from.DayTwo, cmp.Or(from.Role, "worker"), from.Bootstrap
	h.Progress = domain.Progress{
		Stage: lifecycle.StageDone, Percentage: lifecycle.Percentage(lifecycle.StageDone), StageStartedAt: from.InstalledAt.UTC(), StageUpdatedAt: from.InstalledAt.UTC(),
	}
	h.State, h.StateInfo, h.StateUpdatedAt = lifecycle.Installed, infoRestored, w.Now
	if h.DayTwo {
		h.State = lifecycle.AddedToExistingCluster
	}
	w.Tell(h, h.ClusterID, domain.Warning, "host_restored", true, "Host %s: restored as %s, as its Agent says: the service lost its data", h.FreeLabel(), h.State)
	return h, w.refreshCluster(ctx, c.ID)
}
