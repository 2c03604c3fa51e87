// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

func pool(p *hivev1.ClusterPool) []Problem {
	return unready("ClusterPool", "pool-operator", p, ofHive(p.Status.Conditions, hivev1.ClusterPoolReady),
		hivev1.ReasonPoolFilling, hivev1.ReasonPoolScalingDown, hivev1.ReasonPoolProtected, hivev1.ReasonPoolFrozen, hivev1.ReasonMaxCapacity, hivev1.ReasonInventoryExhausted, hivev1.ReasonPoolDeleting)
}

func claim(c *hivev1.ClusterClaim) []Problem {
	pending := hivev1.FindCondition(c.Status.Conditions, hivev1.ClusterClaimPending)
	if pending == nil {
		return unseen("ClusterClaim", c, "pool-operator")
	}
	if pending.Status != corev1.ConditionFalse {
		how := severity(pending.Reason, hivev1.ReasonInitialized, hivev1.ReasonNoClusters, hivev1.ReasonClusterAssigned, hivev1.ReasonAssignmentConflict)
		return found("ClusterClaim", c, how, pending.Reason, pending.Message, pending.LastTransitionTime)
	}
	running := hivev1.FindCondition(c.Status.Conditions, hivev1.ClusterClaimRunning)
	if running == nil || running.Status == corev1.ConditionTrue || running.Reason == hivev1.ReasonHibernating {
		return nil
	}
	how := severity(running.Reason, hivev1.ReasonInitialized, hivev1.ReasonResuming)
	if !c.DeletionTimestamp.IsZero() { // the cluster of a claim that is given back goes
		how = Waiting
	}
	return found("ClusterClaim", c, how, running.Reason, running.Message, running.LastTransitionTime)
}

func cluster(c *hivev1.ClusterDeployment) []Problem {
	for _, bad := range []string{
		hivev1.ClusterDeploymentProvisionStopped, hivev1.ClusterDeploymentProvisionFailed, hivev1.ClusterDeploymentUnreachable, hivev1.ClusterDeploymentDataAtRisk, hivev1.ClusterDeploymentClaimMissing,
	} {
		if at := hivev1.FindCondition(c.Status.Conditions, bad); at != nil && at.Status == corev1.ConditionTrue {
			return found("ClusterDeployment", c, Wrong, bad, at.Message, at.LastTransitionTime)
		}
	}
	for _, bad := range []struct {
		condition, reason string
		how               Severity
	}{
		{hivev1.ClusterDeploymentProvisioned, hivev1.ReasonDeprovisionFailed, Wrong},
		{hivev1.ClusterDeploymentRequirementsMet, hivev1.ReasonClusterInstallNotFound, Wrong},
		{hivev1.ClusterDeploymentReady, hivev1.ReasonFailedToStartMachines, Wrong},
		{hivev1.ClusterDeploymentReady, hivev1.ReasonStorageFull, Wrong},
		{hivev1.ClusterDeploymentHibernating, hivev1.ReasonFailedToStop, Wrong},
		{hivev1.ClusterDeploymentMachinesStopped, hivev1.ReasonStoppingMachines, Waiting},
		{hivev1.ClusterDeploymentMachinesStopped, hivev1.ReasonStartingMachines, Waiting},
	} {
		if at := hivev1.FindCondition(c.Status.Conditions, bad.condition); at != nil && at.Status == corev1.ConditionFalse && at.Reason == bad.reason {
			return found("ClusterDeployment", c, bad.how, at.Reason, at.Message, at.LastTransitionTime)
		}
	}
	return nil
}

// machinePool reads a MachinePool whose machines agent-service binds; others are their own controllers'.
func machinePool(p *hivev1.MachinePool) []Problem {
	if p.Spec.Platform.AgentBareMetal == nil {
		return nil
	}
	at := ofHive(p.Status.Conditions, hivev1.MachinePoolReady)
	if available := ofHive(p.Status.Conditions, hivev1.MachinePoolMachinesAvailable); at != nil && at.Reason == hivev1.ReasonMachinesMissing && available != nil && available.Status == metav1.ConditionFalse {
		at = available // it counts why
	}
	return unready("MachinePool", "agent-service", p, at,
		hivev1.ReasonBinding, hivev1.ReasonClusterNotInstalled, hivev1.ReasonClusterHibernating, hivev1.ReasonInstalling, hivev1.ReasonJoining, hivev1.ReasonReleasing)
}

