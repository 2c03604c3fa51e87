// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipclaimset

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/engine"
)

// setByNamespace finds the claims that ask for several addresses by their namespace, and by those of their pools.
const setByNamespace = "set.namespace"

// Index registers the index that the controller reads by.
func (r *Reconciler) Index(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &ipamv1.IPClaim{}, setByNamespace, func(obj client.Object) []string {
		claim := obj.(*ipamv1.IPClaim)
		if !isSet(claim) {
			return nil
		}
		out := []string{claim.Namespace, claim.PoolKey().Namespace}
		for _, address := range claim.Spec.AdditionalAddresses {
			if address.Pool != nil {
				out = append(out, cmp.Or(address.Pool.Namespace, claim.Namespace))
			}
		}
		slices.Sort(out)
		return slices.Compact(out)
	})
	if err != nil {
		return fmt.Errorf("indexing IPClaims by %s: %w", setByNamespace, err)
	}
	return nil
}

// SetupWithManager starts the controller with the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, name string) error {
	set := predicate.NewPredicateFuncs(func(obj client.Object) bool { return isSet(obj.(*ipamv1.IPClaim)) })
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named(name).
		For(&ipamv1.IPClaim{}, builder.WithPredicates(set)).
		Watches(&ipamv1.IPClaim{}, handler.EnqueueRequestsFromMapFunc(r.madeFor)).
		Watches(&ipamv1.IPPool{}, handler.EnqueueRequestsFromMapFunc(r.inNamespace), builder.WithPredicates(holdChanged())).
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

// WatchClusters makes claims follow Clusters, from now on.
func (r *Reconciler) WatchClusters(c cache.Cache, kind schema.GroupVersionKind) error {
	return engine.WatchKind(r.control, c, kind, capi.OnChange(func(ctx context.Context, cluster client.Object, q engine.Queue) {
		for _, request := range r.inNamespace(ctx, cluster) {
			q.Add(request)
		}
	}))
}

// holdChanged lets through what of a pool can stop a claim, or let it go on.
func holdChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*ipamv1.IPPool), e.ObjectNew.(*ipamv1.IPPool)
		return capi.HoldChanged(before, after) || before.UID != after.UID || (before.Spec.ClusterName == nil) != (after.Spec.ClusterName == nil) ||
			before.Spec.ClusterName != nil && *before.Spec.ClusterName != *after.Spec.ClusterName
	}}
}

// madeFor is the claim whose address an IPClaim serves, or whose IPClaim it stands in the way of: its name says so.
func (r *Reconciler) madeFor(ctx context.Context, obj client.Object) []reconcile.Request {
	at := strings.LastIndexByte(obj.GetName(), '-')
	if at < 0 {
		return nil
	}
	name, address := obj.GetName()[:at], obj.GetName()[at+1:]
	claim := &ipamv1.IPClaim{}
	key := types.NamespacedName{Namespace: obj.GetNamespace(), Name: name}
	if err := r.Client.Get(ctx, key, claim, client.UnsafeDisableDeepCopy); err != nil {
		return nil // none of the name, and where there will be one it is looked at then
	}
	if !slices.ContainsFunc(claim.Spec.AdditionalAddresses, func(a ipamv1.AdditionalAddress) bool { return a.Name == address }) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// inNamespace are the claims that objects of a namespace can hold up.
func (r *Reconciler) inNamespace(ctx context.Context, obj client.Object) []reconcile.Request {
	list := &ipamv1.IPClaimList{}
	if err := r.Client.List(ctx, list, client.MatchingFields{setByNamespace: obj.GetNamespace()}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Claims of several addresses could not be listed from the cache")
	}
	out := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return out
}
