// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package claimplan

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	corev1 "k8s.io/api/core/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
	"github.com/muster-io/muster/pool-operator/internal/requeue"
)

// Plan returns the next step of the claim as of now.
func Plan(now time.Time, s Snapshot) Decision {
	switch own := s.owned(); {
	case hivev1.IsTrue(s.Claim.Annotations, hivev1.AnnotationReconcilePause):
		return Decision{}
	case !s.Claim.DeletionTimestamp.IsZero():
		return s.release(now, own)
	case own != nil:
		return s.hold(now, own)
	case s.wasClaimed():
		return s.clusterDeleted(now)
	case s.Claim.Spec.Namespace != "":
		return s.take(now)
	default:
		return s.queue(now)
	}
}

// owned returns the cluster that records the claim; nil when none does. If several did, the one that the claim names counts, or else the oldest.
func (s *Snapshot) owned() *Cluster {
	if s.HasOwn() {
		return s.Own
	}
	var own *Cluster
	for i := range s.Clusters {
		if c := &s.Clusters[i]; c.Records(s.Claim) && (own == nil || poolview.ByAge(*c, *own) < 0) {
			own = c
		}
	}
	return own
}

// wasClaimed says whether the claim once had a cluster. It never gets another.
func (s *Snapshot) wasClaimed() bool {
	pending := hivev1.FindCondition(s.Claim.Status.Conditions, hivev1.ClusterClaimPending)
	return pending != nil && pending.Status == corev1.ConditionFalse
}

// hold looks after a claim that has a cluster.
func (s *Snapshot) hold(now time.Time, own *Cluster) Decision {
	if s.Claim.Spec.Namespace != own.Namespace || !hasFinalizer(s.Claim) {
		return Decision{Action: AssignCluster{Cluster: own.Namespace, Why: WhyRecorded}}
	}
	expires, limited := s.expiry()
	if limited && !now.Before(expires) {
		return Decision{Action: ExpireClaim{Why: WhyExpired}, Status: s.report(now, s.held(own, true))}
	}
	d := Decision{}
	if limited {
		d.RequeueAfter = expires.Sub(now)
	}
	action, settled := s.grant(own)
	d.Status = s.report(now, s.held(own, settled))
	kept := own.Paused || own.Deleting // by which the cluster is not written; rights in its namespace are
	switch {
	case !kept && (own.ClaimUID == "" && !s.UIDDropped || own.ClaimedAt.IsZero()):
		d.Action = RecordClaim{Cluster: own.Namespace, UID: own.UID, ResourceVersion: own.ResourceVersion, At: s.claimedSince(now), Why: WhyUnidentified}
	case action != nil:
		d.Action = action
	case !kept && own.OrphanReason != "":
		d.Action = ReportMissing{Cluster: own.Namespace, UID: own.UID, ResourceVersion: own.ResourceVersion, Found: true, Why: WhyFound}
	}
	if limited && d.Status != nil && s.claimedAt().IsZero() {
		d.RequeueAfter = s.lifetime().Duration
	}
	return d
}

// claimedSince is when the claim got its cluster, as far as the claim knows; now when it does not.
func (s *Snapshot) claimedSince(now time.Time) time.Time {
	if at := s.claimedAt(); !at.IsZero() {
		return at
	}
	return now
}

// clusterDeleted plans for a claim whose cluster is gone. The claim reports that and stays until it is deleted or its lifetime is over.
func (s *Snapshot) clusterDeleted(now time.Time) Decision {
	running := hivev1.FindCondition(s.Claim.Status.Conditions, hivev1.ClusterClaimRunning)
	known := running != nil && running.Reason == hivev1.ReasonClusterDeleted
	if !known && !s.Verified && s.Claim.Spec.Namespace != "" {
		return Decision{Action: VerifyCluster{Cluster: s.Claim.Spec.Namespace, Why: WhyDoubt}}
	}
	d := Decision{Status: s.report(now, s.clusterGone())}
	if expires, limited := s.expiry(); limited {
		if !now.Before(expires) {
			d.Action = ExpireClaim{Why: WhyExpired}
			return d
		}
		d.RequeueAfter = expires.Sub(now)
	}
	return d
}

