// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"slices"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// DesiredHost is all that a custom resource states of a host. Empty fields are cleared.
type DesiredHost struct {
	// ClusterID is the cluster that the host shall be bound to, empty for none. A binding to a cluster that is no custom resource is left alone:
	// it was made over REST, and ends there.
	ClusterID string
	// Leaves frees the host, where ClusterID is empty, also from the cluster of its InfraEnv: it is deleted when it has left.
	Leaves bool
	// Spec is the spec of the Agent that states it. One that is older than the spec that changed the host last, as in the cache of a replica that is behind, is refused, but for one that is
	// Current, as after a restore of the API server's data: the API server has no later one.
	Spec    domain.SpecVersion
	Current bool
	// HostSettings replace those of the host, but for SkipFormattingDisks. A role of auto-assign leaves the one alone that an installation assigned.
	domain.HostSettings
}

// settings are those that are stated of a host as it is.
func (d *DesiredHost) settings(h *domain.Host) domain.HostSettings {
	settings := d.HostSettings
	settings.Role, settings.SkipFormattingDisks = cmp.Or(settings.Role, domain.AutoAssign), h.SkipFormattingDisks
	if settings.Role == domain.AutoAssign && !slices.Contains(transaction.Unassigned, h.State) {
		settings.Role = h.Role
	}
	return settings
}

// holds is true where applying changes nothing of a host.
func (d *DesiredHost) holds(h *domain.Host) bool {
	settings := d.settings(h)
	return h.ClusterID == d.ClusterID && settings.Check() == nil && h.Same(h.KeepWipe(settings)) && (h.ClusterID == "" || h.FreeHostname == settings.RequestedHostname)
}

// ApplyDesired binds, moves or frees a host and gives it its settings, in one transaction: no installation begins between them. Nothing is written where the
// host is as it is desired, and no transaction is needed to see that. Conflict SpecOutdated where a later spec was applied; other Conflicts and Invalid are those of BindHost, MoveHost,
// UnbindHost and UpdateHost.
func (s *Hosts) ApplyDesired(ctx context.Context, by domain.Principal, key domain.HostKey, desired DesiredHost) (*domain.Host, error) {
	if h, err := s.GetHost(ctx, by, key); by.Admin && (err != nil || desired.holds(h)) {
		return h, err
	}
	return s.change(ctx, by, key, func(ctx context.Context, w *transaction.Work, h *domain.Host) error {
		if desired.Spec.Before(h.Stated) && !desired.Current {
			return domain.Refuse(domain.Conflict, "SpecOutdated", "a later spec was applied to host %s", h.HostID)
		}
		if err := w.Place(ctx, by, h, desired.ClusterID, desired.Leaves); err != nil {
			return err
		}
		settings := desired.settings(h)
		if err := w.Edit(ctx, h, settings); err != nil {
			return err
		}
		if h.ClusterID != "" { // what is stated is stated of the free host, too
			h.FreeHostname = settings.RequestedHostname
		}
		h.Stated = desired.Spec
		return nil
	}, desired.ClusterID)
}
