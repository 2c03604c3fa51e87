// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipaddressclaim

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/engine"
	"github.com/muster-io/muster/ipam-operator/internal/space"
)

// Cache indexes of claims that have no address or are being deleted.
const (
	pendingInPool    = "pending.pool"
	pendingInCluster = "pending.cluster"
)

// PoolFreed makes waiting claims of a pool look again, soon. It never waits; pools that are freed meanwhile are handled together.
func (c *Controller) PoolFreed(pool types.NamespacedName, addresses map[netip.Addr]bool) {
	c.claims.FreedBy(pool, addresses)
}

// HasAddresses reports whether an address of the contract is one of a pool.
func (c *Controller) HasAddresses(ctx context.Context, pool types.NamespacedName) (bool, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(c.kinds.Address)
	if err := c.cache.List(ctx, list, client.InNamespace(pool.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing the addresses of IPPool %s: %w", pool, err)
	}
	return slices.ContainsFunc(list.Items, func(address unstructured.Unstructured) bool {
		name, ours := servedPool(&address)
		return ours && name == pool.Name
	}), nil
}

// Index registers the indexes that the controller reads by.
func (c *Controller) Index(ctx context.Context, indexer client.FieldIndexer) error {
	pending := func(value func(*unstructured.Unstructured) string) client.IndexerFunc {
		return func(obj client.Object) []string {
			claim := obj.(*unstructured.Unstructured)
			if text(claim, "status", "addressRef", "name") != "" && claim.GetDeletionTimestamp().IsZero() {
				return nil
			}
			return []string{value(claim)}
		}
	}
	for _, index := range []struct {
		kind schema.GroupVersionKind
		name string
		of   client.IndexerFunc
	}{
		{c.kinds.Address, addressByClaim, func(obj client.Object) []string {
			return []string{text(obj.(*unstructured.Unstructured), "spec", "claimRef", "name")}
		}},
		{c.kinds.Claim, pendingInPool, pending(func(claim *unstructured.Unstructured) string { return text(claim, "spec", "poolRef", "name") })},
		{c.kinds.Claim, pendingInCluster, pending(func(claim *unstructured.Unstructured) string {
			if name := text(claim, "spec", "clusterName"); name != "" {
				return name
			}
			return claim.GetLabels()[ipamv1.ClusterNameLabel]
		})},
	} {
		if err := indexer.IndexField(ctx, object(index.kind), index.name, index.of); err != nil {
			return fmt.Errorf("indexing %s by %s: %w", index.kind.Kind, index.name, err)
		}
	}
	return nil
}

// SetupWithManager starts the controller with the manager, or at once where that runs already.
func (c *Controller) SetupWithManager(mgr ctrl.Manager, name string, workers int) error {
	control, err := ctrl.NewControllerManagedBy(mgr).
		Named(name).
		Watches(object(c.kinds.Claim), &handler.EnqueueRequestForObject{}).
		Watches(object(c.kinds.Address), handler.EnqueueRequestsFromMapFunc(claimOf)).
		Watches(&ipamv1.IPAddress{}, handler.EnqueueRequestsFromMapFunc(claimOfLock)).
		Watches(&ipamv1.IPPool{}, c.poolHandler()).
		WatchesRawSource(c.claims.WakeSource(c.waiting)).
		WithOptions(controller.TypedOptions[reconcile.Request]{
			MaxConcurrentReconciles: workers, ReconciliationTimeout: time.Minute, EnableWarmup: new(true),
		}).
		Build(tracing.Reconciler(name, outcome.Reconciler[ctrl.Request](c)))
	if err != nil {
		return fmt.Errorf("building the controller %s: %w", name, err)
	}
	c.control = control
	return nil
}

// Claim is an empty claim of the version that is served.
func (c *Controller) Claim() client.Object { return object(c.kinds.Claim) }

// WatchClusters makes claims follow Clusters, from now on.
func (c *Controller) WatchClusters(from cache.Cache, kind schema.GroupVersionKind) error {
	return engine.WatchKind(c.control, from, kind, capi.OnChange(func(ctx context.Context, cluster client.Object, q engine.Queue) {
		c.claims.WakeHeld(cluster.GetNamespace(), q)
		for _, req := range c.pending(ctx, cluster.GetNamespace(), client.MatchingFields{pendingInCluster: cluster.GetName()}) {
			q.Add(req)
		}
		pools := &ipamv1.IPPoolList{}
		err := from.List(ctx, pools, client.InNamespace(cluster.GetNamespace()), client.MatchingFields{engine.PoolByCluster: cluster.GetName()})
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Pools of a Cluster could not be listed from the cache")
		}
		for i := range pools.Items {
			for _, req := range c.inPool(ctx, &pools.Items[i]) {
				q.Add(req)
			}
		}
	}))
}

