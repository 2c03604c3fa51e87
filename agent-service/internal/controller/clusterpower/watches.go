// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpower

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	agentctl "github.com/muster-io/muster/agent-service/internal/controller/agent"
	"github.com/muster-io/muster/agent-service/internal/controller/precedence"
	"github.com/muster-io/muster/agent-service/internal/controller/servicewatch"
	"github.com/muster-io/muster/agent-service/internal/powerplan"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
)

const (
	// hostIndex finds Agents by the name of the BareMetalHost that they are linked to.
	hostIndex = "agent.baremetalhost"
	// hibernatesIndex finds BareMetalHosts by the cluster that they were switched off with.
	hibernatesIndex = "baremetalhost.hibernates"
	// workers is how many clusters are looked at at the same time.
	workers = 4
)

// Index adds the indexes that the controller looks by, beside those of Agents.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	for _, index := range []struct {
		object  client.Object
		name    string
		extract func(client.Object) string
	}{
		{&agentv1.Agent{}, hostIndex, func(o client.Object) string { return o.GetLabels()[agentv1.BareMetalHostLabel] }},
		{&metal3v1.BareMetalHost{}, hibernatesIndex, func(o client.Object) string { return o.GetAnnotations()[agentv1.BMHHibernatesAnnotation] }},
	} {
		err := indexer.IndexField(ctx, index.object, index.name, func(object client.Object) []string {
			if value := index.extract(object); value != "" {
				return []string{value}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("indexing by %s: %w", index.name, err)
		}
	}
	return nil
}

// SetupWithManager registers the controller. Nodes are clusters whose nodes changed, as ClusterDeployments.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, nodes <-chan event.GenericEvent) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("clusterpower").
		For(&hivev1.ClusterDeployment{}, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, saysOtherwise))).
		Watches(&agentv1.Agent{}, handler.EnqueueRequestsFromMapFunc(ofAgent)).
		Watches(&metal3v1.BareMetalHost{}, handler.EnqueueRequestsFromMapFunc(r.ofHost)).
		WatchesRawSource(source.Channel(nodes, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: servicewatch.RateLimiter[ctrl.Request]()}).
		Complete(precedence.Yield(r.Order, tracing.ReconcilerOf("clusterpower", outcome.Reconciler[ctrl.Request](r), tracing.OfClusterDeployment(r.Client)), nil))
}

// saysOtherwise lets through changes of what is said of machines: a pass may have seen the cluster as it was before it was said.
var saysOtherwise = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*hivev1.ClusterDeployment)
	after, ok2 := e.ObjectNew.(*hivev1.ClusterDeployment)
	return ok && ok2 && !equality.Semantic.DeepEqual(powerplan.Said(before), powerplan.Said(after))
}}

// ofAgent is the cluster of an Agent. It is called with an Agent as it was, too.
func ofAgent(_ context.Context, object client.Object) []ctrl.Request {
	agent, ok := object.(*agentv1.Agent)
	if !ok || agentctl.ClusterKey(agent).Name == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: agentctl.ClusterKey(agent)}}
}

// ofHost are the clusters that a host was switched off with, and whose machine it is.
func (r *Reconciler) ofHost(ctx context.Context, object client.Object) []ctrl.Request {
	var requests []ctrl.Request
	if namespace, name, ok := strings.Cut(object.GetAnnotations()[agentv1.BMHHibernatesAnnotation], "/"); ok && name != "" {
		requests = append(requests, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	}
	agents, err := r.linked(ctx, client.ObjectKeyFromObject(object))
	if err != nil {
		return requests // it reads from memory
	}
	for i := range agents {
		requests = append(requests, ofAgent(ctx, &agents[i])...)
	}
	return requests
}
