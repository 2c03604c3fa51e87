// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ippool

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/ipam-operator/internal/engine"
)

// SetupWithManager starts the controller with the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, name string) error {
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named(name).
		Watches(&ipamv1.IPPool{}, r.poolHandler()).
		Watches(&ipamv1.IPAddress{}, r.addressHandler()).
		WatchesRawSource(source.Channel(r.nudges, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.TypedOptions[reconcile.Request]{
			MaxConcurrentReconciles: r.Workers, ReconciliationTimeout: time.Minute, EnableWarmup: new(true),
		}).
		Build(tracing.Reconciler(name, outcome.Reconciler[ctrl.Request](r)))
	if err != nil {
		return fmt.Errorf("building the controller %s: %w", name, err)
	}
	r.control = c
	return nil
}

// poolHandler looks at a pool at once when its spec or metadata changes. A change of only the status, as by this controller,
// is handled later, so that many addresses make few writes.
func (r *Reconciler) poolHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q engine.Queue) {
			r.tellNeighbours(e.Object, q)
			q.Add(request(client.ObjectKeyFromObject(e.Object)))
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q engine.Queue) {
			r.tellNeighbours(e.ObjectNew, q)
			req := request(client.ObjectKeyFromObject(e.ObjectNew))
			if e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || len(e.ObjectOld.GetFinalizers()) != len(e.ObjectNew.GetFinalizers()) {
				q.Add(req)
			} else {
				q.AddAfter(req, r.pace.of(req.NamespacedName))
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q engine.Queue) {
			name := client.ObjectKeyFromObject(e.Object)
			for _, other := range r.near.set(name, nil) {
				q.AddAfter(request(other), r.StatusInterval)
			}
			q.Add(request(name))
		},
	}
}

// tellNeighbours looks at the pools that a pool overlaps, or has overlapped: their conditions say so.
func (r *Reconciler) tellNeighbours(pool client.Object, q engine.Queue) {
	for _, other := range r.near.set(client.ObjectKeyFromObject(pool), r.Layouts.Of(pool.(*ipamv1.IPPool))) {
		q.AddAfter(request(other), r.StatusInterval)
	}
}

// addressHandler looks at the pool of an address a little later, so that many addresses make one write.
func (r *Reconciler) addressHandler() handler.EventHandler {
	later := func(obj client.Object, q engine.Queue) {
		address := obj.(*ipamv1.IPAddress)
		pool := types.NamespacedName{Namespace: address.Namespace, Name: address.Spec.Pool.Name}
		q.AddAfter(request(pool), r.pace.of(pool))
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q engine.Queue) {
			if !e.IsInInitialList {
				later(e.Object, q)
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q engine.Queue) { later(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q engine.Queue) { later(e.Object, q) },
	}
}

// Look looks at a pool again: an inventory says something else. It waits until the controller runs.
func (r *Reconciler) Look(ctx context.Context, pool types.NamespacedName) {
	nudge := event.GenericEvent{Object: &ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: pool.Namespace, Name: pool.Name}}}
	select {
	case r.nudges <- nudge:
	case <-ctx.Done():
	}
}

// WatchClusters makes pools follow Clusters, from now on.
func (r *Reconciler) WatchClusters(c cache.Cache, kind schema.GroupVersionKind) error {
	return engine.WatchKind(r.control, c, kind, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, cluster client.Object) []reconcile.Request {
		pools := &ipamv1.IPPoolList{}
		err := r.Client.List(ctx, pools, client.InNamespace(cluster.GetNamespace()), client.MatchingFields{engine.PoolByCluster: cluster.GetName()})
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Pools of a Cluster could not be listed from the cache")
		}
		held := r.held.Wake(cluster.GetNamespace())
		out := make([]reconcile.Request, 0, len(pools.Items)+len(held))
		for _, pool := range held {
			out = append(out, request(pool))
		}
		for i := range pools.Items {
			out = append(out, request(client.ObjectKeyFromObject(&pools.Items[i])))
		}
		return out
	}))
}

func request(name types.NamespacedName) reconcile.Request {
	return reconcile.Request{NamespacedName: name}
}
