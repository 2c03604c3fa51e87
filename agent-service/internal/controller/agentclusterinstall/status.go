// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentclusterinstall

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-io/muster/agent-service/api"
	agentctl "github.com/muster-io/muster/agent-service/internal/controller/agent"
	"github.com/muster-io/muster/agent-service/internal/controller/specsynced"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
)

// Reasons of the conditions of an AgentClusterInstall that those of an Agent do not have, beside those of hiveextv1.
const (
	reasonClusterIsReady      = "ClusterIsReady"
	reasonClusterNotReady     = "ClusterNotReady"
	reasonAlreadyInstalling   = "ClusterAlreadyInstalling"
	reasonInstallationStopped = "ClusterInstallationStopped"
	reasonNotFailed           = "InstallationNotFailed"
	reasonNotStopped          = "InstallationNotStopped"
	reasonCancelled           = "InstallationCancelled"
	reasonPreparationFailed   = "The last installation preparation failed"
	reasonNoFailedPreparation = "There is no failing prior preparation attempt"
)

// conditionIgnored says which fields of the spec have no effect.
const (
	conditionIgnored = "FieldsIgnored"

	reasonWithoutEffect = "FieldsWithoutEffect"
	reasonAllApplied    = "AllFieldsApplied"
)

const conditionPreparationFailed = "LastInstallationPreparationFailed"

// status is what to say of a cluster.
func status(seen *snapshot, url string, now metav1.Time) hiveextv1.AgentClusterInstallStatus {
	said := *seen.install.Status.DeepCopy()
	conditions := []hivev1.Condition{synced(seen.obstacle), ignored(seen.install)}
	switch {
	case seen.cluster == nil && agentctl.WasInstalled(seen.install):
		// The status of a cluster that the service lost stays: the cluster is restored from it.
	case seen.cluster == nil:
		for _, kind := range []string{agentv1.ConditionValidated, hivev1.ClusterInstallRequirementsMet} {
			conditions = append(conditions, condition(kind, corev1.ConditionFalse, reasonClusterNotReady, "The cluster is not ready to begin the installation: see SpecSynced"))
		}
		for kind, reason := range map[string]string{
			hivev1.ClusterInstallCompleted: agentv1.ReasonInstallationNotStarted, hivev1.ClusterInstallFailed: reasonNotFailed, hivev1.ClusterInstallStopped: reasonNotStopped,
		} {
			conditions = append(conditions, condition(kind, corev1.ConditionFalse, reason, "The installation has not yet started"))
		}
	default:
		c := count(seen)
		said.ControlPlaneAgentsDiscovered, said.ControlPlaneAgentsReady = c.controlPlane, c.controlPlaneReady
		said.WorkerAgentsDiscovered, said.WorkerAgentsReady = c.workers, c.workersReady
		said.ValidationsInfo = validations(seen)
		said.Progress = &hiveextv1.ClusterProgress{TotalPercentage: int64(seen.cluster.Progress().TotalPercentage)}
		said.DebugInfo = hiveextv1.ClusterDebugInfo{
			State: string(seen.cluster.Status), StateInfo: seen.cluster.StatusInfo, EventsURL: url + api.Base + "/events?cluster_id=" + seen.cluster.ID,
			LogsURL: said.DebugInfo.LogsURL,
		}
		conditions = append(conditions, validated(seen), requirementsMet(seen, c), completed(seen), failed(seen.cluster), stopped(seen.cluster), prepared(seen.cluster))
	}
	slices.SortStableFunc(conditions, func(a, b hivev1.Condition) int { return strings.Compare(a.Type, b.Type) })
	for _, one := range conditions {
		hivev1.SetCondition(&said.Conditions, one, now)
	}
	ready := hivev1.Summarize(hivev1.ClusterInstallReady, said.Conditions,
		agentv1.ConditionSpecSynced, hivev1.ClusterInstallRequirementsMet, hivev1.ClusterInstallCompleted)
	hivev1.SetCondition(&said.Conditions, ready, now)
	return said
}

