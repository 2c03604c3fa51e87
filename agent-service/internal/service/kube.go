// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"slices"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// DesiredHost is all that a custom resource states of a host. What it leaves empty is cleared.
type DesiredHost struct {
	// ClusterID is the cluster that the host shall be bound to, empty for none. A binding to a cluster that is no custom resource is left alone:
	// it was made over REST, and ends there.
	ClusterID string
	// HostSettings replace those of the host, but for SkipFormattingDisks. A role of auto-assign leaves the one alone that an installation assigned.
	domain.HostSettings
}

// ApplyDesired binds, moves or frees a host and gives it its settings, in one transaction: no installation begins between them. Nothing is written where the
// host is as it is desired. Conflict and Invalid are those of BindHost, MoveHost, UnbindHost and UpdateHost.
func (s *Service) ApplyDesired(ctx context.Context, by domain.Principal, key domain.HostKey, desired DesiredHost) (*domain.Host, error) {
	return s.change(ctx, by, key, func(ctx context.Context, w *work, h *domain.Host) error {
		if err := w.place(ctx, by, h, desired.ClusterID); err != nil {
			return err
		}
		settings := desired.HostSettings
		settings.Role, settings.SkipFormattingDisks = cmp.Or(settings.Role, domain.AutoAssign), h.SkipFormattingDisks
		if settings.Role == domain.AutoAssign && !slices.Contains(unassigned, h.State) {
			settings.Role = h.Role
		}
		if err := w.edit(ctx, h, settings); err != nil {
			return err
		}
		if h.ClusterID != "" { // what is stated is stated of the free host, too
			h.FreeHostname = settings.RequestedHostname
		}
		return nil
	}, desired.ClusterID)
}

// unassigned are the states in which no installation needs a role to stay as it is.
var unassigned = []lifecycle.State{
	lifecycle.DiscoveringUnbound, lifecycle.InsufficientUnbound, lifecycle.KnownUnbound, lifecycle.DisconnectedUnbound, lifecycle.Unbinding,
	lifecycle.UnbindingPendingUserAction, lifecycle.Reclaiming, lifecycle.ReclaimingRebooting, lifecycle.Binding, lifecycle.Discovering, lifecycle.Insufficient,
	lifecycle.Known, lifecycle.Disconnected,
}

// place brings a host into a cluster, or out of any.
func (w *work) place(ctx context.Context, by domain.Principal, h *domain.Host, clusterID string) error {
	if h.ClusterID == clusterID {
		return nil
	}
	if clusterID != "" {
		c, err := w.ownCluster(ctx, by, clusterID)
		if err != nil {
			return err
		}
		if h.ClusterID == "" {
			return w.join(ctx, h, c, lifecycle.Bind)
		}
		return w.join(ctx, h, c, lifecycle.Move) // also to an installed cluster: what is stated says that it shall be freed and bound
	}
	c, err := w.cluster(ctx, h.ClusterID)
	if err != nil {
		return err
	}
	if c != nil && c.Kube == (domain.KubeRef{}) {
		return nil
	}
	e, err := w.InfraEnv(ctx, h.InfraEnvID)
	if err != nil {
		return err
	}
	if e != nil && e.ClusterID != "" {
		return domain.Refuse(domain.Conflict, "InfraEnvBound", "InfraEnv %s belongs to cluster %s: its hosts cannot be unbound", e.ID, e.ClusterID)
	}
	return w.release(ctx, h, lifecycle.Unbind)
}

// edit gives a host other settings and tells it.
func (w *work) edit(ctx context.Context, h *domain.Host, after domain.HostSettings) error {
	before := h.HostSettings
	if err := after.Check(); err != nil {
		return err
	}
	if sameSettings(before, after) {
		return nil
	}
	if err := w.Apply(h, lifecycle.Apply(h.State, lifecycle.Edit, w.Facts(h, nil)), "", false); err != nil {
		return err
	}
	disk, _ := validate.Disk(w.Subject(h), w.s.Minimums)
	h.HostSettings = after
	if other, _ := validate.Disk(w.Subject(h), w.s.Minimums); other != disk {
		h.Checks.DiskSpeed = validate.Unknown
	}
	if before.Approved != after.Approved {
		w.Tell(h, h.ClusterID, domain.Info, "host_approved_updated", true, "Host %s: updated approved to %t", h.FreeLabel(), after.Approved)
	}
	if before.Role != after.Role {
		w.Tell(h, h.ClusterID, domain.Info, "host_role_updated", h.ClusterID == "", "Host %s: set role to %s", h.Label(), after.Role)
	}
	return w.refresh(ctx, h)
}
