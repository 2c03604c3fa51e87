// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"cmp"
	"context"
	"time"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// Each applies a verb to the hosts that allow it.
func (w *Work) Each(ctx context.Context, members []*domain.Host, verb lifecycle.Verb, c *domain.Cluster) error {
	for _, h := range members {
		if err := w.Act(ctx, h, verb, c); err != nil && domain.KindOf(err) != domain.Conflict {
			return err
		}
	}
	return nil
}

// PutManifest checks and writes a manifest of a cluster.
func (w *Work) PutManifest(ctx context.Context, clusterID, name string, content []byte) error {
	if err := domain.CheckManifest(name, content); err != nil {
		return err
	}
	return w.PutFile(ctx, clusterID, name, content, w.Now)
}

// Reach reads a host to be changed by who owns or uses it. Unknown and foreign hosts answer alike.
func (w *Work) Reach(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, domain.Stake, error) {
	h, err := w.TrackHost(ctx, key)
	if err != nil {
		return nil, domain.Stake{}, err
	}
	if h == nil {
		return nil, domain.Stake{}, domain.RefuseUnknown("Host", key.HostID)
	}
	has, err := w.Stake(ctx, by, h)
	if err == nil && has == (domain.Stake{}) {
		err = domain.RefuseUnknown("Host", key.HostID)
	}
	return h, has, err
}

// OwnCluster reads a cluster of the principal, to be changed in place.
func (w *Work) OwnCluster(ctx context.Context, by domain.Principal, id string) (*domain.Cluster, error) {
	c, err := w.TrackCluster(ctx, id)
	if err != nil {
		return nil, err
	}
	if c == nil || !by.Owns(c.Owner) {
		return nil, domain.RefuseUnknown("Cluster", id)
	}
	return c, nil
}

