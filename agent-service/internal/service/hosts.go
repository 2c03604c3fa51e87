// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/transaction"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// Hosts is what users do with hosts.
type Hosts struct{ *core }

// GetHost returns a host that the principal owns or uses. It may be shared with memory: copy what you change.
func (s *Hosts) GetHost(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error) {
	if by.Admin && !s.engine.Store.Shared() {
		e, err := s.memory.Entry(ctx, key)
		if err != nil {
			return nil, err
		}
		return new(*e.Host()), nil
	}
	var h *domain.Host
	err := s.engine.View(ctx, func(ctx context.Context, r transaction.Reader) (err error) {
		if h, err = r.Host(ctx, key); err == nil && h == nil {
			return domain.RefuseUnknown("Host", key.HostID)
		}
		if err != nil || by.Admin {
			return err
		}
		owner, err := clusterOwner(ctx, r, h)
		if err != nil {
			return err
		}
		has := domain.StakeIn(by, h, owner)
		if has == (domain.Stake{}) {
			return domain.RefuseUnknown("Host", key.HostID)
		}
		h = has.Shown(*h)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// ListHosts leaves inventories out; Inventory has them.
func (s *Hosts) ListHosts(ctx context.Context, by domain.Principal, filter domain.HostFilter) (found domain.List[domain.Host], err error) {
	err = s.engine.View(ctx, func(ctx context.Context, r transaction.Reader) (err error) {
		if found, err = r.Hosts(ctx, domain.Scope{Principal: by}, filter); err != nil || by.Admin {
			return err
		}
		has, err := stakes(ctx, r, by, found.Items)
		for i := range has {
			found.Items[i] = *has[i].Shown(found.Items[i])
		}
		return err
	})
	return found, err
}

// CountHosts counts the hosts of a filter by state. Callers that see the same hosts, and ask for the same at the same time, share a read of the store.
func (s *Hosts) CountHosts(ctx context.Context, by domain.Principal, filter domain.HostFilter) (map[lifecycle.State]int, error) {
	if by.Admin {
		by = domain.Principal{Admin: true}
	}
	scope := domain.Scope{Principal: by}
	return s.counts.Do(ctx, countKey{scope, fmt.Sprintf("%+v", filter)}, func(ctx context.Context) (counts map[lifecycle.State]int, err error) {
		err = s.engine.View(ctx, func(ctx context.Context, r transaction.Reader) (err error) {
			counts, err = r.CountHosts(ctx, scope, filter)
			return err
		})
		return counts, err
	})
}

// countKey is what counts of hosts depend on.
type countKey struct {
	scope  domain.Scope
	filter string
}

// Inventory is the JSON that the agent reported (bounded, flagged where it was cut), empty before its first report.
func (s *Hosts) Inventory(ctx context.Context, by domain.Principal, key domain.HostKey) ([]byte, error) {
	h, err := s.GetHost(ctx, domain.Kubernetes, key)
	if err != nil {
		return nil, err
	}
	if !by.Admin {
		if _, err := s.GetHost(ctx, by, key); err != nil {
			return nil, err
		}
	}
	if h.Summary.Hash == "" {
		return nil, nil
	}
	var inventory []byte
	err = s.engine.View(ctx, func(ctx context.Context, r transaction.Reader) (err error) {
		inventory, err = r.Inventory(ctx, key)
		return err
	})
	return inventory, err
}

// Inventories are those of hosts that were listed; hosts without one are left out.
func (s *Hosts) Inventories(ctx context.Context, by domain.Principal, hosts []domain.Host) (inventories map[domain.HostKey][]byte, err error) {
	err = s.engine.View(ctx, func(ctx context.Context, r transaction.Reader) (err error) {
		var has []domain.Stake
		if !by.Admin {
			if has, err = stakes(ctx, r, by, hosts); err != nil {
				return err
			}
		}
		var keys []domain.HostKey
		for i := range hosts {
			if (by.Admin || has[i] != domain.Stake{}) && hosts[i].Summary.Hash != "" {
				keys = append(keys, hosts[i].HostKey)
			}
		}
		inventories, err = r.Inventories(ctx, keys)
		return err
	})
	return inventories, err
}

// Seen is when the agent polled last, from memory.
func (s *Hosts) Seen(key domain.HostKey) domain.Seen {
	e := s.engine.Hosts.Get(key)
	if e == nil {
		return domain.Seen{}
	}
	at, connected := e.Seen()
	return domain.Seen{At: at, Connected: connected}
}

// UpdateHost lets change edit the settings in a transaction; whatever it empties is cleared. Conflict while installing.
func (s *Hosts) UpdateHost(ctx context.Context, by domain.Principal, key domain.HostKey, change func(*domain.HostSettings) error) (*domain.Host, error) {
	return s.change(ctx, by, key, func(ctx context.Context, w *transaction.Work, h *domain.Host) error {
		if err := w.Settles(ctx, by, h); err != nil {
			return err
		}
		before := h.HostSettings
		after := before
		after.NodeLabels, after.IgnitionEndpointHTTPHeaders = maps.Clone(before.NodeLabels), maps.Clone(before.IgnitionEndpointHTTPHeaders)
		after.SkipFormattingDisks = slices.Clone(before.SkipFormattingDisks)
		if err := change(&after); err != nil {
			return err
		}
		after.Role = cmp.Or(after.Role, domain.AutoAssign)
		return w.Edit(ctx, h, after)
	})
}

// BindHost gives a free host to a cluster; bound to that cluster already, it is returned unchanged only if idempotent is
// asked for (custom resources), else Conflict HostBoundAlready.
func (s *Hosts) BindHost(ctx context.Context, by domain.Principal, key domain.HostKey, clusterID string, idempotent bool) (*domain.Host, error) {
	return s.change(ctx, by, key, func(ctx context.Context, w *transaction.Work, h *domain.Host) error {
		if err := w.Keeps(by, h); err != nil {
			return err
		}
		c, err := w.OwnCluster(ctx, by, clusterID)
		if err != nil {
			return err
		}
		if idempotent && h.ClusterID == clusterID {
			return nil
		}
		return w.Join(ctx, by, h, c, lifecycle.Bind)
	}, clusterID)
}

// MoveHost takes a bound host to another cluster, in one transaction, after the destination was checked. Conflict while either is installed, and where
// the destination is installed already.
func (s *Hosts) MoveHost(ctx context.Context, by domain.Principal, key domain.HostKey, clusterID string) (*domain.Host, error) {
	return s.change(ctx, by, key, func(ctx context.Context, w *transaction.Work, h *domain.Host) error {
		if err := w.Keeps(by, h); err != nil {
			return err
		}
		c, err := w.OwnCluster(ctx, by, clusterID)
		if err != nil {
			return err
		}
		if h.ClusterID == clusterID {
			return domain.Refuse(domain.Conflict, "HostBoundAlready", "host %s is in cluster %s already", key.HostID, clusterID)
		}
		return w.Move(ctx, by, h, c)
	}, clusterID)
}

// errDryRun undoes the transaction of a dry run.
var errDryRun = domain.Refuse(domain.Conflict, "DryRun", "dry run: no object was written")

// CheckBind is the dry run of BindHost and MoveHost; nothing is written.
func (s *Hosts) CheckBind(ctx context.Context, by domain.Principal, key domain.HostKey, clusterID string) (domain.DryRun, error) {
	var answer domain.DryRun
	_, err := s.change(ctx, by, key, func(ctx context.Context, w *transaction.Work, h *domain.Host) error {
		if err := w.Keeps(by, h); err != nil {
			return err
		}
		c, err := w.OwnCluster(ctx, by, clusterID)
		if err != nil {
			return err
		}
		switch h.ClusterID {
		case clusterID:
		case "":
			err = w.Join(ctx, by, h, c, lifecycle.Bind)
		default:
			err = w.Move(ctx, by, h, c)
		}
		if domain.Transient(err) {
			return err
		}
		if err != nil {
			answer = domain.DryRun{Reason: domain.ReasonOf(err), Message: err.Error(), State: h.State}
			return errDryRun
		}
		answer = domain.DryRun{Valid: validate.Sufficient(h.Validations, true), State: h.State, Validations: h.Validations}
		return errDryRun
	}, clusterID)
	if err != nil && domain.ReasonOf(err) != errDryRun.Reason {
		return domain.DryRun{}, err
	}
	return answer, nil
}

// UnbindHost frees a host. Conflict while it or its cluster installs, while it is free, and where its InfraEnv has a cluster.
func (s *Hosts) UnbindHost(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error) {
	return s.change(ctx, by, key, func(ctx context.Context, w *transaction.Work, h *domain.Host) error {
		e, err := w.InfraEnv(ctx, h.InfraEnvID)
		if err != nil {
			return err
		}
		if e != nil && e.ClusterID != "" && h.ClusterID != "" {
			return domain.Refuse(domain.Conflict, "InfraEnvBound", "InfraEnv %s belongs to cluster %s: its hosts cannot be unbound", e.ID, e.ClusterID)
		}
		return w.Release(ctx, h, lifecycle.Unbind)
	})
}

// ReclaimHost brings an installed host back into the pool by itself, where its system can.
func (s *Hosts) ReclaimHost(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error) {
	return s.change(ctx, by, key, func(ctx context.Context, w *transaction.Work, h *domain.Host) error {
		return w.Release(ctx, h, lifecycle.Reclaim)
	})
}

// InstallHost starts the installation of a host that joins an installed cluster.
func (s *Hosts) InstallHost(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error) {
	return s.change(ctx, by, key, func(ctx context.Context, w *transaction.Work, h *domain.Host) error {
		if err := w.Settles(ctx, by, h); err != nil {
			return err
		}
		c, err := w.TrackCluster(ctx, h.ClusterID)
		if err != nil {
			return err
		}
		if c == nil {
			return domain.Refuse(domain.Conflict, "HostNotBound", "host %s is bound to no cluster", key.HostID)
		}
		if !h.Approved {
			return domain.Refuse(domain.Conflict, "HostNotApproved", "host %s is not approved", key.HostID)
		}
		if err := w.Act(ctx, h, lifecycle.Start, c); err != nil {
			return err
		}
		if h.Role == domain.AutoAssign {
			h.Role = "worker"
		}
		return w.RefreshCluster(ctx, h.ClusterID)
	})
}

// ResetHost lets a host be used again in its cluster, after it booted the discovery image.
func (s *Hosts) ResetHost(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error) {
	return s.change(ctx, by, key, func(ctx context.Context, w *transaction.Work, h *domain.Host) error {
		if err := w.Settles(ctx, by, h); err != nil {
			return err
		}
		if err := w.Act(ctx, h, lifecycle.Reset, nil); err != nil {
			return err
		}
		return w.Refresh(ctx, h)
	})
}

// RevokeTokens makes the tokens of a host open nothing, at once, as RevokeHostTokens does. Its state stays.
func (s *Hosts) RevokeTokens(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error) {
	return s.change(ctx, by, key, func(_ context.Context, w *transaction.Work, h *domain.Host) error {
		if err := w.Keeps(by, h); err != nil {
			return err
		}
		h.Stamps, h.Admission = domain.Stamps{Registration: w.NewStamp(), Binding: w.NewStamp()}, domain.Generations{}
		w.Tell(h, h.ClusterID, domain.Warning, "host_tokens_revoked", true, "Host %s: its tokens were revoked", h.FreeLabel())
		return nil
	})
}

// DeleteHost forgets a host. Conflict while it installs, which an event tells, too. NotFound for an unknown one.
func (s *Hosts) DeleteHost(ctx context.Context, by domain.Principal, key domain.HostKey) error {
	refused := domain.Event{Name: "host_deregister_failed", InfraEnvID: key.InfraEnvID, HostID: key.HostID, ForInfraEnv: true}
	_, err := s.change(ctx, by, key, func(ctx context.Context, w *transaction.Work, h *domain.Host) error {
		if err := w.Keeps(by, h); err != nil {
			return err
		}
		if err := w.Apply(h, lifecycle.Apply(h.State, lifecycle.Delete, w.Facts(h, nil)), "", false); err != nil {
			refused.ClusterID, refused.ForCluster = h.ClusterID, h.ClusterID != ""
			refused.Message = domain.Truncate("Host "+h.FreeLabel()+": failed to deregister: "+err.Error(), 2000)
			return err
		}
		w.Tell(h, h.ClusterID, domain.Info, domain.EventHostDeregistered, true, "Host %s: deregistered", h.FreeLabel())
		w.DropHost(key)
		if h.ClusterID != "" {
			return w.RefreshCluster(ctx, h.ClusterID)
		}
		return nil
	})
	if refused.Message != "" && by != domain.Kubernetes { // an Agent has a condition for it, and its deletion is tried again
		s.tellRefused(ctx, err, refused)
	}
	return err
}

// HostMinimums are what hosts need, by role.
func (s *Hosts) HostMinimums() validate.Minimums { return s.Minimums }

// LogsProgress is requested, collecting, completed or timeout.
func (s *Hosts) LogsProgress(ctx context.Context, key domain.HostKey, state string) error {
	_, err := s.change(ctx, domain.Machine, key, func(_ context.Context, w *transaction.Work, h *domain.Host) error {
		h.LogsState, h.LogsAt = state, w.Now
		return nil
	})
	return err
}

// ResetValidation makes the agent try again what it had found out: Invalid for validations that follow from what is known.
func (s *Hosts) ResetValidation(ctx context.Context, by domain.Principal, key domain.HostKey, id string) (*domain.Host, error) {
	h, err := s.change(ctx, by, key, func(ctx context.Context, w *transaction.Work, h *domain.Host) error {
		if err := w.Settles(ctx, by, h); err != nil {
			return err
		}
		switch id {
		case validate.DiskSpeed:
			h.Checks.DiskSpeed = validate.Unknown
		case validate.ContainerImages:
			h.Checks.Registry, h.Checks.RegistryDetail, h.Images, h.ImagesDetail = validate.Unknown, "", validate.Unknown, ""
		default:
			return domain.Refuse(domain.Invalid, "ValidationNotResettable", "validation %q is computed from the inventory and cannot be reset; sufficient-installation-disk-speed and container-images-available can", domain.Truncate(id, 64))
		}
		return w.Refresh(ctx, h)
	})
	if e := s.engine.Hosts.Get(key); err == nil && e != nil {
		e.AskAgain()
	}
	return h, err
}
