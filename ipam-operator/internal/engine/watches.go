// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/space"
)

// Queue is the work queue of a controller.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// indexKey is the key of an IPAddress in the index of what is free.
func indexKey(name types.NamespacedName) space.Key {
	return space.Key{Group: ipamv1.GroupVersion.Group, NamespacedName: name}
}

// recordOf is an IPAddress as the index of what is free knows it.
func recordOf(address *ipamv1.IPAddress) space.Record {
	ip, _ := allocate.ParseAddr(string(address.Spec.Address))
	return space.Record{
		Key:  indexKey(client.ObjectKeyFromObject(address)),
		Pool: types.NamespacedName{Namespace: address.Namespace, Name: address.Spec.Pool.Name},
		IP:   ip, PrefixLength: address.Spec.PrefixLength, Tenant: address.Tenant(), UID: address.UID, Released: ReleasedAt(address),
	}
}

// ReleasedAt is when an address was released that stays taken for as long as its pool says; zero for any other. It was released when it was deleted, unless its claim had it then.
func ReleasedAt(address *ipamv1.IPAddress) time.Time {
	if address.DeletionTimestamp.IsZero() || capi.IsLeftBehind(address) {
		return time.Time{}
	}
	released := address.DeletionTimestamp.Time
	if noted, err := time.Parse(time.RFC3339, address.Annotations[ipamv1.ReleasedAtAnnotation]); err == nil && noted.After(released) {
		return noted
	}
	return released
}

// addressHandler feeds the index of what is free and wakes the claims that an address concerns.
func (r *Reconciler) addressHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q Queue) {
			address := e.Object.(*ipamv1.IPAddress)
			r.Index.Observe(recordOf(address))
			if !e.IsInInitialList {
				r.wakeUnlessBound(ctx, address, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q Queue) {
			before, address := e.ObjectOld.(*ipamv1.IPAddress), e.ObjectNew.(*ipamv1.IPAddress)
			if before.UID != address.UID { // another object of the name: its deletion was not seen
				r.addressIsGone(ctx, before, q)
			}
			r.Index.Observe(recordOf(address))
			r.wakeUnlessBound(ctx, address, q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q Queue) {
			r.addressIsGone(ctx, e.Object.(*ipamv1.IPAddress), q)
		},
	}
}

// addressIsGone takes over that an address was deleted, and wakes the claim that had it.
func (r *Reconciler) addressIsGone(ctx context.Context, address *ipamv1.IPAddress, q Queue) {
	if ClaimKind(address) == r.Kind.Name() {
		q.Add(reconcile.Request{NamespacedName: address.ClaimKey()})
	}
	if owner := claimOwner(address); owner != "" && r.wasMoved(ctx, address) {
		r.leaveAddress(recordOf(address), owner)
	} else {
		r.forgetAddress(recordOf(address))
	}
	if named, ok := r.Index.Get(space.Key{Group: space.Named, NamespacedName: client.ObjectKeyFromObject(address)}); ok {
		r.forgetAddress(named)
	}
}

// wasMoved reports whether a mover took an address away: while it was at work, or because a move that was cut off is left behind. An address that was
// given back can have its mark, too.
func (r *Reconciler) wasMoved(ctx context.Context, address *ipamv1.IPAddress) bool {
	if !capi.IsLeftBehind(address) {
		return false
	}
	if claim, err := r.Kind.Get(ctx, address.ClaimKey()); ClaimKind(address) == r.Kind.Name() &&
		err == nil && claim != nil && claim.UID() == claimOwner(address) && !claim.Claim.Deleting {
		return true
	}
	pool := &ipamv1.IPPool{}
	if err := r.Client.Get(ctx, types.NamespacedName{Namespace: address.Namespace, Name: address.Spec.Pool.Name}, pool); err != nil {
		return false
	}
	hold, err := r.Clusters.Hold(ctx, address, pool, "")
	return err == nil && hold == allocate.HeldPaused
}

// wakeUnlessBound wakes the claim of an address that its status does not name or that has no owner: the claim may have two, or none that it knows of.
func (r *Reconciler) wakeUnlessBound(ctx context.Context, address *ipamv1.IPAddress, q Queue) {
	if ClaimKind(address) != r.Kind.Name() || address.Spec.Claim.Name == "" {
		return
	}
	claim := address.ClaimKey()
	subject, err := r.Kind.Get(ctx, claim)
	if err == nil && subject != nil && (subject.Claim.Bound != address.Name || IsByHand(address) || namesAnotherClaim(address, subject.UID())) {
		q.Add(reconcile.Request{NamespacedName: claim})
	}
}

// pendingInPool are the claims of a pool that have no address or are being deleted, oldest first. They are those of the
// cache and must not be changed.
func (w *waitlist) pendingInPool(ctx context.Context, pool types.NamespacedName) []ipamv1.IPClaim {
	return w.inPool(ctx, claimPendingInPool, pool)
}

// waitingInPool are those of them that are not being deleted. Of claims that choose their pool, those that are being deleted are among them.
func (w *waitlist) waitingInPool(ctx context.Context, pool types.NamespacedName) []ipamv1.IPClaim {
	return w.inPool(ctx, claimWaitingInPool, pool)
}

// waitingClaims are those of waitingInPool.
func (w *waitlist) waitingClaims(ctx context.Context, pool types.NamespacedName) []client.Object {
	claims := w.waitingInPool(ctx, pool)
	out := make([]client.Object, len(claims))
	for i := range claims {
		out[i] = &claims[i]
	}
	return out
}

func (w *waitlist) inPool(ctx context.Context, index string, pool types.NamespacedName) []ipamv1.IPClaim {
	claims := w.pending(ctx, "", client.MatchingFields{index: pool.String()})
	if choosing := w.pendingChoices(ctx, pool); len(choosing) > 0 {
		claims = append(claims, choosing...)
		slices.SortFunc(claims, olderClaim)
	}
	return claims
}

func (w *waitlist) pending(ctx context.Context, namespace string, index client.MatchingFields) []ipamv1.IPClaim {
	list := &ipamv1.IPClaimList{}
	if err := w.Client.List(ctx, list, client.InNamespace(namespace), index, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Waiting claims could not be listed from the cache")
	}
	slices.SortFunc(list.Items, olderClaim)
	return list.Items
}

func olderClaim(a, b ipamv1.IPClaim) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace))
}

