// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pooladmin gives the admins of a namespace's pools their rights in the clusters of those pools: it repeats, in each cluster's namespace, what RoleBindings
// in the pool's namespace say about the ClusterRole of pool admins.
package pooladmin

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/adminplan"
	"github.com/muster-io/muster/pool-operator/internal/membership"
)

// FieldOwner owns the copies of bindings.
const FieldOwner = client.FieldOwner("pool-operator/pooladmin")

// Deps is what a Reconciler works with; all are required.
type Deps struct {
	// Client reads from caches, which have the indexes of [AddIndexes] and metadata of clusters' Namespaces, and writes.
	Client client.Client
}

// Reconciler looks after the copy of admins' bindings in the namespaces of clusters, each by itself.
type Reconciler struct{ Deps }

// New returns a Reconciler.
func New(d Deps) *Reconciler { return &Reconciler{Deps: d} }

// The right to bind is for one ClusterRole only, so that the operator need not hold what admins of pools may do.
//
// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterdeployments,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=hive-cluster-pool-admin,verbs=bind

// snapshot is what a pass reads about the namespace of one cluster.
type snapshot struct {
	adminplan.Snapshot
	namespace string
	// cluster is nil when there is none.
	cluster *hivev1.ClusterDeployment
}

// Reconcile looks after the copy in the namespace of one cluster: observe, plan, execute.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	s, err := r.observe(ctx, request.NamespacedName)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("observing the admins of cluster %s: %w", request.Namespace, err)
	}
	subjects, change := adminplan.Plan(s.Snapshot)
	switch {
	case !change:
		return ctrl.Result{}, nil
	case len(subjects) == 0:
		err = r.revoke(ctx, s)
	default:
		err = r.grant(ctx, s, subjects)
	}
	return ctrl.Result{}, err
}

// observe reads the cluster, its namespace, the bindings in its pool's namespace, and the copy.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (snapshot, error) {
	s := snapshot{namespace: key.Namespace}
	cd := &hivev1.ClusterDeployment{}
	if err := r.get(ctx, key, cd); err != nil {
		return s, err
	} else if cd.UID != "" {
		s.cluster = cd
	}
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := r.get(ctx, types.NamespacedName{Name: key.Namespace}, ns); err != nil {
		return s, err
	}
	s.Member = s.cluster != nil && membership.Proved(s.cluster, ns.Labels)
	binding := &rbacv1.RoleBinding{}
	if err := r.get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: hivev1.PoolAdminRoleBindingName}, binding); err != nil {
		return s, err
	} else if binding.UID != "" {
		s.Copied = binding
	}
	if s.cluster == nil || s.cluster.Spec.ClusterPoolRef == nil {
		return s, nil
	}
	var bindings rbacv1.RoleBindingList
	if err := r.Client.List(ctx, &bindings, client.InNamespace(s.cluster.Spec.ClusterPoolRef.Namespace), client.MatchingFields{indexRole: hivev1.PoolAdminClusterRoleName}); err != nil {
		return s, fmt.Errorf("listing bindings: %w", err)
	}
	s.Bindings = bindings.Items
	return s, nil
}

// get reads an object and leaves it empty when it is not there.
func (r *Reconciler) get(ctx context.Context, key types.NamespacedName, obj client.Object) error {
	if err := r.Client.Get(ctx, key, obj); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading %T %s: %w", obj, key, err)
	}
	return nil
}

func (r *Reconciler) grant(ctx context.Context, s snapshot, subjects []rbacv1.Subject) error {
	if s.Copied != nil && s.Copied.RoleRef != adminplan.RoleRef() { // cannot be changed
		if err := r.revoke(ctx, s); err != nil {
			return err
		}
	}
	ref := adminplan.RoleRef()
	config := rbacv1ac.RoleBinding(hivev1.PoolAdminRoleBindingName, s.namespace).
		WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion(hivev1.GroupVersion.String()).WithKind("ClusterDeployment").
			WithName(s.cluster.Name).WithUID(s.cluster.UID)).
		WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup(ref.APIGroup).WithKind(ref.Kind).WithName(ref.Name))
	for i := range subjects {
		out := rbacv1ac.Subject().WithKind(subjects[i].Kind).WithName(subjects[i].Name)
		if subjects[i].APIGroup != "" {
			out.WithAPIGroup(subjects[i].APIGroup)
		}
		if subjects[i].Namespace != "" {
			out.WithNamespace(subjects[i].Namespace)
		}
		config.WithSubjects(out)
	}
	err := r.Client.Apply(ctx, config, FieldOwner, client.ForceOwnership)
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil // the namespace is on its way out
	}
	if err != nil {
		return fmt.Errorf("copying admins' bindings to %s: %w", s.namespace, err)
	}
	logf.FromContext(ctx).Info("copied the bindings of pool admins", "subjects", len(subjects))
	return nil
}

func (r *Reconciler) revoke(ctx context.Context, s snapshot) error {
	if err := client.IgnoreNotFound(r.Client.Delete(ctx, s.Copied, client.Preconditions{UID: &s.Copied.UID})); err != nil {
		return fmt.Errorf("deleting the copy of admins' bindings in %s: %w", s.namespace, err)
	}
	logf.FromContext(ctx).Info("deleted the copy of the bindings of pool admins")
	return nil
}
