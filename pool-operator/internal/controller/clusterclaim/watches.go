// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"context"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
)

// Priorities of what wakes a claim. A claim that waits for a free cluster comes before all housekeeping.
const (
	urgent       = 100
	housekeeping = 0
)

// concurrency is how many claims are served at a time. A pass waits for nothing but the API server, which gives each client in it an equal share: fewer would let installers that are busy
// there go first.
const concurrency = 64

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
		Watches(namespaceMetadata(), r.onNamespaces(), builder.OnlyMetadata, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&rbacv1.Role{}, rights, named).
		Watches(&rbacv1.RoleBinding{}, rights, named).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: concurrency,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](50*time.Millisecond, 5*time.Minute),
		}).
		Complete(tracing.ReconcilerOf("clusterclaim", outcome.Reconciler[ctrl.Request](r), tracing.OfClaim(r.Client)))
}

// onClaims wakes a claim when it changes, and the head of the queue when a claim left it or released a cluster.
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

// freesCluster says whether the change may leave a free cluster to the next in the queue: whatever the queue reads of the claim changed.
func freesCluster(before, after *hivev1.ClusterClaim) bool {
	was, is := poolview.ClaimOf(before), poolview.ClaimOf(after)
	left := after.Status.WaitingFor == hivev1.WaitQueueTimedOut && before.Status.WaitingFor != hivev1.WaitQueueTimedOut
	assigned := was.Namespace == "" && is.Namespace != ""
	was.Namespace, is.Namespace = "", ""
	return left || before.Spec.ClusterPoolName != after.Spec.ClusterPoolName || was != is ||
		!assigned && poolview.ClaimOf(before).Namespace != poolview.ClaimOf(after).Namespace
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
	is := poolview.ClusterOf(after)
	was := poolview.Cluster{}
	if before != nil {
		was = poolview.ClusterOf(before)
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
	if is.Usable() && (!was.Usable() || was.Running() != is.Running() || !was.Resuming().Equal(is.Resuming())) {
		r.wakeHeads(ctx, q, is.Pool)
	}
}

// wakeHeads wakes as many waiting claims as there are free clusters, from the head of the queue, so that a long queue costs nothing.
func (r *Reconciler) wakeHeads(ctx context.Context, q queue, key types.NamespacedName) {
	now := r.Clock.Now()
	claims, err := r.claimsOf(ctx, key)
	if err != nil || len(poolview.Waiting(now, claims, nil)) == 0 {
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
	free, waiting := poolview.Free(now, poolview.PoolOf(pool), claims, clusters), poolview.Waiting(now, claims, clusters)
	for _, w := range waiting[:min(len(free), len(waiting))] {
		r.add(q, urgent, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: key.Namespace, Name: w.Name}})
	}
}

// onPools wakes the claims of a pool when something changed that they depend on: waiting ones, or all when it is about lifetimes, releases or rights.
func (r *Reconciler) onPools() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { r.wakeClaims(ctx, q, e.Object, false) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { r.wakeClaims(ctx, q, e.Object, false) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			was, is := poolview.PoolOf(e.ObjectOld.(*hivev1.ClusterPool)), poolview.PoolOf(e.ObjectNew.(*hivev1.ClusterPool))
			switch {
			case was.Bounded != is.Bounded || was.MachinePools != is.MachinePools || !equality.Semantic.DeepEqual(was.ClaimLifetime, is.ClaimLifetime):
				r.wakeClaims(ctx, q, e.ObjectNew, false)
			case !equality.Semantic.DeepEqual(was.Says(), is.Says()):
				r.wakeClaims(ctx, q, e.ObjectNew, true)
			}
			if is.GivesUpDeletion(was) || was.Limits != is.Limits {
				r.wakeHeads(ctx, q, client.ObjectKeyFromObject(e.ObjectNew))
			}
		},
	}
}

// onNamespaces wakes the claims that a cluster matters to when its namespace starts or ceases to prove whose it is. The namespace of a new cluster is there before the cluster, which
// wakes them itself.
func (r *Reconciler) onNamespaces() handler.EventHandler {
	wake := func(ctx context.Context, q queue, name string) {
		cd := &hivev1.ClusterDeployment{}
		if err := r.Client.Get(ctx, types.NamespacedName{Namespace: name, Name: name}, cd, client.UnsafeDisableDeepCopy); err == nil {
			r.wakeForCluster(ctx, q, nil, cd)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			if !e.IsInInitialList {
				wake(ctx, q, e.Object.GetName())
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { wake(ctx, q, e.ObjectNew.GetName()) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { wake(ctx, q, e.Object.GetName()) },
	}
}

func namespaceMetadata() client.Object {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return ns
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
	if claim.Spec.Namespace == "" && claim.DeletionTimestamp.IsZero() && hivev1.FindCondition(claim.Status.Conditions, hivev1.ClusterClaimPending) == nil {
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