// poolHandler takes new layouts over and wakes the claims that a change concerns.
func (r *Reconciler) poolHandler() handler.EventHandler {
	wakeAll := func(ctx context.Context, pool client.Object, q Queue) {
		r.WakeHeld(pool.GetNamespace(), q)
		for _, claim := range r.pendingInPool(ctx, client.ObjectKeyFromObject(pool)) {
			q.Add(requestFor(claim.Namespace, claim.Name))
		}
	}
	set := func(pool *ipamv1.IPPool) {
		r.Index.SetPool(client.ObjectKeyFromObject(pool), r.Layouts.Of(pool))
		r.announce(client.ObjectKeyFromObject(pool), nil)
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q Queue) {
			set(e.Object.(*ipamv1.IPPool))
			if !e.IsInInitialList {
				wakeAll(ctx, e.Object, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q Queue) {
			before, after := e.ObjectOld.(*ipamv1.IPPool), e.ObjectNew.(*ipamv1.IPPool)
			if before.Generation != after.Generation || before.UID != after.UID {
				set(after)
			}
			if PoolChanged(before, after) {
				wakeAll(ctx, after, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q Queue) {
			r.Index.DropPool(client.ObjectKeyFromObject(e.Object))
			r.Layouts.Drop(client.ObjectKeyFromObject(e.Object))
			wakeAll(ctx, e.Object, q)
		},
	}
}

// PoolChanged reports whether an update of a pool can change what is decided about its claims. Its status is left out: the operator
// knows earlier which addresses are taken or given back.
func PoolChanged(before, after client.Object) bool {
	return before.GetGeneration() != after.GetGeneration() || before.GetUID() != after.GetUID() || capi.HoldChanged(before, after) ||
		len(before.GetFinalizers()) != len(after.GetFinalizers()) || !maps.Equal(before.GetLabels(), after.GetLabels())
}

// clusterHandler wakes the claims that a Cluster held up.
func (r *Reconciler) clusterHandler() handler.EventHandler {
	return capi.OnChange(func(ctx context.Context, cluster client.Object, q Queue) {
		r.WakeHeld(cluster.GetNamespace(), q)
		pools := &ipamv1.IPPoolList{}
		if err := r.Client.List(ctx, pools, client.InNamespace(cluster.GetNamespace()), client.MatchingFields{PoolByCluster: cluster.GetName()}); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Pools of a Cluster could not be listed from the cache")
		}
		claims := r.pending(ctx, cluster.GetNamespace(), client.MatchingFields{claimPendingInCluster: cluster.GetName()})
		for i := range pools.Items {
			claims = append(claims, r.pendingInPool(ctx, client.ObjectKeyFromObject(&pools.Items[i]))...)
		}
		for i := range claims {
			q.Add(requestFor(claims[i].Namespace, claims[i].Name))
		}
	})
}

func requestFor(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}
