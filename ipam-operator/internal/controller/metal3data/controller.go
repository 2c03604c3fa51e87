// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metal3data claims the addresses that a template names for a machine, and writes what it renders into Secrets.
//
// A Secret is written once and not changed, so that a machine can be provisioned anew in the very same state.
package metal3data

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/dataplan"
	"github.com/muster-io/muster/ipam-operator/internal/metrics"
	"github.com/muster-io/muster/ipam-operator/internal/space"
)

// FieldOwner is the name that writes of this controller carry.
const FieldOwner = "ipam-operator/metal3data"

// reasonRendered is the reason of the event that says that the Secrets are there.
const reasonRendered = "Rendered"

// Recorder writes events about data.
type Recorder interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Deps is what the controller works with.
type Deps struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Cache reads kinds from the cache that this operator has no Go types of.
	Cache client.Reader
	// Live reads from the API server.
	Live client.Reader
	// Clusters reports what is paused.
	Clusters *capi.Clusters
	// Filter selects the objects that are served.
	Filter capi.WatchFilter
	// Recorder writes events.
	Recorder Recorder
	// Metrics measures.
	Metrics *metrics.NetworkData
	// Clock tells the time.
	Clock clock.PassiveClock
	// Layouts reads the specs of pools.
	Layouts *space.Layouts
	// NameByHost names IPClaims after the BareMetalHost and not after the Metal3Data, so that a pool can have addresses for hosts.
	NameByHost bool
	// Workers is how many Metal3Data are served at once.
	Workers int
}

// Reconciler serves Metal3Data.
type Reconciler struct {
	Deps
	kinds   kinds
	waits   *waits
	control controller.Controller
}

// New returns a Reconciler.
func New(deps Deps) *Reconciler { return &Reconciler{Deps: deps, waits: newWaits()} }

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3datas,verbs=get;list;watch;update;patch;delete
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3datas/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3datatemplates,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3dataclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=metal3.io,resources=baremetalhosts,verbs=get;list;watch
// +kubebuilder:rbac:groups=metal3.io,resources=hardwaredata,verbs=get
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ipclaims,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ipaddresses,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddresses,verbs=get;list;watch
// +kubebuilder:rbac:groups=core,resources=secrets,verbs=get;list;watch;create

// Reconcile renders one Metal3Data, or gives its addresses back.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	data, err := r.get(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	if data != nil && !r.Filter.Selects(data) {
		return ctrl.Result{}, nil
	}
	snapshot, err := r.observe(ctx, req.NamespacedName, data)
	if err != nil {
		return ctrl.Result{}, err
	}
	decision := dataplan.Plan(snapshot)
	if data, err = r.execute(ctx, data, decision.Actions); err == nil {
		err = r.report(ctx, data, decision)
	}
	return ctrl.Result{}, err
}

// get reads data from the cache; nil means that it is gone.
func (r *Reconciler) get(ctx context.Context, name types.NamespacedName) (*infrav1.Metal3Data, error) {
	data := &infrav1.Metal3Data{}
	err := r.Client.Get(ctx, name, data)
	if apierrors.IsNotFound(err) {
		r.waits.drop(name)
		r.Metrics.Data.Gone(name)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Metal3Data %s: %w", name, err)
	}
	return data, nil
}

// note counts data that is rendered, or why it is not. Data that is being deleted does not count.
func (r *Reconciler) note(data *infrav1.Metal3Data, why allocate.Why) {
	key := client.ObjectKeyFromObject(data)
	switch {
	case !data.DeletionTimestamp.IsZero():
		r.Metrics.Data.Gone(key)
	case data.Status.Ready:
		r.Metrics.Rendered(key, r.Clock.Now())
	default:
		r.Metrics.Data.Waits(key, why)
	}
}
