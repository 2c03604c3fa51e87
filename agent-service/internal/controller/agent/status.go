// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/controller/specsynced"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// kindDayTwo is the kind of hosts that joined an installed cluster.
const kindDayTwo = "AddToExistingClusterHost"

const reasonUnknownStatus = "UnknownStatus"

// status is what to say of a host.
func status(seen *snapshot, url string, now metav1.Time) agentv1.AgentStatus {
	said := *seen.agent.Status.DeepCopy()
	conditions := []agentv1.Condition{synced(seen)}
	if seen.host == nil {
		for _, unknown := range []string{
			agentv1.ConditionConnected, agentv1.ConditionRequirementsMet, agentv1.ConditionValidated, agentv1.ConditionInstalled, agentv1.ConditionBound,
		} {
			conditions = append(conditions, condition(unknown, corev1.ConditionUnknown, agentv1.ReasonNotAvailable,
				"The service does not know this host: it was deregistered, or the service lost its data. It comes back when the machine registers; delete the Agent where it does not."))
		}
		said.DebugInfo.State, said.DebugInfo.StateInfo = "", ""
	} else {
		describe(&said, seen, url)
		h := seen.host
		conditions = append(conditions, connected(h), requirementsMet(h), validated(h), installed(h), bindingOf(h))
	}
	kept := map[string]bool{}
	if seen.host != nil {
		for _, c := range slices.Concat(joined(seen.host), released(seen.host), reserved(seen.host, now.Time), addressed(seen.host)) {
			conditions, kept[c.Type] = append(conditions, c), true
		}
	}
	said.Conditions = slices.DeleteFunc(said.Conditions, func(c agentv1.Condition) bool {
		return seen.host != nil && !kept[c.Type] && slices.Contains([]string{agentv1.ConditionJoined, agentv1.ConditionReleased, agentv1.ConditionReserved, agentv1.ConditionAddressesAssigned}, c.Type)
	})
	for _, c := range conditions {
		agentv1.SetCondition(&said.Conditions, c, now)
	}
	agentv1.SetCondition(&said.Conditions, ready(seen.agent, said.Conditions), now)
	return said
}

// ready is the condition Ready: True while the machine is what the spec asks for, which is installed in the cluster that the spec names, or
// else free and able to be installed.
func ready(agent *agentv1.Agent, conditions []agentv1.Condition) agentv1.Condition {
	bound := agentv1.FindCondition(conditions, agentv1.ConditionBound)
	if agent.Spec.ClusterDeploymentName == nil && bound.Reason == agentv1.ReasonUnbound {
		return agentv1.Summarize(agentv1.ConditionReady, conditions, agentv1.ConditionSpecSynced, agentv1.ConditionConnected, agentv1.ConditionRequirementsMet)
	}
	return agentv1.Summarize(agentv1.ConditionReady, conditions, agentv1.ConditionSpecSynced, agentv1.ConditionConnected, agentv1.ConditionBound,
		agentv1.ConditionRequirementsMet, agentv1.ConditionInstalled)
}

// describe says what the machine is and does.
func describe(said *agentv1.AgentStatus, seen *snapshot, base string) {
	h := seen.host
	if !seen.waits {
		said.Bootstrap, said.Role, said.Kind, said.Progress = h.Bootstrap, h.Role, "Host", progress(h)
		if h.DayTwo {
			said.Kind = kindDayTwo
		}
	}
	if seen.inventory.ReportTime != nil || h.Progress.Stage != lifecycle.StageDone { // a host that was restored as installed does not report its hardware again
		said.Inventory = seen.inventory
	}
	said.CSRStatus, said.DeprovisionInfo, said.Addresses = certificates(h), deprovision(h), addresses(h)
	said.NtpSources = nil
	for _, source := range cut(h.NTPSources, maxAddresses) {
		said.NtpSources = append(said.NtpSources, agentv1.HostNTPSource{SourceName: bound(source.Name, 253), SourceState: bound(source.State, 32)})
	}
	said.ValidationsInfo = nil
	for _, v := range h.Validations {
		if said.ValidationsInfo == nil {
			said.ValidationsInfo = map[string]agentv1.ValidationResults{}
		}
		said.ValidationsInfo[v.Category] = append(said.ValidationsInfo[v.Category], agentv1.ValidationResult{
			ID: v.ID, Status: string(v.Status), Message: bound(v.Message, maxReason),
		})
	}
	disk, _ := validate.Disk(validate.Subject{Role: h.Role, DiskID: h.InstallationDiskID, DiskPath: h.InstallationDiskPath, Summary: h.Summary}, seen.minimums)
	said.InstallationDiskID = cmp.Or(h.InstallationDiskID, text(disk.ID))
	query := url.Values{"infra_env_id": {h.InfraEnvID}, "host_id": {h.HostID}}
	if h.ClusterID != "" {
		query.Set("cluster_id", h.ClusterID)
	}
	said.DebugInfo.State, said.DebugInfo.StateInfo = string(h.State), bound(h.StateInfo, 8192)
	if !seen.waits {
		said.DebugInfo.EventsURL = base + api.Base + "/events?" + query.Encode()
	}
}