// admit says whether a cluster takes the host.
func (w *Work) admit(ctx context.Context, h *domain.Host, c *domain.Cluster) error {
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

// Move takes a host to a cluster that is not installed yet: what is installed already is joined, which is another thing to ask for.
func (w *Work) Move(ctx context.Context, by domain.Principal, h *domain.Host, c *domain.Cluster) error {
	if hostplan.TakesDayTwo(c) {
		return domain.Refuse(domain.Conflict, "ClusterInstalled", "cluster %s is installed already, and hosts are moved only to clusters that are not: unbind the host, then bind it", c.ID)
	}
	return w.Join(ctx, by, h, c, lifecycle.Move)
}

// Join applies bind or move and announces it.
func (w *Work) Join(ctx context.Context, by domain.Principal, h *domain.Host, c *domain.Cluster, verb lifecycle.Verb) error {
	from := h.ClusterID
	if err := w.enter(ctx, by, h, c, verb); err != nil {
		return err
	}
	if from != "" {
		if err := w.RefreshCluster(ctx, from); err != nil {
			return err
		}
	}
	return w.RefreshCluster(ctx, c.ID)
}

// BindAll binds free hosts to a cluster.
func (w *Work) BindAll(ctx context.Context, by domain.Principal, hosts []*domain.Host, c *domain.Cluster) error {
	for _, h := range hosts {
		if err := w.enter(ctx, by, h, c, lifecycle.Bind); err != nil {
			return err
		}
	}
	return w.RefreshCluster(ctx, c.ID)
}

// enter brings a host into a cluster. Neither that one nor the former one is brought up to date.
func (w *Work) enter(ctx context.Context, by domain.Principal, h *domain.Host, c *domain.Cluster, verb lifecycle.Verb) error {
	from := h.ClusterID
	source, err := w.TrackCluster(ctx, from)
	if err != nil {
		return err
	}
	o := lifecycle.Apply(h.State, verb, w.Facts(h, source))
	if o.Refusal != "" {
		return w.Apply(h, o, "", false)
	}
	if !h.Reservation.Admits(by, w.Now) {
		return domain.Refuse(domain.Conflict, "HostReserved", "host %s is reserved by another user until %s: choose another host, or wait", h.HostID, h.Reservation.Until.Format(time.RFC3339))
	}
	if err := w.admit(ctx, h, c); err != nil {
		return err
	}
	if wipe, err := w.wipe(ctx, h); err != nil {
		return err
	} else if from != "" && wipe != domain.WipeNone {
		return domain.Refuse(domain.Conflict, "HostNotReleased", "host %s was written to in cluster %s and has to be wiped: unbind it, then bind it", h.HostID, from)
	}
	if from != "" {
		w.Tell(h, from, domain.Info, "host_unbind_succeeded", false, "Host %s: Successfully unbound from cluster", h.Label())
	}
	if err := w.Apply(h, o, c.ID, hostplan.TakesDayTwo(c)); err != nil {
		return err
	}
	if err := w.beginAddressing(ctx, h); err != nil {
		return err
	}
	h.Reservation = domain.Reservation{}
	// The record follows at once; status events of the way between are those of the cluster that it is in.
	h.State, h.StateInfo, h.StateUpdatedAt = o.To, o.Info, w.Now
	w.Tell(h, c.ID, domain.Info, "host_bind_succeeded", true, "Host %s: Successfully bound to cluster %s", h.FreeLabel(), c.ID)
	return nil
}

// Release applies a verb that ends a binding, and announces it.
func (w *Work) Release(ctx context.Context, h *domain.Host, verb lifecycle.Verb) error {
	from := h.ClusterID
	source, err := w.TrackCluster(ctx, from)
	if err != nil {
		return err
	}
	o := lifecycle.Apply(h.State, verb, w.Facts(h, source))
	if err := w.Apply(h, o, "", false); err != nil {
		return err
	}
	if err := w.free(ctx, h, source, o); err != nil || from == "" {
		return err
	}
	return w.RefreshCluster(ctx, from)
}

// Abandon frees a host of a cluster that is deleted.
func (w *Work) Abandon(ctx context.Context, h *domain.Host, c *domain.Cluster) error {
	o := lifecycle.Apply(h.State, lifecycle.Unbind, w.Facts(h, nil))
	if err := w.Apply(h, o, "", false); err != nil {
		return err
	}
	return w.free(ctx, h, c, o)
}

// free brings a host into the state that the end of its binding leads to, and says what its release has to do.
func (w *Work) free(ctx context.Context, h *domain.Host, from *domain.Cluster, o lifecycle.Outcome) error {
	if o.Has(lifecycle.LeaveCluster) {
		var err error
		if h.Release.Wipe, err = w.wipe(ctx, h); err != nil {
			return err
		}
		if from != nil {
			w.Tell(h, from.ID, domain.Info, "host_unbind_succeeded", true, "Host %s: Successfully unbound from cluster", h.Label())
			h.Release.Cluster = from.Kube
		}
	}
	h.State, h.StateInfo, h.StateUpdatedAt = o.To, o.Info, w.Now
	w.Settle(h)
	if o.Has(lifecycle.Reassess) {
		w.Assess(h, nil, nil)
	}
	return nil
}

// wipe is what is erased of a host before it is free again.
func (w *Work) wipe(ctx context.Context, h *domain.Host) (domain.Wipe, error) {
	e, err := w.InfraEnv(ctx, h.InfraEnvID)
	if err != nil {
		return domain.WipeNone, err
	}
	if h.WasWritten() && len(h.Written) == 0 {
		h.WroteUnrecorded()
	}
	return h.WipePolicy(e), nil
}

// Act applies a verb that leaves the host where it is bound.
func (w *Work) Act(ctx context.Context, h *domain.Host, verb lifecycle.Verb, c *domain.Cluster) error {
	return w.ActBecause(ctx, h, verb, c, "", "")
}

// ActBecause is act with the stage that the machine reports, and what it says of the cause.
func (w *Work) ActBecause(ctx context.Context, h *domain.Host, verb lifecycle.Verb, c *domain.Cluster, stage lifecycle.Stage, why string) error {
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
		return w.Refresh(ctx, h)
	}
	return nil
}

