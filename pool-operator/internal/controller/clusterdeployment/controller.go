// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/pool-operator/internal/hostedplan"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// FieldOwner owns what this controller applies: its part of the status of a ClusterDeployment, and the Secrets beside it.
const FieldOwner = client.FieldOwner("pool-operator/clusterdeployment")

// Deps is what a Reconciler works with; all are required, but for MachinePools.
type Deps struct {
	// Client reads from caches and writes.
	Client client.Client
	// Metadata reads the metadata of Secrets from the cache that is watched.
	Metadata client.Reader
	// Live reads from the API server. It is asked before something is started for the first time or removed as an orphan.
	Live client.Reader
	// MachinePools reads MachinePools from the cache that is watched; nil where the API server does not serve them.
	MachinePools client.Reader
	// Runtime runs the clusters.
	Runtime Runtime
	// DNSImage is the image of the resolver in clusters that take nodes.
	DNSImage string
	// Recorder publishes events about ClusterDeployments.
	Recorder events.EventRecorder
	// Clock tells the time.
	Clock clock.PassiveClock
	// Metrics count what happens.
	Metrics *Metrics
}

// Reconciler looks after hosted clusters. Only the leader may run it: with processes, the data is on the leader's own disk, and two
// operators must never run one cluster.
type Reconciler struct {
	Deps
	writer *writer
}

// New returns a Reconciler.
func New(d Deps) *Reconciler {
	return &Reconciler{
		Deps:   d,
		writer: &writer{client: d.Client, recorder: d.Recorder, conditions: hostedplan.Conditions()},
	}
}

// concurrency is how many clusters are looked after at a time. A pass waits for a /readyz at the longest, so a few that hang must not hold up others.
const concurrency = 32

// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterdeployments,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterdeployments/status,verbs=patch
// +kubebuilder:rbac:groups=hive.openshift.io,resources=machinepools,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile looks after one hosted cluster: get, then observe, plan and execute until nothing is left to do, then report.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	cluster := &hivev1.ClusterDeployment{}
	if err := r.Client.Get(ctx, request.NamespacedName, cluster); err != nil {
		if apierrors.IsNotFound(err) {
			r.writer.written.Forget(request.NamespacedName)
			return ctrl.Result{}, r.removeLeftovers(ctx, request.NamespacedName)
		}
		return ctrl.Result{}, fmt.Errorf("reading ClusterDeployment %s: %w", request, err)
	}
	if !hostedplan.Hosted(cluster) {
		return ctrl.Result{}, nil
	}
	if r.writer.written.Ahead(request.NamespacedName, cluster.ResourceVersion) {
		return ctrl.Result{RequeueAfter: outcome.Delay()}, nil
	}
	decision, err := r.settle(ctx, cluster)
	if err == nil {
		before := cluster.Status
		if err = r.writer.report(ctx, cluster, decision.Status); err == nil && decision.Status != nil {
			r.Metrics.reported(before, *decision.Status, r.Clock.Now())
		}
	}
	if apierrors.IsNotFound(err) && cluster.DeletionTimestamp != nil {
		err = outcome.Again(err)
	}
	return ctrl.Result{RequeueAfter: decision.RequeueAfter}, err
}

// maxRounds bounds how often one pass observes again after it did something. The longest chain is that of a cluster that becomes ready and
// should hibernate: published, stopped, seen to be stopping.
const maxRounds = 4

// settle observes, plans and executes until a plan has no actions, and returns that plan: what it says is true of what was done.
// The cluster is replaced by what the API server made of it.
func (r *Reconciler) settle(ctx context.Context, cluster *hivev1.ClusterDeployment) (hostedplan.Decision, error) {
	var decision hostedplan.Decision
	var refused *provision.Problem
	for range maxRounds {
		snapshot, err := r.observe(ctx, cluster)
		if err != nil {
			return decision, err
		}
		snapshot.Refused = refused
		decision = hostedplan.Plan(r.Clock.Now(), snapshot)
		if settled := len(decision.Actions) == 0 || snapshot.Refused != nil; settled {
			return decision, nil
		}
		if refused, err = r.execute(ctx, cluster, decision.Actions); err != nil {
			return decision, err
		}
	}
	decision.RequeueAfter = time.Second
	return decision, nil
}
