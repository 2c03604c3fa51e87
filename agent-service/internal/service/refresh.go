// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

var (
	emptySummary hardware.Summary
	noChecks     validate.Checks
)

func (s *Service) facts(h *domain.Host, c *domain.Cluster) lifecycle.Facts {
	slow := h.Checks.DiskSpeed == validate.Refused && (c == nil || !slices.Contains(c.IgnoredValidations, validate.DiskSpeed))
	f := lifecycle.Facts{
		Connected: s.hosts.Connected(h) && h.MediaConnected, HasInventory: h.Summary.Hash != "",
		Sufficient: validate.Sufficient(h.Validations, h.ClusterID != ""), DayTwo: h.DayTwo,
		Prepared:   h.Images == validate.Passed && h.Checks.DiskSpeed != validate.Unknown && !slow,
		Unprepared: h.Images == validate.Refused || slow,
		Rebooted:   lifecycle.AfterReboot(h.Progress.Stage), Stage: h.Progress.Stage, Attempts: h.Attempts,
	}
	if c != nil {
		f.ClusterPreparing = c.Status == lifecycle.ClusterPreparing
		f.ClusterInstalling = c.Status == lifecycle.ClusterInstalling || c.Status == lifecycle.ClusterFinalizing
		f.ClusterFailed = c.Status == lifecycle.ClusterFailed
	}
	return f
}

func (s *Service) subject(h *domain.Host) validate.Subject {
	role := cmp.Or(h.Role, domain.AutoAssign)
	if h.DayTwo && role == domain.AutoAssign {
		role = "worker" // what it becomes
	}
	return validate.Subject{
		ID: h.HostID, Key: h.String(), Twin: h.Twin, Connected: s.hosts.Connected(h), MediaConnected: h.MediaConnected, Hostname: h.Hostname(), Role: role,
		DiskID: h.InstallationDiskID, DiskPath: h.InstallationDiskPath, Summary: h.Summary, NTP: h.NTPSources, Checks: h.Checks,
		KeptDisks: h.SkipFormattingDisks, AgentVersion: h.AgentVersion, NoInstaller: h.Assisted() && s.InstallerImage == "",
	}
}

func surroundings(c *domain.Cluster, members []*domain.Host) *validate.Surroundings {
	around := &validate.Surroundings{
		Name: c.Name, BaseDomain: c.BaseDNSDomain, CPUArchitecture: c.CPUArchitecture, MachineNetworks: c.MachineNetworks, Roles: map[string]string{},
		ClusterNetworks: c.ClusterNetworks, ServiceNetworks: c.ServiceNetworks, Neighbours: map[string]validate.Neighbour{},
		UserManagedNetworking: c.UserManagedNetworking, DayTwo: takesDayTwo(c), Ignored: c.IgnoredValidations,
	}
	if len(c.APIVIPs) > 0 {
		around.APIAddress = c.APIVIPs[0]
	}
	for _, m := range members {
		around.Roles[m.HostID] = m.Role
		around.Neighbours[m.String()] = validate.Neighbour{ID: m.HostID, Hostname: m.Hostname(), Addresses: m.Summary.Addresses, MACAddresses: m.Summary.MACAddresses}
	}
	return around
}

func takesDayTwo(c *domain.Cluster) bool {
	return c.Status == lifecycle.ClusterInstalled || c.Status == lifecycle.ClusterAddingHosts
}

// assess validates a host and applies refresh to it.
func (w *work) assess(h *domain.Host, c *domain.Cluster, around *validate.Surroundings) {
	silenced := slices.Contains(w.silenced, h.HostKey)
	subject := w.s.subject(h)
	subject.Connected = subject.Connected && !silenced
	results := validate.Host(subject, around, w.s.Minimums)
	if !slices.Equal(results, h.Validations) {
		w.compare(h, results)
		h.Validations = results
	}
	facts := w.s.facts(h, c)
	facts.Connected = facts.Connected && !silenced
	o := lifecycle.Apply(h.State, lifecycle.Refresh, facts)
	info := o.Info
	switch {
	case o.To == lifecycle.Insufficient || o.To == lifecycle.InsufficientUnbound:
		info += ": " + strings.Join(validate.Failing(results, h.ClusterID != ""), "; ")
	case o.To == lifecycle.PreparingFailed && o.To != h.State:
		info += ": " + h.WhyUnprepared()
	}
	w.enter(h, o.To, domain.Truncate(info, 2000))
}

// compare tells of validations that began to fail or were fixed.
func (w *work) compare(h *domain.Host, results []validate.Result) {
	before := map[string]validate.Status{}
	for _, r := range h.Validations {
		before[r.ID] = r.Status
	}
	for _, r := range results {
		was, known := before[r.ID]
		switch {
		case r.Status == validate.Failure && was != validate.Failure && known:
			w.tell(h, h.ClusterID, domain.Warning, "host_validation_failed", h.ClusterID == "", "Host %s: validation '%s' that used to succeed is now failing: %s", h.Label(), r.ID, r.Message)
		case r.Status == validate.Success && was == validate.Failure:
			w.tell(h, h.ClusterID, domain.Info, "host_validation_fixed", h.ClusterID == "", "Host %s: validation '%s' is now fixed", h.Label(), r.ID)
		}
	}
}

// refresh brings a host up to date, with its cluster where it is bound.
func (w *work) refresh(ctx context.Context, h *domain.Host) error {
	if h.ClusterID != "" {
		return w.refreshCluster(ctx, h.ClusterID)
	}
	w.assess(h, nil, nil)
	return nil
}