// Follow is why the cluster of an InfraEnv cannot become another one, nil where it can: where the former one was deleted.
func (w *Work) Follow(ctx context.Context, by domain.Principal, from string, e *domain.InfraEnv) error {
	if from == e.ClusterID {
		return nil
	}
	former, err := w.TrackCluster(ctx, from)
	if err != nil {
		return err
	}
	if from == "" || e.ClusterID == "" || former != nil {
		return domain.Refuse(domain.Invalid, "ClusterImmutable", "the cluster of an InfraEnv cannot be changed")
	}
	return w.Takes(ctx, by, e.ClusterID, e.CPUArchitecture)
}

// Takes is why machines of an architecture cannot be bound to a cluster as they register, nil where they can.
func (w *Work) Takes(ctx context.Context, by domain.Principal, clusterID, architecture string) error {
	c, err := w.OwnCluster(ctx, by, clusterID)
	if err != nil {
		return err
	}
	if !hardware.Fits(architecture, c.CPUArchitecture) {
		return domain.Refuse(domain.Invalid, "ArchitectureMismatch", "an InfraEnv for %s cannot boot machines for cluster %s, which is for %s", architecture, c.ID, c.CPUArchitecture)
	}
	return nil
}

// Place brings a host into a cluster, or out of any. Out of the cluster that its InfraEnv has it comes only where it leaves for good.
func (w *Work) Place(ctx context.Context, by domain.Principal, h *domain.Host, clusterID string, leaves bool) error {
	if h.ClusterID == clusterID {
		return nil
	}
	if clusterID != "" {
		c, err := w.OwnCluster(ctx, by, clusterID)
		if err != nil {
			return err
		}
		if h.ClusterID == "" {
			return w.Join(ctx, by, h, c, lifecycle.Bind)
		}
		return w.Join(ctx, by, h, c, lifecycle.Move) // also to an installed cluster: what is stated says that it shall be freed and bound
	}
	c, err := w.TrackCluster(ctx, h.ClusterID)
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
	if e != nil && e.ClusterID != "" && !leaves {
		return domain.Refuse(domain.Conflict, "InfraEnvBound", "InfraEnv %s belongs to cluster %s: its hosts cannot be unbound", e.ID, e.ClusterID)
	}
	return w.Release(ctx, h, lifecycle.Unbind)
}

// Edit gives a host other settings and announces it.
func (w *Work) Edit(ctx context.Context, h *domain.Host, after domain.HostSettings) error {
	before := h.HostSettings
	if err := after.Check(); err != nil {
		return err
	}
	after = h.KeepWipe(after)
	if before.Same(after) {
		return nil
	}
	if before.InstallerArgs != after.InstallerArgs {
		if err := h.CheckInstallerArgs(after.InstallerArgs); err != nil {
			return err
		}
	}
	if err := w.Apply(h, lifecycle.Apply(h.State, lifecycle.Edit, w.Facts(h, nil)), "", false); err != nil {
		return err
	}
	if err := h.CheckHostname(after.RequestedHostname); err != nil {
		return err
	}
	disk, _ := validate.Disk(w.Subject(h), w.Minimums)
	h.HostSettings = after
	if other, _ := validate.Disk(w.Subject(h), w.Minimums); other != disk {
		h.Checks.DiskSpeed = validate.Unknown
	}
	if before.Approved != after.Approved {
		w.Tell(h, h.ClusterID, domain.Info, "host_approved_updated", true, "Host %s: updated approved to %t", h.FreeLabel(), after.Approved)
	}
	if before.Role != after.Role {
		w.Tell(h, h.ClusterID, domain.Info, "host_role_updated", h.ClusterID == "", "Host %s: set role to %s", h.Label(), after.Role)
	}
	return w.Refresh(ctx, h)
}

// Unassigned are the states in which no installation needs a role to stay as it is.
var Unassigned = []lifecycle.State{
	lifecycle.DiscoveringUnbound, lifecycle.InsufficientUnbound, lifecycle.KnownUnbound, lifecycle.DisconnectedUnbound, lifecycle.Unbinding,
	lifecycle.UnbindingPendingUserAction, lifecycle.Reclaiming, lifecycle.ReclaimingRebooting, lifecycle.Binding, lifecycle.Discovering, lifecycle.Insufficient,
	lifecycle.Known, lifecycle.Disconnected,
}