func installation(i *hiveextv1.AgentClusterInstall) []Problem {
	if ready := hivev1.FindCondition(i.Status.Conditions, hivev1.ClusterInstallReady); ready != nil && ready.Reason == hivev1.ReasonInitialized {
		return unseen("AgentClusterInstall", i, "agent-service")
	}
	for _, bad := range []string{hivev1.ClusterInstallFailed, hivev1.ClusterInstallStopped} {
		at := hivev1.FindCondition(i.Status.Conditions, bad)
		if at == nil || at.Status != corev1.ConditionTrue || hivev1.IsConditionTrue(i.Status.Conditions, hivev1.ClusterInstallCompleted) {
			continue
		}
		return found("AgentClusterInstall", i, Wrong, at.Reason, at.Message, at.LastTransitionTime)
	}
	for _, good := range []string{agentv1.ConditionSpecSynced, hivev1.ClusterInstallRequirementsMet} {
		at := hivev1.FindCondition(i.Status.Conditions, good)
		if at != nil && at.Status == corev1.ConditionFalse {
			return found("AgentClusterInstall", i, severity(at.Reason, hiveextv1.ReasonInsufficientAgents, hiveextv1.ReasonUnapprovedAgents), at.Reason, at.Message, at.LastTransitionTime)
		}
	}
	if held := hivev1.FindCondition(i.Status.Conditions, hivev1.ClusterInstallCompleted); held != nil && held.Reason == hiveextv1.ReasonInstallationOnHold {
		return found("AgentClusterInstall", i, Waiting, held.Reason, held.Message, held.LastTransitionTime)
	}
	return nil
}

func infraEnv(e *agentv1.InfraEnv) []Problem {
	return unready("InfraEnv", "agent-service", e, ofAgents(e.Status.Conditions, agentv1.ConditionImageCreated))
}

// needsUser is the state of a machine that booted the discovery image again instead of its disk. No condition has a reason for it.
const needsUser = "installing-pending-user-action"

// agentWaits are reasons of Agents that end by themselves, or by a decision of the user.
var agentWaits = []string{
	agentv1.ReasonNotAvailable, agentv1.ReasonAgentIsNotApproved, agentv1.ReasonValidationsUserPending, agentv1.ReasonAgentNotReady, agentv1.ReasonAgentAlreadyInstalling,
	agentv1.ReasonBinding, agentv1.ReasonUnbinding, agentv1.ReasonUnbindingPendingUserAction, agentv1.ReasonDraining, agentv1.ReasonRebooting, agentv1.ReasonWiping,
	agentv1.ReasonWaitingForUser, agentv1.ReasonAddressesMissing, agentv1.ReasonWaitingForBoot, agentv1.ReasonWaitingForCSR, agentv1.ReasonNodeNotReady,
}

// agent reads the conditions in the order of how much they say: while a machine leaves its cluster, its requirements are not met, and Released and Bound say what it waits for.
func agent(a *agentv1.Agent) []Problem {
	installed := agentv1.FindCondition(a.Status.Conditions, agentv1.ConditionInstalled)
	if installed != nil && installed.Reason == agentv1.ReasonInstallationFailed {
		return found("Agent", a, Wrong, installed.Reason, installed.Message, installed.LastTransitionTime)
	}
	if installed != nil && a.Status.DebugInfo.State == needsUser {
		return found("Agent", a, Waiting, installed.Reason, installed.Message, installed.LastTransitionTime)
	}
	done := installed != nil && installed.Status == corev1.ConditionTrue
	for _, good := range []string{
		agentv1.ConditionSpecSynced, agentv1.ConditionConnected, agentv1.ConditionReleased, agentv1.ConditionBound, agentv1.ConditionValidated,
		agentv1.ConditionRequirementsMet, agentv1.ConditionAddressesAssigned, agentv1.ConditionJoined,
	} {
		at := agentv1.FindCondition(a.Status.Conditions, good)
		if at == nil || at.Status == corev1.ConditionTrue || at.Status == corev1.ConditionUnknown && at.Reason != agentv1.ReasonNotAvailable {
			continue
		}
		switch good {
		case agentv1.ConditionConnected, agentv1.ConditionValidated, agentv1.ConditionRequirementsMet:
			if done {
				continue
			}
		case agentv1.ConditionBound: // a machine that is free is fine
			if at.Reason != agentv1.ReasonUnbindingPendingUserAction {
				continue
			}
		case agentv1.ConditionJoined:
			if !done {
				continue
			}
		}
		return found("Agent", a, severity(at.Reason, agentWaits...), at.Reason, at.Message, at.LastTransitionTime)
	}
	return nil
}

