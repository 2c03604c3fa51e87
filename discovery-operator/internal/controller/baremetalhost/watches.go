// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"strings"
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

// passTimeout bounds one pass, which waits for the cache to show the writes of the one before. A registration has about 15 requests to Ironic, each of which may take half a minute;
// what a pass has found and made is written at its end.
const passTimeout = 10 * time.Minute

// Index makes the cache find reservations by the host that they name.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &coordinationv1.Lease{}, holderIndex, func(o client.Object) []string {
		if host := o.GetAnnotations()[metal3v1.HostAnnotation]; host != "" {
			return []string{host}
		}
		return nil
	})
	return wrap(err, "indexing reservations")
}

// SetupWithManager makes the manager call the reconciler: for changes of hosts, and for reservations, so that one whose host went
// while no operator ran is released; for hosts whose turn it is at their Ironic; and for resources whose Ironic goes or comes back. The reconciler that is called is r, or stands in front of it.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, called reconcile.Reconciler) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("baremetalhost").
		For(&metal3v1.BareMetalHost{}, builder.WithPredicates(withStatus())).
		Watches(&coordinationv1.Lease{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			namespace, name, ok := strings.Cut(o.GetAnnotations()[metal3v1.HostAnnotation], "/")
			if !ok {
				return nil
			}
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
		})).
		Watches(&metal3v1.BareMetalHostDiscovery{}, r.onResources(), builder.WithPredicates(endpointMatters())).
		WatchesRawSource(source.TypedChannel(r.endpoints.wake, handler.TypedFuncs[*metal3v1.BareMetalHost, reconcile.Request]{
			GenericFunc: func(_ context.Context, e event.TypedGenericEvent[*metal3v1.BareMetalHost],
				q workqueue.TypedRateLimitingInterface[reconcile.Request],
			) {
				q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)})
			},
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, ReconciliationTimeout: passTimeout}).
		Complete(tracing.Reconciler("baremetalhost", outcome.Reconciler[ctrl.Request](called)))
}

// withStatus drops events of hosts that discovery is making: they wait for their status, which discovery writes next.
func withStatus() predicate.Predicate {
	passes := func(o client.Object) bool {
		h, ok := o.(*metal3v1.BareMetalHost)
		if !ok || h.HasStatus() || h.DeletionTimestamp != nil || h.Labels[metal3v1.DiscoveredByLabel] == "" {
			return true
		}
		_, moved := h.Annotations[metal3v1.StatusAnnotation]
		return moved || h.Annotations[metal3v1.PausedAnnotation] != metal3v1.DiscoveryPausedValue || h.Annotations[metal3v1.ApprovedAnnotation] != ""
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return passes(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return passes(e.ObjectNew) },
	}
}
