// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agentreservation serves AgentReservations: it reserves free machines in the service, all that are wanted or none, and reports.
package agentreservation

import (
	"context"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/reservationplan"
)

const (
	// look is how often machines are looked for that were not there: not everything that keeps one is an object of Kubernetes.
	look = 30 * time.Second
	// owner is the field manager of statuses.
	owner = client.FieldOwner("agent-service/agentreservation")
)

// Service is what the controller needs of the service.
type Service interface {
	Allocate(ctx context.Context, by domain.Principal, request domain.NewAllocation) (*domain.Allocation, error)
	EndAllocation(ctx context.Context, by domain.Principal, id string) error
	GetHost(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error)
}

// Deps are what a Reconciler works with; all are required.
type Deps struct {
	Client client.Client
	// Live reads from the API server.
	Live    client.Reader
	Service Service
	// Recorder publishes events about AgentReservations.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
}

// Reconciler serves AgentReservations.
type Reconciler struct{ Deps }

// New returns a Reconciler.
func New(d Deps) *Reconciler { return &Reconciler{d} }

// +kubebuilder:rbac:groups=agent-install.openshift.io,resources=agentreservations,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=agent-install.openshift.io,resources=agentreservations/status,verbs=patch
// +kubebuilder:rbac:groups=agent-install.openshift.io,resources=agents,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile reserves machines, waits until their Agents say so, and reports until the reservation ends.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	seen, err := r.observe(ctx, request.NamespacedName)
	if err != nil || seen == nil {
		return ctrl.Result{}, err
	}
	if !seen.reservation.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.release(ctx, seen)
	}
	decision := reservationplan.Plan(seen.Snapshot, r.Clock.Now())
	if decision, err = r.execute(ctx, seen, decision); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: decision.After}, r.report(ctx, seen, decision)
}
