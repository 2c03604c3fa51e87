// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pooladmin

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/pool-operator/internal/adminplan"
)

// Indexes of the caches.
const (
	// indexPoolNamespace finds ClusterDeployments by the namespace of their pool.
	indexPoolNamespace = "pooladmin.poolNamespace"
	// indexRole finds RoleBindings by the name of the ClusterRole that they bind.
	indexRole = "pooladmin.clusterRole"
)

// concurrency is how many clusters are looked after at a time.
const concurrency = 4

// AddIndexes prepares caches for this package.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &hivev1.ClusterDeployment{}, indexPoolNamespace, poolNamespace); err != nil {
		return fmt.Errorf("indexing clusters by their pool's namespace: %w", err)
	}
	if err := indexer.IndexField(ctx, &rbacv1.RoleBinding{}, indexRole, clusterRole); err != nil {
		return fmt.Errorf("indexing bindings by their role: %w", err)
	}
	return nil
}

func poolNamespace(obj client.Object) []string {
	if cd, ok := obj.(*hivev1.ClusterDeployment); ok && cd.Spec.ClusterPoolRef != nil {
		return []string{cd.Spec.ClusterPoolRef.Namespace}
	}
	return nil
}

func clusterRole(obj client.Object) []string {
	if binding, ok := obj.(*rbacv1.RoleBinding); ok && binding.RoleRef.Kind == "ClusterRole" {
		return []string{binding.RoleRef.Name}
	}
	return nil
}

// CacheBindings makes the cache of RoleBindings small: of those that are none of the operator's business it keeps the names only.
func CacheBindings(byObject map[client.Object]cache.ByObject) {
	byObject[&rbacv1.RoleBinding{}] = cache.ByObject{Transform: func(in any) (any, error) {
		binding, ok := in.(*rbacv1.RoleBinding)
		if !ok {
			return in, nil
		}
		binding.ManagedFields = nil
		if binding.Name != hivev1.ClaimOwnerRoleName && binding.Name != hivev1.PoolAdminRoleBindingName && !bindsAdmins(binding) {
			binding.Subjects, binding.Labels, binding.Annotations, binding.OwnerReferences = nil, nil, nil, nil
		}
		return binding, nil
	}}
}

// SetupWithManager registers the controller. The manager's cache needs the indexes of [AddIndexes].
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	comesAndGoes := predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
	return ctrl.NewControllerManagedBy(mgr).
		Named("pooladmin").
		For(&hivev1.ClusterDeployment{}, builder.WithPredicates(comesAndGoes, predicate.NewPredicateFuncs(isOfPool))).
		Watches(&rbacv1.RoleBinding{}, handler.EnqueueRequestsFromMapFunc(r.clustersOf), builder.WithPredicates(predicate.NewPredicateFuncs(isAdmins))).
		Watches(namespace, handler.EnqueueRequestsFromMapFunc(clusterIn), builder.OnlyMetadata, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(tracing.ReconcilerOf("pooladmin", outcome.Reconciler[ctrl.Request](r), tracing.OfClusterDeployment(r.Client)))
}

// clusterIn returns the cluster in the namespace, which may become known after it.
func clusterIn(_ context.Context, obj client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetName(), Name: obj.GetName()}}}
}

func isOfPool(obj client.Object) bool {
	cd, ok := obj.(*hivev1.ClusterDeployment)
	return ok && cd.Spec.ClusterPoolRef != nil
}

func isAdmins(obj client.Object) bool {
	binding, ok := obj.(*rbacv1.RoleBinding)
	return ok && (binding.Name == hivev1.PoolAdminRoleBindingName || bindsAdmins(binding))
}

func bindsAdmins(binding *rbacv1.RoleBinding) bool { return binding.RoleRef == adminplan.RoleRef() }

// clustersOf returns the clusters whose admins a binding in a pool's namespace concerns, or the one whose copy it is.
func (r *Reconciler) clustersOf(ctx context.Context, obj client.Object) []reconcile.Request {
	var requests []reconcile.Request
	if obj.GetName() == hivev1.PoolAdminRoleBindingName {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetNamespace()}})
	}
	var clusters hivev1.ClusterDeploymentList
	if err := r.Client.List(ctx, &clusters, client.MatchingFields{indexPoolNamespace: obj.GetNamespace()}, client.UnsafeDisableDeepCopy); err != nil {
		return requests
	}
	for i := range clusters.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&clusters.Items[i])})
	}
	return requests
}
