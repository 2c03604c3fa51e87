// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/hostedplan"
)

// machinePools reads the MachinePools of a cluster that takes nodes. Of a cluster that is being deleted they are read from the API server: its machines are released while it is
// there, whatever the cache knows.
func (r *Reconciler) machinePools(ctx context.Context, cluster *hivev1.ClusterDeployment) ([]hostedplan.MachinePool, error) {
	reader := r.MachinePools
	if cluster.DeletionTimestamp != nil {
		reader = r.Live
	}
	if reader == nil || nodesOf(cluster) == nil {
		return nil, nil
	}
	var list hivev1.MachinePoolList
	err := reader.List(ctx, &list, client.InNamespace(cluster.Namespace))
	if meta.IsNoMatchError(err) {
		return nil, nil // their definition is not installed
	}
	if err != nil {
		return nil, fmt.Errorf("listing MachinePools of hosted cluster %s: %w", refOf(cluster), err)
	}
	var pools []hostedplan.MachinePool
	for i := range list.Items {
		if pool := &list.Items[i]; pool.Spec.Platform.AgentBareMetal != nil && pool.Spec.ClusterDeploymentRef.Name == cluster.Name {
			pools = append(pools, machinePool(cluster, pool))
		}
	}
	return pools, nil
}

// machinePool is a MachinePool as a plan sees it. A cluster of a ClusterPool waits for those that the pool made, and of these not for the ones that wait for a claim.
func machinePool(cluster *hivev1.ClusterDeployment, pool *hivev1.MachinePool) hostedplan.MachinePool {
	_, ofPool := pool.Labels[hivev1.LabelClusterPoolName]
	ref := cluster.Spec.ClusterPoolRef
	waitsForClaim := pool.Spec.Platform.AgentBareMetal.BindAt == hivev1.BindAtClaim && ref != nil && ref.ClaimName == ""
	seen := hostedplan.MachinePool{
		Name: pool.Name, Deleting: pool.DeletionTimestamp != nil, Message: "no controller has looked at it",
		Awaited: ofPool && !waitsForClaim && pool.Status.FirstReadyTime == nil, WaitsForClaim: ofPool && waitsForClaim,
	}
	if ready := hivev1.FindCondition(pool.Status.Conditions, hivev1.MachinePoolReady); ready != nil {
		seen.Message = ready.Message
	}
	return seen
}

// deleteMachinePools deletes MachinePools, whose machines are then released.
func (r *Reconciler) deleteMachinePools(ctx context.Context, cluster *hivev1.ClusterDeployment, names []string) error {
	for _, name := range names {
		pool := &hivev1.MachinePool{}
		pool.Namespace, pool.Name = cluster.Namespace, name
		if err := client.IgnoreNotFound(r.Client.Delete(ctx, pool)); err != nil {
			return fmt.Errorf("deleting MachinePool %s of hosted cluster %s: %w", name, refOf(cluster), err)
		}
	}
	return nil
}

// ofMachinePool enqueues the cluster of a MachinePool.
func ofMachinePool() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		pool, ok := object.(*hivev1.MachinePool)
		if !ok || pool.Spec.Platform.AgentBareMetal == nil {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: pool.Namespace, Name: pool.Spec.ClusterDeploymentRef.Name}}}
	})
}
