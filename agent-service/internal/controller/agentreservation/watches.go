// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentreservation

import (
	"context"
	"slices"
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

	"github.com/muster-io/muster/agent-service/internal/controller/servicewatch"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
)

// together is how long changes of Agents are collected before reservations are looked at.
const together = 200 * time.Millisecond

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("agentreservation").
		For(&agentv1.AgentReservation{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&agentv1.Agent{}, r.ofAgents()).
		WithOptions(controller.Options{RateLimiter: servicewatch.RateLimiter[ctrl.Request]()}).
		Complete(tracing.Reconciler("agentreservation", outcome.Reconciler[ctrl.Request](r)))
}

// ofAgents enqueues reservations that have an Agent, and those that look for machines, many Agents together.
func (r *Reconciler) ofAgents() handler.EventHandler {
	later := func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request], agent client.Object) {
		var found agentv1.AgentReservationList
		if err := r.Client.List(ctx, &found, client.InNamespace(agent.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
			return
		}
		for i := range found.Items {
			if said := &found.Items[i].Status; said.ReservedUntil == nil || slices.Contains(said.Agents, agent.GetName()) {
				queue.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&found.Items[i])}, together)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			later(ctx, queue, e.Object)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			later(ctx, queue, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			later(ctx, queue, e.Object)
		},
	}
}
