// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentclusterinstall

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

	"github.com/muster-io/muster/agent-service/internal/controller/precedence"
	"github.com/muster-io/muster/agent-service/internal/controller/servicewatch"
	"github.com/muster-io/muster/agent-service/internal/domain"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
)

// together is how long changes of hosts are collected before a cluster is looked at.
const together = 500 * time.Millisecond

const (
	deploymentIndex = "agentclusterinstall.deployment"
	imageSetIndex   = "agentclusterinstall.imageset"
)

// Index adds the indexes that the controller looks by.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	for name, extract := range map[string]func(*hiveextv1.AgentClusterInstall) string{
		deploymentIndex: func(install *hiveextv1.AgentClusterInstall) string { return deploymentKey(install).String() },
		imageSetIndex: func(install *hiveextv1.AgentClusterInstall) string {
			if install.Spec.ImageSetRef == nil {
				return ""
			}
			return install.Spec.ImageSetRef.Name
		},
	} {
		err := indexer.IndexField(ctx, &hiveextv1.AgentClusterInstall{}, name, func(object client.Object) []string {
			install, ok := object.(*hiveextv1.AgentClusterInstall)
			if !ok {
				return nil
			}
			return []string{extract(install)}
		})
		if err != nil {
			return fmt.Errorf("indexing AgentClusterInstalls: %w", err)
		}
	}
	return nil
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("agentclusterinstall").
		For(&hiveextv1.AgentClusterInstall{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&hivev1.ClusterDeployment{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
			return r.list(ctx, deploymentIndex, client.ObjectKeyFromObject(object).String())
		}), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&hivev1.ClusterImageSet{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
			return r.list(ctx, imageSetIndex, object.GetName())
		}), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&agentv1.Agent{}, r.ofAgents()).
		WatchesRawSource(servicewatch.Source[ctrl.Request]{Service: r.Service, Concerns: r.concerned}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 10, RateLimiter: servicewatch.RateLimiter[ctrl.Request]()}).
		Complete(precedence.Yield(r.Order, tracing.Reconciler("agentclusterinstall", outcome.Reconciler[ctrl.Request](r)), r.cannotWait))
}

// cannotWait is true for an AgentClusterInstall that nothing was said of yet: MachinePools bind no machine to a cluster that the service does not know.
func (r *Reconciler) cannotWait(ctx context.Context, request ctrl.Request) bool {
	install := &hiveextv1.AgentClusterInstall{}
	err := r.Client.Get(ctx, request.NamespacedName, install)
	return err == nil && hivev1.FindCondition(install.Status.Conditions, agentv1.ConditionSpecSynced) == nil
}

func (r *Reconciler) list(ctx context.Context, index, value string) []reconcile.Request {
	var found hiveextv1.AgentClusterInstallList
	if err := r.Client.List(ctx, &found, client.MatchingFields{index: value}); err != nil {
		return nil
	}
	requests := make([]reconcile.Request, 0, len(found.Items))
	for i := range found.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&found.Items[i])})
	}
	return requests
}

// ofAgents enqueues the cluster of an Agent when the Agent changes, many Agents together.
func (r *Reconciler) ofAgents() handler.EventHandler {
	later := func(ctx context.Context, object client.Object, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		agent, ok := object.(*agentv1.Agent)
		if !ok || agent.Spec.ClusterDeploymentName == nil {
			return
		}
		namespace := agent.Spec.ClusterDeploymentName.Namespace
		if namespace == "" {
			namespace = agent.Namespace
		}
		key := client.ObjectKey{Namespace: namespace, Name: agent.Spec.ClusterDeploymentName.Name}
		for _, request := range r.list(ctx, deploymentIndex, key.String()) {
			queue.AddAfter(request, together)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			later(ctx, e.Object, queue)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			later(ctx, e.ObjectOld, queue)
			later(ctx, e.ObjectNew, queue)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			later(ctx, e.Object, queue)
		},
	}
}

// concerned follows clusters of the service.
func (r *Reconciler) concerned(ctx context.Context, change domain.Change) []reconcile.Request {
	if change.Kind != domain.ClusterChanged {
		return nil
	}
	cluster, err := r.Service.GetCluster(ctx, domain.Kubernetes, change.ID)
	if err != nil || cluster.Kube == (domain.KubeRef{}) {
		return nil
	}
	return r.list(ctx, deploymentIndex, client.ObjectKey{Namespace: cluster.Kube.Namespace, Name: cluster.Kube.Name}.String())
}