func progress(h *domain.Host) agentv1.HostProgress {
	p := h.Progress
	if p.Stage == "" {
		return agentv1.HostProgress{}
	}
	said := agentv1.HostProgress{CurrentStage: string(p.Stage), ProgressInfo: bound(p.Info, maxReason), InstallationPercentage: int64(p.Percentage)}
	for _, stage := range lifecycle.Stages {
		if stage != lifecycle.StageFailed {
			said.ProgressStages = append(said.ProgressStages, string(stage))
		}
	}
	if !p.StageStartedAt.IsZero() {
		said.StageStartTime = new(metav1.NewTime(p.StageStartedAt).Rfc3339Copy())
	}
	if !p.StageUpdatedAt.IsZero() {
		said.StageUpdateTime = new(metav1.NewTime(p.StageUpdatedAt).Rfc3339Copy())
	}
	return said
}

func condition(kind string, status corev1.ConditionStatus, reason, message string) agentv1.Condition {
	return agentv1.Condition{Type: kind, Status: status, Reason: reason, Message: bound(message, 32768)}
}

func synced(seen *snapshot) agentv1.Condition {
	status, reason, message := specsynced.Of(seen.obstacle)
	return condition(agentv1.ConditionSpecSynced, status, reason, message)
}

func connected(h *domain.Host) agentv1.Condition {
	const kind = agentv1.ConditionConnected
	if lifecycle.Silent(h.State) {
		return condition(kind, corev1.ConditionFalse, agentv1.ReasonAgentIsDisconnected, "The agent has not contacted the installation service in some time, "+
			"user action should be taken: see on the console of the machine that it runs the discovery image and reaches the service")
	}
	return condition(kind, corev1.ConditionTrue, agentv1.ReasonAgentIsConnected, "The agent's connection to the installation service is unimpaired")
}

// onTheWay is the condition of a host that is between a cluster and the pool.
func onTheWay(kind string, s lifecycle.State) (agentv1.Condition, bool) {
	switch s {
	case lifecycle.Binding:
		return condition(kind, corev1.ConditionFalse, agentv1.ReasonBinding, "The agent is currently binding to a cluster deployment: it is silent, see Connected"), true
	case lifecycle.Unbinding, lifecycle.UnbindingPendingUserAction, lifecycle.Reclaiming, lifecycle.ReclaimingRebooting:
		return condition(kind, corev1.ConditionFalse, agentv1.ReasonUnbinding, "The agent is currently unbinding from a cluster deployment"), true
	default:
		return agentv1.Condition{}, false
	}
}

func requirementsMet(h *domain.Host) agentv1.Condition {
	const kind = agentv1.ConditionRequirementsMet
	if c, is := onTheWay(kind, h.State); is {
		return c
	}
	switch h.State {
	case lifecycle.Known, lifecycle.KnownUnbound:
		if !h.Approved {
			return condition(kind, corev1.ConditionFalse, agentv1.ReasonAgentIsNotApproved, "The agent is not approved: set spec.approved, so that it may be installed")
		}
		return condition(kind, corev1.ConditionTrue, agentv1.ReasonAgentIsReady, "The agent is ready to begin the installation")
	case lifecycle.PreparingForInstallation, lifecycle.PreparingSuccessful, lifecycle.Installing, lifecycle.InstallingInProgress, lifecycle.InstallingPendingUserAction:
		return condition(kind, corev1.ConditionTrue, agentv1.ReasonAgentAlreadyInstalling, "Installation already started and is in progress")
	case lifecycle.Installed, lifecycle.AddedToExistingCluster, lifecycle.Failed, lifecycle.Cancelled:
		return condition(kind, corev1.ConditionTrue, agentv1.ReasonAgentInstallationStopped, "The agent installation stopped")
	case lifecycle.DiscoveringUnbound, lifecycle.InsufficientUnbound, lifecycle.DisconnectedUnbound, lifecycle.Discovering, lifecycle.Insufficient, lifecycle.Disconnected,
		lifecycle.PreparingFailed, lifecycle.ResettingPendingUserAction:
		return condition(kind, corev1.ConditionFalse, agentv1.ReasonAgentNotReady, "The agent is not ready to begin the installation: "+h.StateInfo)
	default:
		return condition(kind, corev1.ConditionUnknown, reasonUnknownStatus, "The agent is in state "+string(h.State))
	}
}

