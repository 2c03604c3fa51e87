// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/pool-operator/internal/claimplan"
)

// observe reads what the claim's next step depends on, from caches; nil when there is no such claim. A claim that has its cluster costs a few lookups, one that waits
// also those of its pool's clusters and claims.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (*pass, error) {
	claim := &hivev1.ClusterClaim{}
	if err := r.Client.Get(ctx, key, claim); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	dropped := controllerutil.ContainsFinalizer(claim, hivev1.FinalizerClusterClaim) && r.memory.dying(claim.UID)
	p := &pass{behind: r.memory.ahead(claim) || dropped}
	p.Claim = claim
	poolKey := types.NamespacedName{Namespace: claim.Namespace, Name: claim.Spec.ClusterPoolName}
	var err error
	if p.Pool, err = r.pool(ctx, poolKey); err != nil {
		return nil, err
	}
	if claim.Spec.Namespace != "" {
		if err := r.observeOwn(ctx, r.Client, p, claim.Spec.Namespace); err != nil {
			return nil, err
		}
		lacking := p.Own != nil && (p.Role == nil || p.Binding == nil)
		p.behind = p.behind || lacking && r.memory.grantedJustNow(p.Own.UID, r.Clock.Now())
	}
	if p.behind || p.HasOwn() {
		return p, nil
	}
	return p, r.observeQueue(ctx, &p.Snapshot, poolKey)
}

func (r *Reconciler) pool(ctx context.Context, key types.NamespacedName) (*hivev1.ClusterPool, error) {
	pool := &hivev1.ClusterPool{}
	if err := r.Client.Get(ctx, key, pool, client.UnsafeDisableDeepCopy); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return pool, nil
}

// observeOwn reads the cluster in the namespace, and the rights there. A cluster that names a pool without belonging to it counts as none.
func (r *Reconciler) observeOwn(ctx context.Context, reader client.Reader, p *pass, namespace string) error {
	p.Own, p.Role, p.Binding = nil, nil, nil
	cd := &hivev1.ClusterDeployment{}
	switch err := reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: namespace}, cd); {
	case err == nil:
		if member, err := r.isMember(ctx, cd); err != nil {
			return err
		} else if !member {
			break
		}
		p.Own = new(claimplan.ClusterOf(cd))
		p.Own.Deleting = p.Own.Deleting || r.memory.dying(cd.UID)
		if p.behind = p.behind || r.memory.ahead(cd); p.behind {
			return nil
		}
	case !outcome.IsGone(err):
		return fmt.Errorf("reading cluster %s: %w", namespace, err)
	}
	return r.observeRights(ctx, reader, &p.Snapshot, namespace)
}

func (r *Reconciler) observeRights(ctx context.Context, reader client.Reader, s *claimplan.Snapshot, namespace string) error {
	key := types.NamespacedName{Namespace: namespace, Name: hivev1.ClaimOwnerRoleName}
	role, binding := &rbacv1.Role{}, &rbacv1.RoleBinding{}
	s.Role, s.Binding = nil, nil
	switch err := reader.Get(ctx, key, role); {
	case err == nil:
		s.Role = role
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading role %s: %w", key, err)
	}
	switch err := reader.Get(ctx, key, binding); {
	case err == nil:
		s.Binding = binding
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading role binding %s: %w", key, err)
	}
	return nil
}

// observeQueue reads the clusters and claims of the pool. They are read in place, since only values are taken from them.
func (r *Reconciler) observeQueue(ctx context.Context, s *claimplan.Snapshot, pool types.NamespacedName) error {
	var err error
	if s.Claims, err = r.claimsOf(ctx, pool); err != nil {
		return err
	}
	s.Clusters, err = r.clustersOf(ctx, pool)
	return err
}

func (r *Reconciler) clustersOf(ctx context.Context, pool types.NamespacedName) ([]claimplan.Cluster, error) {
	var list hivev1.ClusterDeploymentList
	if err := r.Client.List(ctx, &list, client.MatchingFields{indexClusterPool: pool.String()}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing clusters of pool %s: %w", pool, err)
	}
	clusters := make([]claimplan.Cluster, 0, len(list.Items))
	for i := range list.Items {
		member, err := r.isMember(ctx, &list.Items[i])
		if err != nil {
			return nil, err
		}
		if member {
			clusters = append(clusters, claimplan.ClusterOf(&list.Items[i]))
		}
	}
	return clusters, nil
}

// isMember says whether a cluster belongs to the pool that it names.
func (r *Reconciler) isMember(ctx context.Context, cd *hivev1.ClusterDeployment) (bool, error) {
	member, _, err := r.members.Member(ctx, cd)
	if err != nil {
		return false, fmt.Errorf("looking for the pool of cluster %s/%s: %w", cd.Namespace, cd.Name, err)
	}
	return member, nil
}

func (r *Reconciler) claimsOf(ctx context.Context, pool types.NamespacedName) ([]claimplan.Waiter, error) {
	var list hivev1.ClusterClaimList
	if err := r.Client.List(ctx, &list, client.InNamespace(pool.Namespace), client.MatchingFields{indexClaimPool: pool.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing claims of pool %s: %w", pool, err)
	}
	claims := make([]claimplan.Waiter, 0, len(list.Items))
	for i := range list.Items {
		waiter := claimplan.WaiterOf(&list.Items[i])
		r.reservations.apply(&waiter, list.Items[i].ResourceVersion)
		claims = append(claims, waiter)
	}
	return claims, nil
}