func reservation(r *agentv1.AgentReservation) []Problem {
	return unready("AgentReservation", "agent-service", r, ofAgents(r.Status.Conditions, agentv1.ConditionReady),
		agentv1.ReasonTooFewAgents, agentv1.ReasonReserving, agentv1.ReasonReservationExpired, agentv1.ReasonReservationEnded)
}

// host reads the error of a host, of whichever operator, and what discovery-operator says: of the hosts that it found, or that it manages. Hosts without credentials are fine.
func host(h *metal3v1.BareMetalHost) []Problem {
	if h.Status.ErrorType != "" {
		since := h.CreationTimestamp
		if h.Status.LastUpdated != nil {
			since = *h.Status.LastUpdated
		}
		return found("BareMetalHost", h, Wrong, string(h.Status.ErrorType), h.Status.ErrorMessage, since)
	}
	at := meta.FindStatusCondition(h.Status.Conditions, metal3v1.ConditionHandedOver)
	if at == nil {
		return nil
	}
	if at.Reason != metal3v1.ReasonManagedHere {
		if at.Status == metav1.ConditionTrue || at.Reason == metal3v1.ReasonWaitingForCredentials {
			return nil
		}
		return found("BareMetalHost", h, severity(at.Reason, metal3v1.ReasonWaitingForApproval, metal3v1.ReasonDriverSwitching), at.Reason, at.Message, at.LastTransitionTime)
	}
	at = meta.FindStatusCondition(h.Status.Conditions, metal3v1.ConditionReady)
	if at == nil || at.Status == metav1.ConditionTrue {
		return nil
	}
	switch at.Reason {
	case metal3v1.ReasonStatusNotRestored:
		return found("BareMetalHost", h, Wrong, at.Reason, at.Message, at.LastTransitionTime)
	case metal3v1.ReasonWaitingForApproval, metal3v1.ReasonWaitingForMachine, metal3v1.ReasonWaitingForData, metal3v1.ReasonAgentAway:
		return found("BareMetalHost", h, Waiting, at.Reason, at.Message, at.LastTransitionTime)
	}
	return nil
}

// discovery reads a resource that is Ready also while machines wait, or are refused: the reason says so.
func discovery(d *metal3v1.BareMetalHostDiscovery) []Problem {
	at := meta.FindStatusCondition(d.Status.Conditions, metal3v1.ConditionReady)
	if at != nil && (at.Reason == metal3v1.ReasonMachinesRefused || at.Reason == metal3v1.ReasonMachinesWaiting) {
		return found("BareMetalHostDiscovery", d, severity(at.Reason, metal3v1.ReasonMachinesWaiting), at.Reason, at.Message, at.LastTransitionTime)
	}
	if problems := unready("BareMetalHostDiscovery", "discovery-operator", d, at, metal3v1.ReasonNotPolledYet, metal3v1.ReasonPaused); problems != nil {
		return problems
	}
	if at := meta.FindStatusCondition(d.Status.Conditions, metal3v1.ConditionSelectorEvaluated); at != nil && at.Status == metav1.ConditionFalse {
		return found("BareMetalHostDiscovery", d, Wrong, at.Reason, at.Message, at.LastTransitionTime)
	}
	return nil
}

func addresses(p *ipamv1.IPPool) []Problem {
	if problems := unready("IPPool", "ipam-operator", p, meta.FindStatusCondition(p.Status.Conditions, ipamv1.ReadyCondition), ipamv1.ReasonPoolDeleting); problems != nil {
		return problems
	}
	for _, bad := range []string{ipamv1.OverlappingCondition, ipamv1.ExhaustedCondition} {
		if at := meta.FindStatusCondition(p.Status.Conditions, bad); at != nil && at.Status == metav1.ConditionTrue {
			return found("IPPool", p, severity(at.Reason, ipamv1.ReasonAddressesCoolDown), at.Reason, at.Message, at.LastTransitionTime)
		}
	}
	return nil
}

func addressClaim(c *ipamv1.IPClaim) []Problem {
	return unready("IPClaim", "ipam-operator", c, meta.FindStatusCondition(c.Status.Conditions, ipamv1.ReadyCondition), ipamv1.ReasonPoolExhausted, ipamv1.ReasonPoolNotReady, ipamv1.ReasonAddressesPending)
}