func validated(h *domain.Host) agentv1.Condition {
	const kind = agentv1.ConditionValidated
	if c, is := onTheWay(kind, h.State); is {
		return c
	}
	if h.Summary.Hash == "" {
		return condition(kind, corev1.ConditionUnknown, agentv1.ReasonValidationsUnknown, "The agent's validations have not yet been calculated: the machine has not reported its hardware")
	}
	var failing, pending []string
	for _, v := range h.Validations {
		if !slices.Contains(validate.Failing(h.Validations, h.ClusterID != ""), v.Message) {
			continue
		}
		if v.Status == validate.Pending {
			pending = append(pending, v.Message)
		} else {
			failing = append(failing, v.Message)
		}
	}
	switch {
	case len(failing) > 0:
		return condition(kind, corev1.ConditionFalse, agentv1.ReasonValidationsFailing, "The agent's validations are failing: "+strings.Join(failing, "; "))
	case len(pending) > 0:
		return condition(kind, corev1.ConditionFalse, agentv1.ReasonValidationsUserPending, "The agent's validations are pending for user: "+strings.Join(pending, "; "))
	}
	return condition(kind, corev1.ConditionTrue, agentv1.ReasonValidationsPassing, "The agent's validations are passing")
}

func installed(h *domain.Host) agentv1.Condition {
	const kind = agentv1.ConditionInstalled
	if c, is := onTheWay(kind, h.State); is {
		return c
	}
	switch h.State {
	case lifecycle.Installed, lifecycle.AddedToExistingCluster:
		return condition(kind, corev1.ConditionTrue, agentv1.ReasonInstallationCompleted, "The installation has completed: "+h.StateInfo)
	case lifecycle.Failed, lifecycle.Cancelled:
		return condition(kind, corev1.ConditionFalse, agentv1.ReasonInstallationFailed,
			"The installation has failed: "+h.StateInfo+"; to use the machine again, remove spec.clusterDeploymentName and boot it from the discovery image")
	case lifecycle.PreparingForInstallation, lifecycle.PreparingSuccessful, lifecycle.Installing, lifecycle.InstallingInProgress, lifecycle.InstallingPendingUserAction:
		return condition(kind, corev1.ConditionFalse, agentv1.ReasonInstallationInProgress, "The installation is in progress: "+h.StateInfo)
	default:
		return condition(kind, corev1.ConditionFalse, agentv1.ReasonInstallationNotStarted, "The installation has not yet started")
	}
}

// bindingOf is the condition Bound.
func bindingOf(h *domain.Host) agentv1.Condition {
	const kind = agentv1.ConditionBound
	switch h.State {
	case lifecycle.Binding:
		return condition(kind, corev1.ConditionFalse, agentv1.ReasonBinding, "The agent is currently binding to a cluster deployment: it is silent, see Connected")
	case lifecycle.Unbinding, lifecycle.Reclaiming, lifecycle.ReclaimingRebooting:
		return condition(kind, corev1.ConditionFalse, agentv1.ReasonUnbinding, "The agent is currently unbinding from a cluster deployment")
	case lifecycle.UnbindingPendingUserAction:
		return condition(kind, corev1.ConditionFalse, agentv1.ReasonUnbindingPendingUserAction, "The agent is currently unbinding; Pending host reboot from infraenv image")
	default:
	}
	if lifecycle.Unbound(h.State) {
		return condition(kind, corev1.ConditionFalse, agentv1.ReasonUnbound, "The agent is not bound to any cluster deployment")
	}
	return condition(kind, corev1.ConditionTrue, agentv1.ReasonBound, "The agent is bound to a cluster deployment")
}
