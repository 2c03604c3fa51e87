// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package claimplan

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// Assign matches waiting claims with free clusters, first come, first served: the n-th claim gets the n-th cluster, both in total order, so that everybody who
// sees the same computes the same. OldestFirst orders clusters by age, RunningFirst puts running ones before the others. The result maps a claim's UID to
// the cluster's namespace. The arguments are left as they are.
func Assign(waiting []Waiter, free []Cluster, policy hivev1.ClaimPolicy) map[types.UID]string {
	waiting, free = slices.Clone(waiting), slices.Clone(free)
	slices.SortFunc(waiting, byArrival)
	order := byAge
	if policy == hivev1.ClaimPolicyRunningFirst {
		order = byRunningAndAge
	}
	slices.SortFunc(free, order)
	matching := make(map[types.UID]string, min(len(waiting), len(free)))
	for i := range min(len(waiting), len(free)) {
		matching[waiting[i].UID] = free[i].Namespace
	}
	return matching
}

// Waiting returns the claims that wait for a cluster, first come first. A claim waits when it was assigned none, no cluster records it, and its time in the
// queue is not over. A claim that was assigned a cluster which then became somebody else's waits again.
func Waiting(now time.Time, claims []Waiter, clusters []Cluster) []Waiter {
	recorded := make(map[types.UID]bool)
	owner := make(map[string]types.UID)
	for i := range clusters {
		if c := &clusters[i]; c.ClaimUID != "" {
			recorded[c.ClaimUID] = true
			owner[c.Namespace] = c.ClaimUID
		}
	}
	var waiting []Waiter
	for _, w := range claims {
		lost := w.Cluster != "" && owner[w.Cluster] != "" && owner[w.Cluster] != w.UID
		if recorded[w.UID] || w.Deleting || w.Paused || w.Cluster != "" && !lost || w.left(now) {
			continue
		}
		waiting = append(waiting, w)
	}
	slices.SortFunc(waiting, byArrival)
	return waiting
}

// Free returns the clusters of the pool that a claim may get: usable ones that no claim was assigned, that the pool has not decided to delete, and that have
// not been trying to resume for longer than the pool allows.
func Free(now time.Time, pool *hivev1.ClusterPool, claims []Waiter, clusters []Cluster) []Cluster {
	gone := make(map[string]bool)
	for _, w := range claims {
		gone[w.Cluster] = true
	}
	for _, operation := range pool.Status.Operations {
		if operation.Kind == hivev1.OperationDelete {
			gone[operation.Namespace] = true
		}
	}
	var free []Cluster
	for i := range clusters {
		if c := clusters[i]; c.Usable() && !gone[c.Namespace] && !c.stuck(now, pool) {
			free = append(free, c)
		}
	}
	return free
}

// stuck says whether the pool counts the cluster as broken because it does not resume.
func (c *Cluster) stuck(now time.Time, pool *hivev1.ClusterPool) bool {
	config := pool.Spec.HibernationConfig
	if config == nil || config.ResumeTimeout == nil || config.ResumeTimeout.Duration <= 0 || c.Resuming.IsZero() {
		return false
	}
	return now.Sub(c.Resuming) >= config.ResumeTimeout.Duration
}

func (w *Waiter) left(now time.Time) bool { return !w.Leaves.IsZero() && !now.Before(w.Leaves) }
