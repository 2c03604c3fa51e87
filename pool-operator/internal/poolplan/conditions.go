// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// longestMessage bounds condition messages that list names.
const longestMessage = 4096

// setConditions says in the status what is and is not as it should be.
func (r report) setConditions(status *hivev1.ClusterPoolStatus) {
	for _, c := range []hivev1.Condition{
		r.missingDependencies(),
		r.capacityAvailable(),
		r.allClustersCurrent(),
		r.inventoryValid(),
		r.deletionPossible(),
		r.provisioningHealthy(),
		r.ready(),
	} {
		hivev1.SetCondition(&status.Conditions, c, metav1.NewTime(r.now))
	}
}

func condition(kind string, status corev1.ConditionStatus, reason, message string) hivev1.Condition {
	return hivev1.Condition{Type: kind, Status: status, Reason: reason, Message: cut(message, longestMessage)}
}

func (r report) missingDependencies() hivev1.Condition {
	if len(r.in.Missing) > 0 {
		return condition(hivev1.ClusterPoolMissingDependencies, corev1.ConditionTrue, hivev1.ReasonMissing, strings.Join(r.in.Missing, "; "))
	}
	return condition(hivev1.ClusterPoolMissingDependencies, corev1.ConditionFalse, hivev1.ReasonVerified, "Dependencies verified")
}

func (r report) capacityAvailable() hivev1.Condition {
	kind := hivev1.ClusterPoolCapacityAvailable
	switch {
	case r.quota.capacity() == 0:
		return condition(kind, corev1.ConditionFalse, hivev1.ReasonMaxCapacity,
			fmt.Sprintf("Pool is at maximum capacity of %d waiting and claimed clusters.", *r.spec.MaxSize))
	case r.inventory.unusable() != "":
		return condition(kind, corev1.ConditionFalse, hivev1.ReasonInventoryExhausted, r.inventory.unusable())
	case r.inventory.exhausted():
		return condition(kind, corev1.ConditionFalse, hivev1.ReasonInventoryExhausted,
			fmt.Sprintf("All %d names of the inventory are taken; add names, or release claims.", len(r.inventory.listed)))
	}
	return condition(kind, corev1.ConditionTrue, hivev1.ReasonAvailable, "There is capacity to add more clusters to the pool.")
}

func (r report) allClustersCurrent() hivev1.Condition {
	var stale, unknown []string
	for _, m := range r.fleet.members {
		switch {
		case !m.unclaimed() || m.Version == r.fleet.version:
		case m.Version == "":
			unknown = append(unknown, m.Name)
		default:
			stale = append(stale, m.Name)
		}
	}
	slices.Sort(stale)
	slices.Sort(unknown)
	kind := hivev1.ClusterPoolAllClustersCurrent
	switch {
	case len(stale) > 0:
		return condition(kind, corev1.ConditionFalse, hivev1.ReasonSomeClusterDeploymentsStale,
			"These clusters are of an earlier version of the pool and are being replaced: "+strings.Join(stale, ", "))
	case len(unknown) > 0:
		return condition(kind, corev1.ConditionUnknown, hivev1.ReasonSomeClusterDeploymentsUnknown,
			"These clusters do not say which version of the pool they are of and are being replaced: "+strings.Join(unknown, ", "))
	}
	return condition(kind, corev1.ConditionTrue, hivev1.ReasonClusterDeploymentsCurrent, "All unclaimed clusters are of the pool's present version")
}

func (r report) inventoryValid() hivev1.Condition {
	if r.spec.Inventory == nil {
		return condition(hivev1.ClusterPoolInventoryValid, corev1.ConditionUnknown, hivev1.ReasonInitialized, "The pool has no inventory")
	}
	if sentence := r.inventory.unusable(); sentence != "" {
		return condition(hivev1.ClusterPoolInventoryValid, corev1.ConditionFalse, hivev1.ReasonInvalid, sentence)
	}
	refused := r.inventory.refusedNames()
	if n := r.inventory.nameless(); n > 0 && len(refused) == 0 {
		return condition(hivev1.ClusterPoolInventoryValid, corev1.ConditionFalse, hivev1.ReasonInvalid,
			fmt.Sprintf("Entries of the inventory without a name are not used: %d; write their names, or remove them", n))
	}
	if len(refused) > 0 {
		message := "The API server refused the last clusters of these names, which are tried again after all others: " + strings.Join(refused, ", ")
		if r.health.LastFailureReason == string(WhyCreationRefused) {
			message += "; it said: " + r.health.LastFailureMessage
		}
		return condition(hivev1.ClusterPoolInventoryValid, corev1.ConditionFalse, hivev1.ReasonInvalid, message)
	}
	return condition(hivev1.ClusterPoolInventoryValid, corev1.ConditionTrue, hivev1.ReasonValid, "All entries of the inventory can be used")
}