// refreshCluster brings a cluster and its hosts up to date with each other. Only the hosts of this transaction are assessed, unless it changes what the others are
// assessed by.
func (w *work) refreshCluster(ctx context.Context, id string) error {
	c, err := w.cluster(ctx, id)
	if err != nil || c == nil {
		return err
	}
	members, err := w.look(ctx, id)
	if err != nil {
		return err
	}
	all := w.concernsAll(w.clusters[id]) || w.s.reviews.due(id, w.s.clock.Now(), w.s.PollInterval)
	for range 8 {
		around := surroundings(c, members)
		for i, m := range members {
			if !all && w.hosts[m.HostKey] == nil {
				continue
			}
			m = w.track(m)
			members[i] = m
			// Who was not ready when the cluster was installed joins it later.
			m.DayTwo = m.DayTwo || takesDayTwo(c) && lifecycle.Idle(m.State)
			w.assess(m, c, around)
		}
		if all {
			w.reviewed[id] = struct{}{}
		}
		r := w.roster(c, members)
		c.HostCount, c.ReadyHostCount, c.InstalledHostCount = r.Bound, r.Ready, r.Done
		next, info := lifecycle.NextCluster(c.Status, r)
		if next == c.Status {
			return nil
		}
		w.endPreparation(c, members, next)
		if why := c.Preparation.Why; why != "" {
			info += "; the last checks before the installation failed: " + why
		}
		w.enterCluster(c, next, info)
		all = true
	}
	return nil
}

// concernsAll is true where this transaction changes what all hosts of a cluster are assessed by: the cluster, which hosts it has, or what its hosts see of each other.
func (w *work) concernsAll(c *tracked[domain.Cluster]) bool {
	if c.before.Status != c.now.Status || c.before.Name != c.now.Name || !reflect.DeepEqual(c.before.ClusterSettings, c.now.ClusterSettings) {
		return true
	}
	for _, t := range w.hosts {
		was, is := t.before.ClusterID == c.now.ID, !t.deleted && t.now.ClusterID == c.now.ID
		if was != is || is && !sameNeighbour(&t.before, t.now) {
			return true
		}
	}
	return false
}

// sameNeighbour is true where the other hosts of a cluster see no difference between the two.
func sameNeighbour(a, b *domain.Host) bool {
	return a.Role == b.Role && a.Hostname() == b.Hostname() && slices.Equal(a.Summary.Addresses, b.Summary.Addresses) &&
		slices.Equal(a.Summary.MACAddresses, b.Summary.MACAddresses)
}

// reviews are when all hosts of a cluster were assessed last, whether anything about the others changed or not: so that what this process does not see change, such as its
// own configuration, is not forgotten.
type reviews struct {
	mu   sync.Mutex
	last map[string]time.Duration
}

func (r *reviews) due(id string, now, interval time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ever := r.last[id]
	return !ever || now-at >= interval
}

func (r *reviews) done(id string, now time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = map[string]time.Duration{}
	}
	r.last[id] = now
}

func (r *reviews) forget(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, id)
}

// firstRest and longestRest bound how long an installation waits that could not be prepared; in between the time doubles.
const (
	firstRest   = 15 * time.Second
	longestRest = 10 * time.Minute
)

// endPreparation keeps how the checks before an installation ended, where they did.
func (w *work) endPreparation(c *domain.Cluster, members []*domain.Host, next lifecycle.ClusterState) {
	switch {
	case c.Status != lifecycle.ClusterPreparing:
		return
	case next == lifecycle.ClusterInstalling:
		c.Preparation = domain.Preparation{}
		return
	}
	var why []string
	for _, m := range members {
		left := slices.Contains([]lifecycle.State{lifecycle.PreparingFailed, lifecycle.Disconnected, lifecycle.Failed}, m.State)
		if left && m.StateUpdatedAt.Equal(w.now) {
			why = append(why, "host "+m.Label()+": "+m.StateInfo)
		}
	}
	p := &c.Preparation
	p.Why = domain.Truncate(cmp.Or(strings.Join(why[:min(len(why), 3)], "; "), "not all hosts that are needed took part to the end"), 1000)
	p.RetryAt = w.now.Add(min(firstRest<<min(p.Failures, 16), longestRest))
	p.Failures++
}

func (w *work) enterCluster(c *domain.Cluster, to lifecycle.ClusterState, info string) {
	if c.Status == to {
		return
	}
	from := c.Status
	c.Status, c.StatusInfo, c.StatusUpdatedAt = to, info, w.now
	severity := domain.Info
	switch to {
	case lifecycle.ClusterInstalled:
		c.InstallCompletedAt = w.now
	case lifecycle.ClusterFailed:
		severity = domain.Failure
	default:
	}
	w.tellCluster(c, severity, "cluster_status_updated", "Updated status of the cluster from %s to %s: %s", from, to, info)
}

func (w *work) roster(c *domain.Cluster, members []*domain.Host) lifecycle.Roster {
	r := lifecycle.Roster{Wanted: c.Wanted(), Bound: len(members)}
	var why []string
	for _, m := range members {
		if m.State == lifecycle.Known && m.Approved {
			r.Ready++
		}
		if m.DayTwo {
			if m.State == lifecycle.AddedToExistingCluster {
				r.Done++
			}
			continue
		}
		switch m.State {
		case lifecycle.PreparingForInstallation, lifecycle.InstallingPendingUserAction, lifecycle.Installing, lifecycle.InstallingInProgress:
			r.Installing++
		case lifecycle.PreparingSuccessful:
			r.Installing++
			r.Prepared++
		case lifecycle.PreparingFailed:
			r.Unprepared++
		case lifecycle.Installed:
			r.Installing++
			r.Done++
		case lifecycle.Failed:
			r.Installing++
			if r.Failed++; r.Failed <= 3 {
				why = append(why, "host "+m.Label()+": "+domain.Truncate(m.StateInfo, 600))
			}
		default:
		}
	}
	r.Why = strings.Join(why, "; ")
	return r
}
