// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ippool writes the status of every pool, and keeps a pool while it has addresses.
package ippool

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/space"
)

// FieldOwner is the name that writes of this controller carry.
const FieldOwner = "ipam-operator/ippool"

// Recorder writes events about pools.
type Recorder interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Verifier asks the API server about addresses that the watch should have shown by now.
type Verifier interface {
	// Verify returns when to ask again; zero means never.
	Verify(ctx context.Context, pool types.NamespacedName) (time.Duration, error)
}

// Deps is what the controller works with.
type Deps struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Clusters finds the Cluster that owns a pool.
	Clusters *capi.Clusters
	// Filter selects the objects that are served.
	Filter capi.WatchFilter
	// Verifier asks about addresses that the watch has not shown.
	Verifier Verifier
	// HasForeign reports whether an object of another group is an address of a pool: one that was made before there were locks; nil where there is no such group.
	HasForeign func(ctx context.Context, pool types.NamespacedName) (bool, error)
	// External is what an inventory says that others have of a pool; nil where there is none.
	External func(pool types.NamespacedName) []netip.Prefix
	// Recorder writes events.
	Recorder Recorder
	// Clock tells the time.
	Clock clock.PassiveClock
	// Layouts reads the specs of pools.
	Layouts *space.Layouts
	// StatusInterval is the least time between two writes of one pool's status that its addresses cause. It grows with the time that a write takes.
	StatusInterval time.Duration
	// Workers is how many pools are looked at at once.
	Workers int
}

// Reconciler looks after pools.
type Reconciler struct {
	Deps
	held        *capi.Held
	lastWritten *lastWritten
	pace        *pace
	near        *neighbours
	control     controller.Controller
	// nudges are pools of which an inventory says something else.
	nudges chan event.GenericEvent
}

// New returns a Reconciler.
func New(deps Deps) *Reconciler {
	if deps.HasForeign == nil {
		deps.HasForeign = func(context.Context, types.NamespacedName) (bool, error) { return false, nil }
	}
	if deps.External == nil {
		deps.External = func(types.NamespacedName) []netip.Prefix { return nil }
	}
	return &Reconciler{Deps: deps, lastWritten: newLastWritten(), pace: newPace(deps.StatusInterval), near: newNeighbours(), held: capi.NewHeld(), nudges: make(chan event.GenericEvent)}
}

// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ippools,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ippools/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ippools/finalizers,verbs=update

// Reconcile brings the metadata and the status of one pool up to date.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pool := &ipamv1.IPPool{}
	if err := r.Client.Get(ctx, req.NamespacedName, pool); err != nil {
		if apierrors.IsNotFound(err) {
			r.lastWritten.drop(req.NamespacedName)
			r.pace.drop(req.NamespacedName)
			r.Layouts.Drop(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !r.Filter.Selects(pool) {
		return ctrl.Result{}, nil
	}
	pool = withOwnMetadata(pool)
	r.held.Expect(req.NamespacedName, req.Namespace)
	hold, err := r.Clusters.Hold(ctx, pool, pool, "")
	leftBehind := err != nil || hold != allocate.NotHeld && capi.IsLeftBehind(pool)
	r.held.Note(req.NamespacedName, leftBehind)
	r.held.Trust(req.NamespacedName)
	if leftBehind {
		return ctrl.Result{}, err // the mover takes the finalizer off
	}
	again, err := r.Verifier.Verify(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	observed, err := r.observe(ctx, pool)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err = r.metadata(ctx, pool, observed); err == nil {
		err = r.report(ctx, pool, observed)
	}
	if err != nil {
		return ctrl.Result{}, r.outcome(err)
	}
	if again == 0 && observed.foreign {
		again = foreignAgain
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// foreignAgain is when a pool that is being deleted is looked at again that has addresses of another group only: their events do not reach this controller.
const foreignAgain = 5 * time.Second

// withOwnMetadata is a pool whose metadata may be changed. Spec and status are those of the cache, which may be large, and are only read.
func withOwnMetadata(shared *ipamv1.IPPool) *ipamv1.IPPool {
	pool := *shared
	shared.ObjectMeta.DeepCopyInto(&pool.ObjectMeta)
	return &pool
}

// outcome is the error of a pass that could not write. After a conflict, the event of the other client's write is on the way.
func (r *Reconciler) outcome(err error) error {
	if err = outcome.IgnoreGone(err); err != nil {
		return outcome.Pace(fmt.Errorf("writing the pool: %w", err), r.StatusInterval)
	}
	return nil
}
