// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

// Condition types of a ClusterClaim.
const (
	// ClusterClaimPending is True until the claim has a cluster.
	ClusterClaimPending = "Pending"
	// ClusterClaimRunning is True while the claim's cluster runs.
	ClusterClaimRunning = "ClusterRunning"
	// ClusterClaimReady is True while the claim has a cluster and that runs: its subjects can use it. Reason and message are those of
	// the condition that is in the way, else of ClusterClaimRunning.
	ClusterClaimReady = "Ready"
)

// Reasons of ClusterClaimPending.
const (
	// ReasonNoClusters: no cluster is free; status.waitingFor and the message say what the claim waits for.
	ReasonNoClusters = "NoClusters"
	// ReasonPoolNotFound: there is no pool of that name.
	ReasonPoolNotFound = "PoolNotFound"
	// ReasonClaimPoolDeleting: the pool is being deleted and gives out no more clusters.
	ReasonClaimPoolDeleting = "PoolDeleting"
	// ReasonQueueTimedOut: spec.queueTimeout is over; the claim left the queue.
	ReasonQueueTimedOut = "QueueTimedOut"
	// ReasonClusterAssigned: the claim names a cluster that does not record the claim yet.
	ReasonClusterAssigned = "ClusterAssigned"
	// ReasonClusterClaimed: the cluster records the claim. The condition is False.
	ReasonClusterClaimed = "ClusterClaimed"
	// ReasonAssignmentConflict: the cluster that spec.namespace names is not this claim's.
	ReasonAssignmentConflict = "AssignmentConflict"
)

// Reasons of ClusterClaimRunning.
const (
	// ReasonRunning: the cluster runs. The condition is True.
	ReasonRunning = "Running"
	// ReasonResuming: the cluster is not running yet.
	ReasonResuming = "Resuming"
	// ReasonHibernating: the cluster was put to sleep after it was claimed.
	ReasonHibernating = "Hibernating"
	// ReasonClusterDeleting: the cluster is being deleted.
	ReasonClusterDeleting = "ClusterDeleting"
	// ReasonClusterDeleted: the cluster is gone.
	ReasonClusterDeleted = "ClusterDeleted"
)
