// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"slices"

	"github.com/muster-io/muster/agent-service/api"
)

// Tones are how a state is shown: a class of the stylesheet, never the only sign.
const (
	toneOK   = "ok"
	toneBusy = "busy"
	toneWarn = "warn"
	toneBad  = "bad"
	toneIdle = "idle"
)

// badge is a state in a word.
type badge struct{ Label, Tone string }

// group is a set of states that people look for together.
type group struct {
	// ID is the value of the filter, and names the label.
	ID     string
	Tone   string
	States []api.HostStatus
}

// Label is what the filter is called.
func (g group) Label() string { return t("group." + g.ID) }

// groups have each state once.
var groups = []group{
	{"attention", toneBad, []api.HostStatus{
		api.HostStatusInsufficient, api.HostStatusInsufficientUnbound, api.HostStatusDisconnected, api.HostStatusDisconnectedUnbound, api.HostStatusError, api.HostStatusPendingForInput,
		api.HostStatusInstallingPendingUserAction, api.HostStatusResettingPendingUserAction, api.HostStatusUnbindingPendingUserAction, api.HostStatusPreparingFailed, api.HostStatusCancelled,
	}},
	{"free", toneOK, []api.HostStatus{api.HostStatusKnownUnbound}},
	{"ready", toneOK, []api.HostStatus{api.HostStatusKnown}},
	{"busy", toneBusy, []api.HostStatus{
		api.HostStatusDiscovering, api.HostStatusDiscoveringUnbound, api.HostStatusBinding, api.HostStatusUnbinding, api.HostStatusResetting, api.HostStatusReclaiming, api.HostStatusReclaimingRebooting,
		api.HostStatusPreparingForInstallation, api.HostStatusPreparingSuccessful, api.HostStatusInstalling, api.HostStatusInstallingInProgress,
	}},
	{"installed", toneOK, []api.HostStatus{api.HostStatusInstalled, api.HostStatusAddedToExistingCluster}},
	{"disabled", toneIdle, []api.HostStatus{api.HostStatusDisabled, api.HostStatusDisabledUnbound}},
}

// hostBadge is the state of a host.
func hostBadge(s api.HostStatus) badge {
	at := slices.IndexFunc(groups, func(g group) bool { return slices.Contains(g.States, s) })
	if at < 0 {
		return badge{string(s), toneIdle}
	}
	tone := groups[at].Tone
	if s == api.HostStatusPendingForInput || s == api.HostStatusCancelled || s == api.HostStatusUnbindingPendingUserAction || s == api.HostStatusResettingPendingUserAction {
		tone = toneWarn
	}
	return badge{t("host." + string(s)), tone}
}

// clusterBadge is the state of a cluster.
func clusterBadge(s api.ClusterStatus) badge {
	tone := toneBusy
	switch s {
	case api.ClusterStatusReady, api.ClusterStatusInstalled, api.ClusterStatusAddingHosts:
		tone = toneOK
	case api.ClusterStatusError:
		tone = toneBad
	case api.ClusterStatusInsufficient, api.ClusterStatusPendingForInput, api.ClusterStatusInstallingPendingUserAction, api.ClusterStatusCancelled:
		tone = toneWarn
	case api.ClusterStatusUnmonitored:
		tone = toneIdle
	case api.ClusterStatusPreparingForInstallation, api.ClusterStatusInstalling, api.ClusterStatusFinalizing:
	}
	return badge{t("cluster." + string(s)), tone}
}
