// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metal3data

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/dataplan"
	"github.com/muster-io/muster/ipam-operator/internal/engine"
)

// Indexes of the cache.
const (
	// ByClaim finds Metal3Data by the name of its claim.
	ByClaim = "spec.claim"
	// ByTemplate finds Metal3Data and Metal3DataClaims by the name of their template.
	ByTemplate = "spec.template"
	// bySecret finds Metal3Data by the names of its Secrets.
	bySecret = "spec.secrets"
	// byCluster finds Metal3DataTemplates by the name of their Cluster.
	byCluster = "spec.clusterName"
	// claimByData finds IPClaims and IPAddressClaims by the name of the Metal3Data that owns them.
	claimByData = "owner.metal3data"
)

// Kinds of the claims of IPPools, and of IPPools.
var (
	ipClaimKind = schema.GroupKind{Group: ipamv1.GroupVersion.Group, Kind: ipamv1.IPClaimKind}
	ipPoolKind  = schema.GroupKind{Group: ipamv1.GroupVersion.Group, Kind: ipamv1.IPPoolKind}
)

// reconcileTimeout ends a pass whose API server does not answer.
const reconcileTimeout = time.Minute

// Indexes registers the indexes that the controllers of network data read by.
func Indexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, index := range []struct {
		obj  client.Object
		name string
		of   client.IndexerFunc
	}{
		{&infrav1.Metal3Data{}, ByClaim, func(obj client.Object) []string { return []string{obj.(*infrav1.Metal3Data).Spec.Claim.Name} }},
		{&infrav1.Metal3Data{}, ByTemplate, func(obj client.Object) []string { return []string{obj.(*infrav1.Metal3Data).Spec.Template.Name} }},
		{&infrav1.Metal3Data{}, bySecret, func(obj client.Object) []string { return dataplan.SecretsOf(obj.(*infrav1.Metal3Data)) }},
		{&infrav1.Metal3DataClaim{}, ByTemplate, func(obj client.Object) []string {
			return []string{obj.(*infrav1.Metal3DataClaim).Spec.Template.Name}
		}},
		{&infrav1.Metal3DataTemplate{}, byCluster, func(obj client.Object) []string {
			return []string{obj.(*infrav1.Metal3DataTemplate).Spec.ClusterName}
		}},
		{&ipamv1.IPClaim{}, claimByData, owners},
	} {
		if err := indexer.IndexField(ctx, index.obj, index.name, index.of); err != nil {
			return fmt.Errorf("indexing %T by %s: %w", index.obj, index.name, err)
		}
	}
	return nil
}

// owners are the names of the Metal3Data that own an object.
func owners(obj client.Object) []string {
	var out []string
	for _, owner := range obj.GetOwnerReferences() {
		if owner.Kind == infrav1.Metal3DataKind {
			out = append(out, owner.Name)
		}
	}
	return out
}

// ButStatus lets through what is not only a change of the status.
var ButStatus = predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{})

// SetupWithManager starts the controller with the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, name string) error {
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named(name).
		For(&infrav1.Metal3Data{}).
		Watches(&infrav1.Metal3DataTemplate{}, handler.EnqueueRequestsFromMapFunc(r.by(ByTemplate)), builder.WithPredicates(ButStatus)).
		Watches(&infrav1.Metal3DataClaim{}, handler.EnqueueRequestsFromMapFunc(r.by(ByClaim))).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.by(bySecret))).
		Watches(&ipamv1.IPClaim{}, handler.EnqueueRequestsFromMapFunc(r.ofClaim(ipClaimKind))).
		Watches(&ipamv1.IPPool{}, handler.EnqueueRequestsFromMapFunc(r.ofPool), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
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

// by finds the data that an index has for the name of an object.
func (r *Reconciler) by(index string) handler.MapFunc {
	return func(ctx context.Context, obj client.Object) []reconcile.Request {
		list := &infrav1.Metal3DataList{}
		err := r.Client.List(ctx, list, client.InNamespace(obj.GetNamespace()), client.MatchingFields{index: obj.GetName()}, client.UnsafeDisableDeepCopy)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Metal3Data could not be listed from the cache")
		}
		return Requests(list.Items)
	}
}

// Requests asks for a look at every object of a list.
func Requests[T any, P interface {
	*T
	client.Object
}](items []T) []reconcile.Request {
	out := make([]reconcile.Request, 0, len(items))
	for i := range items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(P(&items[i]))})
	}
	return out
}

