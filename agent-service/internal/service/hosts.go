// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// reach reads a host to be changed by who owns or uses it. Unknown and foreign hosts answer alike.
func (w *work) reach(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, domain.Stake, error) {
	h, err := w.host(ctx, key)
	if err != nil {
		return nil, domain.Stake{}, err
	}
	if h == nil {
		return nil, domain.Stake{}, domain.RefuseUnknown("Host", key.HostID)
	}
	has, err := w.stake(ctx, by, h)
	if err == nil && has == (domain.Stake{}) {
		err = domain.RefuseUnknown("Host", key.HostID)
	}
	return h, has, err
}

func (w *work) ownCluster(ctx context.Context, by domain.Principal, id string) (*domain.Cluster, error) {
	c, err := w.cluster(ctx, id)
	if err != nil {
		return nil, err
	}
	if c == nil || !by.Owns(c.Owner) {
		return nil, domain.RefuseUnknown("Cluster", id)
	}
	return c, nil
}

// GetHost returns a host that the principal owns or uses.
func (s *Service) GetHost(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error) {
	var h *domain.Host
	err := s.view(ctx, func(ctx context.Context, r Reader) (err error) {
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
func (s *Service) ListHosts(ctx context.Context, by domain.Principal, filter domain.HostFilter) (found domain.List[domain.Host], err error) {
	err = s.view(ctx, func(ctx context.Context, r Reader) (err error) {
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

// Inventory is the JSON that the agent reported (bounded, flagged where it was cut), empty before its first report.
func (s *Service) Inventory(ctx context.Context, by domain.Principal, key domain.HostKey) ([]byte, error) {
	h, err := s.remembered(ctx, key)
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
	err = s.view(ctx, func(ctx context.Context, r Reader) (err error) {
		inventory, err = r.Inventory(ctx, key)
		return err
	})
	return inventory, err
}

// Inventories are those of hosts that were listed; hosts without one are left out.
func (s *Service) Inventories(ctx context.Context, by domain.Principal, hosts []domain.Host) (inventories map[domain.HostKey][]byte, err error) {
	err = s.view(ctx, func(ctx context.Context, r Reader) (err error) {
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

// remembered is a host from memory where there is one writer, and from the store where there are replicas. It is not to be changed.
func (s *Service) remembered(ctx context.Context, key domain.HostKey) (*domain.Host, error) {
	if s.store.Shared() {
		return s.GetHost(ctx, domain.Kubernetes, key)
	}
	e, err := s.entry(ctx, key)
	if err != nil {
		return nil, err
	}
	return e.Host(), nil
}

// Seen is when the agent polled last, from memory.
func (s *Service) Seen(key domain.HostKey) domain.Seen {
	e := s.hosts.Get(key)
	if e == nil {
		return domain.Seen{}
	}
	at, connected := e.Seen()
	return domain.Seen{At: at, Connected: connected}
}

// change runs a transaction about one host of a principal. The clusters are those that it may be taken to.
func (s *Service) change(ctx context.Context, by domain.Principal, key domain.HostKey, do func(ctx context.Context, w *work, h *domain.Host) error, clusters ...string) (*domain.Host, error) {
	var h *domain.Host
	var before, after domain.Stake
	err := s.update(ctx, func(ctx context.Context, w *work) (err error) {
		if h, before, err = w.reach(ctx, by, key); err != nil {
			return err
		}
		if err := do(ctx, w, h); err != nil {
			return err
		}
		after, err = w.stake(ctx, by, h)
		return err
	}, append(clusters, s.hosts.ClusterOf(key))...)
	if err != nil {
		return nil, err
	}
	return domain.Stake{Owns: before.Owns, Uses: before.Uses || after.Uses}.Shown(*h), nil
}

// UpdateHost lets change edit the settings in a transaction; whatever it empties is cleared. Conflict while installing.
func (s *Service) UpdateHost(ctx context.Context, by domain.Principal, key domain.HostKey, change func(*domain.HostSettings) error) (*domain.Host, error) {
	return s.change(ctx, by, key, func(ctx context.Context, w *work, h *domain.Host) error {
		if err := w.settles(ctx, by, h); err != nil {
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
		return w.edit(ctx, h, after)
	})
}

func sameSettings(a, b domain.HostSettings) bool {
	left, err := json.Marshal(a)
	right, err2 := json.Marshal(b)
	return err == nil && err2 == nil && string(left) == string(right)
}

// admit says whether a cluster takes the host.
func (w *work) admit(ctx context.Context, h *domain.Host, c *domain.Cluster) error {
	if !lifecycle.Accepts(c.Status) {
		return domain.Refuse(domain.Conflict, "ClusterNotAccepting", "cluster %s is %s and takes no hosts now", c.ID, c.Status)
	}
	e, err := w.InfraEnv(ctx, h.InfraEnvID)
	if err != nil {
		return err
	}
	architecture := h.Summary.CPUArchitecture
	if e != nil {
		if e.Deleting {
			return beingDeleted(e)
		}
		if e.ClusterID != "" && e.ClusterID != c.ID {
			return domain.Refuse(domain.Conflict, "InfraEnvBound", "InfraEnv %s belongs to cluster %s: its hosts cannot be bound elsewhere", e.ID, e.ClusterID)
		}
		architecture = cmp.Or(architecture, e.CPUArchitecture)
	}
	if !hardware.Fits(architecture, c.CPUArchitecture) {
		return domain.Refuse(domain.Invalid, "ArchitectureMismatch", "host %s has architecture %s, cluster %s has %s", h.HostID, architecture, c.ID, c.CPUArchitecture)
	}
	return nil
}

// move takes a host to a cluster that is not installed yet: what is installed already is joined, which is another thing to ask for.
func (w *work) move(ctx context.Context, h *domain.Host, c *domain.Cluster) error {
	if hostplan.TakesDayTwo(c) {
		return domain.Refuse(domain.Conflict, "ClusterInstalled", "cluster %s is installed already, and hosts are moved only to clusters that are not: unbind the host, then bind it", c.ID)
	}
	return w.join(ctx, h, c, lifecycle.Move)
}

// join applies bind or move and tells it.
func (w *work) join(ctx context.Context, h *domain.Host, c *domain.Cluster, verb lifecycle.Verb) error {
	from := h.ClusterID
	source, err := w.cluster(ctx, from)
	if err != nil {
		return err
	}
	o := lifecycle.Apply(h.State, verb, w.Facts(h, source))
	if o.Refusal != "" {
		return w.Apply(h, o, "", false)
	}
	if err := w.admit(ctx, h, c); err != nil {
		return err
	}
	if from != "" {
		w.Tell(h, from, domain.Info, "host_unbind_succeeded", false, "Host %s: Successfully unbound from cluster", h.Label())
	}
	if err := w.Apply(h, o, c.ID, hostplan.TakesDayTwo(c)); err != nil {
		return err
	}
	// The record follows at once; status events of the way between are those of the cluster that it is in.
	h.State, h.StateInfo, h.StateUpdatedAt = o.To, o.Info, w.Now
	w.Tell(h, c.ID, domain.Info, "host_bind_succeeded", true, "Host %s: Successfully bound to cluster %s", h.FreeLabel(), c.ID)
	if from != "" {
		if err := w.refreshCluster(ctx, from); err != nil {
			return err
		}
	}
	return w.refreshCluster(ctx, c.ID)
}

// BindHost gives a free host to a cluster; bound to that cluster already, it is returned unchanged only if idempotent is
// asked for (custom resources), else Conflict HostBoundAlready.
func (s *Service) BindHost(ctx context.Context, by domain.Principal, key domain.HostKey, clusterID string, idempotent bool) (*domain.Host, error) {
	return s.change(ctx, by, key, func(ctx context.Context, w *work, h *domain.Host) error {
		if err := w.keeps(by, h); err != nil {
			return err
		}
		c, err := w.ownCluster(ctx, by, clusterID)
		if err != nil {
			return err
		}
		if idempotent && h.ClusterID == clusterID {
			return nil
		}
		return w.join(ctx, h, c, lifecycle.Bind)
	}, clusterID)
}

// MoveHost takes a bound host to another cluster, in one transaction, after the destination was checked. Conflict while either is installed, and where
// the destination is installed already.
func (s *Service) MoveHost(ctx context.Context, by domain.Principal, key domain.HostKey, clusterID string) (*domain.Host, error) {
	return s.change(ctx, by, key, func(ctx context.Context, w *work, h *domain.Host) error {
		if err := w.keeps(by, h); err != nil {
			return err
		}
		c, err := w.ownCluster(ctx, by, clusterID)
		if err != nil {
			return err
		}
		if h.ClusterID == clusterID {
			return domain.Refuse(domain.Conflict, "HostBoundAlready", "host %s is in cluster %s already", key.HostID, clusterID)
		}
		return w.move(ctx, h, c)
	}, clusterID)
}

// errDryRun undoes the transaction of a dry run.
var errDryRun = domain.Refuse(domain.Conflict, "DryRun", "nothing was written")

// CheckBind is the dry run of BindHost and MoveHost; nothing is written.
func (s *Service) CheckBind(ctx context.Context, by domain.Principal, key domain.HostKey, clusterID string) (domain.DryRun, error) {
	var answer domain.DryRun
	_, err := s.change(ctx, by, key, func(ctx context.Context, w *work, h *domain.Host) error {
		if err := w.keeps(by, h); err != nil {
			return err
		}
		c, err := w.ownCluster(ctx, by, clusterID)
		if err != nil {
			return err
		}
		switch h.ClusterID {
		case clusterID:
		case "":
			err = w.join(ctx, h, c, lifecycle.Bind)
		default:
			err = w.move(ctx, h, c)
		}
		if err != nil && (domain.KindOf(err) == "" || domain.KindOf(err) == domain.Unavailable) {
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

// release applies a verb that ends a binding, and tells it.
func (w *work) release(ctx context.Context, h *domain.Host, verb lifecycle.Verb) error {
	from := h.ClusterID
	source, err := w.cluster(ctx, from)
	if err != nil {
		return err
	}
	o := lifecycle.Apply(h.State, verb, w.Facts(h, source))
	if err := w.Apply(h, o, "", false); err != nil {
		return err
	}
	if from != "" && h.ClusterID == "" {
		w.Tell(h, from, domain.Info, "host_unbind_succeeded", true, "Host %s: Successfully unbound from cluster", h.Label())
	}
	h.State, h.StateInfo, h.StateUpdatedAt = o.To, o.Info, w.Now
	if o.Has(lifecycle.Reassess) {
		if err := w.refresh(ctx, h); err != nil {
			return err
		}
	}
	if from != "" {
		return w.refreshCluster(ctx, from)
	}
	return nil
}

// UnbindHost frees a host. Conflict while it or its cluster installs, while it is free, and where its InfraEnv has a cluster.
func (s *Service) UnbindHost(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error) {
	return s.change(ctx, by, key, func(ctx context.Context, w *work, h *domain.Host) error {
		e, err := w.InfraEnv(ctx, h.InfraEnvID)
		if err != nil {
			return err
		}
		if e != nil && e.ClusterID != "" && h.ClusterID != "" {
			return domain.Refuse(domain.Conflict, "InfraEnvBound", "InfraEnv %s belongs to cluster %s: its hosts cannot be unbound", e.ID, e.ClusterID)
		}
		return w.release(ctx, h, lifecycle.Unbind)
	})
}

// ReclaimHost brings an installed host back into the pool by itself, where its system can.
func (s *Service) ReclaimHost(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error) {
	return s.change(ctx, by, key, func(ctx context.Context, w *work, h *domain.Host) error { return w.release(ctx, h, lifecycle.Reclaim) })
}

// act applies a verb that leaves the host where it is bound.
func (w *work) act(ctx context.Context, h *domain.Host, verb lifecycle.Verb, c *domain.Cluster) error {
	return w.actBecause(ctx, h, verb, c, "", "")
}

// actBecause is act with the stage that the machine reports, and what it says of the cause.
func (w *work) actBecause(ctx context.Context, h *domain.Host, verb lifecycle.Verb, c *domain.Cluster, stage lifecycle.Stage, why string) error {
	facts := w.Facts(h, c)
	facts.Stage = stage
	o := lifecycle.Apply(h.State, verb, facts)
	if err := w.Apply(h, o, h.ClusterID, h.DayTwo); err != nil {
		return err
	}
	if why != "" && o.Info != "" {
		o.Info += ": " + domain.Truncate(domain.WithoutSecrets(why), 1000)
	}
	w.Enter(h, o.To, o.Info)
	if o.Has(lifecycle.Reassess) {
		return w.refresh(ctx, h)
	}
	return nil
}

// InstallHost starts the installation of a host that joins an installed cluster.
func (s *Service) InstallHost(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error) {
	return s.change(ctx, by, key, func(ctx context.Context, w *work, h *domain.Host) error {
		if err := w.settles(ctx, by, h); err != nil {
			return err
		}
		c, err := w.cluster(ctx, h.ClusterID)
		if err != nil {
			return err
		}
		if c == nil {
			return domain.Refuse(domain.Conflict, "HostNotBound", "host %s is bound to no cluster", key.HostID)
		}
		if !h.Approved {
			return domain.Refuse(domain.Conflict, "HostNotApproved", "host %s is not approved", key.HostID)
		}
		if err := w.act(ctx, h, lifecycle.Start, c); err != nil {
			return err
		}
		if h.Role == domain.AutoAssign {
			h.Role = "worker"
		}
		return w.refreshCluster(ctx, h.ClusterID)
	})
}

// ResetHost lets a host be used again in its cluster, after it booted the discovery image.
func (s *Service) ResetHost(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error) {
	return s.change(ctx, by, key, func(ctx context.Context, w *work, h *domain.Host) error {
		if err := w.settles(ctx, by, h); err != nil {
			return err
		}
		if err := w.act(ctx, h, lifecycle.Reset, nil); err != nil {
			return err
		}
		return w.refresh(ctx, h)
	})
}

// RevokeTokens makes the tokens of a host open nothing, at once, as RevokeHostTokens does. Its state stays.
func (s *Service) RevokeTokens(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error) {
	return s.change(ctx, by, key, func(_ context.Context, w *work, h *domain.Host) error {
		if err := w.keeps(by, h); err != nil {
			return err
		}
		h.Stamps, h.Admission = domain.Stamps{Registration: w.NewStamp(), Binding: w.NewStamp()}, domain.Generations{}
		w.Tell(h, h.ClusterID, domain.Warning, "host_tokens_revoked", true, "Host %s: its tokens were revoked", h.FreeLabel())
		return nil
	})
}

// DeleteHost forgets a host. Conflict while it installs. NotFound for an unknown one.
func (s *Service) DeleteHost(ctx context.Context, by domain.Principal, key domain.HostKey) error {
	_, err := s.change(ctx, by, key, func(ctx context.Context, w *work, h *domain.Host) error {
		if err := w.keeps(by, h); err != nil {
			return err
		}
		if err := w.Apply(h, lifecycle.Apply(h.State, lifecycle.Delete, w.Facts(h, nil)), "", false); err != nil {
			return err
		}
		w.Tell(h, h.ClusterID, domain.Info, "host_deregistered", true, "Host %s: deregistered", h.FreeLabel())
		w.drop(key)
		if h.ClusterID != "" {
			return w.refreshCluster(ctx, h.ClusterID)
		}
		return nil
	})
	return err
}
