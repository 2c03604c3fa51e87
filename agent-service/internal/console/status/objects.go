// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/muster-io/muster/agent-service/internal/console/words"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// OfClaim is the state of a ClusterClaim, the sentence of the operator about it, and whether its cluster runs.
func OfClaim(claim *hivev1.ClusterClaim) (badge Badge, why string, runs bool) {
	pending := cmp.Or(hivev1.FindCondition(claim.Status.Conditions, hivev1.ClusterClaimPending), &hivev1.Condition{Status: "Unknown"})
	running := cmp.Or(hivev1.FindCondition(claim.Status.Conditions, hivev1.ClusterClaimRunning), &hivev1.Condition{Status: "Unknown"})
	state, tone, why := "waiting", Busy, pending.Message
	switch {
	case !claim.DeletionTimestamp.IsZero():
		state, tone = "deleting", Idle
	case pending.Reason == hivev1.ReasonQueueTimedOut || pending.Reason == hivev1.ReasonClaimPoolDeleting:
		state, tone = "refused", Bad
	case pending.Status != "False":
	case running.Status == "True":
		state, tone, runs, why = "running", OK, true, running.Message
	case running.Reason == hivev1.ReasonClusterDeleted || running.Reason == hivev1.ReasonClusterDeleting:
		state, tone, why = "gone", Bad, running.Message
	case running.Reason == hivev1.ReasonHibernating: // its users resume it
		state, tone, why = "asleep", Idle, running.Message
	default:
		state, why = "starting", running.Message
	}
	return Badge{words.Of("claim." + state), tone}, why, runs
}

// OfAddresses is the state of an IPPool.
func OfAddresses(pool *ipamv1.IPPool) Badge {
	exhausted := meta.FindStatusCondition(pool.Status.Conditions, ipamv1.ExhaustedCondition)
	switch {
	case !pool.DeletionTimestamp.IsZero():
		return Badge{words.Of("addresses.deleting"), Idle}
	case meta.IsStatusConditionFalse(pool.Status.Conditions, ipamv1.ReadyCondition):
		return Badge{words.Of("addresses.invalid"), Bad}
	case exhausted != nil && exhausted.Status == "True" && exhausted.Reason == ipamv1.ReasonAddressesCoolDown:
		return Badge{words.Of("addresses.cooling"), Warn}
	case exhausted != nil && exhausted.Status == "True":
		return Badge{words.Of("addresses.exhausted"), Bad}
	case pool.Status.Total == nil: // the operator has not counted yet
		return Badge{words.Of("addresses.unknown"), Idle}
	default:
		return Badge{words.Of("addresses.free"), OK}
	}
}
