// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"maps"
	"strconv"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/machineplan"
	"github.com/muster-io/muster/agent-service/internal/transaction"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// Allocate binds free hosts of the principal to a cluster, or reserves them, in one transaction: as many as the request says, or none. Conflict TooFewHosts says with numbers
// why there are too few.
func (s *Hosts) Allocate(ctx context.Context, by domain.Principal, request domain.NewAllocation) (*domain.Allocation, error) {
	var made *domain.Allocation
	err := s.engine.Update(ctx, func(ctx context.Context, w *transaction.Work) error {
		made = &domain.Allocation{ID: uuid.NewString(), ClusterID: request.ClusterID}
		a, err := s.allocationOf(ctx, w, by, request)
		if err != nil {
			return err
		}
		keys, err := a.choose(ctx)
		if err != nil {
			return err
		}
		hosts, err := a.lock(ctx, keys)
		if err != nil {
			return err
		}
		if a.cluster != nil {
			err = w.BindAll(ctx, by, hosts, a.cluster)
		} else {
			made.Until = w.Now.Add(cmp.Or(request.Reserve, domain.DefaultReservation)).Truncate(time.Second)
			a.reserve(hosts, domain.Reservation{ID: made.ID, By: by.Owner(), Until: made.Until})
		}
		for _, h := range hosts {
			made.Hosts = append(made.Hosts, *h)
		}
		return err
	}, request.ClusterID)
	if err != nil {
		return nil, err
	}
	return made, nil
}

// EndAllocation ends the reservation of the hosts of an allocation that the principal owns. NotFound where no host is reserved by it.
func (s *Hosts) EndAllocation(ctx context.Context, by domain.Principal, id string) error {
	return s.engine.Update(ctx, func(ctx context.Context, w *transaction.Work) error {
		all, err := hostsOf(ctx, w, by, domain.HostFilter{Unbound: true})
		if err != nil {
			return err
		}
		hosts, err := w.TrackHosts(ctx, keysOf(all, func(h *domain.Host) bool { return h.Reservation.ID == id && by.Owns(h.Owner) }))
		if err != nil {
			return err
		}
		ended := 0
		for _, h := range hosts {
			if h.Reservation.ID == id && h.Reservation.Holds(w.Now) {
				h.Reservation = domain.Reservation{}
				w.Tell(h, "", domain.Info, "host_reservation_ended", true, "Host %s: the reservation was ended", h.Label())
				ended++
			}
		}
		if ended == 0 {
			return domain.RefuseUnknown("Allocation", id)
		}
		return nil
	})
}

// allocation is one request for hosts in a transaction.
type allocation struct {
	*transaction.Work
	by      domain.Principal
	request domain.NewAllocation
	// cluster is nil where the hosts are to be reserved.
	cluster *domain.Cluster
	seen    func(domain.HostKey) domain.Seen
	// infraEnvs are those of hosts that were looked at, by id; nil for one that is missing.
	infraEnvs map[string]*domain.InfraEnv
}

func (s *Hosts) allocationOf(ctx context.Context, w *transaction.Work, by domain.Principal, request domain.NewAllocation) (*allocation, error) {
	a := &allocation{Work: w, by: by, request: request, seen: s.Seen, infraEnvs: map[string]*domain.InfraEnv{}}
	if request.InfraEnvID != "" {
		if _, err := transaction.OwnInfraEnv(ctx, w, by, request.InfraEnvID); err != nil {
			return nil, err
		}
	}
	if request.ClusterID == "" {
		return a, nil
	}
	c, err := w.OwnCluster(ctx, by, request.ClusterID)
	if err != nil {
		return nil, err
	}
	if !lifecycle.Accepts(c.Status) {
		return nil, domain.Refuse(domain.Conflict, "ClusterNotAccepting", "cluster %s is %s and takes no hosts now", c.ID, c.Status)
	}
	a.cluster = c
	return a, nil
}

// choose returns the keys of the hosts that suit best. Nothing is locked.
func (a *allocation) choose(ctx context.Context) ([]domain.HostKey, error) {
	all, err := hostsOf(ctx, a, a.by, domain.HostFilter{InfraEnvID: a.request.InfraEnvID})
	if err != nil {
		return nil, err
	}
	hosts := make([]*domain.Host, 0, len(all))
	for i := range all {
		if a.by.Owns(all[i].Owner) {
			hosts = append(hosts, &all[i])
		}
	}
	d, byName, err := a.plan(ctx, hosts)
	if err != nil {
		return nil, err
	}
	if len(d.Candidates) < a.request.Count {
		return nil, domain.Refuse(domain.Conflict, "TooFewHosts", "%d of %d hosts can be allocated: %s", len(d.Candidates), a.request.Count, d.Why)
	}
	keys := make([]domain.HostKey, 0, a.request.Count)
	for _, chosen := range d.Candidates[:a.request.Count] {
		keys = append(keys, byName[chosen.Name].HostKey)
	}
	return keys, nil
}

// lock returns the hosts that were chosen, to be changed. Where another transaction took one meanwhile, this one begins again.
func (a *allocation) lock(ctx context.Context, keys []domain.HostKey) ([]*domain.Host, error) {
	hosts, err := a.TrackHosts(ctx, keys)
	if err != nil {
		return nil, err
	}
	d, _, err := a.plan(ctx, hosts)
	if err == nil && len(d.Candidates) < len(keys) {
		err = transaction.ErrOutdated
	}
	return hosts, err
}