// ofClaim finds the data that owns a claim, and the data that waits for a claim in its way to go.
func (r *Reconciler) ofClaim(kind schema.GroupKind) handler.MapFunc {
	return func(_ context.Context, claim client.Object) []reconcile.Request {
		out := r.waiting(kind, claim)
		for _, name := range owners(claim) {
			out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: claim.GetNamespace(), Name: name}})
		}
		return out
	}
}

// ofPool finds the data that waits for a prefix of a pool.
func (r *Reconciler) ofPool(_ context.Context, pool client.Object) []reconcile.Request {
	return r.waiting(ipPoolKind, pool)
}

// waiting finds the data that waits for an object to change.
func (r *Reconciler) waiting(kind schema.GroupKind, obj client.Object) []reconcile.Request {
	var out []reconcile.Request
	for _, data := range r.waits.of(object{kind, client.ObjectKeyFromObject(obj)}) {
		out = append(out, reconcile.Request{NamespacedName: data})
	}
	return out
}

// WatchClusters makes data follow Clusters, from now on.
func (r *Reconciler) WatchClusters(c cache.Cache, kind schema.GroupVersionKind) error {
	return engine.WatchKind(r.control, c, kind, capi.OnChange(func(ctx context.Context, cluster client.Object, q engine.Queue) {
		for _, template := range TemplatesOf(ctx, r.Client, cluster) {
			for _, request := range r.by(ByTemplate)(ctx, &template) {
				q.Add(request)
			}
		}
		list := &infrav1.Metal3DataList{}
		if err := r.Client.List(ctx, list, InCluster(cluster)...); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Metal3Data of a Cluster could not be listed from the cache")
		}
		for _, request := range Requests(list.Items) {
			q.Add(request)
		}
	}))
}

// TemplatesOf are the templates that name a Cluster.
func TemplatesOf(ctx context.Context, reader client.Reader, cluster client.Object) []infrav1.Metal3DataTemplate {
	list := &infrav1.Metal3DataTemplateList{}
	if err := reader.List(ctx, list, client.InNamespace(cluster.GetNamespace()), client.MatchingFields{byCluster: cluster.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Metal3DataTemplates of a Cluster could not be listed from the cache")
	}
	return list.Items
}

// InCluster selects the objects whose label names a Cluster.
func InCluster(cluster client.Object) []client.ListOption {
	return []client.ListOption{client.InNamespace(cluster.GetNamespace()), client.MatchingLabels{ipamv1.ClusterNameLabel: cluster.GetName()}}
}

// WatchForeign makes data follow the objects of another project's kind, from now on: the cache keeps only their
// metadata.
func (r *Reconciler) WatchForeign(c cache.Cache, kind schema.GroupVersionKind) error {
	r.kinds.set(kind)
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(kind)
	wake := func(_ context.Context, obj client.Object) []reconcile.Request {
		return r.waiting(kind.GroupKind(), obj)
	}
	if err := r.control.Watch(source.Kind[client.Object](c, obj, handler.EnqueueRequestsFromMapFunc(wake))); err != nil {
		return fmt.Errorf("watching %s: %w", kind.Kind, err)
	}
	return nil
}

// IndexContract registers the index of Cluster API's IPAddressClaims. It comes before any other reader of them.
func IndexContract(ctx context.Context, indexer client.FieldIndexer, kind schema.GroupVersionKind) error {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind)
	if err := indexer.IndexField(ctx, obj, claimByData, owners); err != nil {
		return fmt.Errorf("indexing %s by %s: %w", kind.Kind, claimByData, err)
	}
	return nil
}

// WatchContract makes data follow Cluster API's IPAddressClaims, from now on. Data whose status says that there are none is served
// again.
func (r *Reconciler) WatchContract(c cache.Cache, kind schema.GroupVersionKind) error {
	r.kinds.set(kind)
	if err := engine.WatchKind(r.control, c, kind, handler.EnqueueRequestsFromMapFunc(r.ofClaim(dataplan.ContractClaimKind))); err != nil {
		return err
	}
	err := r.control.Watch(source.Func(func(_ context.Context, q engine.Queue) error {
		for _, data := range r.waits.of(object{kind: dataplan.ContractClaimKind}) {
			q.Add(reconcile.Request{NamespacedName: data})
		}
		return nil
	}))
	if err != nil {
		return fmt.Errorf("waking data that waits for %s: %w", kind.Kind, err)
	}
	return nil
}
