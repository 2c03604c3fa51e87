// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentreservation

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/internal/controller/agent"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/reservationplan"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// snapshot is all that is known of a reservation.
type snapshot struct {
	reservationplan.Snapshot
	reservation *agentv1.AgentReservation
	// said is the status as it was read.
	said agentv1.AgentReservationStatus
}

// id is that of the allocation in the service.
func (s *snapshot) id() string { return string(s.reservation.UID) }

// observe reads everything. Nil means that there is nothing to look after.
func (r *Reconciler) observe(ctx context.Context, key client.ObjectKey) (*snapshot, error) {
	seen := &snapshot{reservation: &agentv1.AgentReservation{}}
	if err := r.Client.Get(ctx, key, seen.reservation); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	said := &seen.reservation.Status
	seen.said = *said.DeepCopy()
	if !seen.reservation.DeletionTimestamp.IsZero() || said.ReservedUntil == nil {
		return seen, nil
	}
	seen.Until, seen.Confirmed = said.ReservedUntil.Time, confirmed(said.Conditions)
	if err := r.observeMachines(ctx, r.Client, seen); err != nil || seen.Confirmed || !settled(seen.Machines) {
		return seen, err
	}
	// The cache may not show yet that another client bound one of them.
	return seen, r.observeMachines(ctx, r.Live, seen)
}

// confirmed is true for a reservation that counted once.
func confirmed(conditions []agentv1.Condition) bool {
	ready := agentv1.FindCondition(conditions, agentv1.ConditionReady)
	return ready != nil && ready.Reason != agentv1.ReasonReserving && ready.Reason != agentv1.ReasonTooFewAgents && ready.Reason != agentv1.ReasonInvalidSelector
}

// settled is true where nothing but the API server's word is missing.
func settled(machines []reservationplan.Machine) bool {
	for _, m := range machines {
		if m.Bound || !m.Held || !m.Shown {
			return false
		}
	}
	return true
}

// observeMachines reads the Agents of a reservation, and their hosts in the service.
func (r *Reconciler) observeMachines(ctx context.Context, from client.Reader, seen *snapshot) error {
	seen.Machines = nil
	for _, name := range seen.reservation.Status.Agents {
		m, err := r.observeMachine(ctx, from, seen, name)
		if err != nil {
			return fmt.Errorf("reading Agent %s of AgentReservation %s: %w", name, client.ObjectKeyFromObject(seen.reservation), err)
		}
		seen.Machines = append(seen.Machines, m)
	}
	return nil
}

func (r *Reconciler) observeMachine(ctx context.Context, from client.Reader, seen *snapshot, name string) (m reservationplan.Machine, err error) {
	found := &agentv1.Agent{}
	if err := from.Get(ctx, client.ObjectKey{Namespace: seen.reservation.Namespace, Name: name}, found); err != nil {
		return m, client.IgnoreNotFound(err)
	}
	host, err := r.Service.GetHost(ctx, domain.Kubernetes, agent.HostKey(found))
	if err != nil && domain.KindOf(err) != domain.NotFound {
		return m, err
	}
	m.Bound = found.Spec.ClusterDeploymentName != nil
	if host == nil {
		return m, nil
	}
	m.Bound = m.Bound || host.ClusterID != ""
	m.Held = host.Reservation.ID == seen.id() && host.Reservation.Holds(r.Clock.Now())
	shown := agentv1.FindCondition(found.Status.Conditions, agentv1.ConditionReserved)
	m.Shown = m.Held && shown != nil && shown.Message == host.Reservation.Sentence()
	return m, nil
}

// candidates are the Agents of the namespace, by host.
func (r *Reconciler) candidates(ctx context.Context, namespace string) (map[domain.HostKey]domain.Candidate, map[domain.HostKey]string, error) {
	var agents agentv1.AgentList
	if err := r.Client.List(ctx, &agents, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("listing the Agents of namespace %s: %w", namespace, err)
	}
	among, names := map[domain.HostKey]domain.Candidate{}, map[domain.HostKey]string{}
	for i := range agents.Items {
		one := &agents.Items[i]
		if !one.DeletionTimestamp.IsZero() {
			continue
		}
		_, reserved := one.Labels[agentv1.MachineReferenceLabel]
		key := agent.HostKey(one)
		among[key] = domain.Candidate{Labels: one.Labels, Bound: one.Spec.ClusterDeploymentName != nil, Reserved: reserved}
		names[key] = one.Name
	}
	return among, names, nil
}
