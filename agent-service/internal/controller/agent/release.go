// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// joined is the condition Joined of a host that was given what it joins its cluster with; none for others.
func joined(h *domain.Host) []agentv1.Condition {
	const kind = agentv1.ConditionJoined
	switch n := h.Node; {
	case n.Name == "":
		return nil
	case n.Ready:
		return []agentv1.Condition{condition(kind, corev1.ConditionTrue, agentv1.ReasonNodeReady, "The Node "+n.Name+" is Ready")}
	case n.Rejoin.Lost() && n.Seen:
		return []agentv1.Condition{condition(kind, corev1.ConditionFalse, agentv1.ReasonNodeNotReady, "The kubelet of the Node "+n.Name+" has no valid client certificate: the machine is given another bootstrap token, with which it requests one")}
	case n.Rejoin.Lost():
		return []agentv1.Condition{condition(kind, corev1.ConditionFalse, agentv1.ReasonNodeNotReady, "The Node "+n.Name+" was deleted, and its kubelet has no valid client certificate: release the host, and bind it again to use it")}
	case n.WasReady:
		return []agentv1.Condition{condition(kind, corev1.ConditionFalse, agentv1.ReasonNodeNotReady, "The Node "+n.Name+" was Ready, and is not any more: see its conditions in the cluster, and whether the machine runs")}
	case n.Seen:
		return []agentv1.Condition{condition(kind, corev1.ConditionFalse, agentv1.ReasonNodeNotReady, "The Node "+n.Name+" is not Ready: see its conditions in the cluster")}
	case len(n.Certificates) > 0:
		return []agentv1.Condition{condition(kind, corev1.ConditionFalse, agentv1.ReasonNodeNotReady, "The kubelet has its certificate, and has not registered the Node "+n.Name+" yet")}
	case h.Progress.Stage == lifecycle.StageRebooting || !lifecycle.AfterReboot(h.Progress.Stage):
		return []agentv1.Condition{condition(kind, corev1.ConditionFalse, agentv1.ReasonWaitingForBoot, "The machine has not come up from its disk yet")}
	}
	return []agentv1.Condition{condition(kind, corev1.ConditionFalse, agentv1.ReasonWaitingForCSR, "The kubelet has not asked for its certificate, or was refused: see the certificate requests in the cluster")}
}

// released is the condition Released of a host that is free, or on its way; none for one that is bound, or never was.
func released(h *domain.Host) []agentv1.Condition {
	r := h.Release
	if r.StartedAt.IsZero() {
		return nil
	}
	said := condition(agentv1.ConditionReleased, corev1.ConditionFalse, "", "")
	switch {
	case !r.Underway():
		said.Status, said.Reason, said.Message = corev1.ConditionTrue, agentv1.ReasonReleased, "The machine is free"
		if !r.WipedAt.IsZero() {
			said.Message += ", and its disks are wiped"
		}
	case !r.Left(): // a machine that its user boots before would end its pods
		said.Reason, said.Message = agentv1.ReasonDraining, "The cluster is losing the Node "+r.NodeName+": its pods leave it, and it is deleted"
	case h.State == lifecycle.UnbindingPendingUserAction:
		said.Reason, said.Message = agentv1.ReasonWaitingForUser, "The machine cannot restart into the discovery image by itself: boot it from the image of its InfraEnv"
	case h.State == lifecycle.Reclaiming || h.State == lifecycle.ReclaimingRebooting:
		said.Reason, said.Message = agentv1.ReasonRebooting, "The machine restarts into the discovery image of its InfraEnv"
	case r.Stopping:
		said.Reason, said.Message = agentv1.ReasonWiping, "The machine stops its installation"
	case r.WipeFailure != "":
		said.Reason, said.Message = agentv1.ReasonWipeFailed, bound("The machine could not be wiped, and is given to no cluster until it is: "+r.WipeFailure, maxReason)
	default:
		said.Reason, said.Message = agentv1.ReasonWiping, "The machine is wiped as soon as it runs the discovery image"
	}
	return []agentv1.Condition{said}
}

// reserved is the condition Reserved of a host that an allocation holds; none for others.
func reserved(h *domain.Host, now time.Time) []agentv1.Condition {
	if !h.Reservation.Holds(now) {
		return nil
	}
	return []agentv1.Condition{condition(agentv1.ConditionReserved, corev1.ConditionTrue, agentv1.ReasonAllocated, h.Reservation.Sentence())}
}

// deprovision is the cluster that the host left; nil for a host that is bound, or never was.
func deprovision(h *domain.Host) *agentv1.AgentDeprovisionInfo {
	r := h.Release
	if r.StartedAt.IsZero() {
		return nil
	}
	said := &agentv1.AgentDeprovisionInfo{ClusterName: bound(r.Cluster.Name, 253), ClusterNamespace: bound(r.Cluster.Namespace, 253), NodeName: bound(r.NodeName, 253), Message: bound(r.Note, maxReason)}
	if said.Message == "" && !r.Left() {
		said.Message = agentv1.NodeIsRemoved
	}
	return said
}

// certificates are those that were approved for the host's Node.
func certificates(h *domain.Host) (said agentv1.CSRStatus) {
	for _, c := range h.Node.Certificates {
		at := metav1.NewTime(c.ApprovedAt).Rfc3339Copy()
		said.ApprovedCSRs = append(said.ApprovedCSRs, agentv1.CSRInfo{Name: c.Name, Type: c.Type, ApprovedAt: at})
		said.LastApprovalAttempt = &at
	}
	return said
}
