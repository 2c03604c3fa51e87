// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
)

// Indexes of the cache.
const (
	// AddressByClaim finds IPAddress objects by kind and name of their claim.
	AddressByClaim = "spec.claim"
	// AddressByPool finds IPAddress objects by the name of their pool.
	AddressByPool = "spec.pool"
	// PoolByCluster finds pools by the name of their Cluster.
	PoolByCluster = "spec.clusterName"
	// claimPendingInPool finds claims that have no address or are being deleted by the namespace and the name of their pool.
	claimPendingInPool = "pending.pool"
	// claimWaitingInPool finds those of them that are not being deleted.
	claimWaitingInPool = "waiting.pool"
	// claimPendingCrossNamespace finds those claims whose pool is in another namespace, by crossNamespace.
	claimPendingCrossNamespace = "pending.cross-namespace"
	// claimPendingInCluster finds those claims by the Cluster that their label names.
	claimPendingInCluster = "pending.cluster"
)

// reconcileTimeout ends a pass whose API server does not answer.
const reconcileTimeout = time.Minute

// crossNamespace is the value of the index claimPendingCrossNamespace.
const crossNamespace = "true"

// ClaimIndex is the value of the index AddressByClaim for a claim.
func ClaimIndex(kind string, claim types.NamespacedName) string { return kind + "/" + claim.String() }

// Indexes registers the indexes that the controllers of this operator read by.
func Indexes(ctx context.Context, indexer client.FieldIndexer) error {
	poolOf := func(c *ipamv1.IPClaim) string { return c.PoolKey().String() }
	pending := func(value func(*ipamv1.IPClaim) string) client.IndexerFunc {
		return func(obj client.Object) []string {
			claim := obj.(*ipamv1.IPClaim)
			if claim.Status.Address != nil && claim.DeletionTimestamp.IsZero() {
				return nil
			}
			if v := value(claim); v != "" {
				return []string{v}
			}
			return nil
		}
	}
	for _, index := range []struct {
		obj  client.Object
		name string
		of   client.IndexerFunc
	}{
		{&ipamv1.IPAddress{}, AddressByClaim, func(obj client.Object) []string {
			address := obj.(*ipamv1.IPAddress)
			return []string{ClaimIndex(ClaimKind(address), address.ClaimKey())}
		}},
		{&ipamv1.IPAddress{}, AddressByPool, func(obj client.Object) []string {
			return []string{obj.(*ipamv1.IPAddress).Spec.Pool.Name}
		}},
		{&ipamv1.IPPool{}, PoolByCluster, func(obj client.Object) []string {
			if name := obj.(*ipamv1.IPPool).Spec.ClusterName; name != nil {
				return []string{*name}
			}
			return nil
		}},
		{&ipamv1.IPClaim{}, claimPendingInPool, pending(poolOf)},
		{&ipamv1.IPClaim{}, claimWaitingInPool, pending(func(c *ipamv1.IPClaim) string {
			if !c.DeletionTimestamp.IsZero() {
				return ""
			}
			return poolOf(c)
		})},
		{&ipamv1.IPClaim{}, claimPendingCrossNamespace, pending(func(c *ipamv1.IPClaim) string {
			if c.PoolKey().Namespace != c.Namespace {
				return crossNamespace
			}
			return ""
		})},
		{&ipamv1.IPClaim{}, claimPendingInCluster, pending(func(c *ipamv1.IPClaim) string { return c.Labels[ipamv1.ClusterNameLabel] })},
	} {
		if err := indexer.IndexField(ctx, index.obj, index.name, index.of); err != nil {
			return fmt.Errorf("indexing %T by %s: %w", index.obj, index.name, err)
		}
	}
	return nil
}

// SetupWithManager starts the controller with the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, name string) error {
	builder := ctrl.NewControllerManagedBy(mgr).
		Named(name).
		For(&ipamv1.IPClaim{}).
		Watches(&ipamv1.IPPool{}, r.poolHandler()).
		Watches(&ipamv1.IPAddress{}, r.addressHandler()).
		WatchesRawSource(source.Channel(r.nudges, r.freedHandler()))
	if r.Namespace == "" {
		builder = builder.WatchesMetadata(NewNamespace(), r.namespaceHandler())
	}
	c, err := builder.
		WithOptions(controller.TypedOptions[reconcile.Request]{
			MaxConcurrentReconciles: r.Workers, ReconciliationTimeout: reconcileTimeout, EnableWarmup: new(true),
		}).
		Build(tracing.Reconciler(name, outcome.Reconciler[ctrl.Request](r)))
	if err != nil {
		return fmt.Errorf("building the controller %s: %w", name, err)
	}
	r.control = c
	return nil
}

// WatchClusters makes claims follow Clusters, from now on.
func (r *Reconciler) WatchClusters(c cache.Cache, kind schema.GroupVersionKind) error {
	return WatchKind(r.control, c, kind, r.clusterHandler())
}

// WatchForeign feeds the index of what is free with addresses of another kind, before claims are served if the manager has
// not started yet.
func (r *Reconciler) WatchForeign(c cache.Cache, kind schema.GroupVersionKind, feed handler.EventHandler) error {
	return WatchKind(r.control, c, kind, feed)
}

// WatchKind starts a watch of a kind that this operator has no Go type of.
func WatchKind(control controller.Controller, c cache.Cache, kind schema.GroupVersionKind, h handler.EventHandler) error {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind)
	if err := control.Watch(source.Kind[client.Object](c, obj, h)); err != nil {
		return fmt.Errorf("watching %s: %w", kind.Kind, err)
	}
	return nil
}
