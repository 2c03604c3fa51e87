// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

// Register makes or renews the host of a machine.
func (e *Engine) Register(ctx context.Context, key domain.HostKey, request domain.NewHost) (*domain.Host, error) {
	if h := e.registerAgain(key, request); h != nil {
		return h, nil
	}
	clusters := []string{e.Hosts.ClusterOf(key)}
	if known := e.InfraEnvs.Known(key.InfraEnvID); known != nil {
		clusters = append(clusters, known.ClusterID)
	}
	var h *domain.Host
	err := e.Update(ctx, func(ctx context.Context, w *Work) (err error) {
		h, err = w.register(ctx, key, request)
		return err
	}, clusters...)
	if err != nil {
		return nil, err
	}
	if entry := e.Hosts.Get(key); entry != nil {
		entry.Register(h)
	}
	return h, nil
}

// registerAgain is a host that is registered, and whose agent comes for a token since its cluster changed: it says nothing that is to be stored. Nil for all others, and where another replica may
// know more.
func (e *Engine) registerAgain(key domain.HostKey, request domain.NewHost) *domain.Host {
	entry, infraEnv := e.Hosts.Get(key), e.InfraEnvs.Known(key.InfraEnvID)
	if e.Store.Shared() || entry == nil || infraEnv == nil || infraEnv.Deleting || request.BootID == "" {
		return nil
	}
	return entry.RegisterAgain(func(h *domain.Host) bool {
		said := domain.NewHost{HostID: h.HostID, AgentVersion: h.AgentVersion, Fingerprint: h.Fingerprint, BootID: h.BootID, ImageGeneration: request.ImageGeneration, Source: request.Source}
		return said == request && !h.Resident && h.Release.WipeFailure == "" && !h.Release.Stopping && (lifecycle.Free(h.State) || lifecycle.Idle(h.State)) && !lifecycle.Silent(h.State)
	})
}

func (w *Work) register(ctx context.Context, key domain.HostKey, request domain.NewHost) (*domain.Host, error) {
	e, err := w.InfraEnv(ctx, key.InfraEnvID)
	if err != nil {
		return nil, err
	}
	if e == nil {
		return nil, domain.RefuseUnknown("InfraEnv", key.InfraEnvID)
	}
	if e.Deleting {
		return nil, beingDeleted(e)
	}
	h, elsewhere, err := w.records(ctx, e, key, request)
	if err != nil {
		return nil, err
	}
	switch {
	case h == nil && e.Closed:
		return nil, beingDeleted(e)
	case h == nil:
		h, err = w.newHost(ctx, e, key)
	default:
		err = w.again(ctx, h, request)
	}
	if err != nil {
		return nil, err
	}
	h.AgentVersion, h.Fingerprint, h.BootID, h.RegisteredAt = request.AgentVersion, request.Fingerprint, request.BootID, w.Now
	h.Stamps.Registration = w.NewStamp()
	h.Admission, h.Resident = domain.Generations{}, false
	inherit(h, elsewhere, w.Now)
	stopped := h.Release.Stopping && h.Summary.Hash != ""
	h.Release.Stopping, h.Release.WipeFailure = false, "" // the agent stops what its host is not in; the wipe is tried again
	if request.BootID == "" && request.ImageGeneration > 0 {
		h.Admission = domain.Generations{ImageGeneration: request.ImageGeneration, HostGeneration: e.HostGeneration}
	}
	w.Tell(h, h.ClusterID, domain.Info, "host_registration_succeeded", true, "Host %s: Successfully registered", h.FreeLabel())
	if err := w.supersede(ctx, elsewhere); err != nil {
		return nil, err
	}
	if h.ClusterID != "" {
		return h, w.RefreshCluster(ctx, h.ClusterID)
	}
	if stopped { // what the agent reports from now on may be no news
		w.Assess(h, nil, nil)
	}
	return h, nil
}

func (w *Work) newHost(ctx context.Context, e *domain.InfraEnv, key domain.HostKey) (*domain.Host, error) {
	h := &domain.Host{
		HostKey: key, Owner: e.Owner, Stamps: domain.Stamps{Binding: w.NewStamp()}, State: lifecycle.DiscoveringUnbound, StateInfo: "Waiting for host to send hardware details", StateUpdatedAt: w.Now,
		MediaConnected: true, RegisteredAt: w.Now, CreatedAt: w.Now, UpdatedAt: w.Now,
		// Hosts are approved by custom resources only.
		HostSettings: domain.HostSettings{Role: domain.AutoAssign, Approved: e.AutoApprove || e.Kube.Name == ""},
	}
	if e.ClusterID != "" {
		c, err := w.TrackCluster(ctx, e.ClusterID)
		if err != nil {
			return nil, err
		}
		if c == nil || !lifecycle.Accepts(c.Status) {
			return nil, domain.Refuse(domain.Conflict, "ClusterNotAccepting", "cluster %s of InfraEnv %s takes no hosts now", e.ClusterID, e.ID)
		}
		h.State, h.ClusterID, h.DayTwo = lifecycle.Discovering, c.ID, hostplan.TakesDayTwo(c)
		w.Address(h, e.NodeAddresses)
	}
	w.AddHost(h)
	return h, nil
}

