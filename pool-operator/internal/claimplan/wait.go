// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package claimplan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
)

// noClusters begins every message of a claim in the queue; clients of Hive look for it.
const noClusters = "No clusters in pool are ready to be claimed"

// explain says where in the queue the claim is, what it waits for and, when there is a basis for it, until when.
func (s *Snapshot) explain(now time.Time, waiting []Waiter, free []Cluster) report {
	position := 1 + slices.IndexFunc(waiting, func(w Waiter) bool { return w.UID == s.Claim.UID })
	installing := s.installing(now)
	ahead := position - len(free)
	reason, message := s.waitReason(ahead, len(installing))
	r := s.waiting(reason, message)
	r.position = int32(position) //nolint:gosec // a queue does not have two billion claims
	if reason == hivev1.WaitProvisioning && ahead >= 1 && ahead <= len(installing) {
		r.estimate = s.estimate(now, installing[ahead-1])
	}
	return r
}

// installing returns the pool's clusters that will be free once they are installed, oldest first.
func (s *Snapshot) installing(now time.Time) []Cluster {
	var installing []Cluster
	limits := poolplan.Limits(s.Pool)
	for _, c := range s.Clusters {
		broken, _ := c.Broken(now, limits(c))
		if !c.Installed && !c.Claimed() && !c.Deleting && !c.Marked && broken == nil {
			installing = append(installing, c)
		}
	}
	slices.SortFunc(installing, poolview.ByAge)
	return installing
}

// waitReason says what the ahead-th claim without a free cluster waits for. A cluster that is being installed for it comes first, whatever keeps the pool
// from creating more.
func (s *Snapshot) waitReason(ahead, installing int) (reason hivev1.WaitReason, message string) {
	pool := s.pool()
	capacity := poolCondition(pool, hivev1.ClusterPoolCapacityAvailable, corev1.ConditionFalse)
	missing := poolCondition(pool, hivev1.ClusterPoolMissingDependencies, corev1.ConditionTrue)
	failing := poolCondition(pool, hivev1.ClusterPoolProvisioningHealthy, corev1.ConditionFalse)
	switch {
	case ahead <= 0:
		return hivev1.WaitAssignment, "A cluster is free and is being assigned"
	case ahead <= installing && failing == nil:
		return hivev1.WaitProvisioning, noClusters + ": clusters are being installed"
	case pool.Paused: // what its conditions say may be of before
		return hivev1.WaitPoolFrozen, noClusters + ": the pool is paused, so that it creates none; remove its annotation " + hivev1.AnnotationReconcilePause
	case capacity != nil && capacity.Reason == hivev1.ReasonInventoryExhausted:
		return hivev1.WaitInventoryExhausted, noClusters + ": " + s.lackOfNames(capacity)
	case capacity != nil:
		return hivev1.WaitPoolAtCapacity, noClusters + ": the pool has as many clusters as its maxSize allows; release a cluster or raise maxSize"
	case missing != nil:
		return hivev1.WaitMissingDependencies, noClusters + ": the pool cannot create clusters: " + missing.Message
	case failing != nil:
		return hivev1.WaitProvisioningFailing, noClusters + ": clusters break while they are installed: " + failing.Message
	case pool.Frozen:
		return hivev1.WaitPoolFrozen, noClusters + ": the pool's maxConcurrent is 0, so that it creates none"
	case installing > 0:
		return hivev1.WaitProvisioning, noClusters + ": clusters are being installed"
	default:
		return hivev1.WaitPoolEmpty, noClusters + ": the pool creates one"
	}
}

// lackOfNames says why the pool has no name for another cluster, and what to do. Where its inventory is no object, the pool says what to write.
func (s *Snapshot) lackOfNames(capacity *hivev1.Condition) string {
	if inventory := s.Pool.Spec.Inventory; inventory != nil && inventory.Unusable != nil {
		return capacity.Message
	}
	return "every name of the pool's inventory is taken; release a cluster or add a name"
}

// poolCondition returns the pool's condition of the type if it has the status.
func poolCondition(pool *poolview.Pool, conditionType string, status corev1.ConditionStatus) *hivev1.Condition {
	c := hivev1.FindCondition(pool.Conditions[:], conditionType)
	if c == nil || c.Status != status {
		return nil
	}
	return c
}

// estimate says when the cluster will be installed if it takes as long as half of its installed siblings took at most; nil without siblings, or if that time is over.
func (s *Snapshot) estimate(now time.Time, c Cluster) *metav1.Time {
	var took []time.Duration
	for i := range s.Clusters {
		if sibling := &s.Clusters[i]; sibling.Installed && sibling.InstalledAt.After(sibling.Created) {
			took = append(took, sibling.InstalledAt.Sub(sibling.Created))
		}
	}
	if len(took) == 0 {
		return nil
	}
	slices.Sort(took)
	due := c.Created.Add(took[(len(took)-1)/2])
	if due.Before(now) {
		return nil
	}
	return new(metav1.NewTime(due))
}

// A claim's place in the queue changes with every claim before it. It is written again at the earliest so long after the last write.
const (
	refreshMin = 10 * time.Second
	refreshMax = 5 * time.Minute
)

// refreshAfter says how old a claim's place in the queue may become: the further back, the older, so that a long queue costs a few writes a second.
func refreshAfter(position int32) time.Duration {
	return min(max(refreshMin, time.Duration(position)*time.Second), refreshMax)
}

// refreshIn says when the claim looks at its place in the queue again.
func (s *Snapshot) refreshIn(now time.Time, r report) time.Duration {
	every := refreshAfter(r.position)
	pending := hivev1.FindCondition(s.Claim.Status.Conditions, hivev1.ClusterClaimPending)
	if pending == nil || pending.LastProbeTime.IsZero() {
		return every
	}
	if rest := pending.LastProbeTime.Add(every).Sub(now); rest > 0 {
		return rest
	}
	return every
}

func (s *Snapshot) noPoolMessage() string {
	return fmt.Sprintf("There is no ClusterPool %s in namespace %s; the claim gets a cluster when there is", s.poolName(), s.Claim.Namespace)
}

func (s *Snapshot) poolDeletingMessage() string {
	return fmt.Sprintf("ClusterPool %s is being deleted and gives out no more clusters", s.poolName())
}

func (s *Snapshot) timedOutMessage() string {
	return fmt.Sprintf("The claim got no cluster within its queueTimeout of %s and left the queue; raise queueTimeout to queue again", s.Claim.Spec.QueueTimeout.Duration)
}

func (s *Snapshot) poolName() string { return s.Claim.Spec.ClusterPoolName }
