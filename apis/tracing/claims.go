// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// OfClaim puts reconciles of a ClusterClaim in its trace until its cluster runs; later ones have traces of their own, so that a trace ends. The reader is a cache.
func OfClaim(reader client.Reader) Of[reconcile.Request] {
	return func(ctx context.Context, request reconcile.Request) types.UID {
		var claim hivev1.ClusterClaim
		if reader.Get(ctx, request.NamespacedName, &claim) != nil || hivev1.IsConditionTrue(claim.Status.Conditions, hivev1.ClusterClaimRunning) {
			return ""
		}
		return claim.UID
	}
}

// OfClusterDeployment puts reconciles of a ClusterDeployment in the trace of the claim that has it until it runs. The reader is a cache.
func OfClusterDeployment(reader client.Reader) Of[reconcile.Request] {
	return func(ctx context.Context, request reconcile.Request) types.UID {
		var cluster hivev1.ClusterDeployment
		if reader.Get(ctx, request.NamespacedName, &cluster) != nil || cluster.Spec.ClusterPoolRef == nil || cluster.Status.PowerState == hivev1.PowerStateRunning {
			return ""
		}
		return cluster.Spec.ClusterPoolRef.ClaimUID
	}
}

// OfMachinePool puts reconciles of a MachinePool of agentBareMetal in the trace of the claim that has its cluster until the cluster runs. A cluster of a ClusterPool waits for
// the MachinePools that its pool made until their nodes were Ready once, whatever its status says while they are being bound. The reader is a cache.
func OfMachinePool(reader client.Reader) Of[reconcile.Request] {
	return func(ctx context.Context, request reconcile.Request) types.UID {
		var pool hivev1.MachinePool
		if reader.Get(ctx, request.NamespacedName, &pool) != nil || pool.Spec.Platform.AgentBareMetal == nil {
			return ""
		}
		var cluster hivev1.ClusterDeployment
		key := client.ObjectKey{Namespace: pool.Namespace, Name: pool.Spec.ClusterDeploymentRef.Name}
		if reader.Get(ctx, key, &cluster) != nil || cluster.Spec.ClusterPoolRef == nil {
			return ""
		}
		_, ofPool := pool.Labels[hivev1.LabelClusterPoolName]
		if awaited := ofPool && pool.Status.FirstReadyTime == nil; !awaited && cluster.Status.PowerState == hivev1.PowerStateRunning {
			return ""
		}
		return cluster.Spec.ClusterPoolRef.ClaimUID
	}
}
