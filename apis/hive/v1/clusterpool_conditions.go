// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

// Condition types of a ClusterPool.
const (
	// ClusterPoolReady sums up: True when the pool has the clusters that its spec asks for.
	ClusterPoolReady = "Ready"
	// ClusterPoolMissingDependencies is True when something that new clusters need is not there.
	ClusterPoolMissingDependencies = "MissingDependencies"
	// ClusterPoolCapacityAvailable is False when the pool may not have more clusters.
	ClusterPoolCapacityAvailable = "CapacityAvailable"
	// ClusterPoolAllClustersCurrent is False when unclaimed clusters were made from an earlier version of the spec.
	ClusterPoolAllClustersCurrent = "AllClustersCurrent"
	// ClusterPoolInventoryValid is False when an entry of the inventory cannot be used.
	ClusterPoolInventoryValid = "InventoryValid"
	// ClusterPoolDeletionPossible is False when a pool that is being deleted still has clusters.
	ClusterPoolDeletionPossible = "DeletionPossible"
	// ClusterPoolProvisioningHealthy is False when clusters keep breaking and creation is slowed down or paused.
	ClusterPoolProvisioningHealthy = "ProvisioningHealthy"
)

// Reasons of ClusterPoolReady. The others are those of the condition that is in the way: ReasonMissing, ReasonMaxCapacity, ReasonInvalid, ReasonInventoryExhausted, ReasonBackingOff, ReasonCircuitBreakerOpen.
const (
	// ReasonPoolFilled: as many unclaimed clusters are installed as the spec asks for.
	ReasonPoolFilled = "Filled"
	// ReasonPoolFilling: clusters are being created or installed.
	ReasonPoolFilling = "Filling"
	// ReasonPoolScalingDown: there are more clusters than the spec asks for, and they are being deleted.
	ReasonPoolScalingDown = "ScalingDown"
	// ReasonPoolProtected: there are more clusters than the spec asks for, and those are protected from deletion; the message names them.
	ReasonPoolProtected = "Protected"
	// ReasonPoolFrozen: maxConcurrent is 0, so that nothing is created or deleted.
	ReasonPoolFrozen = "Frozen"
	// ReasonPoolDeleting: the pool is being deleted.
	ReasonPoolDeleting = "Deleting"
)

// Reasons of ClusterPoolMissingDependencies.
const (
	// ReasonMissing: something is missing; the message lists what.
	ReasonMissing = "Missing"
	// ReasonVerified: everything that new clusters need is there.
	ReasonVerified = "Verified"
)

// Reasons of ClusterPoolCapacityAvailable.
const (
	// ReasonAvailable: more clusters may be added.
	ReasonAvailable = "Available"
	// ReasonMaxCapacity: the pool has maxSize clusters.
	ReasonMaxCapacity = "MaxCapacity"
	// ReasonInventoryExhausted: every name of the inventory is taken.
	ReasonInventoryExhausted = "InventoryExhausted"
)

// Reasons of ClusterPoolAllClustersCurrent.
const (
	// ReasonClusterDeploymentsCurrent: all unclaimed clusters are of the pool's present version.
	ReasonClusterDeploymentsCurrent = "ClusterDeploymentsCurrent"
	// ReasonSomeClusterDeploymentsStale: some are of an earlier version; the message names them.
	ReasonSomeClusterDeploymentsStale = "SomeClusterDeploymentsStale"
	// ReasonSomeClusterDeploymentsUnknown: some do not say which version they are of.
	ReasonSomeClusterDeploymentsUnknown = "SomeClusterDeploymentsUnknown"
)

// Reasons of ClusterPoolInventoryValid.
const (
	// ReasonValid: every entry of the inventory can be used.
	ReasonValid = "Valid"
	// ReasonInvalid: some cannot; the message says which and why.
	ReasonInvalid = "Invalid"
)

// Reasons of ClusterPoolDeletionPossible.
const (
	// ReasonDeletionPossible: no cluster keeps the pool from being deleted.
	ReasonDeletionPossible = "DeletionPossible"
	// ReasonClusterDeploymentsPendingCleanup: clusters have to go first; the message names them.
	ReasonClusterDeploymentsPendingCleanup = "ClusterDeploymentsPendingCleanup"
)

// Reasons of ClusterPoolProvisioningHealthy.
const (
	// ReasonHealthy: the last cluster was installed, or none was tried yet.
	ReasonHealthy = "Healthy"
	// ReasonBackingOff: the last clusters broke; the next is created at status.provisioning.nextAttemptTime.
	ReasonBackingOff = "BackingOff"
	// ReasonCircuitBreakerOpen: so many clusters broke in a row that creation pauses and then a single one is tried.
	ReasonCircuitBreakerOpen = "CircuitBreakerOpen"
)
