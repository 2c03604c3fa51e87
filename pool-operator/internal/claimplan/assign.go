// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package claimplan

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
)

// assign matches waiting claims with free clusters, first come, first served: the n-th claim gets the n-th cluster, both in total order, so that all replicas that
// see the same compute the same. OldestFirst orders clusters by age, RunningFirst puts running ones before the others. The result maps a claim's UID to
// the cluster's namespace. The arguments are left as they are.
func assign(waiting []Waiter, free []Cluster, policy hivev1.ClaimPolicy) map[types.UID]string {
	waiting, free = slices.Clone(waiting), slices.Clone(free)
	slices.SortFunc(waiting, poolview.ByArrival)
	order, _ := choice(policy)
	slices.SortFunc(free, order)
	matching := make(map[types.UID]string, min(len(waiting), len(free)))
	for i := range min(len(waiting), len(free)) {
		matching[waiting[i].UID] = free[i].Namespace
	}
	return matching
}

// choice is the order in which claims get clusters, and why the first one is chosen. A pool without a policy gives the oldest.
func choice(policy hivev1.ClaimPolicy) (order func(a, b Cluster) int, why Why) {
	switch policy {
	case hivev1.ClaimPolicyRunningFirst:
		return poolview.ByRunningAndAge, WhyRunning
	case hivev1.ClaimPolicyOldestFirst:
	}
	return poolview.ByAge, WhyOldest
}
