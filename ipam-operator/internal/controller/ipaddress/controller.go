// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ipaddress releases addresses that are not in use any more: those whose claim went away without the finalizer that
// would have kept it, and those that cool down before they are used again.
package ipaddress

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/engine"
)

// Deps is what the controller works with.
type Deps struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Kind is the kind of claim whose addresses are looked after.
	Kind engine.Kind
	// Claim is an object of that kind, to watch.
	Claim client.Object
	// Namespace is the only one whose objects are served; empty for all.
	Namespace string
	// Clusters reports what is paused.
	Clusters *capi.Clusters
	// Filter selects the objects that are served.
	Filter capi.WatchFilter
	// Releaser gives addresses back.
	Releaser engine.Releaser
	// Clock tells the time.
	Clock clock.PassiveClock
}

// Reconciler gives addresses back.
type Reconciler struct {
	Deps
	held    *capi.Held
	control controller.Controller
}

// New returns a Reconciler.
func New(deps Deps) *Reconciler { return &Reconciler{Deps: deps, held: capi.NewHeld()} }

// Reconcile releases one address, unless it is in use.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	address := &ipamv1.IPAddress{}
	if err := r.Client.Get(ctx, req.NamespacedName, address); err != nil {
		if apierrors.IsNotFound(err) {
			r.Releaser.Unprotected.Forget(req.NamespacedName)
			r.held.Note(req.NamespacedName, false)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.Releaser.Unprotected.Has(req.NamespacedName, address.UID) {
		return ctrl.Result{}, nil // the cache shows it for a moment longer
	}
	if engine.ClaimKind(address) != r.Kind.Name() || !r.Filter.Selects(address) {
		return ctrl.Result{}, nil
	}
	if err := r.noteCluster(ctx, address); err != nil {
		return ctrl.Result{}, err
	}
	leftBehind := capi.IsLeftBehind(address)
	if used, err := r.inUse(ctx, address, false); used && !leftBehind || err != nil {
		return ctrl.Result{}, err
	}
	pool, stays, err := r.observe(ctx, address)
	if err != nil || stays {
		return ctrl.Result{}, err
	}
	if leftBehind {
		// A move was cut off, and its Cluster goes on here: the claim gets the address again, by an object that is not being deleted.
		return ctrl.Result{}, r.Releaser.Unprotect(ctx, address.DeepCopy())
	}
	// The cache may be behind: only the API server knows that a claim is gone.
	if used, err := r.inUse(ctx, address, true); used || err != nil {
		return ctrl.Result{}, err
	}
	if waits, left := r.awaitsClaim(address, pool); waits {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	return r.release(ctx, address, allocate.CoolDown(pool))
}

// awaitsClaim reports whether an address was restored before its claim, with owners of an earlier life, and for how long it waits: until it is deleted, which the garbage collector
// does, and for a time after that. A pool that is being deleted does not wait for it.
func (r *Reconciler) awaitsClaim(address *ipamv1.IPAddress, pool *ipamv1.IPPool) (waits bool, left time.Duration) {
	if !engine.IsOfEarlierPool(address, pool) || !pool.DeletionTimestamp.IsZero() {
		return false, 0
	}
	if address.DeletionTimestamp.IsZero() {
		return true, 0
	}
	left = address.DeletionTimestamp.Add(engine.RestoredFor).Sub(r.Clock.Now())
	return left > 0, max(left, 0)
}

// inUse reports whether the address has a claim. One that was made by hand to reserve it stays until it is deleted.
func (r *Reconciler) inUse(ctx context.Context, address *ipamv1.IPAddress, live bool) (bool, error) {
	if engine.IsByHand(address) {
		return true, nil
	}
	return r.Kind.Has(ctx, address, live)
}

// observe reads the pool of an address, and whether the address stays for now. A pool that was restored a moment ago may not be in the cache yet.
func (r *Reconciler) observe(ctx context.Context, address *ipamv1.IPAddress) (pool *ipamv1.IPPool, stays bool, err error) {
	pool = &ipamv1.IPPool{}
	key := types.NamespacedName{Namespace: address.Namespace, Name: address.Spec.Pool.Name}
	err = r.Client.Get(ctx, key, pool)
	if apierrors.IsNotFound(err) {
		err = r.Releaser.Reader.Get(ctx, key, pool)
	}
	if outcome.IgnoreGone(err) != nil {
		return nil, false, fmt.Errorf("reading IPPool %s: %w", key, err)
	}
	name := client.ObjectKeyFromObject(address)
	r.held.Expect(name, address.ClaimKey().Namespace)
	hold, err := r.Clusters.Hold(ctx, address, pool, clusterOf(address))
	if err == nil {
		stays, err = r.stays(ctx, address, hold)
	}
	r.held.Note(name, err != nil || stays)
	r.held.Trust(name)
	return pool, stays, err
}

// tolerance is how far in the future a release may be. What is released later was released by a clock that was ahead, and cools down from now on: else it would be taken for as long as that clock was
// ahead. What is released within that time waits: it may be this clock that is behind, by the hours of a time zone, and the address would not cool down.
const tolerance = 24 * time.Hour

// release deletes the address, and removes its finalizer when it has cooled down. The time of the release is on the object, so that
// it outlives this process.
func (r *Reconciler) release(ctx context.Context, address *ipamv1.IPAddress, grace time.Duration) (ctrl.Result, error) {
	ip, _ := allocate.ParseAddr(string(address.Spec.Address))
	known := allocate.Address{Name: address.Name, UID: string(address.UID), IP: ip}
	if address.DeletionTimestamp.IsZero() {
		ctrl.LoggerFrom(ctx).Info("Gave back the address of a claim that is gone", r.Kind.Name(), address.ClaimKey())
		return ctrl.Result{}, r.Releaser.Release(ctx, address.Namespace, known, grace == 0, "ClaimGone")
	}
	if noted := engine.ReleasedAt(address); noted.After(address.DeletionTimestamp.Time) && noted.After(r.Clock.Now().Add(tolerance)) {
		return ctrl.Result{RequeueAfter: grace}, engine.NoteRelease(ctx, r.Client, client.ObjectKeyFromObject(address), address.UID, r.Clock.Now())
	}
	if left := r.coolsDown(address, grace); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	// Another pass may have released it already, and the cache may be behind.
	live := &ipamv1.IPAddress{}
	if err := r.Releaser.Reader.Get(ctx, client.ObjectKeyFromObject(address), live); err != nil {
		return ctrl.Result{}, outcome.IgnoreGone(err)
	}
	if live.UID != address.UID {
		return ctrl.Result{}, nil
	}
	if left := r.coolsDown(live, grace); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	return ctrl.Result{}, r.Releaser.Unprotect(ctx, live)
}

// coolsDown is for how much longer a released address stays taken.
func (r *Reconciler) coolsDown(address *ipamv1.IPAddress, grace time.Duration) time.Duration {
	return engine.ReleasedAt(address).Add(grace).Sub(r.Clock.Now())
}

// SetupWithManager starts the controller with the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, name string) error {
	builder := ctrl.NewControllerManagedBy(mgr).
		Named(name).
		For(&ipamv1.IPAddress{}).
		Watches(r.Claim, r.claimHandler()).
		Watches(&ipamv1.IPPool{}, r.poolHandler())
	if r.Namespace == "" {
		builder = builder.WatchesMetadata(engine.NewNamespace(), r.namespaceHandler())
	}
	c, err := builder.
		WithOptions(controller.TypedOptions[reconcile.Request]{
			MaxConcurrentReconciles: 4, ReconciliationTimeout: time.Minute, EnableWarmup: new(true),
		}).
		Build(tracing.Reconciler(name, outcome.Reconciler[ctrl.Request](r)))
	if err != nil {
		return fmt.Errorf("building the controller %s: %w", name, err)
	}
	r.control = c
	return nil
}

// claimHandler looks at the addresses of a claim that is gone, also where another one has its name already and its deletion was not seen.
func (r *Reconciler) claimHandler() handler.EventHandler {
	gone := func(ctx context.Context, claim client.Object, q engine.Queue) {
		r.enqueue(ctx, q, "", client.MatchingFields{engine.AddressByClaim: engine.ClaimIndex(r.Kind.Name(), client.ObjectKeyFromObject(claim))})
	}
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q engine.Queue) {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				gone(ctx, e.ObjectOld, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q engine.Queue) { gone(ctx, e.Object, q) },
	}
}

