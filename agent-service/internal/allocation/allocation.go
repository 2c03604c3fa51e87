// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package allocation decides which hosts a request for hosts gets. It is pure: the caller reads hosts, and locks those that were chosen.
package allocation

import (
	"time"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/hostlabels"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/machineplan"
)

// Chooser chooses hosts for one request.
type Chooser struct {
	By      domain.Principal
	Request domain.NewAllocation
	// Cluster is nil where the hosts are to be reserved.
	Cluster *domain.Cluster
	// InfraEnvs are those of the hosts, by id; nil for one that is missing.
	InfraEnvs map[string]*domain.InfraEnv
	Now       time.Time
	// Connected is true for a host that polled within the time-out, and Seen says when that was.
	Connected func(*domain.Host) bool
	Seen      func(domain.HostKey) domain.Seen
}

// Choose returns the keys of the hosts that suit best. Conflict TooFewHosts says with numbers why there are too few.
func (c *Chooser) Choose(hosts []domain.Host) ([]domain.HostKey, error) {
	own := make([]*domain.Host, 0, len(hosts))
	for i := range hosts {
		if c.By.Owns(hosts[i].Owner) {
			own = append(own, &hosts[i])
		}
	}
	d, byName := c.plan(own)
	if len(d.Candidates) < c.Request.Count && c.Request.Kube != (domain.KubeRef{}) {
		return nil, domain.Refuse(domain.Conflict, "TooFewHosts", "%d of %d Agents can be reserved: %s", len(d.Candidates), c.Request.Count, d.Why)
	}
	if len(d.Candidates) < c.Request.Count {
		return nil, domain.Refuse(domain.Conflict, "TooFewHosts", "%d of %d hosts can be allocated: %s", len(d.Candidates), c.Request.Count, d.Why)
	}
	keys := make([]domain.HostKey, 0, c.Request.Count)
	for _, chosen := range d.Candidates[:c.Request.Count] {
		keys = append(keys, byName[chosen.Name])
	}
	return keys, nil
}

// Stands says that all hosts which were chosen, as they are now, can still be taken.
func (c *Chooser) Stands(hosts []*domain.Host) bool {
	d, _ := c.plan(hosts)
	return len(d.Candidates) >= c.Request.Count
}

// chooses says whether a host can be chosen at all, and what its Agent says of it.
func (c *Chooser) chooses(h *domain.Host) (candidate domain.Candidate, ok bool) {
	e := c.InfraEnvs[h.InfraEnvID]
	if c.Request.Among == nil {
		var ofInfraEnv map[string]string
		if e != nil {
			ofInfraEnv = e.AgentLabels
		}
		candidate.Labels = hostlabels.Of(h, ofInfraEnv)
	} else if candidate, ok = c.Request.Among[h.HostKey]; !ok || e == nil || e.Kube.Namespace != c.Request.Kube.Namespace {
		return candidate, false // users who may change an Agent may change the owner that it names
	}
	return candidate, c.Request.Selector.Matches(candidate.Labels)
}

// plan decides which of these hosts are taken, in which order, and says why others are not. Those that the cluster has count for the spread.
func (c *Chooser) plan(hosts []*domain.Host) (machineplan.Decision, map[string]domain.HostKey) {
	noun := "host"
	if c.Request.Kube != (domain.KubeRef{}) {
		noun = "Agent"
	}
	pool := machineplan.Pool{Noun: noun, Replicas: c.Request.Count, Minimum: c.Request.Minimum, Spread: c.Request.SpreadBy != ""}
	var machines []machineplan.Machine
	byName := map[string]domain.HostKey{}
	for _, h := range hosts {
		candidate, ok := c.chooses(h)
		if !ok {
			continue
		}
		m := c.machine(h, candidate)
		if m.Has() {
			pool.Replicas++
		}
		machines, byName[m.Name] = append(machines, m), h.HostKey
	}
	return machineplan.Plan(pool, machines, c.Now), byName
}

// machine is a host as the plan sees it.
func (c *Chooser) machine(h *domain.Host, candidate domain.Candidate) machineplan.Machine {
	ours := h.ClusterID != "" && h.ClusterID == c.Request.ClusterID
	m := machineplan.Machine{
		Name: h.String(), Mine: ours, Ours: ours, Bound: h.ClusterID != "" || candidate.Bound, Reserved: h.Reservation.Holds(c.Now) || candidate.Reserved, Free: lifecycle.Free(h.State) && !h.Release.Underway(),
		Forbidden: c.forbidden(h), Approved: h.Approved, Worker: true, Valid: h.State == lifecycle.KnownUnbound, Spread: candidate.Labels[c.Request.SpreadBy],
		Size: machineplan.Size{CPUs: h.Summary.CPUCount, Memory: h.Summary.MemoryBytes},
	}
	for _, disk := range h.Summary.Targets {
		m.Size.Disk = max(m.Size.Disk, disk.SizeBytes)
	}
	if !c.Connected(h) {
		m.SilentSince = c.Seen(h.HostKey).At
		if m.SilentSince.IsZero() {
			m.SilentSince = h.StateUpdatedAt
		}
	}
	return m
}

// forbidden is why the host cannot be bound to the cluster, or to any; empty where it can.
func (c *Chooser) forbidden(h *domain.Host) string {
	e := c.InfraEnvs[h.InfraEnvID]
	switch {
	case e == nil || e.Deleting || e.Closed:
		return "its InfraEnv is being deleted"
	case c.Cluster != nil && c.Cluster.Kube != (domain.KubeRef{}) && e.Kube != (domain.KubeRef{}):
		return "spec.clusterDeploymentName of its Agent binds it"
	case e.ClusterID != "" && e.ClusterID != c.Request.ClusterID:
		return "InfraEnv " + e.ID + " has a cluster of its own"
	}
	if architecture := h.Summary.CPUArchitecture; c.Cluster != nil && !hardware.Fits(architecture, c.Cluster.CPUArchitecture) {
		return "architecture " + architecture + " where the cluster has " + c.Cluster.CPUArchitecture
	}
	return ""
}
