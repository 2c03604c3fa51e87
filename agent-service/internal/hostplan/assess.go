// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostplan

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// Facts are what the life of a host depends on beside its state; c is nil for a free host.
func (r *Rules) Facts(h *domain.Host, c *domain.Cluster) lifecycle.Facts {
	slow := h.Checks.DiskSpeed == validate.Refused && (c == nil || !slices.Contains(c.IgnoredValidations, validate.DiskSpeed))
	measured := h.Checks.DiskSpeed != validate.Unknown || h.KeepsPartitions()
	f := lifecycle.Facts{
		Connected: r.Connected(h) && h.MediaConnected, HasInventory: h.Summary.Hash != "",
		Sufficient: validate.Sufficient(h.Validations, h.ClusterID != "") && (!h.NeedsAddresses() || !h.Addressing.Waits()) && r.imageMissing(h, c) == nil, DayTwo: h.DayTwo,
		Prepared:   h.Images == validate.Passed && measured && !slow,
		Unprepared: h.Images == validate.Refused || slow,
		Rebooted:   h.Progress.Rebooted(), Stage: h.Progress.Stage, Attempts: h.Attempts,
		Resident: h.Resident && r.Reclaims, Assisted: h.Assisted(), Unreleased: h.Release.Underway(),
	}
	if c != nil {
		f.ClusterPreparing = c.Status == lifecycle.ClusterPreparing
		f.ClusterInstalling = c.Status == lifecycle.ClusterInstalling || c.Status == lifecycle.ClusterFinalizing
		f.ClusterFailed = c.Status == lifecycle.ClusterFailed
	}
	return f
}

// imageMissing is the error of a host that cannot join an installed cluster: its agent writes what it is told to, and there is no image of the cluster's version.
// Where the cluster itself is to be installed, that is refused.
func (r *Rules) imageMissing(h *domain.Host, c *domain.Cluster) error {
	if c == nil || !h.DayTwo || h.Assisted() {
		return nil
	}
	_, err := r.Image(c, h)
	return err
}

// Subject is a host as validations look at it.
func (r *Rules) Subject(h *domain.Host) validate.Subject {
	role := cmp.Or(h.Role, domain.AutoAssign)
	if h.DayTwo && role == domain.AutoAssign {
		role = "worker" // what it becomes
	}
	return validate.Subject{
		ID: h.HostID, Key: h.String(), Twin: h.Twin, Connected: r.Connected(h), MediaConnected: h.MediaConnected, Hostname: h.Hostname(), Role: role,
		DiskID: h.InstallationDiskID, DiskPath: h.InstallationDiskPath, Summary: h.Summary, NTP: h.NTPSources, Checks: h.Checks,
		KeptDisks: h.SkipFormattingDisks, AgentVersion: h.AgentVersion, NoInstaller: h.Assisted() && r.InstallerImage == "",
	}
}

// SurroundingsOf is a cluster as validations look at it.
func SurroundingsOf(c *domain.Cluster, members []*domain.Host) *validate.Surroundings {
	around := &validate.Surroundings{
		Name: c.Name, BaseDomain: c.BaseDNSDomain, CPUArchitecture: c.CPUArchitecture, MachineNetworks: c.MachineNetworks, Roles: map[string]string{},
		ClusterNetworks: c.ClusterNetworks, ServiceNetworks: c.ServiceNetworks, Neighbours: map[string]validate.Neighbour{},
		UserManagedNetworking: c.UserManagedNetworking, DayTwo: TakesDayTwo(c), Ignored: c.IgnoredValidations,
	}
	around.APIAddress = strings.TrimPrefix(c.APIURL, "https://")
	if around.APIAddress == "" && len(c.APIVIPs) > 0 {
		around.APIAddress = c.APIVIPs[0]
	}
	for _, m := range members {
		around.Roles[m.HostID] = m.Role
		around.Neighbours[m.String()] = validate.Neighbour{ID: m.HostID, Hostname: m.Hostname(), Addresses: m.Summary.Addresses, MACAddresses: m.Summary.MACAddresses}
	}
	return around
}

// TakesDayTwo is true for a cluster that is installed: hosts join it later.
func TakesDayTwo(c *domain.Cluster) bool {
	return c.Status == lifecycle.ClusterInstalled || c.Status == lifecycle.ClusterAddingHosts
}

