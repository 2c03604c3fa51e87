// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package machinepool

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	agentctl "github.com/muster-io/muster/agent-service/internal/controller/agent"
	"github.com/muster-io/muster/agent-service/internal/controller/servicewatch"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
)

const (
	// agentsIndex finds MachinePools by the namespace of their Agents, clusterIndex by their ClusterDeployment; poolIndex finds Agents by the MachinePool that has them.
	agentsIndex  = "machinepool.agents"
	clusterIndex = "machinepool.cluster"
	poolIndex    = "agent.machinepool"
	// together is how long Agents that became free are collected before pools that lack machines are looked at, and said is how long changes of the
	// machines of a pool are.
	together = 100 * time.Millisecond
	said     = 500 * time.Millisecond
	// counted is how soon a pool that lacks machines counts again why, when an Agent changed that it cannot have.
	counted = 2 * time.Second
	// asked is how long the service may take to know a cluster before a pool says that it waits for that.
	asked = 2 * time.Second
	// workers is how many pools are looked at at the same time.
	workers = 10
)

// Index adds the indexes that the controller looks by.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	for name, extract := range map[string]func(*hivev1.MachinePool) string{
		agentsIndex: agentNamespace,
		clusterIndex: func(pool *hivev1.MachinePool) string {
			return client.ObjectKey{Namespace: pool.Namespace, Name: pool.Spec.ClusterDeploymentRef.Name}.String()
		},
	} {
		err := indexer.IndexField(ctx, &hivev1.MachinePool{}, name, func(object client.Object) []string {
			if pool, ok := object.(*hivev1.MachinePool); ok && pool.Spec.Platform.AgentBareMetal != nil {
				return []string{extract(pool)}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("indexing MachinePools: %w", err)
		}
	}
	err := indexer.IndexField(ctx, &agentv1.Agent{}, poolIndex, func(object client.Object) []string {
		if pool := takenBy(object); pool.Name != "" {
			return []string{pool.String()}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("indexing Agents by their MachinePools: %w", err)
	}
	return nil
}

// SetupWithManager registers the controller. Nodes are clusters whose nodes changed, as ClusterDeployments.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, nodes <-chan event.GenericEvent) error {
	ofCluster := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		return r.list(ctx, client.MatchingFields{clusterIndex: client.ObjectKeyFromObject(object).String()}, nil)
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("machinepool").
		For(&hivev1.MachinePool{}, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&hivev1.ClusterDeployment{}, ofCluster, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&agentv1.InfraEnv{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
			return r.list(ctx, client.MatchingFields{agentsIndex: object.GetNamespace()}, nil)
		}), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&hiveextv1.AgentClusterInstall{}, handler.EnqueueRequestsFromMapFunc(r.ofInstall), builder.WithPredicates(syncedOtherwise)).
		Watches(&agentv1.Agent{}, r.ofAgents()).
		WatchesRawSource(source.Channel(nodes, ofCluster)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: servicewatch.RateLimiter[ctrl.Request]()}).
		Complete(tracing.ReconcilerOf("machinepool", outcome.Reconciler[ctrl.Request](r), tracing.OfMachinePool(r.Client)))
}

// ofInstall are the pools of the cluster of an AgentClusterInstall that lack machines: they may wait until the service knows the cluster.
func (r *Reconciler) ofInstall(ctx context.Context, object client.Object) []reconcile.Request {
	install, ok := object.(*hiveextv1.AgentClusterInstall)
	if !ok {
		return nil
	}
	cluster := client.ObjectKey{Namespace: install.Namespace, Name: install.Spec.ClusterDeploymentRef.Name}
	return r.list(ctx, client.MatchingFields{clusterIndex: cluster.String()}, lacks)
}

// syncedOtherwise lets through that an AgentClusterInstall says another thing about whether it is applied.
var syncedOtherwise = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*hiveextv1.AgentClusterInstall)
	after, ok2 := e.ObjectNew.(*hiveextv1.AgentClusterInstall)
	if !ok || !ok2 {
		return false
	}
	was, is := hivev1.FindCondition(before.Status.Conditions, agentv1.ConditionSpecSynced), hivev1.FindCondition(after.Status.Conditions, agentv1.ConditionSpecSynced)
	return is != nil && (was == nil || was.Status != is.Status || was.Message != is.Message)
}}

// lacks is true for a pool that has fewer machines than it wants, as far as it says.
func lacks(pool *hivev1.MachinePool) bool {
	return !hivev1.IsConditionTrue(pool.Status.Conditions, hivev1.MachinePoolMachinesAvailable)
}

// list are the pools of a choice, those that wanted lets through where it is not nil.
func (r *Reconciler) list(ctx context.Context, choice client.ListOption, wanted func(*hivev1.MachinePool) bool) []reconcile.Request {
	var found hivev1.MachinePoolList
	if err := r.Client.List(ctx, &found, choice, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range found.Items {
		if wanted == nil || wanted(&found.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&found.Items[i])})
		}
	}
	return requests
}

// ofAgents enqueues the pool that has an Agent, and pools that lack machines, many Agents together.
func (r *Reconciler) ofAgents() handler.EventHandler {
	later := func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request], agents ...client.Object) {
		mine := map[client.ObjectKey]bool{}
		for _, agent := range agents {
			if pool := takenBy(agent); pool.Name != "" {
				mine[pool] = true
				queue.AddAfter(reconcile.Request{NamespacedName: pool}, said)
			}
		}
		others := func(pool *hivev1.MachinePool) bool { return !mine[client.ObjectKeyFromObject(pool)] && lacks(pool) }
		soon := counted
		if is, ok := agents[len(agents)-1].(*agentv1.Agent); ok && agentctl.ClusterKey(is).Name == "" {
			soon = together
		}
		for _, request := range r.list(ctx, client.MatchingFields{agentsIndex: agents[0].GetNamespace()}, others) {
			queue.AddAfter(request, soon)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			later(ctx, queue, e.Object)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			later(ctx, queue, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			r.written.Forget(client.ObjectKeyFromObject(e.Object))
			later(ctx, queue, e.Object)
		},
	}
}
