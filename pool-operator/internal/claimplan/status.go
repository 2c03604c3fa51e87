// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package claimplan

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
)

// report is what a claim's status should say.
type report struct {
	pending, running hivev1.Condition
	waitingFor       hivev1.WaitReason
	position         int32
	estimate         *metav1.Time
}

// ready sums the two other conditions up. Pending is good when it is False, so that hivev1.Summarize does not fit.
func (r *report) ready() hivev1.Condition {
	ready := r.running
	if r.pending.Status != corev1.ConditionFalse {
		ready = r.pending
	}
	ready.Type, ready.Status = hivev1.ClusterClaimReady, corev1.ConditionFalse
	if r.pending.Status == corev1.ConditionFalse && r.running.Status == corev1.ConditionTrue {
		ready.Status = corev1.ConditionTrue
	}
	return ready
}

// report returns the claim's status with r in it; nil when it says so already. A place in the queue and an estimate alone are not worth a write until the last one is
// old enough.
func (s *Snapshot) report(now time.Time, r report) *hivev1.ClusterClaimStatus {
	next, at := s.Claim.Status.DeepCopy(), metav1.NewTime(now)
	changed := hivev1.SetCondition(&next.Conditions, r.pending, at)
	changed = hivev1.SetCondition(&next.Conditions, r.running, at) || changed
	changed = hivev1.SetCondition(&next.Conditions, r.ready(), at) || changed
	if lifetime := s.lifetime(); !equality.Semantic.DeepEqual(next.Lifetime, lifetime) {
		next.Lifetime, changed = lifetime, true
	}
	if next.WaitingFor != r.waitingFor {
		next.WaitingFor, changed = r.waitingFor, true
	}
	pending := hivev1.FindCondition(next.Conditions, hivev1.ClusterClaimPending)
	if next.QueuePosition != r.position || !sameTime(next.EstimatedAssignmentTime, r.estimate) {
		next.QueuePosition, next.EstimatedAssignmentTime = r.position, r.estimate
		if !changed && r.position > 0 && now.Sub(pending.LastProbeTime.Time) < refreshAfter(r.position) {
			return nil
		}
		pending.LastProbeTime, changed = at, true
	}
	if !changed {
		return nil
	}
	return next
}

// sameTime compares as the wire does, in seconds.
func sameTime(a, b *metav1.Time) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Unix() == b.Unix()
}

// waiting is what a claim without a cluster says.
func (s *Snapshot) waiting(reason hivev1.WaitReason, message string) report {
	condition := hivev1.ReasonNoClusters
	switch reason {
	case hivev1.WaitPoolNotFound:
		condition = hivev1.ReasonPoolNotFound
	case hivev1.WaitPoolDeleting:
		condition = hivev1.ReasonClaimPoolDeleting
	case hivev1.WaitQueueTimedOut:
		condition = hivev1.ReasonQueueTimedOut
	default:
		if s.lost() {
			condition, message = hivev1.ReasonAssignmentConflict, "Assigned cluster was claimed by a different ClusterClaim. "+message
		}
	}
	return report{
		pending:    s.pending(corev1.ConditionTrue, condition, message),
		running:    running(corev1.ConditionUnknown, hivev1.ReasonInitialized, "The claim has no cluster yet"),
		waitingFor: reason,
	}
}

// lost says whether the claim lost its cluster to another claim and has got no other since.
func (s *Snapshot) lost() bool {
	pending := hivev1.FindCondition(s.Claim.Status.Conditions, hivev1.ClusterClaimPending)
	return s.Lost || pending != nil && pending.Reason == hivev1.ReasonAssignmentConflict
}

// assigned is what a claim says whose cluster does not record it yet.
func (s *Snapshot) assigned(own *Cluster) report {
	return report{
		pending:    s.pending(corev1.ConditionTrue, hivev1.ReasonClusterAssigned, "Cluster "+own.Namespace+" is being assigned"),
		running:    clusterRunning(own),
		waitingFor: hivev1.WaitAssignment,
	}
}

// held is what a claim says that has a cluster. It is pending until its subjects have their rights, and never again after that.
func (s *Snapshot) held(own *Cluster, settled bool) report {
	r := report{
		pending: s.pending(corev1.ConditionFalse, hivev1.ReasonClusterClaimed, "Cluster claimed"+s.rightsNote(own)),
		running: clusterRunning(own),
	}
	if settled || s.wasClaimed() {
		return r
	}
	lacking := "the rights of its subjects are being set up"
	if own.Metadata == nil {
		lacking = "its clusterMetadata, which says where its credentials are, is missing"
	}
	r.pending = s.pending(corev1.ConditionTrue, hivev1.ReasonClusterAssigned, "Cluster "+own.Namespace+" is the claim's; "+lacking)
	r.waitingFor = hivev1.WaitAssignment
	return r
}

// pending is the condition of that type. Its message also names annotations that should be booleans and are not.
func (s *Snapshot) pending(status corev1.ConditionStatus, reason, message string) hivev1.Condition {
	return hivev1.Condition{Type: hivev1.ClusterClaimPending, Status: status, Reason: reason, Message: message + poolview.UnreadableNote(s.Claim.Annotations)}
}

// clusterGone is the report of a claim whose cluster is gone.
func (s *Snapshot) clusterGone() report {
	r := report{running: running(corev1.ConditionFalse, hivev1.ReasonClusterDeleted, "Assigned cluster has been deleted")}
	r.pending = *hivev1.FindCondition(s.Claim.Status.Conditions, hivev1.ClusterClaimPending)
	return r
}

// releasing is the report of a claim that is being deleted.
func (s *Snapshot) releasing(own *Cluster) report {
	r := s.held(own, s.wasClaimed())
	r.running = running(corev1.ConditionFalse, hivev1.ReasonClusterDeleting, "Assigned cluster has been marked for deletion")
	switch {
	case own.Deleting:
	case own.Protected:
		r.running.Message = "Assigned cluster is protected from deletion; remove its annotation " + hivev1.AnnotationProtectedDelete + " to release it"
	case own.Paused:
		r.running.Message = "Assigned cluster is paused; remove its annotation " + hivev1.AnnotationReconcilePause + " to release it"
	}
	return r
}

// clusterRunning says whether the claim's cluster runs. A cluster that gets its machines by the claim does not before it has noticed the claim.
func clusterRunning(own *Cluster) hivev1.Condition {
	switch {
	case own.Deleting || own.Marked:
		return running(corev1.ConditionFalse, hivev1.ReasonClusterDeleting, "Assigned cluster has been marked for deletion")
	case own.DataMissing:
		return running(corev1.ConditionFalse, hivev1.ReasonResuming, "The data of the assigned cluster is missing, without which it is not started; its condition "+hivev1.ClusterDeploymentUnreachable+" says more")
	case !own.ShouldRun() && own.Claimed():
		return running(corev1.ConditionFalse, hivev1.ReasonHibernating, "Assigned cluster hibernates; set its spec.powerState to Running to resume it")
	case own.Running() && own.WaitsForClaim:
		return running(corev1.ConditionFalse, hivev1.ReasonResuming, "Waiting for the cluster's machines to be bound")
	case own.Running():
		return running(corev1.ConditionTrue, hivev1.ReasonRunning, "Cluster is running")
	default:
		return running(corev1.ConditionFalse, hivev1.ReasonResuming, "Waiting for cluster to be running")
	}
}

func running(status corev1.ConditionStatus, reason, message string) hivev1.Condition {
	return hivev1.Condition{Type: hivev1.ClusterClaimRunning, Status: status, Reason: reason, Message: message}
}