// Assess validates a host and applies refresh to it.
func (p *Plan) Assess(h *domain.Host, c *domain.Cluster, around *validate.Surroundings) {
	p.Settle(h)
	silenced := slices.Contains(p.Silenced, h.HostKey)
	subject := p.Subject(h)
	subject.Connected = subject.Connected && !silenced
	results := validate.Host(subject, around, p.Minimums)
	if !slices.Equal(results, h.Validations) {
		p.compare(h, results)
		h.Validations = results
	}
	facts := p.Facts(h, c)
	facts.Connected = facts.Connected && !silenced
	o := lifecycle.Apply(h.State, lifecycle.Refresh, facts)
	if err := p.Apply(h, o, h.ClusterID, h.DayTwo); err != nil {
		return // the service asks: no rule refuses it
	}
	info := o.Info
	switch {
	case facts.Unreleased && o.To == lifecycle.InsufficientUnbound:
		info += ": " + h.Release.Why()
	case o.To == lifecycle.Insufficient || o.To == lifecycle.InsufficientUnbound:
		why := validate.Failing(results, h.ClusterID != "")
		if o.To == lifecycle.Insufficient && h.Addressing.Waits() {
			why = append(why, h.Addressing.Why())
		}
		if err := p.imageMissing(h, c); err != nil && o.To == lifecycle.Insufficient {
			why = append(why, err.Error())
		}
		info += ": " + strings.Join(why, "; ")
	case o.To == lifecycle.PreparingFailed && o.To != h.State:
		info += ": " + h.WhyUnprepared()
	}
	p.Enter(h, o.To, domain.Truncate(info, 2000))
}

// compare announces validations that began to fail or were fixed.
func (p *Plan) compare(h *domain.Host, results []validate.Result) {
	before := map[string]validate.Status{}
	for _, r := range h.Validations {
		before[r.ID] = r.Status
	}
	for _, r := range results {
		was, known := before[r.ID]
		switch {
		case r.Status == validate.Failure && was != validate.Failure && known:
			p.Tell(h, h.ClusterID, domain.Warning, "host_validation_failed", h.ClusterID == "", "Host %s: validation '%s' that used to succeed is now failing: %s", h.Label(), r.ID, r.Message)
		case r.Status == validate.Success && was == validate.Failure:
			p.Tell(h, h.ClusterID, domain.Info, "host_validation_fixed", h.ClusterID == "", "Host %s: validation '%s' is now fixed", h.Label(), r.ID)
		}
	}
}

// SameNeighbour is true where the other hosts of a cluster see no difference between the two.
func SameNeighbour(a, b *domain.Host) bool {
	return a.Role == b.Role && a.Hostname() == b.Hostname() && slices.Equal(a.Summary.Addresses, b.Summary.Addresses) &&
		slices.Equal(a.Summary.MACAddresses, b.Summary.MACAddresses)
}

// firstRest and longestRest bound how long an installation waits that could not be prepared; in between the time doubles.
const (
	firstRest   = 15 * time.Second
	longestRest = 10 * time.Minute
)

// EndPreparation keeps how the checks before an installation ended, where they did.
func (p *Plan) EndPreparation(c *domain.Cluster, members []*domain.Host, next lifecycle.ClusterState) {
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
		if left && m.StateUpdatedAt.Equal(p.Now) {
			why = append(why, "host "+m.Label()+": "+m.StateInfo)
		}
	}
	last := &c.Preparation
	last.Why = domain.Truncate(cmp.Or(strings.Join(why[:min(len(why), 3)], "; "), "not all hosts that are needed took part to the end"), 1000)
	last.RetryAt = p.Now.Add(min(firstRest<<min(last.Failures, 16), longestRest))
	last.Failures++
}

// EnterCluster puts a cluster into a state and records it, where it is another one.
func (p *Plan) EnterCluster(c *domain.Cluster, to lifecycle.ClusterState, info string) {
	if c.Status == to {
		return
	}
	from := c.Status
	c.Status, c.StatusInfo, c.StatusUpdatedAt = to, info, p.Now
	severity := domain.Info
	switch to {
	case lifecycle.ClusterInstalled:
		c.InstallCompletedAt = p.Now
	case lifecycle.ClusterFailed:
		severity = domain.Failure
	default:
	}
	p.TellCluster(c, severity, "cluster_status_updated", "Updated status of the cluster from %s to %s: %s", from, to, info)
}