// poolHandler wakes the claims that a change of a pool concerns. Addresses that are free wake claims by themselves.
func (c *Controller) poolHandler() handler.EventHandler {
	wakeAll := func(ctx context.Context, pool client.Object, q engine.Queue) {
		c.claims.WakeHeld(pool.GetNamespace(), q)
		for _, req := range c.inPool(ctx, pool) {
			q.Add(req)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q engine.Queue) { wakeAll(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q engine.Queue) {
			if engine.PoolChanged(e.ObjectOld, e.ObjectNew) {
				wakeAll(ctx, e.ObjectNew, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q engine.Queue) { wakeAll(ctx, e.Object, q) },
	}
}

// waiting are the claims of a pool that have no address, oldest first. Those that are being deleted are among them.
func (c *Controller) waiting(ctx context.Context, pool types.NamespacedName) []client.Object {
	claims := c.list(ctx, pool.Namespace, client.MatchingFields{pendingInPool: pool.Name})
	out := make([]client.Object, 0, len(claims))
	for i := range claims {
		if _, ours := servedPool(&claims[i]); ours {
			out = append(out, &claims[i])
		}
	}
	slices.SortFunc(out, func(a, b client.Object) int {
		return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName()))
	})
	return out
}

// inPool are the claims of a pool that have no address or are being deleted.
func (c *Controller) inPool(ctx context.Context, pool client.Object) []reconcile.Request {
	return c.pending(ctx, pool.GetNamespace(), client.MatchingFields{pendingInPool: pool.GetName()})
}

func (c *Controller) pending(ctx context.Context, namespace string, index client.MatchingFields) []reconcile.Request {
	claims := c.list(ctx, namespace, index)
	out := make([]reconcile.Request, 0, len(claims))
	for i := range claims {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&claims[i])})
	}
	return out
}

// list returns claims of the cache, which must not be changed.
func (c *Controller) list(ctx context.Context, namespace string, index client.MatchingFields) []unstructured.Unstructured {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(c.kinds.Claim)
	if err := c.cache.List(ctx, list, client.InNamespace(namespace), index, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Waiting claims could not be listed from the cache")
	}
	return list.Items
}

func claimOf(_ context.Context, obj client.Object) []reconcile.Request {
	address := obj.(*unstructured.Unstructured)
	if _, ours := servedPool(address); !ours {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: address.GetNamespace(), Name: text(address, "spec", "claimRef", "name")}}}
}

func claimOfLock(_ context.Context, obj client.Object) []reconcile.Request {
	lock := obj.(*ipamv1.IPAddress)
	if engine.ClaimKind(lock) != ClaimKind {
		return nil
	}
	return []reconcile.Request{{NamespacedName: lock.ClaimKey()}}
}

// Feed takes the contract's own addresses over as taken: those that were made before there was a lock for both kinds.
func Feed(index *space.Index, freed func(pool types.NamespacedName, addresses map[netip.Addr]bool)) handler.EventHandler {
	observe := func(obj client.Object) {
		if record, ours := recordOf(obj.(*unstructured.Unstructured)); ours {
			index.Observe(record)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ engine.Queue) { observe(e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ engine.Queue) { observe(e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ engine.Queue) {
			record, _ := recordOf(e.Object.(*unstructured.Unstructured)) // also one of another provider, whose name stood in the way
			for _, pool := range index.Forget(record.Key) {
				freed(pool, map[netip.Addr]bool{record.IP: true})
			}
		},
	}
}

func recordOf(address *unstructured.Unstructured) (space.Record, bool) {
	pool, ours := servedPool(address)
	ip, err := allocate.ParseAddr(text(address, "spec", "address"))
	return space.Record{
		Key:  space.Key{Group: Group, NamespacedName: client.ObjectKeyFromObject(address)},
		Pool: types.NamespacedName{Namespace: address.GetNamespace(), Name: pool}, IP: ip, UID: address.GetUID(),
	}, ours && err == nil
}