// poolHandler looks again at the addresses of a pool that may have released them.
func (r *Reconciler) poolHandler() handler.EventHandler {
	again := func(ctx context.Context, pool client.Object, q engine.Queue) {
		r.enqueue(ctx, q, pool.GetNamespace(), client.MatchingFields{engine.AddressByPool: pool.GetName()})
	}
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q engine.Queue) {
			if e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || capi.HoldChanged(e.ObjectOld, e.ObjectNew) {
				again(ctx, e.ObjectNew, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q engine.Queue) { again(ctx, e.Object, q) },
	}
}

// WatchClusters makes addresses follow Clusters, from now on.
func (r *Reconciler) WatchClusters(c cache.Cache, kind schema.GroupVersionKind) error {
	return engine.WatchKind(r.control, c, kind, capi.OnChange(func(ctx context.Context, cluster client.Object, q engine.Queue) {
		for _, address := range r.held.Wake(cluster.GetNamespace()) {
			q.Add(reconcile.Request{NamespacedName: address})
		}
		pools := &ipamv1.IPPoolList{}
		err := r.Client.List(ctx, pools, client.InNamespace(cluster.GetNamespace()), client.MatchingFields{engine.PoolByCluster: cluster.GetName()})
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Pools of a Cluster could not be listed from the cache")
		}
		for i := range pools.Items {
			r.enqueue(ctx, q, cluster.GetNamespace(), client.MatchingFields{engine.AddressByPool: pools.Items[i].Name})
		}
	}))
}

// enqueue looks again at the addresses that an index finds.
func (r *Reconciler) enqueue(ctx context.Context, q engine.Queue, namespace string, index client.MatchingFields) {
	list := &ipamv1.IPAddressList{}
	if err := r.Client.List(ctx, list, client.InNamespace(namespace), index, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Addresses could not be listed from the cache")
	}
	for i := range list.Items {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
}
