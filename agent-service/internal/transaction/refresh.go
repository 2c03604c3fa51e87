// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"context"
	"reflect"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

// Refresh brings a host up to date, with its cluster where it is bound.
func (w *Work) Refresh(ctx context.Context, h *domain.Host) error {
	if h.ClusterID != "" {
		return w.RefreshCluster(ctx, h.ClusterID)
	}
	w.Assess(h, nil, nil)
	return nil
}

// RefreshCluster brings a cluster and its hosts up to date with each other, and its control plane with it. Only the hosts of this transaction are assessed, unless it changes what the
// others are assessed by.
func (w *Work) RefreshCluster(ctx context.Context, id string) error {
	c, err := w.TrackCluster(ctx, id)
	if err != nil || c == nil {
		return err
	}
	if err := w.settleCluster(ctx, c); err != nil {
		return err
	}
	return w.sealControlPlane(ctx, c)
}

// settleCluster repeats until neither the cluster nor its hosts change.
func (w *Work) settleCluster(ctx context.Context, c *domain.Cluster) error {
	id := c.ID
	members, err := w.look(ctx, id)
	if err != nil {
		return err
	}
	all := w.concernsAll(w.clusters[id]) || w.e.Reviews.Due(id, w.e.Clock.Now(), w.e.PollInterval)
	for range 8 {
		around := hostplan.SurroundingsOf(c, members)
		for i, m := range members {
			if !all && w.hosts[m.HostKey] == nil {
				continue
			}
			m = w.track(m)
			members[i] = m
			// A host that was not ready when the cluster was installed joins it later.
			m.DayTwo = m.DayTwo || hostplan.TakesDayTwo(c) && lifecycle.Idle(m.State)
			w.Assess(m, c, around)
		}
		if all {
			w.reviewed[id] = struct{}{}
		}
		r := hostplan.RosterOf(c, members)
		c.HostCount, c.ReadyHostCount, c.InstalledHostCount = r.Bound, r.Ready, r.Done
		c.InstallPercentage = hostplan.PercentageOf(members)
		c.Readiness = new(hostplan.ReadinessOf(c, members))
		next, info := lifecycle.NextCluster(c.Status, r)
		if next == c.Status {
			return nil
		}
		w.EndPreparation(c, members, next)
		if why := c.Preparation.Why; why != "" {
			info += "; the last checks before the installation failed: " + why
		}
		w.EnterCluster(c, next, info)
		all = true
	}
	return nil
}

// concernsAll is true where this transaction changes what all hosts of a cluster are assessed by: the cluster, which hosts it has, or what its hosts see of each other.
func (w *Work) concernsAll(c *tracked[domain.Cluster]) bool {
	if c.before.Status != c.now.Status || c.before.Name != c.now.Name || !reflect.DeepEqual(c.before.ClusterSettings, c.now.ClusterSettings) {
		return true
	}
	for _, t := range w.hosts {
		was, is := t.before.ClusterID == c.now.ID, !t.deleted && t.now.ClusterID == c.now.ID
		if was != is || is && !hostplan.SameNeighbour(&t.before, t.now) {
			return true
		}
	}
	return false
}
