// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"context"
	"reflect"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/claimplan"
)

// Priorities of what wakes a claim. Somebody who waits for a cluster that is there comes before all housekeeping.
const (
	urgent       = 100
	housekeeping = 0
)

// concurrency is how many claims are served at a time. A pass waits for nothing but the API server.
const concurrency = 32

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// SetupWithManager registers the controller. The manager's cache needs the indexes of [AddIndexes].
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	rights := handler.EnqueueRequestsFromMapFunc(r.claimOfRights)
	named := builder.WithPredicates(predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetName() == hivev1.ClaimOwnerRoleName }))
	return ctrl.NewControllerManagedBy(mgr).
		Named("clusterclaim").
		Watches(&hivev1.ClusterClaim{}, r.onClaims()).
		Watches(&hivev1.ClusterDeployment{}, r.onClusters()).
		Watches(&hivev1.ClusterPool{}, r.onPools()).
		Watches(&rbacv1.Role{}, rights, named).
		Watches(&rbacv1.RoleBinding{}, rights, named).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: concurrency,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](50*time.Millisecond, 5*time.Minute),
		}).
		Complete(r)
}

// onClaims wakes a claim when it changes, and the head of the queue when a claim left it or let go of a cluster.
func (r *Reconciler) onClaims() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			r.add(q, urgencyOf(e.Object), requestFor(e.Object))
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			r.add(q, urgencyOf(e.ObjectNew), requestFor(e.ObjectNew))
			before, after := e.ObjectOld.(*hivev1.ClusterClaim), e.ObjectNew.(*hivev1.ClusterClaim)
			if freesCluster(before, after) {
				r.wakeHeads(ctx, q, poolOf(before))
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			r.memory.forget(e.Object.GetUID())
			r.reservations.release(e.Object.GetUID())
			r.add(q, housekeeping, requestFor(e.Object))
			r.wakeHeads(ctx, q, poolOf(e.Object.(*hivev1.ClusterClaim)))
		},
	}
}

// freesCluster says whether the change may leave a free cluster to the next in the queue.
func freesCluster(before, after *hivev1.ClusterClaim) bool {
	switch {
	case before.Spec.ClusterPoolName != after.Spec.ClusterPoolName:
		return true
	case before.DeletionTimestamp.IsZero() && !after.DeletionTimestamp.IsZero():
		return true
	case before.Annotations[hivev1.AnnotationReconcilePause] != after.Annotations[hivev1.AnnotationReconcilePause]:
		return true
	case after.Status.WaitingFor == hivev1.WaitQueueTimedOut && before.Status.WaitingFor != hivev1.WaitQueueTimedOut:
		return true
	default:
		return before.Spec.Namespace != "" && before.Spec.Namespace != after.Spec.Namespace
	}
}

// onClusters wakes the claim that a cluster records, claims that name it, and the head of the queue when it has become free.
func (r *Reconciler) onClusters() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			r.wakeForCluster(ctx, q, nil, e.Object.(*hivev1.ClusterDeployment))
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			r.wakeForCluster(ctx, q, e.ObjectOld.(*hivev1.ClusterDeployment), e.ObjectNew.(*hivev1.ClusterDeployment))
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			r.memory.forget(e.Object.GetUID())
			r.wakeForCluster(ctx, q, nil, e.Object.(*hivev1.ClusterDeployment))
		},
	}
}

// wakeForCluster does so unless nothing changed that claims depend on.
func (r *Reconciler) wakeForCluster(ctx context.Context, q queue, before, after *hivev1.ClusterDeployment) {
	is := claimplan.ClusterOf(after)
	was := claimplan.Cluster{}
	if before != nil {
		was = claimplan.ClusterOf(before)
		was.ResourceVersion = is.ResourceVersion
		if reflect.DeepEqual(was, is) {
			return
		}
	}
	if is.ClaimName != "" {
		r.add(q, housekeeping, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: is.Pool.Namespace, Name: is.ClaimName}})
	}
	var claims hivev1.ClusterClaimList
	if err := r.Client.List(ctx, &claims, client.MatchingFields{indexClaimCluster: is.Namespace}, client.UnsafeDisableDeepCopy); err == nil {
		for i := range claims.Items {
			r.add(q, housekeeping, requestFor(&claims.Items[i]))
		}
	}
	if is.Usable() && !was.Usable() {
		r.wakeHeads(ctx, q, is.Pool)
	}
}

