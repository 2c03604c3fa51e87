// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// RestoreCluster makes a cluster installed that was installed before the service lost its data. A cluster that is installed already stays as it is.
func (s *Clusters) RestoreCluster(ctx context.Context, by domain.Principal, id string, from domain.Restored) (*domain.Cluster, error) {
	return s.changeCluster(ctx, by, id, func(_ context.Context, w *transaction.Work, c *domain.Cluster, _ []*domain.Host) error {
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
func (s *Hosts) RestoreHost(ctx context.Context, by domain.Principal, key domain.HostKey, from domain.RestoredHost) (*domain.Host, error) {
	var h *domain.Host
	err := s.engine.Update(ctx, func(ctx context.Context, w *transaction.Work) (err error) {
		h, err = w.RestoreHost(ctx, by, key, from)
		return err
	}, from.ClusterID)
	if err != nil {
		return nil, err
	}
	return new(*h), nil
}

// RestoreRelease goes on with the release of a host that the service lost with its data before the host was free: it is given to no cluster until it is wiped. NotFound for an
// unknown host.
func (s *Hosts) RestoreRelease(ctx context.Context, by domain.Principal, key domain.HostKey, cluster domain.KubeRef, wipe domain.Wipe) error {
	return s.engine.Update(ctx, func(ctx context.Context, w *transaction.Work) error {
		return w.RestoreRelease(ctx, by, key, cluster, wipe)
	})
}
