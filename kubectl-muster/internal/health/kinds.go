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
		hivev1.ReasonPoolFilling, hivev1.ReasonPoolScalingDown, hivev1.ReasonPoolFrozen, hivev1.ReasonMaxCapacity, hivev1.ReasonInventoryExhausted, hivev1.ReasonPoolDeleting)
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
	return found("ClusterClaim", c, severity(running.Reason, hivev1.ReasonInitialized, hivev1.ReasonResuming), running.Reason, running.Message, running.LastTransitionTime)
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
	for _, bad := range []string{hivev1.ClusterInstallFailed, hivev1.ClusterInstallStopped} {
		at := hivev1.FindCondition(i.Status.Conditions, bad)
		if at == nil || at.Status != corev1.ConditionTrue || hivev1.IsConditionTrue(i.Status.Conditions, hivev1.ClusterInstallCompleted) {
			continue
		}
		return found("AgentClusterInstall", i, Wrong, at.Reason, at.Message, at.LastTransitionTime)
	}
	if synced := hivev1.FindCondition(i.Status.Conditions, agentv1.ConditionSpecSynced); synced != nil && synced.Status == corev1.ConditionFalse {
		return found("AgentClusterInstall", i, Wrong, synced.Reason, synced.Message, synced.LastTransitionTime)
	}
	return nil
}

func infraEnv(e *agentv1.InfraEnv) []Problem {
	return unready("InfraEnv", "agent-service", e, ofAgents(e.Status.Conditions, agentv1.ConditionImageCreated))
}

func agent(a *agentv1.Agent) []Problem {
	installed := agentv1.FindCondition(a.Status.Conditions, agentv1.ConditionInstalled)
	if installed != nil && installed.Reason == agentv1.ReasonInstallationFailed {
		return found("Agent", a, Wrong, installed.Reason, installed.Message, installed.LastTransitionTime)
	}
	done := installed != nil && installed.Status == corev1.ConditionTrue
	for _, good := range []string{agentv1.ConditionSpecSynced, agentv1.ConditionConnected, agentv1.ConditionValidated, agentv1.ConditionRequirementsMet} {
		at := agentv1.FindCondition(a.Status.Conditions, good)
		switch {
		case at == nil || at.Status == corev1.ConditionTrue || done && good != agentv1.ConditionSpecSynced:
			continue
		case at.Status == corev1.ConditionUnknown && at.Reason != agentv1.ReasonNotAvailable:
			continue
		}
		how := severity(at.Reason, agentv1.ReasonNotAvailable, agentv1.ReasonAgentIsNotApproved, agentv1.ReasonValidationsUserPending, agentv1.ReasonAgentNotReady, agentv1.ReasonAgentAlreadyInstalling)
		return found("Agent", a, how, at.Reason, at.Message, at.LastTransitionTime)
	}
	if bound := agentv1.FindCondition(a.Status.Conditions, agentv1.ConditionBound); bound != nil && bound.Reason == agentv1.ReasonUnbindingPendingUserAction {
		return found("Agent", a, Waiting, bound.Reason, bound.Message, bound.LastTransitionTime)
	}
	for _, good := range []string{agentv1.ConditionReleased, agentv1.ConditionAddressesAssigned, agentv1.ConditionJoined} {
		at := agentv1.FindCondition(a.Status.Conditions, good)
		if at == nil || at.Status != corev1.ConditionFalse || good == agentv1.ConditionJoined && !done {
			continue
		}
		how := Waiting
		if at.Reason == agentv1.ReasonWipeFailed {
			how = Wrong
		}
		return found("Agent", a, how, at.Reason, at.Message, at.LastTransitionTime)
	}
	return nil
}

func reservation(r *agentv1.AgentReservation) []Problem {
	return unready("AgentReservation", "agent-service", r, ofAgents(r.Status.Conditions, agentv1.ConditionReady),
		agentv1.ReasonTooFewAgents, agentv1.ReasonReserving, agentv1.ReasonReservationExpired, agentv1.ReasonReservationEnded)
}

func host(h *metal3v1.BareMetalHost) []Problem {
	if h.Status.ErrorType == "" {
		return nil
	}
	since := h.CreationTimestamp
	if h.Status.LastUpdated != nil {
		since = *h.Status.LastUpdated
	}
	return found("BareMetalHost", h, Wrong, string(h.Status.ErrorType), h.Status.ErrorMessage, since)
}

func discovery(d *metal3v1.BareMetalHostDiscovery) []Problem {
	return unready("BareMetalHostDiscovery", "discovery-operator", d, meta.FindStatusCondition(d.Status.Conditions, metal3v1.ConditionReady),
		metal3v1.ReasonNotPolledYet, metal3v1.ReasonPaused, metal3v1.ReasonMachinesWaiting)
}

func addresses(p *ipamv1.IPPool) []Problem {
	if problems := unready("IPPool", "ipam-operator", p, meta.FindStatusCondition(p.Status.Conditions, ipamv1.ReadyCondition), ipamv1.ReasonPoolDeleting); problems != nil {
		return problems
	}
	if at := meta.FindStatusCondition(p.Status.Conditions, ipamv1.ExhaustedCondition); at != nil && at.Status == metav1.ConditionTrue {
		return found("IPPool", p, Wrong, at.Reason, at.Message, at.LastTransitionTime)
	}
	return nil
}

func addressClaim(c *ipamv1.IPClaim) []Problem {
	return unready("IPClaim", "ipam-operator", c, meta.FindStatusCondition(c.Status.Conditions, ipamv1.ReadyCondition), ipamv1.ReasonPoolExhausted, ipamv1.ReasonPoolNotReady, ipamv1.ReasonAddressesPending)
}
