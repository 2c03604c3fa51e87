// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhostdiscovery

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/fleet"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// FieldOwner owns what this controller applies.
const FieldOwner = "discovery-operator"

// Sources finds the Ironic of a resource.
type Sources interface {
	// Address says which Ironic a reference means, and how its namespace comes in.
	Address(namespace string, ref *metal3v1.IronicReference) inventory.Address
	// Source connects. It returns the same source while nothing changed.
	Source(ctx context.Context, namespace string, ref *metal3v1.IronicReference) (fleet.Source, error)
}

// Counter counts outcomes.
type Counter interface {
	Created()
	Refused()
}

// Deps is what the controller works with.
type Deps struct {
	// Client reads from the cache, sees its own writes in it, and writes.
	Client client.Client
	// Live reads from the API server, where a stale answer would be a wrong one.
	Live     client.Reader
	Recorder events.EventRecorder
	Sources  Sources
	Fleets   *fleet.Registry
	Counter  Counter
	// Namespace holds the reservations of boot MACs.
	Namespace string
	// ManageHosts says that this operator manages hosts, and switches the drivers of their nodes.
	ManageHosts bool
	// Workers create hosts at the same time.
	Workers int
}

// Reconciler reconciles BareMetalHostDiscovery.
type Reconciler struct {
	Deps
	// wake carries the news of pollers.
	wake chan event.TypedGenericEvent[*metal3v1.BareMetalHostDiscovery]
	now  func() time.Time

	mu     sync.Mutex
	memory map[inventory.Ref]*memory
	// left is when the hosts of nodes were deleted, in the future for those that are being deleted.
	left map[string]time.Time
}

// New makes a reconciler.
func New(d Deps) *Reconciler {
	if d.Workers == 0 {
		d.Workers = 16
	}
	return &Reconciler{
		Deps: d, now: time.Now, memory: map[inventory.Ref]*memory{}, left: map[string]time.Time{},
		wake: make(chan event.TypedGenericEvent[*metal3v1.BareMetalHostDiscovery], 64),
	}
}

// +kubebuilder:rbac:groups=metal3.io,resources=baremetalhostdiscoveries,verbs=get;list;watch;operate
// +kubebuilder:rbac:groups=metal3.io,resources=baremetalhostdiscoveries/status,verbs=get;patch
// +kubebuilder:rbac:groups=metal3.io,resources=baremetalhosts,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=metal3.io,resources=hardwaredata,verbs=list;create;patch
// +kubebuilder:rbac:groups=metal3.io,resources=discoveredmachines,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=metal3.io,resources=baremetalhosts/status,verbs=get;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=muster-discovery-operator,resources=leases,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get

// Reconcile makes the machines that a resource takes into hosts.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var discovery metal3v1.BareMetalHostDiscovery
	if err := r.Client.Get(ctx, req.NamespacedName, &discovery); apierrors.IsNotFound(err) || err == nil && discovery.DeletionTimestamp != nil {
		r.forget(inventory.Ref(req.NamespacedName))
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	observed, err := r.observe(ctx, &discovery)
	if err != nil {
		return ctrl.Result{}, err
	}
	decision := inventory.Plan(observed.snapshot)
	observed.memory.waited = inventory.WaitedAfter(observed.snapshot, decision)
	outcome := r.execute(ctx, observed, &decision)
	if err := r.report(ctx, observed, decision); err != nil {
		return ctrl.Result{}, err
	}
	for _, keep := range []func(context.Context, *observation, inventory.Decision) (time.Duration, error){r.list, r.hardwareData} {
		after, err := keep(ctx, observed, decision)
		if err != nil {
			return ctrl.Result{}, err
		}
		if after > 0 {
			sooner(&decision, after)
		}
	}
	return ctrl.Result{RequeueAfter: decision.RequeueAfter}, outcome
}

// forget gives up the share of the poller and the memory of a resource that is gone.
func (r *Reconciler) forget(ref inventory.Ref) {
	r.Fleets.Release(ref.String())
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memory, ref)
}