func (a *allocation) reserve(hosts []*domain.Host, r domain.Reservation) {
	for _, h := range hosts {
		h.Reservation = r
		a.Tell(h, "", domain.Info, "host_reserved", true, "Host %s: reserved until %s", h.Label(), r.Until.Format(time.RFC3339))
	}
}

// plan decides which of these hosts are taken, in which order, and says why others are not. Those that the cluster has count for the spread.
func (a *allocation) plan(ctx context.Context, hosts []*domain.Host) (machineplan.Decision, map[string]*domain.Host, error) {
	pool := machineplan.Pool{Noun: "host", Replicas: a.request.Count, Minimum: a.request.Minimum, Spread: a.request.SpreadBy != ""}
	var machines []machineplan.Machine
	byName := map[string]*domain.Host{}
	for _, h := range hosts {
		if err := a.readInfraEnv(ctx, h.InfraEnvID); err != nil {
			return machineplan.Decision{}, nil, err
		}
		set := a.labels(h)
		if !a.request.Selector.Matches(set) {
			continue
		}
		m := a.machine(h, set)
		if m.Has() {
			pool.Replicas++
		}
		machines, byName[m.Name] = append(machines, m), h
	}
	return machineplan.Plan(pool, machines, a.Now), byName, nil
}

func (a *allocation) readInfraEnv(ctx context.Context, id string) error {
	if _, known := a.infraEnvs[id]; known {
		return nil
	}
	e, err := a.InfraEnv(ctx, id)
	a.infraEnvs[id] = e
	return err
}

// labels are those that a request may select hosts by: what the InfraEnv gives its Agents, what the user gives the node, and facts of the hardware.
func (a *allocation) labels(h *domain.Host) labels.Set {
	set := labels.Set{}
	if e := a.infraEnvs[h.InfraEnvID]; e != nil {
		maps.Copy(set, e.AgentLabels)
	}
	maps.Copy(set, h.NodeLabels)
	set[agentv1.CPUArchitectureLabel] = domain.LabelValue(h.Summary.CPUArchitecture)
	set[agentv1.ManufacturerLabel] = domain.LabelValue(h.Summary.Manufacturer)
	set[agentv1.ProductNameLabel] = domain.LabelValue(h.Summary.ProductName)
	set[agentv1.IsVirtualLabel] = strconv.FormatBool(h.Summary.Virtual)
	return set
}

// machine is a host as the plan sees it.
func (a *allocation) machine(h *domain.Host, set labels.Set) machineplan.Machine {
	ours := h.ClusterID != "" && h.ClusterID == a.request.ClusterID
	m := machineplan.Machine{
		Name: h.String(), Mine: ours, Ours: ours, Bound: h.ClusterID != "", Reserved: h.Reservation.Holds(a.Now), Free: lifecycle.Free(h.State) && !h.Release.Underway(),
		Forbidden: a.forbidden(h), Approved: h.Approved, Worker: true, Valid: h.State == lifecycle.KnownUnbound, Spread: set[a.request.SpreadBy],
		Size: machineplan.Size{CPUs: h.Summary.CPUCount, Memory: h.Summary.MemoryBytes},
	}
	for _, disk := range h.Summary.Targets {
		m.Size.Disk = max(m.Size.Disk, disk.SizeBytes)
	}
	if !a.Connected(h) {
		m.SilentSince = a.seen(h.HostKey).At
		if m.SilentSince.IsZero() {
			m.SilentSince = h.StateUpdatedAt
		}
	}
	return m
}

// forbidden is why the host cannot be bound to the cluster, or to any; empty where it can.
func (a *allocation) forbidden(h *domain.Host) string {
	e := a.infraEnvs[h.InfraEnvID]
	switch {
	case e == nil || e.Deleting:
		return "its InfraEnv is being deleted"
	case a.cluster != nil && a.cluster.Kube != (domain.KubeRef{}) && e.Kube != (domain.KubeRef{}):
		return "spec.clusterDeploymentName of its Agent binds it"
	case e.ClusterID != "" && e.ClusterID != a.request.ClusterID:
		return "InfraEnv " + e.ID + " has a cluster of its own"
	}
	if architecture := h.Summary.CPUArchitecture; a.cluster != nil && !hardware.Fits(architecture, a.cluster.CPUArchitecture) {
		return "architecture " + architecture + " where the cluster has " + a.cluster.CPUArchitecture
	}
	return ""
}

// hostsOf are all hosts of a filter, of all pages.
func hostsOf(ctx context.Context, r transaction.Reader, by domain.Principal, filter domain.HostFilter) ([]domain.Host, error) {
	var all []domain.Host
	for filter.Limit = 5000; ; filter.Offset = len(all) {
		found, err := r.Hosts(ctx, domain.Scope{Principal: by}, filter)
		if err != nil {
			return nil, err
		}
		if all = append(all, found.Items...); len(found.Items) == 0 || len(all) >= found.Total {
			return all, nil
		}
	}
}

func keysOf(hosts []domain.Host, which func(*domain.Host) bool) []domain.HostKey {
	var keys []domain.HostKey
	for i := range hosts {
		if which(&hosts[i]) {
			keys = append(keys, hosts[i].HostKey)
		}
	}
	return keys
}
