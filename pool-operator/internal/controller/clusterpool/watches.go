// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool

import (
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
)

// Indexes of the cache.
const (
	// indexPool finds ClusterDeployments, ClusterClaims and Namespaces by their pool.
	indexPool = "clusterpool.pool"
	// indexNeeds finds ClusterPools by what their clusters are made from.
	indexNeeds = "clusterpool.needs"
)

func poolKey(namespace, name string) string { return namespace + "/" + name }

// CacheByObject says what the cache has to hold of objects that are not the operator's own.
func CacheByObject() map[client.Object]cache.ByObject {
	made, err := labels.NewRequirement(hivev1.LabelNamespaceClusterPoolName, selection.Exists, nil)
	if err != nil {
		panic(err) // the label's name is a constant
	}
	return map[client.Object]cache.ByObject{&corev1.Namespace{}: {Label: labels.NewSelector().Add(*made)}}
}

// SetupWithManager registers indexes and watches.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	if err := index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Named("clusterpool").
		For(&hivev1.ClusterPool{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Workers})
	for _, w := range r.watches() {
		options := []builder.WatchesOption{builder.WithPredicates(w.filter...)}
		if _, onlyMetadata := w.object.(*metav1.PartialObjectMetadata); onlyMetadata {
			options = append(options, builder.OnlyMetadata)
		}
		b = b.Watches(w.object, handler.EnqueueRequestsFromMapFunc(w.pools), options...)
	}
	if err := b.Complete(tracing.Reconciler("clusterpool", outcome.Reconciler[ctrl.Request](r))); err != nil {
		return fmt.Errorf("setting up the controller of pools: %w", err)
	}
	return nil
}

// watch is a kind whose changes wake pools.
type watch struct {
	object client.Object
	// pools are those that an object wakes.
	pools handler.MapFunc
	// filter lets the events pass that wake them; all of them when it is empty.
	filter []predicate.Predicate
}

// watches are all that wakes pools beside themselves.
func (r *Reconciler) watches() []watch {
	return []watch{
		{&hivev1.ClusterDeployment{}, direct(poolOfCluster), []predicate.Predicate{changed(clusterOfObject)}},
		{&hivev1.ClusterClaim{}, direct(poolOfClaim), []predicate.Predicate{changed(claimOfObject)}},
		{metadataObject(corev1.SchemeGroupVersion.WithKind("Namespace")), direct(poolOfNamespace), nil},
		{&hivev1.ClusterImageSet{}, r.poolsOf("imageset"), nil},
		{metadataObject(corev1.SchemeGroupVersion.WithKind("Secret")), r.poolsOf("secret"), nil},
	}
}

func index(ctx context.Context, indexer client.FieldIndexer) error {
	for _, i := range []struct {
		object client.Object
		field  string
		values client.IndexerFunc
	}{
		{&hivev1.ClusterDeployment{}, indexPool, keys(poolOfCluster)},
		{&hivev1.ClusterClaim{}, indexPool, keys(poolOfClaim)},
		{metadataObject(corev1.SchemeGroupVersion.WithKind("Namespace")), indexPool, keys(poolOfNamespace)},
		{&hivev1.ClusterPool{}, indexNeeds, needs},
	} {
		if err := indexer.IndexField(ctx, i.object, i.field, i.values); err != nil {
			return fmt.Errorf("indexing %T by %s: %w", i.object, i.field, err)
		}
	}
	return nil
}

// keys turns a mapping to pools into an index.
func keys(mapping func(client.Object) []reconcile.Request) client.IndexerFunc {
	return func(o client.Object) []string {
		var out []string
		for _, request := range mapping(o) {
			out = append(out, poolKey(request.Namespace, request.Name))
		}
		return out
	}
}

// direct is a mapping that needs no cache.
func direct(mapping func(client.Object) []reconcile.Request) handler.MapFunc {
	return func(_ context.Context, o client.Object) []reconcile.Request { return mapping(o) }
}

func request(namespace, name string) []reconcile.Request {
	if namespace == "" || name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}

func poolOfCluster(o client.Object) []reconcile.Request {
	cd, ok := o.(*hivev1.ClusterDeployment)
	if !ok || cd.Spec.ClusterPoolRef == nil {
		return nil
	}
	return request(cd.Spec.ClusterPoolRef.Namespace, cd.Spec.ClusterPoolRef.PoolName)
}

func poolOfClaim(o client.Object) []reconcile.Request {
	claim, ok := o.(*hivev1.ClusterClaim)
	if !ok {
		return nil
	}
	return request(claim.Namespace, claim.Spec.ClusterPoolName)
}

func poolOfNamespace(o client.Object) []reconcile.Request {
	return request(o.GetLabels()[hivev1.LabelNamespaceClusterPoolNamespace], o.GetLabels()[hivev1.LabelNamespaceClusterPoolName])
}

// needs are the names of what clusters of a pool are made from: an image set, and secrets in the pool's namespace.
func needs(o client.Object) []string {
	pool, ok := o.(*hivev1.ClusterPool)
	if !ok {
		return nil
	}
	out := []string{needKey("imageset", "", pool.Spec.ImageSetRef.Name)}
	for _, n := range secretsNeeded(pool) {
		out = append(out, needKey("secret", pool.Namespace, n.name))
	}
	return out
}

func needKey(kind, namespace, name string) string { return kind + "/" + namespace + "/" + name }

// poolsOf maps what clusters are made from to exactly the pools that need it.
func (r *Reconciler) poolsOf(kind string) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		pools := &hivev1.ClusterPoolList{}
		key := needKey(kind, o.GetNamespace(), o.GetName())
		if err := r.Client.List(ctx, pools, client.MatchingFields{indexNeeds: key}, client.UnsafeDisableDeepCopy); err != nil {
			return nil
		}
		var out []reconcile.Request
		for i := range pools.Items {
			out = append(out, request(pools.Items[i].Namespace, pools.Items[i].Name)...)
		}
		return out
	}
}

// changed lets updates pass that change what a decision is made from.
func changed[T any](of func(client.Object) T) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !reflect.DeepEqual(of(e.ObjectOld), of(e.ObjectNew))
	}}
}

func clusterOfObject(o client.Object) any {
	cd, ok := o.(*hivev1.ClusterDeployment)
	if !ok {
		return nil
	}
	c := poolview.ClusterOf(cd)
	c.ResourceVersion = ""
	return c
}

func claimOfObject(o client.Object) any {
	claim, ok := o.(*hivev1.ClusterClaim)
	if !ok {
		return nil
	}
	return poolview.ClaimOf(claim)
}

func metadataObject(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(gvk)
	return o
}

// decodeJSON decodes numbers as integers where they are, as objects of the API have them.
func decodeJSON(raw []byte, into *map[string]any) error { return json.Unmarshal(raw, into) }