// again registers a host that is known.
func (w *Work) again(ctx context.Context, h *domain.Host, request domain.NewHost) error {
	if h.Fingerprint != "" && h.Fingerprint != request.Fingerprint && w.e.Hosts.Connected(h) {
		return identityInUse(h.HostID)
	}
	c, err := w.TrackCluster(ctx, h.ClusterID)
	if err != nil {
		return err
	}
	facts := w.Facts(h, c)
	facts.Connected = true
	facts.SameBoot = request.BootID != "" && request.BootID == h.BootID
	o := lifecycle.Apply(h.State, lifecycle.Register, facts)
	if err := w.Apply(h, o, "", false); err != nil {
		return err
	}
	w.Enter(h, o.To, o.Info)
	return nil
}

// records are the host that registers, nil where it is new, and those of the same machine in other InfraEnvs of its owner. A machine that sends no fingerprint is taken for
// one that sent one no more than another machine is.
func (w *Work) records(ctx context.Context, e *domain.InfraEnv, key domain.HostKey, request domain.NewHost) (own *domain.Host, elsewhere []*domain.Host, err error) {
	found, err := w.SameMachine(ctx, key.HostID, e.Owner, e.Kube.Namespace)
	if err != nil {
		return nil, nil, err
	}
	for _, one := range found {
		if one.HostKey != key && one.Fingerprint != "" && one.Fingerprint != request.Fingerprint {
			if request.Fingerprint == "" && w.e.Hosts.Connected(&one) {
				return nil, nil, identityInUse(key.HostID)
			}
			continue
		}
		h, err := w.TrackHost(ctx, one.HostKey)
		switch {
		case err != nil:
			return nil, nil, err
		case h == nil:
		case h.HostKey == key:
			own = h
		default:
			elsewhere = append(elsewhere, h)
		}
	}
	return own, elsewhere, nil
}

// inherit gives a host the release of the same machine in another InfraEnv, with what is still to be wiped. Only one of them may have it: the other would wipe what is
// written meanwhile.
func inherit(h *domain.Host, elsewhere []*domain.Host, now time.Time) {
	for _, other := range elsewhere {
		if h.ClusterID != "" || h.Release.Underway() || !other.Release.Underway() {
			continue
		}
		h.Release, h.Written = other.Release, append(slices.Clone(h.Written), other.Written...)
		other.Release, other.ReleaseMovedAt, other.Written = domain.Release{}, now, nil
	}
}

// supersede disconnects the same machine in other InfraEnvs, at once: it runs another image now.
func (w *Work) supersede(ctx context.Context, elsewhere []*domain.Host) error {
	for _, other := range elsewhere {
		o := lifecycle.Apply(other.State, lifecycle.Supersede, w.Facts(other, nil))
		other.Stamps.Registration = w.NewStamp()
		w.Enter(other, o.To, o.Info)
		w.Silenced = append(w.Silenced, other.HostKey)
		if other.ClusterID != "" {
			if err := w.RefreshCluster(ctx, other.ClusterID); err != nil {
				return err
			}
		}
	}
	return nil
}

