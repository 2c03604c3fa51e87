// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostplan decides what a change means for hosts and a cluster: states, events, roles, and the steps that agents are asked for. It is pure: what was observed, the time and
// stamps are arguments.
package hostplan

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// Rules are what plans follow beside the objects: settings of the service, and which hosts it observes.
type Rules struct {
	Minimums validate.Minimums
	// OSImages are what agents write, by version and architecture.
	OSImages []agentproto.OSImage
	// RegistryImages are container images that a host must be able to pull before it is installed.
	RegistryImages []string
	// InstallerImage is the container image that agents of assisted-service install with, empty for none.
	InstallerImage string
	// AgentVersion is the version of the agents that the service has, empty for none.
	AgentVersion string
	// Reclaims is true where the service has discovery images that installed systems can restart into.
	Reclaims bool
	// Connected is true for a host that polled within the time-out.
	Connected func(h *domain.Host) bool
}

// Plan is what one transaction decides. It changes hosts and clusters in place, and records events.
type Plan struct {
	Rules
	// Now is the time of the transaction.
	Now time.Time
	// NewStamp makes one that no token carries yet.
	NewStamp func() string
	// Recorded are the events of the transaction.
	Recorded []domain.Event
	// Silenced are hosts that appeared elsewhere: they count as never seen from now on.
	Silenced []domain.HostKey
}

var (
	emptySummary hardware.Summary
	noChecks     validate.Checks
)

// Tell adds an event about a host. The InfraEnv's administrator sees it with forInfraEnv, the cluster's creator while the
// host is bound.
func (p *Plan) Tell(h *domain.Host, clusterID, severity, name string, forInfraEnv bool, format string, values ...any) {
	p.Recorded = append(p.Recorded, domain.Event{
		Name: name, InfraEnvID: h.InfraEnvID, HostID: h.HostID, ClusterID: clusterID, Severity: severity, Category: "user",
		Message: domain.Truncate(fmt.Sprintf(format, values...), 2000), At: p.Now, ForInfraEnv: forInfraEnv, ForCluster: clusterID != "", Props: json.RawMessage("{}"),
	})
}

// TellCluster adds an event about a cluster.
func (p *Plan) TellCluster(c *domain.Cluster, severity, name, format string, values ...any) {
	p.Recorded = append(p.Recorded, domain.Event{
		Name: name, ClusterID: c.ID, Severity: severity, Category: "user", Message: domain.Truncate(fmt.Sprintf(format, values...), 2000), At: p.Now, ForCluster: true,
		Props: json.RawMessage("{}"),
	})
}

// Enter puts a host into a state and announces it, where it is another one.
func (p *Plan) Enter(h *domain.Host, to lifecycle.State, info string) {
	if h.State == to {
		if info != "" && h.StateInfo != info {
			h.StateInfo = info
		}
		return
	}
	if to == lifecycle.Failed && h.Progress.Stage != "" {
		info += " (stage " + string(h.Progress.Stage) + ")"
	}
	if to == lifecycle.Installing {
		// The disk is recorded before it is written to.
		h.InstallationDisk, h.Resident, h.Node = "", false, domain.Node{Name: h.Node.Name}
		if disk, ok := validate.Disk(p.Subject(h), p.Minimums); ok {
			h.Write(disk)
		}
	}
	from := h.State
	h.State, h.StateInfo, h.StateUpdatedAt = to, info, p.Now
	severity := domain.Info
	if to == lifecycle.Failed || to == lifecycle.Disconnected || to == lifecycle.DisconnectedUnbound {
		severity = domain.Warning
	}
	p.Tell(h, h.ClusterID, severity, "host_status_updated", h.ClusterID == "", "Host %s: updated status from %s to %s (%s)", h.Label(), from, to, info)
}

// Apply does what an outcome says, but for Reassess, which the caller does when all is in place. It returns the refusal.
func (p *Plan) Apply(h *domain.Host, o lifecycle.Outcome, clusterID string, dayTwo bool) error {
	if o.Refusal != "" {
		return domain.Refuse(domain.Conflict, o.Refusal, "host %s: %s", h.HostID, o.Info)
	}
	for _, effect := range o.Effects {
		switch effect {
		case lifecycle.ForgetDiscovery:
			h.Twin, h.TwinAt, h.Said = "", time.Time{}, domain.Said{}
			h.Summary, h.NTPSources, h.Checks, h.Validations, h.MediaConnected, h.Images, h.ImagesDetail = emptySummary, nil, noChecks, nil, true, validate.Unknown, ""
		case lifecycle.ForgetInstallation:
			h.ForgetProgress()
			h.Bootstrap, h.Attempts = false, 0
			h.ForgetPreparation()
		case lifecycle.ForgetProgress:
			h.ForgetProgress()
			h.Attempts++
		case lifecycle.LeaveCluster:
			h.Leave(p.Now)
		case lifecycle.JoinCluster:
			h.Join(clusterID, dayTwo)
		case lifecycle.EndTokens:
			h.Stamps = domain.Stamps{Registration: p.NewStamp(), Binding: p.NewStamp()}
		case lifecycle.Reassess:
		}
	}
	return nil
}