func condition(kind string, status corev1.ConditionStatus, reason, message string) hivev1.Condition {
	return hivev1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func synced(obstacle error) hivev1.Condition {
	status, reason, message := specsynced.Of(obstacle)
	return condition(agentv1.ConditionSpecSynced, status, reason, message)
}

// validated says which bound machines cannot be installed.
func validated(seen *snapshot) hivev1.Condition {
	const kind = agentv1.ConditionValidated
	var failing []string
	for i := range seen.hosts {
		if h := &seen.hosts[i]; h.State == lifecycle.Insufficient {
			failing = append(failing, fmt.Sprintf("host %s: %s", h.Hostname(), h.StateInfo))
		}
	}
	if len(failing) > 10 {
		failing = append(failing[:10], fmt.Sprintf("and %d hosts more", len(failing)-10))
	}
	if len(failing) > 0 {
		return condition(kind, corev1.ConditionFalse, agentv1.ReasonValidationsFailing, "The cluster's validations are failing: "+strings.Join(failing, "; "))
	}
	return condition(kind, corev1.ConditionTrue, agentv1.ReasonValidationsPassing, "The cluster's validations are passing")
}

func requirementsMet(seen *snapshot, c counts) hivev1.Condition {
	const kind = hivev1.ClusterInstallRequirementsMet
	switch seen.cluster.Status {
	case lifecycle.ClusterPreparing, lifecycle.ClusterInstalling, lifecycle.ClusterFinalizing:
		return condition(kind, corev1.ConditionTrue, reasonAlreadyInstalling, "Cluster requirements are met: the installation is under way")
	case lifecycle.ClusterInstalled, lifecycle.ClusterAddingHosts, lifecycle.ClusterFailed, lifecycle.ClusterCancelled:
		return condition(kind, corev1.ConditionTrue, reasonInstallationStopped, "The cluster installation stopped")
	case lifecycle.ClusterReady:
		if seen.refusal != nil {
			return condition(kind, corev1.ConditionFalse, reasonClusterNotReady, "The cluster is not ready to begin the installation: "+seen.refusal.Error())
		}
		if why := seen.cluster.Preparation.Why; why != "" {
			return condition(kind, corev1.ConditionFalse, reasonClusterNotReady, "The installation begins again by itself after a while: the last checks before it failed: "+why)
		}
		return condition(kind, corev1.ConditionTrue, reasonClusterIsReady, "The cluster is ready to begin the installation")
	case lifecycle.ClusterInsufficient:
	}
	wanted := seen.cluster.ControlPlaneCount + seen.cluster.WorkerCount
	switch ready := c.controlPlaneReady + c.workersReady; {
	case len(seen.hosts) < wanted:
		return condition(kind, corev1.ConditionFalse, hiveextv1.ReasonInsufficientAgents,
			fmt.Sprintf("The cluster currently requires %d agents but only %d have registered: bind more", wanted, len(seen.hosts)))
	case ready >= wanted && c.unapproved > 0:
		return condition(kind, corev1.ConditionFalse, hiveextv1.ReasonUnapprovedAgents, fmt.Sprintf("The installation is pending on the approval of %d agents: set spec.approved of them", c.unapproved))
	case ready < wanted:
		return condition(kind, corev1.ConditionFalse, hiveextv1.ReasonInsufficientAgents, fmt.Sprintf("The cluster currently requires %d agents but only %d are ready: see RequirementsMet of the others", wanted, ready))
	}
	return condition(kind, corev1.ConditionFalse, reasonClusterNotReady, "The cluster is not ready to begin the installation")
}

func completed(seen *snapshot) hivev1.Condition {
	const kind = hivev1.ClusterInstallCompleted
	switch c := seen.cluster; c.Status {
	case lifecycle.ClusterInstalled, lifecycle.ClusterAddingHosts:
		message := "The installation has completed: " + c.StatusInfo
		if c.Kubeconfig == "" && !c.Imported {
			message += "; the service does not have its kubeconfig yet, so there is no Secret of it"
		}
		return condition(kind, corev1.ConditionTrue, agentv1.ReasonInstallationCompleted, message)
	case lifecycle.ClusterFailed, lifecycle.ClusterCancelled:
		return condition(kind, corev1.ConditionFalse, agentv1.ReasonInstallationFailed, "The installation has failed: "+c.StatusInfo)
	case lifecycle.ClusterPreparing, lifecycle.ClusterInstalling, lifecycle.ClusterFinalizing:
		return condition(kind, corev1.ConditionFalse, agentv1.ReasonInstallationInProgress, "The installation is in progress: "+c.StatusInfo+unjoined(seen))
	case lifecycle.ClusterInsufficient, lifecycle.ClusterReady:
	}
	if seen.install.Spec.HoldInstallation {
		return condition(kind, corev1.ConditionFalse, hiveextv1.ReasonInstallationOnHold, "The installation is on hold: To unhold set holdInstallation to false")
	}
	if seen.cluster.Preparation.Cancelled {
		return condition(kind, corev1.ConditionFalse, hiveextv1.ReasonInstallationOnHold,
			"The installation was cancelled before it started: To begin it set holdInstallation to true and then to false, or install the cluster over REST")
	}
	return condition(kind, corev1.ConditionFalse, agentv1.ReasonInstallationNotStarted, "The installation has not yet started")
}

// unjoined names the machines of a cluster that brings up its own control plane which are no Ready nodes of it.
func unjoined(seen *snapshot) string {
	if seen.cluster.ControlPlane == nil || seen.cluster.Status != lifecycle.ClusterFinalizing {
		return ""
	}
	var names []string
	for i := range seen.hosts {
		if h := &seen.hosts[i]; !h.DayTwo && !h.Node.Ready {
			name := h.Hostname()
			if seen.cluster.ControlPlane.Member(h) != nil {
				name += " (control plane)"
			}
			names = append(names, name)
		}
	}
	if len(names) > 10 {
		names = append(names[:10], fmt.Sprintf("and %d more", len(names)-10))
	}
	if len(names) == 0 {
		return ""
	}
	return ": the API of the cluster does not say yet that these nodes are Ready: " + strings.Join(names, ", ")
}

// prepared says whether the last checks before an installation failed. Type and reasons are those of assisted-service.
func prepared(c *domain.Cluster) hivev1.Condition {
	if why := c.Preparation.Why; why != "" {
		return condition(conditionPreparationFailed, corev1.ConditionTrue, reasonPreparationFailed, "The checks before the installation failed: "+why)
	}
	return condition(conditionPreparationFailed, corev1.ConditionFalse, reasonNoFailedPreparation, "No checks before the installation have failed since it was changed or prepared last")
}

func failed(c *domain.Cluster) hivev1.Condition {
	if c.Status == lifecycle.ClusterFailed {
		return condition(hivev1.ClusterInstallFailed, corev1.ConditionTrue, agentv1.ReasonInstallationFailed, "The installation failed: "+c.StatusInfo)
	}
	return condition(hivev1.ClusterInstallFailed, corev1.ConditionFalse, reasonNotFailed, "The installation has not failed")
}

func stopped(c *domain.Cluster) hivev1.Condition {
	const kind = hivev1.ClusterInstallStopped
	switch c.Status {
	case lifecycle.ClusterInstalled, lifecycle.ClusterAddingHosts:
		return condition(kind, corev1.ConditionTrue, agentv1.ReasonInstallationCompleted, "The installation has stopped because it completed successfully")
	case lifecycle.ClusterFailed:
		return condition(kind, corev1.ConditionTrue, agentv1.ReasonInstallationFailed, "The installation has stopped due to error: mend what Failed says, and reset the cluster over REST")
	case lifecycle.ClusterCancelled:
		return condition(kind, corev1.ConditionTrue, reasonCancelled, "The installation has stopped because it was cancelled")
	case lifecycle.ClusterInsufficient, lifecycle.ClusterReady, lifecycle.ClusterPreparing, lifecycle.ClusterInstalling, lifecycle.ClusterFinalizing:
	}
	return condition(kind, corev1.ConditionFalse, reasonNotStopped, "The installation is waiting to start or in progress")
}
