// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machinepool serves MachinePools of the platform agentBareMetal: it binds free Agents to the cluster of a pool, releases those that are too many, and reports.
package machinepool

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/internal/controller/precedence"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
	"github.com/muster-io/muster/agent-service/internal/machineplan"
	"github.com/muster-io/muster/apis/ownwrites"
)

const (
	// owner is the field owner of what the controller applies.
	owner = "agent-service/machinepool"
	// look is how often a pool is looked at that is not as it should be: not everything that it waits for is watched.
	look = 30 * time.Second
	// startTimeout is how long machines may take to be Ready nodes again when their cluster resumes.
	startTimeout = 10 * time.Minute
	// drainTimeout is how long the pods of a node may take to leave it, where the pool does not say.
	drainTimeout = 5 * time.Minute
	// releaseTimeout is how long a machine may take beside that to leave a cluster before its pool is gone without it.
	releaseTimeout = 150 * time.Second
)

// Nodes knows the nodes of clusters.
type Nodes interface {
	// NodeReady says whether a cluster has a Ready Node of that name, and whether that is known.
	NodeReady(cluster types.NamespacedName, node string) (ready, known bool)
}

// Service is what the controller needs of the service.
type Service interface {
	GetHost(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error)
	GetCluster(ctx context.Context, by domain.Principal, id string) (*domain.Cluster, error)
}

// Deps are what a Reconciler works with; all are required.
type Deps struct {
	Client client.Client
	// Live reads from the API server.
	Live    client.Reader
	Nodes   Nodes
	Service Service
	// Rules say which hosts can join a cluster.
	Rules *hostplan.Rules
	// Recorder publishes events about MachinePools.
	Recorder events.EventRecorder
	// Order lets binds and releases go before what follows from them.
	Order *precedence.Order
	Clock clock.PassiveClock
}

// Reconciler serves MachinePools.
type Reconciler struct {
	Deps
	// written are Agents that the cache shows as they were before: another pool of this process has taken them, or released them.
	written ownwrites.Memory[client.ObjectKey]
	// refusals are Agents that the API server refused.
	refusals refusals
	// addresses are what IPPools said of their addresses a moment ago.
	addresses addressCounts
}

// New returns a Reconciler.
func New(d Deps) *Reconciler { return &Reconciler{Deps: d} }

// +kubebuilder:rbac:groups=hive.openshift.io,resources=machinepools,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=hive.openshift.io,resources=machinepools/status,verbs=patch
// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterdeployments,verbs=get;list;watch;bind
// +kubebuilder:rbac:groups=extensions.hive.openshift.io,resources=agentclusterinstalls,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=agent-install.openshift.io,resources=agents,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=agent-install.openshift.io,resources=infraenvs,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ippools,verbs=get
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile brings the machines of a pool to their number.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	seen, err := r.observe(ctx, request.NamespacedName)
	if err != nil || seen == nil {
		r.refusals.forget(request.NamespacedName)
		return ctrl.Result{}, err
	}
	if seen.hasCluster() {
		if err := r.addFinalizer(ctx, seen); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	decision := machineplan.Plan(seen.wanted(), seen.machines, r.Clock.Now())
	err = r.execute(ctx, seen, decision)
	if !seen.pool.DeletionTimestamp.IsZero() {
		return r.release(ctx, seen, err)
	}
	// A refusal is said at once: the next pass tries again, and would wait again.
	if err == nil && (seen.asks || r.Order.Wait() > 0 && len(seen.notTaken) == 0) {
		return ctrl.Result{RequeueAfter: said}, nil
	}
	decision = machineplan.Plan(seen.wanted(), seen.machines, r.Clock.Now())
	asItShouldBe, reportErr := r.report(ctx, seen, decision)
	if err = errors.Join(err, reportErr); err != nil || asItShouldBe {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: look}, nil
}