// RestoreHost makes a host installed that was installed before the service lost its data. Conflict HostDeregistered for one that was deregistered since, on purpose.
func (w *Work) RestoreHost(ctx context.Context, by domain.Principal, key domain.HostKey, from domain.RestoredHost) (*domain.Host, error) {
	e, err := w.InfraEnv(ctx, key.InfraEnvID)
	if err != nil {
		return nil, err
	}
	if e == nil || !by.Owns(e.Owner) {
		return nil, domain.RefuseUnknown("InfraEnv", key.InfraEnvID)
	}
	c, err := w.OwnCluster(ctx, by, from.ClusterID)
	if err != nil {
		return nil, err
	}
	if !hostplan.TakesDayTwo(c) {
		return nil, domain.Refuse(domain.Conflict, "ClusterNotInstalled", "cluster %s is %s: hosts are restored as installed in installed clusters only", c.ID, c.Status)
	}
	h, err := w.TrackHost(ctx, key)
	if err != nil {
		return nil, err
	}
	if h == nil || h.CreatedAt.After(from.InstalledAt) {
		if err := w.notDeregistered(ctx, key, from.InstalledAt); err != nil {
			return nil, err
		}
	}
	switch {
	case h == nil:
		h = &domain.Host{HostKey: key, Owner: e.Owner, Stamps: domain.Stamps{Binding: w.NewStamp()}, MediaConnected: true, CreatedAt: w.Now, UpdatedAt: w.Now, HostSettings: domain.HostSettings{Approved: true}}
		w.AddHost(h)
	case h.ClusterID != "" && h.ClusterID != c.ID || lifecycle.WasInstalled(h.State) || !h.Missed(from.InstalledAt):
		return h, nil // it is what it is: only one that came back without its past is restored
	}
	h.ClusterID, h.DayTwo, h.Role, h.Bootstrap = c.ID, from.DayTwo, cmp.Or(from.Role, "worker"), from.Bootstrap
	h.Progress = domain.Progress{
		Stage: lifecycle.StageDone, Percentage: lifecycle.Percentage(lifecycle.StageDone), StageStartedAt: from.InstalledAt.UTC(), StageUpdatedAt: from.InstalledAt.UTC(),
	}
	if len(h.Summary.MACAddresses) == 0 {
		h.Summary.MACAddresses = from.MACAddresses
	}
	h.Summary.Hostname = cmp.Or(h.Summary.Hostname, from.Hostname)
	if len(h.Summary.Addresses) == 0 {
		h.Summary.Addresses = from.Addresses
	}
	h.State, h.StateInfo, h.StateUpdatedAt = lifecycle.Installed, infoRestored, w.Now
	if h.DayTwo {
		h.State = lifecycle.AddedToExistingCluster
	}
	w.Tell(h, h.ClusterID, domain.Warning, "host_restored", true, "Host %s: restored as %s, as its Agent says: the service lost its data", h.FreeLabel(), h.State)
	return h, w.RefreshCluster(ctx, c.ID)
}

// notDeregistered refuses a host that was deregistered after a time. It was not lost: its machine comes back as a new one.
func (w *Work) notDeregistered(ctx context.Context, key domain.HostKey, since time.Time) error {
	found, err := w.Events(ctx, domain.EventFilter{
		InfraEnvID: key.InfraEnvID, HostIDs: []string{key.HostID}, Names: []string{domain.EventHostDeregistered}, Descending: true, Page: domain.Page{Limit: 1},
	})
	if err != nil || len(found.Items) == 0 || found.Items[0].LastAt.Before(since) {
		return err
	}
	return domain.Refuse(domain.Conflict, "HostDeregistered", "host %s was deregistered after it was installed", key.HostID)
}

// RestoreRelease goes on with the release of a host that the service lost with its data, before the host was free: what was written to is not known any more. Wipe is
// what the MachinePool of the host asked for. A host that is bound, or of which nothing is to be wiped, stays as it is.
func (w *Work) RestoreRelease(ctx context.Context, by domain.Principal, key domain.HostKey, cluster domain.KubeRef, wipe domain.Wipe) error {
	h, _, err := w.Reach(ctx, by, key)
	if err != nil {
		return err
	}
	e, err := w.InfraEnv(ctx, key.InfraEnvID)
	if err != nil {
		return err
	}
	if e == nil || h.ClusterID != "" || !h.Release.StartedAt.IsZero() {
		return nil
	}
	if wipe = domain.WipeOf(e.Wipe, wipe); wipe == domain.WipeNone {
		return nil
	}
	h.Release = domain.Release{Cluster: cluster, Wipe: wipe, StartedAt: w.Now, LeftAt: w.Now, Note: "The service lost its data before the machine was free"}
	h.WroteUnrecorded()
	return w.Refresh(ctx, h)
}

// CloseInfraEnv keeps further hosts from an InfraEnv whose custom resource is being deleted; over REST it does nothing. A machine whose Agent is deleted meanwhile would register again, and
// be bound again where the InfraEnv has a cluster, and no Agent is made of it by which it could be freed.
func (w *Work) CloseInfraEnv(ctx context.Context, by domain.Principal, e *domain.InfraEnv) error {
	if by != domain.Kubernetes || e.Closed {
		return nil
	}
	e.Closed, e.UpdatedAt = true, w.Now
	w.Changed(domain.Change{Kind: domain.InfraEnvChanged, ID: e.ID})
	return w.PutInfraEnv(ctx, e)
}

func beingDeleted(e *domain.InfraEnv) error {
	return domain.Refuse(domain.Conflict, "InfraEnvDeleting", "InfraEnv %s is being deleted, and its hosts with it: boot the machine with the image of another one", e.ID)
}

func identityInUse(hostID string) error {
	return domain.Refuse(domain.Conflict, "IdentityInUse", "another live machine is registered as host %s: their serial numbers are equal, or this one sends no fingerprint; give one of them a host id of its own", hostID)
}

const infoRestored = "Done; the service lost its data since"
