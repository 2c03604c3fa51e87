// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"time"

	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

// Restored is what custom resources say of a cluster that was installed before the service lost its data.
type Restored struct {
	// InstalledAt is when the installation ended.
	InstalledAt time.Time
	// Kubeconfig is empty where it is not known any more.
	Kubeconfig string
}

// RestoredHost is what the status of a custom resource says of a host that was installed before the service lost its data.
type RestoredHost struct {
	// ClusterID is the installed cluster that the host is a part of.
	ClusterID string
	Role      string
	Bootstrap bool
	// DayTwo is true for a host that joined the cluster after its installation.
	DayTwo bool
	// InstalledAt is when the host reported that its system is up.
	InstalledAt time.Time
}

const infoRestored = "Done; the service lost its data since"

// restore makes a cluster what its custom resource says that it was.
func (c *Cluster) restore(from *Restored, now time.Time) {
	c.Status, c.StatusInfo, c.StatusUpdatedAt = lifecycle.ClusterInstalled, "Cluster is installed", now
	c.InstallCompletedAt, c.RestoredAt, c.Preparation = from.InstalledAt, now, Preparation{}
	c.Kubeconfig = cmp.Or(c.Kubeconfig, from.Kubeconfig)
}

// RestoreCluster implements Clusters.
func (s *Service) RestoreCluster(ctx context.Context, by Principal, id string, from Restored) (*Cluster, error) {
	return s.changeCluster(ctx, by, id, func(_ context.Context, w *work, c *Cluster, _ []*Host) error {
		if takesDayTwo(c) {
			return nil
		}
		before := c.Status
		c.restore(&from, w.now)
		w.tellCluster(c, Warning, "cluster_status_updated", "Updated status of the cluster from %s to %s: its AgentClusterInstall says that it is installed", before, c.Status)
		return nil
	})
}

// RestoreHost implements Hosts.
func (s *Service) RestoreHost(ctx context.Context, by Principal, key HostKey, from RestoredHost) (*Host, error) {
	var h *Host
	err := s.update(ctx, func(ctx context.Context, w *work) (err error) {
		h, err = w.restoreHost(ctx, by, key, from)
		return err
	}, from.ClusterID)
	if err != nil {
		return nil, err
	}
	return new(*h), nil
}

func (w *work) restoreHost(ctx context.Context, by Principal, key HostKey, from RestoredHost) (*Host, error) {
	e, err := w.InfraEnv(ctx, key.InfraEnvID)
	if err != nil {
		return nil, err
	}
	if e == nil || !by.Owns(e.Owner) {
		return nil, notFound("InfraEnv", key.InfraEnvID)
	}
	c, err := w.ownCluster(ctx, by, from.ClusterID)
	if err != nil {
		return nil, err
	}
	if !takesDayTwo(c) {
		return nil, Refuse(Conflict, "ClusterNotInstalled", "cluster %s is %s: hosts are restored as installed in installed clusters only", c.ID, c.Status)
	}
	h, err := w.host(ctx, key)
	if err != nil {
		return nil, err
	}
	switch {
	case h == nil:
		h = &Host{HostKey: key, Owner: e.Owner, Stamps: Stamps{Binding: newStamp()}, MediaConnected: true, CreatedAt: w.now, UpdatedAt: w.now, HostSettings: HostSettings{Approved: true}}
		w.add(h)
	case h.ClusterID != "" && h.ClusterID != c.ID || h.ClusterID == "" && !lifecycle.Unbound(h.State) || h.ClusterID != "" && !lifecycle.Idle(h.State):
		return h, nil // it is what it is: only one that came back without its past is restored
	}
	h.ClusterID, h.DayTwo, h.Role, h.Bootstrap = c.ID, from.DayTwo, cmp.Or(from.Role, "worker"), from.Bootstrap
	h.Progress = Progress{
		Stage: lifecycle.StageDone, Percentage: lifecycle.Percentage(lifecycle.StageDone), StageStartedAt: from.InstalledAt.UTC(), StageUpdatedAt: from.InstalledAt.UTC(),
	}
	h.State, h.StateInfo, h.StateUpdatedAt = lifecycle.Installed, infoRestored, w.now
	if h.DayTwo {
		h.State = lifecycle.AddedToExistingCluster
	}
	w.tell(h, h.ClusterID, Warning, "host_restored", true, "Host %s: restored as %s, as its Agent says: the service lost its data", h.freeLabel(), h.State)
	return h, w.refreshCluster(ctx, c.ID)
}