// wakeHeads wakes as many waiting claims as there are free clusters, from the head of the queue, so that a long queue costs nothing.
func (r *Reconciler) wakeHeads(ctx context.Context, q queue, key types.NamespacedName) {
	now := r.Clock.Now()
	claims, err := r.claimsOf(ctx, key)
	if err != nil || len(claimplan.Waiting(now, claims, nil)) == 0 {
		return
	}
	pool, err := r.pool(ctx, key)
	if err != nil || pool == nil {
		return
	}
	clusters, err := r.clustersOf(ctx, key)
	if err != nil {
		return
	}
	free, waiting := claimplan.Free(now, pool, claims, clusters), claimplan.Waiting(now, claims, clusters)
	for _, w := range waiting[:min(len(free), len(waiting))] {
		r.add(q, urgent, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: key.Namespace, Name: w.Name}})
	}
}

// onPools wakes the claims of a pool when something changed that they depend on: waiting ones, or all when it is about lifetimes or releases.
func (r *Reconciler) onPools() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { r.wakeClaims(ctx, q, e.Object, false) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { r.wakeClaims(ctx, q, e.Object, false) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*hivev1.ClusterPool), e.ObjectNew.(*hivev1.ClusterPool)
			switch {
			case !equality.Semantic.DeepEqual(before.Spec.ClaimLifetime, after.Spec.ClaimLifetime),
				(before.Spec.MaxConcurrent == nil) != (after.Spec.MaxConcurrent == nil):
				r.wakeClaims(ctx, q, after, false)
			case !reflect.DeepEqual(causesOf(before), causesOf(after)):
				r.wakeClaims(ctx, q, after, true)
			}
		},
	}
}

// causes is what waiting claims of a pool say about it, and what decides which cluster they get.
type causes struct {
	deleting   bool
	policy     hivev1.ClaimPolicy
	frozen     bool
	conditions [3]hivev1.Condition
}

func causesOf(pool *hivev1.ClusterPool) causes {
	c := causes{
		deleting: !pool.DeletionTimestamp.IsZero(),
		policy:   pool.Spec.ClaimPolicy,
		frozen:   pool.Spec.MaxConcurrent != nil && *pool.Spec.MaxConcurrent == 0,
	}
	for i, t := range []string{hivev1.ClusterPoolCapacityAvailable, hivev1.ClusterPoolMissingDependencies, hivev1.ClusterPoolProvisioningHealthy} {
		if found := hivev1.FindCondition(pool.Status.Conditions, t); found != nil {
			c.conditions[i] = hivev1.Condition{Status: found.Status, Reason: found.Reason, Message: found.Message}
		}
	}
	return c
}

// wakeClaims wakes the claims of the pool, or those without a cluster only.
func (r *Reconciler) wakeClaims(ctx context.Context, q queue, pool client.Object, waiting bool) {
	var claims hivev1.ClusterClaimList
	if err := r.Client.List(ctx, &claims, client.InNamespace(pool.GetNamespace()), client.MatchingFields{indexClaimPool: pool.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		return
	}
	for i := range claims.Items {
		if claim := &claims.Items[i]; !waiting || claim.Spec.Namespace == "" {
			r.add(q, housekeeping, requestFor(claim))
		}
	}
}

// claimOfRights returns the claim whose subjects' rights the object is, or should be.
func (r *Reconciler) claimOfRights(ctx context.Context, obj client.Object) []reconcile.Request {
	cd := &hivev1.ClusterDeployment{}
	key := types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetNamespace()}
	if err := r.Client.Get(ctx, key, cd, client.UnsafeDisableDeepCopy); err != nil || cd.Spec.ClusterPoolRef == nil || cd.Spec.ClusterPoolRef.ClaimName == "" {
		return nil
	}
	ref := cd.Spec.ClusterPoolRef
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: ref.Namespace, Name: ref.ClaimName}}}
}

// urgencyOf is high for a claim that waits.
func urgencyOf(obj client.Object) int {
	claim := obj.(*hivev1.ClusterClaim)
	if claim.Spec.Namespace == "" && claim.DeletionTimestamp.IsZero() && len(claim.Status.Conditions) == 0 {
		return urgent
	}
	return housekeeping
}

func poolOf(claim *hivev1.ClusterClaim) types.NamespacedName {
	return types.NamespacedName{Namespace: claim.Namespace, Name: claim.Spec.ClusterPoolName}
}

func requestFor(obj client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)}
}

// add enqueues with a priority. From here on, an urgent claim is being served.
func (r *Reconciler) add(q queue, priority int, request reconcile.Request) {
	if priority == urgent {
		r.Service.begin(request.NamespacedName)
	}
	if pq, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		pq.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, request)
		return
	}
	q.Add(request)
}
