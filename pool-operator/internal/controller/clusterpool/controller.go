// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusterpool reconciles ClusterPools: it reads what there is, asks package poolplan what to do, writes the pool's status as the ticket for it, and does it.
package clusterpool

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/membership"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
	"github.com/muster-io/muster/pool-operator/internal/requeue"
)

// FieldOwner is the field owner of everything that this controller writes.
const FieldOwner = "pool-operator/clusterpool"

// Timings of the controller.
const (
	// defaultReportInterval is how often counts and conditions of one pool are written at most; tickets do not wait. While a pool changes all the time, its counts are written up to
	// eight times less often.
	defaultReportInterval = time.Second
	// passTimeout is how long the actions of a ticket may take. The rest waits for a later pass, which first looks at the ticket again.
	passTimeout = 30 * time.Second
	// patience is how many passes wait for the cache before one reads from the API server instead.
	patience = 5
)

// Meter counts what was done.
type Meter interface {
	// Action counts an action of a pool by what it was for; failed says that it did not succeed.
	Action(kind string, why poolplan.Why, failed bool)
}

// Progress says how far caches have come.
type Progress interface {
	// View returns the resourceVersions up to which the caches have come. All later reads from them are at least as new. A cache that cannot say is left empty.
	View(ctx context.Context) (hivev1.ClusterPoolObservation, error)
}

// Priority says whether claims are being served, which come before pools that fill.
type Priority interface {
	// Idle returns a channel that is closed when no claim is being served.
	Idle() <-chan struct{}
}

// Deps are what the controller works with.
type Deps struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Metadata reads metadata of Namespaces and Secrets from the cache.
	Metadata client.Reader
	// Live reads from the API server.
	Live client.Reader
	// Progress says how far the cache has come.
	Progress Progress
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	Meter    Meter
	// Claims come first: what no claim waits for is put off for a moment while one is being served. Nil when there are none.
	Claims Priority
	// Workers is how many pools are reconciled at a time.
	Workers int
	// Writers is how many actions are in flight at a time, of all pools together: pools that fill leave the API server room for claims.
	Writers int
	// ReportInterval is how often counts and conditions of one pool are written at most; 0 is a second.
	ReportInterval time.Duration
}

// Reconciler reconciles ClusterPools.
type Reconciler struct {
	Deps
	memory *memory
	// members proves which clusters belong to a pool.
	members *membership.Prover
	// free has room for the actions that are in flight.
	free chan struct{}
}

// New returns a Reconciler.
func New(deps Deps) *Reconciler {
	deps.Workers = max(1, deps.Workers)
	deps.Writers = max(1, deps.Writers)
	if deps.ReportInterval == 0 {
		deps.ReportInterval = defaultReportInterval
	}
	return &Reconciler{
		Deps: deps, memory: newMemory(), members: membership.NewProver(deps.Metadata, deps.Live), free: make(chan struct{}, deps.Writers),
	}
}

// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterpools,verbs=get;list;watch;patch;operate
// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterpools/status,verbs=patch
// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterpools/finalizers,verbs=update
// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterclaims;clusterimagesets,verbs=get;list;watch
// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterdeployments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=hive.openshift.io,resources=machinepools,verbs=create
// +kubebuilder:rbac:groups=extensions.hive.openshift.io,resources=agentclusterinstalls,verbs=create
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile brings one pool closer to what its spec asks for.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pool := &hivev1.ClusterPool{}
	if err := r.Client.Get(ctx, req.NamespacedName, pool); err != nil {
		return ctrl.Result{}, r.poolGone(ctx, req, err)
	}
	pass, err := r.observe(ctx, pool)
	if err != nil {
		return ctrl.Result{}, err
	}
	decision := poolplan.Plan(r.Clock.Now(), pass.snapshot)
	if decision.Wait {
		return r.wait(ctx, req, decision)
	}
	r.memory.change(func() { pass.memory.waits = 0 })
	return r.carryOut(ctx, pass, decision)
}

// wait gives the cache time to catch up with the pool's last ticket. If it does not, a pass reads from the API server.
func (r *Reconciler) wait(ctx context.Context, req ctrl.Request, decision poolplan.Decision) (ctrl.Result, error) {
	if r.memory.waited(req.NamespacedName) < patience {
		log.FromContext(ctx).V(1).Info("waited for the cache to come as far as the pool's last decision")
		return ctrl.Result{RequeueAfter: decision.RequeueAfter}, nil
	}
	pass, err := r.observeLive(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.memory.change(func() { pass.memory.waits = 0 })
	return r.carryOut(ctx, pass, poolplan.Plan(r.Clock.Now(), pass.snapshot))
}

// carryOut writes the ticket and does what it says.
func (r *Reconciler) carryOut(ctx context.Context, pass *pass, decision poolplan.Decision) (ctrl.Result, error) {
	result := ctrl.Result{RequeueAfter: decision.RequeueAfter}
	hold, delay, err := r.ticket(ctx, pass, decision)
	if err != nil {
		return ctrl.Result{}, err
	}
	result.RequeueAfter = requeue.Sooner(result.RequeueAfter, delay)
	again, err := r.execute(ctx, pass, decision.Actions, hold)
	if err != nil {
		return ctrl.Result{}, err
	}
	result.RequeueAfter = requeue.Sooner(result.RequeueAfter, again)
	return result, nil
}

// poolGone forgets a pool that is not there any more, and looks after what it may have left.
func (r *Reconciler) poolGone(ctx context.Context, req ctrl.Request, err error) error {
	if !apierrors.IsNotFound(err) {
		return err
	}
	r.memory.forget(req.NamespacedName)
	return r.sweep(ctx, req.NamespacedName)
}

// event reports an outcome on the pool.
func (r *Reconciler) event(pool *hivev1.ClusterPool, related *hivev1.ClusterDeployment, reason poolplan.Why, action, note string) {
	if related == nil {
		r.Recorder.Eventf(pool, nil, corev1.EventTypeNormal, string(reason), action, "%s", note)
		return
	}
	r.Recorder.Eventf(pool, related, corev1.EventTypeNormal, string(reason), action, "%s", note)
}