// RosterOf counts the hosts of a cluster.
func RosterOf(c *domain.Cluster, members []*domain.Host) lifecycle.Roster {
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
			if c.ControlPlane != nil && !m.Node.Ready {
				r.Unjoined++
			}
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

// PercentageOf is how far the hosts are that take part in the installation of their cluster, as a mean; 0 without such hosts.
func PercentageOf(members []*domain.Host) int {
	sum, n := 0, 0
	for _, m := range members {
		if !m.DayTwo && slices.Contains(takePart, m.State) {
			sum, n = sum+m.Progress.Percentage, n+1
		}
	}
	return sum / max(n, 1)
}

// takePart are the states of hosts that take part in the installation of their cluster.
var takePart = []lifecycle.State{
	lifecycle.PreparingForInstallation, lifecycle.PreparingSuccessful, lifecycle.Installing, lifecycle.InstallingInProgress, lifecycle.InstallingPendingUserAction,
	lifecycle.Installed, lifecycle.Failed, lifecycle.Cancelled,
}

// ReadinessOf counts the hosts of a cluster for its validations.
func ReadinessOf(c *domain.Cluster, members []*domain.Host) domain.Readiness {
	var r domain.Readiness
	unassigned := 0
	for _, m := range members {
		switch m.Role {
		case "master":
			r.ControlPlane++
		case "", domain.AutoAssign:
			unassigned++
		}
		if !lifecycle.Installable(m.State) {
			r.Unready++
		}
	}
	r.ControlPlane += min(unassigned, max(c.ControlPlaneCount-r.ControlPlane, 0))
	return r
}

// AssignRoles gives roles to hosts that have none: the control plane first, of those that are fit for it. No host gets a role that a validation forbids.
func (p *Plan) AssignRoles(c *domain.Cluster, hosts, members []*domain.Host) error {
	around := SurroundingsOf(c, members)
	unfit := func(h *domain.Host, role string) []string {
		subject := p.Subject(h)
		subject.Role = role
		return validate.Failing(validate.Host(subject, around, p.Minimums), true)
	}
	masters := 0
	for _, h := range hosts {
		if h.Role == "master" {
			masters++
		}
	}
	for _, h := range hosts {
		if h.Role != domain.AutoAssign {
			continue
		}
		h.Role = "worker"
		if masters < c.ControlPlaneCount && len(unfit(h, "master")) == 0 {
			h.Role = "master"
			masters++
		}
	}
	if needs := p.Minimums["master"]; masters < c.ControlPlaneCount {
		return domain.Refuse(domain.Conflict, "TooFewMasters", "cluster %s needs %d hosts of role master, which has at least %d CPU cores, %d GiB of memory and a disk of %d GB: %d of those that are ready may have it",
			c.ID, c.ControlPlaneCount, needs.CPUs, needs.MemoryGiB, needs.DiskGB, masters)
	}
	around = SurroundingsOf(c, members) // some look at others of their role
	for _, h := range hosts {
		if why := unfit(h, h.Role); len(why) > 0 {
			return domain.Refuse(domain.Conflict, "HostUnfit", "host %s cannot have role %s: %s", h.Label(), h.Role, strings.Join(why, "; "))
		}
	}
	return nil
}

// Overdue says whether a host is silent for too long, or too long in its state. The time in the state Reclaiming is that since the host left its cluster. h is nil for one that
// was deleted.
func Overdue(h *domain.Host, silent bool, inState, inStage time.Duration) (lifecycle.Verb, bool) {
	if h == nil {
		return "", false
	}
	if silent && lifecycle.Apply(h.State, lifecycle.Refresh, factsWhileSilent(h)).To != h.State {
		return lifecycle.Refresh, true
	}
	limit, limited := lifecycle.TimeOuts[h.State]
	if !limited {
		return "", false
	}
	since := inState
	switch {
	case h.State == lifecycle.InstallingInProgress:
		since = min(since, inStage)
	case h.State == lifecycle.Reclaiming && !h.Release.Left(): // its Node is drained first, for as long as its MachinePool says
		return "", false
	}
	return lifecycle.TimeOut, since >= limit
}

// factsWhileSilent are those of a silent host.
func factsWhileSilent(h *domain.Host) lifecycle.Facts {
	return lifecycle.Facts{
		HasInventory: h.Summary.Hash != "", DayTwo: h.DayTwo, Rebooted: lifecycle.AfterReboot(h.Progress.Stage), Stage: h.Progress.Stage, Resident: h.Resident,
		ClusterPreparing: true, ClusterInstalling: true,
	}
}