// take makes the cluster that the claim names its own. Only when that can never succeed does the claim leave it: a cluster that is deleting, marked or of
// another claim is never given away from an older view of it, since the resourceVersion is the precondition.
func (s *Snapshot) take(now time.Time) Decision {
	if !hasFinalizer(s.Claim) {
		return s.orElseReturn(now, WhyPreset)
	}
	own := s.Own
	if own != nil && own.Of(s.Claim) && own.Usable() {
		return Decision{
			Action: RecordClaim{Cluster: own.Namespace, UID: own.UID, ResourceVersion: own.ResourceVersion, At: now, Why: WhyAssigned},
			Status: s.report(now, s.assigned(own)),
		}
	}
	if !s.Verified {
		return Decision{Action: VerifyCluster{Cluster: s.Claim.Spec.Namespace, Why: WhyDoubt}}
	}
	if own != nil && own.Of(s.Claim) && own.Paused && !own.Claimed() && !own.Deleting {
		return Decision{Status: s.report(now, s.assigned(own))}
	}
	return s.orElseReturn(now, WhyLost)
}

// orElseReturn gives the claim another cluster in place of the one that it names, or none.
func (s *Snapshot) orElseReturn(now time.Time, why Why) Decision {
	d := s.queue(now)
	if d.Action == nil {
		d.Action = ReturnCluster{Why: why}
	}
	return d
}

// queue gives the claim the cluster that it is due, or says why there is none.
func (s *Snapshot) queue(now time.Time) Decision {
	self := WaiterOf(s.Claim)
	if self.Left(now) {
		return Decision{Status: s.report(now, s.waiting(hivev1.WaitQueueTimedOut, s.timedOutMessage()))}
	}
	leaving := time.Duration(0)
	if !self.Expires.IsZero() {
		leaving = self.Expires.Sub(now)
	}
	switch {
	case s.Pool == nil:
		return Decision{Status: s.report(now, s.waiting(hivev1.WaitPoolNotFound, s.noPoolMessage())), RequeueAfter: leaving}
	case s.pool().Deleting:
		return Decision{Status: s.report(now, s.waiting(hivev1.WaitPoolDeleting, s.poolDeletingMessage())), RequeueAfter: leaving}
	}
	others := s.others()
	free := poolview.Free(now, s.pool(), others, s.Clusters)
	self.Namespace = ""
	waiting := poolview.Waiting(now, append(others, self), s.Clusters)
	matching := assign(waiting, free, s.pool().ClaimPolicy)
	wait := s.explain(now, waiting, free)
	d := Decision{Status: s.report(now, wait), RequeueAfter: requeue.Sooner(leaving, s.refreshIn(now, wait))}
	if cluster, ok := matching[s.Claim.UID]; ok {
		_, why := choice(s.pool().ClaimPolicy)
		d.Action = AssignCluster{Cluster: cluster, Why: why}
	}
	return d
}

// pool is the pool as its claims read it; nil when there is none.
func (s *Snapshot) pool() *poolview.Pool { return poolview.PoolOf(s.Pool) }

// others returns the claims of the pool without this one.
func (s *Snapshot) others() []Waiter {
	others := make([]Waiter, 0, len(s.Claims)+1)
	for _, w := range s.Claims {
		if w.UID != s.Claim.UID {
			others = append(others, w)
		}
	}
	return others
}

// HasOwn says whether Own records the claim. Then Clusters and Claims are not needed.
func (s *Snapshot) HasOwn() bool { return s.Own != nil && s.Own.Records(s.Claim) }

// PoolKey identifies the pool that the claim names.
func (s *Snapshot) PoolKey() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Claim.Namespace, Name: s.Claim.Spec.ClusterPoolName}
}
