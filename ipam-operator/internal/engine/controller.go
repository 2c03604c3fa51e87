// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package engine gives every claim of either kind its address, and takes it back. Controllers of claims, addresses, pools and network data rest on it.
//
// The name of the IPAddress object is the lock: it is made from the address, so that the API server lets one claim have
// it. The status of the claim is written under the claim's resourceVersion, so that a claim has one address.
package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/metrics"
	"github.com/muster-io/muster/ipam-operator/internal/space"
)

// Recorder writes events about claims.
type Recorder interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Deps is what the controller works with.
type Deps struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Kind is the kind of claim that is served.
	Kind Kind
	// Index is what is free.
	Index *space.Index
	// Line is the queues of the claims that wait. It is shared by the Reconcilers of all kinds.
	Line *space.Line
	// Clusters reports what is paused.
	Clusters *capi.Clusters
	// Filter selects the objects that are served.
	Filter capi.WatchFilter
	// Recorder writes events.
	Recorder Recorder
	// Metrics measures.
	Metrics *metrics.Metrics
	// Clock tells the time.
	Clock clock.PassiveClock
	// Layouts reads the specs of pools.
	Layouts *space.Layouts
	// Namespace is the only one whose objects are served; empty for all.
	Namespace string
	// Workers is how many claims are served at once.
	Workers int
	// Wait is how long a claim of a pool waits before it is looked at again, zero for not at all; nil where nothing has to be waited for.
	Wait func(pool types.NamespacedName) time.Duration
	// WakeWaiting wakes the claims of all kinds that wait for an address of a pool, which may be known; nil for the Reconciler that does it itself.
	WakeWaiting func(pool types.NamespacedName, ip netip.Addr)
}

// Reconciler serves claims: it observes what the plan decides on, and executes the decision.
type Reconciler struct {
	*Deps
	Releaser
	*waitlist
	observer *observer
	executor *executor
	control  controller.Controller
}

// New returns a Reconciler.
func New(deps Deps) *Reconciler {
	if deps.Line == nil {
		deps.Line = space.NewLine()
	}
	waits := newWaitlist(&deps)
	if deps.WakeWaiting == nil {
		deps.WakeWaiting = waits.Freed
	}
	releaser := Releaser{Writer: deps.Client, Reader: deps.Live, Count: deps.Metrics, Unprotected: NewUnprotected()}
	return &Reconciler{
		Deps: &deps, Releaser: releaser, waitlist: waits,
		observer: &observer{Deps: &deps, waits: waits},
		executor: &executor{Deps: &deps, Releaser: releaser, waits: waits, records: waits.records},
	}
}

// Waiting counts the claims that have no address, by reason.
func (r *Reconciler) Waiting() map[allocate.Why]int { return r.records.count() }

// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ipclaims,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ipclaims/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ipclaims/finalizers,verbs=update
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ippools,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ipaddresses,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile gives one claim its address, or takes it back.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	subject, err := r.Kind.Get(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading %s %s: %w", r.Kind.Name(), req, err)
	}
	if subject != nil && !r.Filter.Selects(subject.Object) {
		subject = nil // another instance serves it
	}
	r.giveUpFormer(req.NamespacedName, subject)
	if r.finalizerRemoved(req.NamespacedName, subject) {
		return ctrl.Result{}, nil
	}
	if subject == nil {
		r.forget(req.NamespacedName)
		r.held.Trust(req.NamespacedName)
		r.records.unwrite(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	if err := r.observer.choosePool(ctx, subject); err != nil {
		return ctrl.Result{}, err
	}
	if r.Wait != nil && !subject.Claim.Deleting && subject.Claim.Bound == "" {
		if wait := r.Wait(subject.Pool); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
	}
	if r.records.isAhead(subject.Object) {
		return ctrl.Result{}, nil // the event of what was written is on the way
	}
	ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithValues("IPPool", subject.Pool))
	snapshot, err := r.observer.observe(ctx, subject)
	if err != nil {
		return ctrl.Result{}, err
	}
	err = r.serve(ctx, subject, snapshot)
	if outcome.IsAgain(err) && !errors.Is(err, errUndecided) {
		r.Metrics.Conflict(metrics.ClaimChanged)
	}
	return ctrl.Result{}, err
}

// maxTries is how many addresses a pass tries for a claim. Every one that another claim has got is known to be taken from then on, so that the
// next pass goes on with others.
const maxTries = 100

// serve plans and executes until there is nothing to try again: a name that another claim has got first is an answer,
// and the next address is tried at once.
func (r *Reconciler) serve(ctx context.Context, subject *Subject, snapshot allocate.Snapshot) error {
	for range maxTries {
		decision := r.Index.Decide(subject.Pool, subject.UID(), func(free *allocate.Free) allocate.Decision {
			snapshot.Pool.Free = free
			snapshot.Pool.Found = snapshot.Pool.Found && free != nil
			snapshot.Random.Hi, snapshot.Random.Lo = rand.Uint64(), rand.Uint64() //nolint:gosec // any free address will do
			snapshot.Ahead = r.Line.Ahead(subject.queue(), subject.waiter())
			decision := allocate.Plan(snapshot)
			if _, ok := decision.Action.(allocate.Create); ok {
				if queue, ok := r.Line.Leave(subject.UID()); ok { // it has taken its address off those that are free
					r.wakeLater(queue.Pool) // those behind it have moved up
				}
			}
			return decision
		})
		again, err := r.executor.execute(ctx, subject, decision)
		if err != nil || !again {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		snapshot.Kept = allocate.Address{} // it was released, or could not be
	}
	return fmt.Errorf("allocating an address of IPPool %s for %s %s: %d addresses in a row were taken", subject.Pool, subject.Kind, subject.Key(), maxTries)
}
