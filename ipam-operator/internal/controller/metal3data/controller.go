// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metal3data claims the addresses that a template names for a machine, and writes what it renders into Secrets.
//
// A Secret is written once and not changed, so that a machine can be provisioned anew in the very same state.
package metal3data

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/metrics"
	"github.com/muster-io/muster/ipam-operator/internal/space"
)

// FieldOwner is the name that writes of this controller carry.
const FieldOwner = "ipam-operator/metal3data"

// ReasonRendered is the reason of the event that says that the Secrets are there.
const ReasonRendered = "Rendered"

// Why nothing is rendered: the reason in logs, events and metrics.
const (
	WhyTemplateNotFound allocate.Why = "TemplateNotFound"
	WhyClaimNotFound    allocate.Why = "ClaimNotFound"
	WhyMachineNotReady  allocate.Why = "MachineNotReady"
	WhyNoAddress        allocate.Why = "NoAddress"
	WhyNotRenderable    allocate.Why = "NotRenderable"
	WhySecretInTheWay   allocate.Why = "SecretInTheWay"
)

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

// refusal is why nothing is rendered for now, as a sentence for users. An empty one is a wait that another controller reports.
type refusal string

func (r refusal) Error() string { return string(r) }

func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// cause is a refusal and its reason.
type cause struct {
	refusal
	why allocate.Why
}

func (c cause) Unwrap() error { return c.refusal }

// because gives a refusal its reason; any other error stays as it is.
func because(why allocate.Why, err error) error {
	if text, ok := isRefusal(err); ok {
		return cause{refusal(text), why}
	}
	return err
}

// errWaiting is the wait for an address whose claim says itself how far it is.
const errWaiting = refusal("")

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
	data := &infrav1.Metal3Data{}
	err := r.Client.Get(ctx, req.NamespacedName, data)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading Metal3Data %s: %w", req, err)
	}
	if apierrors.IsNotFound(err) {
		r.waits.drop(req.NamespacedName)
		r.Metrics.Data.Gone(req.NamespacedName)
		return r.outcome(ctx, r.letGo(ctx, req.NamespacedName, ""))
	}
	if !r.Filter.Selects(data) {
		return ctrl.Result{}, nil
	}
	return r.outcome(ctx, r.serve(ctx, data))
}

func (r *Reconciler) serve(ctx context.Context, data *infrav1.Metal3Data) error {
	template, err := r.template(ctx, data)
	if err != nil {
		return err
	}
	hold, err := r.hold(ctx, data, template)
	if err != nil {
		return err
	}
	if hold == allocate.HeldPaused {
		r.note(data, allocate.WhyPaused)
		return nil
	}
	if !data.DeletionTimestamp.IsZero() {
		r.note(data, allocate.WhyDeleted)
		return r.release(ctx, data)
	}
	claim, err := r.claim(ctx, data)
	if err != nil {
		return err
	}
	if claim == nil {
		return r.delete(ctx, data)
	}
	if err := r.letGo(ctx, client.ObjectKeyFromObject(data), data.UID); err != nil {
		return err
	}
	if ready, err := r.isRendered(ctx, data); err != nil {
		return err
	} else if ready {
		r.note(data, allocate.WhyServed)
		return r.report(ctx, data, nil)
	}
	r.Metrics.Data.Begins(client.ObjectKeyFromObject(data), r.Clock.Now())
	if hold == allocate.HeldClusterMissing {
		return r.report(ctx, data, because(allocate.WhyClusterNotFound, refuse("Cluster %s not found", template.Spec.ClusterName)))
	}
	if template == nil {
		return r.report(ctx, data, because(WhyTemplateNotFound, refuse("Metal3DataTemplate %s not found", data.Spec.Template.Name)))
	}
	return r.report(ctx, data, r.render(ctx, data, claim, template))
}

// outcome turns a write that came second into another look, soon: the event of the first is on its way.
func (r *Reconciler) outcome(ctx context.Context, err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		ctrl.LoggerFrom(ctx).V(1).Info("Data changed while it was served")
		return ctrl.Result{RequeueAfter: time.Duration(20+rand.IntN(80)) * time.Millisecond}, nil //nolint:gosec // jitter needs no secrecy
	}
	return ctrl.Result{}, err
}

// hold reports whether something may be done for an object of a template.
func (r *Reconciler) hold(ctx context.Context, data *infrav1.Metal3Data, template *infrav1.Metal3DataTemplate) (allocate.Hold, error) {
	if template == nil {
		return r.Clusters.HoldFor(ctx, "", data)
	}
	return r.Clusters.HoldFor(ctx, template.Spec.ClusterName, data, template)
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

// isRefusal reports whether an error is for the user of the object, and its text.
func isRefusal(err error) (string, bool) {
	var why refusal
	ok := errors.As(err, &why)
	return string(why), ok
}
