// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhostdiscovery

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
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

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
)

// coalesce is how long changes of hosts are collected before the resources look again: each look reads all machines.
const coalesce = 300 * time.Millisecond

// passTimeout bounds one pass, which waits for the cache to show the writes of the one before.
const passTimeout = 2 * time.Minute

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// SetupWithManager makes the manager call the reconciler: for changes of resources, which are the order in which all others choose, for news of pollers, and for changes of
// hosts and reservations that matter to any resource.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("baremetalhostdiscovery").
		For(&metal3v1.BareMetalHostDiscovery{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&metal3v1.BareMetalHostDiscovery{}, r.everyone(), builder.WithPredicates(orderMatters())).
		WatchesRawSource(source.TypedChannel(r.wake, handler.TypedFuncs[*metal3v1.BareMetalHostDiscovery, reconcile.Request]{
			GenericFunc: func(_ context.Context, e event.TypedGenericEvent[*metal3v1.BareMetalHostDiscovery], q queue) {
				q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)})
			},
		})).
		Watches(&metal3v1.BareMetalHost{}, r.onHosts(), builder.WithPredicates(hostMatters())).
		Watches(&coordinationv1.Lease{}, r.everyone(), builder.WithPredicates(reservationMatters())).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, ReconciliationTimeout: passTimeout}).
		Complete(tracing.Reconciler("baremetalhostdiscovery", outcome.Reconciler[ctrl.Request](r)))
}

// everyone makes all resources look again, soon.
func (r *Reconciler) everyone() handler.EventHandler {
	all := func(q queue) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for ref := range r.memory {
			q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName(ref)}, coalesce)
		}
	}
	return handler.Funcs{
		CreateFunc:  func(_ context.Context, _ event.CreateEvent, q queue) { all(q) },
		UpdateFunc:  func(_ context.Context, _ event.UpdateEvent, q queue) { all(q) },
		DeleteFunc:  func(_ context.Context, _ event.DeleteEvent, q queue) { all(q) },
		GenericFunc: func(_ context.Context, _ event.GenericEvent, q queue) { all(q) },
	}
}

// onHosts makes all resources look again, and notes which hosts leave.
func (r *Reconciler) onHosts() handler.EventHandler {
	all := r.everyone()
	return handler.Funcs{
		CreateFunc: all.Create,
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			r.leaves(e.ObjectNew, false)
			all.Update(ctx, e, q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			r.leaves(e.Object, true)
			all.Delete(ctx, e, q)
		},
		GenericFunc: all.Generic,
	}
}

// orderMatters passes what changes which resource takes a machine: a new one, another selector or pause, credentials that are refused or
// not any more, and the end of a resource.
func orderMatters() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*metal3v1.BareMetalHostDiscovery)
			after, ok2 := e.ObjectNew.(*metal3v1.BareMetalHostDiscovery)
			return !ok1 || !ok2 || before.Generation != after.Generation || Refused(before) != Refused(after)
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// hostMatters passes changes of what machines are matched by. The hosts that discovery makes itself do not matter: the pass that
// makes them counts them.
func hostMatters() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return e.Object.GetLabels()[metal3v1.DiscoveredByLabel] == "" },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*metal3v1.BareMetalHost)
			after, ok2 := e.ObjectNew.(*metal3v1.BareMetalHost)
			if !ok1 || !ok2 {
				return true
			}
			a, b := hostOf(before), hostOf(after)
			return a.NodeID != b.NodeID || a.BootMAC != b.BootMAC || len(a.MACs) != len(b.MACs) && b.Resource == "" || a.BMC != b.BMC || a.BMCKey != b.BMCKey ||
				a.Resource != b.Resource || a.Going != b.Going || a.Held != b.Held
		},
	}
}

// reservationMatters passes what makes a machine ignored, or not any more.
func reservationMatters() predicate.Predicate {
	ignored := func(o client.Object) bool { return o.GetLabels()[metal3v1.IgnoredLabel] == "true" }
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return ignored(e.Object) },
		UpdateFunc:  func(e event.UpdateEvent) bool { return ignored(e.ObjectOld) != ignored(e.ObjectNew) },
		DeleteFunc:  func(e event.DeleteEvent) bool { return ignored(e.Object) },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}
