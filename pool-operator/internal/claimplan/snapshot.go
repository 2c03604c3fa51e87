// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package claimplan

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
)

// Snapshot is what one claim's next step depends on. [Plan] does not change it.
type Snapshot struct {
	// Claim is the claim in question, never nil.
	Claim *hivev1.ClusterClaim
	// Pool is the pool that the claim names; nil when there is none.
	Pool *hivev1.ClusterPool
	// Own is the ClusterDeployment in the namespace that spec.namespace names; nil when there is none, or nothing is named.
	Own *Cluster
	// Verified says that Own was read from the API server in this pass. Before, the plan concludes nothing from the absence of a cluster or from its belonging
	// to another claim.
	Verified bool
	// UIDDropped says that the API server did not keep the UID of the claim in Own in this pass: its definition, such as that of Hive, does not have the field.
	UIDDropped bool
	// Lost says that the claim lost its cluster to another claim in this pass.
	Lost bool
	// Clusters are the pool's clusters. They are not needed, and may be left out, when Own records the claim.
	Clusters []Cluster
	// Claims are all claims of the pool, this one included, in any order. They may be left out together with Clusters.
	Claims []Waiter
	// Role and Binding are those of the claim's subjects in the cluster's namespace; nil when there is none.
	Role    *rbacv1.Role
	Binding *rbacv1.RoleBinding
}

// Waiter is a claim of the pool, as far as the queue is concerned.
type Waiter = poolview.Claim

// WaiterOf reads a claim.
func WaiterOf(claim *hivev1.ClusterClaim) Waiter { return poolview.ClaimOf(claim) }

// Cluster is a ClusterDeployment, as far as claims are concerned.
type Cluster = poolview.Cluster

// ClusterOf reads a ClusterDeployment.
func ClusterOf(cd *hivev1.ClusterDeployment) Cluster { return poolview.ClusterOf(cd) }

func hasFinalizer(claim *hivev1.ClusterClaim) bool {
	return slices.Contains(claim.Finalizers, hivev1.FinalizerClusterClaim)
}
