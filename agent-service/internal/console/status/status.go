// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status says in words and tones what the API says of hosts and clusters: states, checks and stages of an installation.
package status

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/console/words"
)

// Tones are how a state is shown: a class of the stylesheet, never the only sign.
const (
	OK   = "ok"
	Busy = "busy"
	Warn = "warn"
	Bad  = "bad"
	Idle = "idle"
)

// Badge is a state in a word.
type Badge struct{ Label, Tone string }

// Group is a set of states that people look for together.
type Group struct {
	// ID is the value of the filter, and names the label.
	ID     string
	Tone   string
	States []api.HostStatus
}

// Label is what the filter is called.
func (g Group) Label() string { return words.Of("group." + g.ID) }

// Groups have each state once.
var Groups = []Group{
	{"attention", Bad, []api.HostStatus{
		api.HostStatusInsufficient, api.HostStatusInsufficientUnbound, api.HostStatusDisconnected, api.HostStatusDisconnectedUnbound, api.HostStatusError, api.HostStatusPendingForInput,
		api.HostStatusInstallingPendingUserAction, api.HostStatusResettingPendingUserAction, api.HostStatusUnbindingPendingUserAction, api.HostStatusPreparingFailed, api.HostStatusCancelled,
	}},
	{"free", OK, []api.HostStatus{api.HostStatusKnownUnbound}},
	{"ready", OK, []api.HostStatus{api.HostStatusKnown}},
	{"busy", Busy, []api.HostStatus{
		api.HostStatusDiscovering, api.HostStatusDiscoveringUnbound, api.HostStatusBinding, api.HostStatusUnbinding, api.HostStatusResetting, api.HostStatusReclaiming, api.HostStatusReclaimingRebooting,
		api.HostStatusPreparingForInstallation, api.HostStatusPreparingSuccessful, api.HostStatusInstalling, api.HostStatusInstallingInProgress,
	}},
	{"installed", OK, []api.HostStatus{api.HostStatusInstalled, api.HostStatusAddedToExistingCluster}},
	{"disabled", Idle, []api.HostStatus{api.HostStatusDisabled, api.HostStatusDisabledUnbound}},
}

// OfHost is the state of a host.
func OfHost(s api.HostStatus) Badge {
	at := slices.IndexFunc(Groups, func(g Group) bool { return slices.Contains(g.States, s) })
	if at < 0 {
		return Badge{string(s), Idle}
	}
	tone := Groups[at].Tone
	if s == api.HostStatusPendingForInput || s == api.HostStatusCancelled || s == api.HostStatusUnbindingPendingUserAction || s == api.HostStatusResettingPendingUserAction {
		tone = Warn
	}
	return Badge{words.Of("host." + string(s)), tone}
}

// OfCluster is the state of a cluster.
func OfCluster(s api.ClusterStatus) Badge {
	tone := Busy
	switch s {
	case api.ClusterStatusReady, api.ClusterStatusInstalled, api.ClusterStatusAddingHosts:
		tone = OK
	case api.ClusterStatusError:
		tone = Bad
	case api.ClusterStatusInsufficient, api.ClusterStatusPendingForInput, api.ClusterStatusInstallingPendingUserAction, api.ClusterStatusCancelled:
		tone = Warn
	case api.ClusterStatusUnmonitored:
		tone = Idle
	case api.ClusterStatusPreparingForInstallation, api.ClusterStatusInstalling, api.ClusterStatusFinalizing:
	}
	return Badge{words.Of("cluster." + string(s)), tone}
}

// Validation is the answer of one check.
type Validation struct {
	api.Validation
	Category string
}

// Stage is a step of an installation.
type Stage struct {
	Name string
	// State is done, current, failed or ahead.
	State string
	At    time.Time
	Info  string
}

// Validations are those that did not pass, and the others, by category.
func Validations(info string) (failing, passed []Validation) {
	var found map[string][]api.Validation
	if json.Unmarshal([]byte(info), &found) != nil {
		return nil, nil
	}
	for category, list := range found {
		for _, one := range list {
			if one.Status == "success" || one.Status == "disabled" {
				passed = append(passed, Validation{one, category})
			} else {
				failing = append(failing, Validation{one, category})
			}
		}
	}
	byID := func(a, b Validation) int { return cmp.Or(cmp.Compare(a.Category, b.Category), cmp.Compare(a.ID, b.ID)) }
	slices.SortFunc(failing, byID)
	slices.SortFunc(passed, byID)
	return failing, passed
}

// HostStages are the installation of a host as a time line, empty for one that is in no cluster.
func HostStages(h *api.Host) []Stage {
	current := slices.Index(h.ProgressStages, h.Progress.CurrentStage)
	list := make([]Stage, 0, len(h.ProgressStages))
	for i, name := range h.ProgressStages {
		s := Stage{Name: words.Named("step", name), State: "ahead"}
		switch {
		case i < current || name == "Done" && i == current:
			s.State = "done"
		case i == current:
			s.State, s.At, s.Info = "current", h.Progress.StageStartedAt, h.Progress.ProgressInfo
			if h.Status == api.HostStatusError {
				s.State = "failed"
			}
		}
		list = append(list, s)
	}
	return list
}

// ClusterStages are the installation as a time line.
func ClusterStages(c *api.Cluster) []Stage {
	order := []api.ClusterStatus{api.ClusterStatusReady, api.ClusterStatusPreparingForInstallation, api.ClusterStatusInstalling, api.ClusterStatusFinalizing, api.ClusterStatusInstalled}
	at := slices.Index(order, c.Status)
	if c.Status == api.ClusterStatusAddingHosts {
		at = len(order) - 1
	}
	list := make([]Stage, 0, len(order))
	for i, status := range order {
		s := Stage{Name: words.Of("cluster." + string(status)), State: "ahead"}
		switch {
		case i < at || i == at && i == len(order)-1:
			s.State = "done"
		case i == at:
			s.State, s.At = "current", c.StatusUpdatedAt
		}
		list = append(list, s)
	}
	return list
}
