// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/pool-operator/internal/claimplan"
	"github.com/muster-io/muster/pool-operator/internal/membership"
	"github.com/muster-io/muster/pool-operator/internal/requeue"
)

// FieldOwner owns what this controller writes: a claim's cluster, finalizer and status, the claim in a cluster, and the rights of the claim's subjects.
const FieldOwner = client.FieldOwner("pool-operator/clusterclaim")

// Deps is what a Reconciler works with; all are required.
type Deps struct {
	// Client reads from caches, which have the indexes of [AddIndexes] and metadata of clusters' Namespaces, and writes.
	Client client.Client
	// Live reads from the API server. It is asked before anything is concluded from the absence of an object.
	Live client.Reader
	// Recorder publishes events about ClusterClaims.
	Recorder events.EventRecorder
	// Clock tells the time.
	Clock clock.PassiveClock
	// Metrics count.
	Metrics *Metrics
	// Service tells other controllers which claims are being served; nil when none subscribes.
	Service *Service
}

// Reconciler looks after ClusterClaims, each by itself.
type Reconciler struct {
	Deps
	memory       *memory
	reservations *reservations
	rights       rights
	// members proves which clusters belong to a pool.
	members *membership.Prover
}

// New returns a Reconciler.
func New(d Deps) *Reconciler {
	if d.Service == nil {
		d.Service = NewService()
	}
	remembered := newMemory()
	return &Reconciler{
		Deps: d, memory: remembered, reservations: newReservations(), rights: rights{client: d.Client, memory: remembered},
		members: membership.NewProver(d.Client, d.Live),
	}
}

// maxSteps bounds the steps of a pass. A claim is bound in four; the rest is room for lost races.
const maxSteps = 12

// errAgain ends a pass that has to begin again with a newer view.
var errAgain = outcome.Again(errors.New("the view is out of date"))

// catchUp is when a claim is looked at again whose last write a cache has not seen. The write's own event comes first, unless the watch was cut.
const catchUp = 2 * time.Second

// The right to update clusters and those on MachinePools and Secrets are those that a claim's subjects get: the API server refuses to grant rights that the operator does not hold, and holding exactly these
// is less than the right to escalate, which is the other way.
//
// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterclaims,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterclaims/status,verbs=patch
// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterpools,verbs=get;list;watch
// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterdeployments,verbs=get;list;watch;patch;update;delete
// +kubebuilder:rbac:groups=hive.openshift.io,resources=machinepools,verbs=create;delete;get;list;patch;update;watch
// +kubebuilder:rbac:groups=hive.openshift.io,resources=machinepools/scale,verbs=get;patch;update
// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterdeployments/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles;rolebindings,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile looks after one claim: observe, then plan and execute until nothing is left to do, then report.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	defer r.Service.end(request.NamespacedName)
	p, err := r.observe(ctx, request.NamespacedName)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("observing claim %s: %w", request.NamespacedName, err)
	}
	again, err := r.releaseOrphans(ctx, request.NamespacedName, p)
	if err != nil || p == nil {
		return ctrl.Result{RequeueAfter: again}, err
	}
	if p.behind {
		return ctrl.Result{RequeueAfter: catchUp}, nil
	}
	decision, err := r.advance(ctx, p)
	if !p.ended {
		err = errors.Join(err, r.report(ctx, p, decision, err))
	}
	decision.RequeueAfter = requeue.Sooner(decision.RequeueAfter, again)
	return ctrl.Result{RequeueAfter: decision.RequeueAfter}, err
}

// pass is one reconciliation of one claim: the snapshot, brought up to date by every action.
type pass struct {
	claimplan.Snapshot
	// ended says that the claim is not ours to look after any more.
	ended bool
	// behind says that a cache has not seen yet what this process wrote last.
	behind bool
	// recorded is the UID of the cluster in which this pass recorded the claim.
	recorded types.UID
}

// advance plans and executes until nothing is left to do.
func (r *Reconciler) advance(ctx context.Context, p *pass) (claimplan.Decision, error) {
	for range maxSteps {
		decision := claimplan.Plan(r.Clock.Now(), p.Snapshot)
		if decision.Action == nil {
			return decision, nil
		}
		if err := r.execute(ctx, p, decision.Action); err != nil || p.ended {
			return decision, err
		}
	}
	return claimplan.Decision{}, errAgain
}