func (r report) deletionPossible() hivev1.Condition {
	kind := hivev1.ClusterPoolDeletionPossible
	if !r.deleting() {
		return condition(kind, corev1.ConditionUnknown, hivev1.ReasonInitialized, "The pool is not being deleted")
	}
	var names []string
	for _, m := range r.fleet.members {
		names = append(names, m.Name)
	}
	if len(names) == 0 {
		return condition(kind, corev1.ConditionTrue, hivev1.ReasonDeletionPossible, "No ClusterDeployments pending cleanup")
	}
	slices.Sort(names)
	return condition(kind, corev1.ConditionFalse, hivev1.ReasonClusterDeploymentsPendingCleanup,
		"These clusters have to go first, and claimed ones have to be released: "+strings.Join(names, ", "))
}

func (r report) provisioningHealthy() hivev1.Condition {
	kind := hivev1.ClusterPoolProvisioningHealthy
	n := r.health.ConsecutiveFailures
	if n == 0 {
		return condition(kind, corev1.ConditionTrue, hivev1.ReasonHealthy, "No cluster broke since one was last installed")
	}
	reason := hivev1.ReasonBackingOff
	if n >= breakerThreshold {
		reason = hivev1.ReasonCircuitBreakerOpen
	}
	return condition(kind, corev1.ConditionFalse, reason, fmt.Sprintf("%d clusters in a row broke, the last, %s, for the reason %s; status.provisioning says when the next is tried",
		n, r.health.LastFailureCluster, r.health.LastFailureReason))
}

func (r report) ready() hivev1.Condition {
	reason, obstacle := r.obstacle()
	installed := r.fleet.count(standby, ready, withheld)
	status := corev1.ConditionFalse
	if reason == hivev1.ReasonPoolFilled {
		status = corev1.ConditionTrue
	}
	sentences := append([]string{fmt.Sprintf("%d of %d clusters are installed", installed, r.quota.target()), obstacle}, r.notes()...)
	sentences = slices.DeleteFunc(sentences, func(s string) bool { return s == "" })
	return condition(hivev1.ClusterPoolReady, status, reason, strings.Join(sentences, "; "))
}

// obstacle says why the pool does not have what its spec asks for.
func (r report) obstacle() (reason, sentence string) {
	lacking := r.quota.target() - r.fleet.countUnclaimed()
	surplus := -lacking - r.quota.surging()
	switch {
	case r.deleting():
		return hivev1.ReasonPoolDeleting, "the pool is being deleted"
	case lacking > 0:
		return r.obstacleToCreation(lacking)
	case surplus > 0 && r.quota.frozen():
		return hivev1.ReasonPoolFrozen, "maxConcurrent is 0, so that none is deleted"
	case surplus > 0 && surplus <= r.countKept():
		return hivev1.ReasonPoolProtected, fmt.Sprintf("%d too many are protected from deletion", surplus)
	case surplus > 0:
		return hivev1.ReasonPoolScalingDown, fmt.Sprintf("%d too many are being deleted", surplus)
	case r.fleet.count(installing, broken) > 0:
		return hivev1.ReasonPoolFilling, fmt.Sprintf("%d are installing, %d are broken", r.fleet.count(installing), r.fleet.count(broken))
	}
	return hivev1.ReasonPoolFilled, ""
}

func (r report) obstacleToCreation(lacking int) (reason, sentence string) {
	switch {
	case len(r.in.Missing) > 0:
		return hivev1.ReasonMissing, "none is created before the missing dependencies are there"
	case r.quota.frozen():
		return hivev1.ReasonPoolFrozen, "maxConcurrent is 0, so that none is created"
	case r.quota.capacity() == 0:
		return hivev1.ReasonMaxCapacity, "the pool has maxSize clusters, claimed ones included"
	case r.inventory.unusable() != "":
		return hivev1.ReasonInvalid, r.inventory.unusable()
	case r.inventory.exhausted():
		return hivev1.ReasonInventoryExhausted, "every name of the inventory is taken"
	case r.health.breaker() != hivev1.CircuitBreakerClosed:
		return hivev1.ReasonCircuitBreakerOpen, "so many broke in a row that one at a time is tried"
	case r.health.ConsecutiveFailures > 0 && r.health.allows(r.fleet.count(installing)) == 0:
		return hivev1.ReasonBackingOff, "the next is created when status.provisioning.nextAttemptTime is reached"
	}
	return hivev1.ReasonPoolFilling, fmt.Sprintf("%d more are to be created", lacking)
}
