// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentreservation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/muster-io/muster/agent-service/internal/controller/conditionevent"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/machineplan"
	"github.com/muster-io/muster/agent-service/internal/reservationplan"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	agentv1ac "github.com/muster-io/muster/apis/applyconfiguration/agentinstall/v1beta1"
	"github.com/muster-io/muster/apis/outcome"
)

// eventRules lists the outcomes that become events.
var eventRules = []conditionevent.Rule{{
	Condition: agentv1.ConditionReady, Action: "Reserve", Normal: []string{agentv1.ReasonMachinesReserved, agentv1.ReasonMachinesBound},
	Warning: []string{agentv1.ReasonTooFewAgents, agentv1.ReasonInvalidSelector, agentv1.ReasonReservationExpired, agentv1.ReasonReservationEnded},
}}

// execute does what was decided, and returns what to say.
func (r *Reconciler) execute(ctx context.Context, seen *snapshot, d reservationplan.Decision) (reservationplan.Decision, error) {
	switch d.Action {
	case reservationplan.Reserve:
		return r.reserve(ctx, seen)
	case reservationplan.Release:
		if err := r.end(ctx, seen); err != nil {
			return d, err
		}
		seen.reservation.Status.ReservedUntil, seen.reservation.Status.Agents = nil, nil
		d.After = time.Second
	case reservationplan.Wait:
	}
	return d, nil
}

// reserve chooses machines and reserves them in the service. Their names are recorded afterwards: the service answers with the same ones, should that not come about.
func (r *Reconciler) reserve(ctx context.Context, seen *snapshot) (reservationplan.Decision, error) {
	if err := r.addFinalizer(ctx, seen); err != nil {
		return reservationplan.Decision{}, err
	}
	spec := &seen.reservation.Spec
	selector, err := metav1.LabelSelectorAsSelector(&spec.AgentSelector)
	if err != nil {
		return reservationplan.Decision{Reason: agentv1.ReasonInvalidSelector, Message: domain.Truncate("spec.agentSelector cannot be read: "+err.Error(), 1024)}, nil //nolint:nilerr // it is said, and trying again does not mend it
	}
	among, names, err := r.candidates(ctx, seen.reservation.Namespace)
	if err != nil {
		return reservationplan.Decision{}, err
	}
	request := domain.NewAllocation{
		ID: seen.id(), Kube: domain.KubeRef{Namespace: seen.reservation.Namespace, Name: seen.reservation.Name}, Among: among,
		Count: int(spec.Count), Selector: selector, SpreadBy: spec.SpreadBy,
	}
	if spec.Minimum != nil {
		request.Minimum = machineplan.MinimumOf(spec.Minimum.CPUCores, spec.Minimum.MemoryGiB, spec.Minimum.DiskGB)
	}
	if spec.Duration != nil {
		request.Reserve = spec.Duration.Duration
	}
	made, err := r.Service.Allocate(ctx, domain.Kubernetes, request)
	if domain.KindOf(err) == domain.Conflict {
		return reservationplan.Decision{Reason: agentv1.ReasonTooFewAgents, Message: domain.Truncate(err.Error(), 1024), After: look}, nil
	}
	if err != nil {
		return reservationplan.Decision{}, fmt.Errorf("reserving machines for AgentReservation %s: %w", client.ObjectKeyFromObject(seen.reservation), err)
	}
	said := &seen.reservation.Status
	said.ReservedUntil, said.Agents = new(metav1.NewTime(made.Until)), nil
	for i := range made.Hosts {
		// One whose Agent went meanwhile is named as its Agent was: the next pass sees that it is gone.
		name, there := names[made.Hosts[i].HostKey]
		if !there {
			name = made.Hosts[i].HostID
		}
		said.Agents = append(said.Agents, name)
	}
	slices.Sort(said.Agents)
	return reservationplan.Decision{
		Reason: agentv1.ReasonReserving, Message: fmt.Sprintf("0 of %d machines say that they are reserved", len(made.Hosts)), Reserved: len(made.Hosts), After: time.Second,
	}, nil
}

// addFinalizer keeps a reservation until its machines are free. It is called before the first of them is reserved.
func (r *Reconciler) addFinalizer(ctx context.Context, seen *snapshot) error {
	before := seen.reservation.DeepCopy()
	if !controllerutil.AddFinalizer(seen.reservation, agentv1.ReservationFinalizer) {
		return nil
	}
	return r.Client.Patch(ctx, seen.reservation, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// end ends what the service reserves.
func (r *Reconciler) end(ctx context.Context, seen *snapshot) error {
	err := r.Service.EndAllocation(ctx, domain.Kubernetes, seen.id())
	if err != nil && domain.KindOf(err) != domain.NotFound {
		return fmt.Errorf("ending AgentReservation %s: %w", client.ObjectKeyFromObject(seen.reservation), err)
	}
	return nil
}

// release frees the machines of a reservation that is being deleted.
func (r *Reconciler) release(ctx context.Context, seen *snapshot) error {
	if !controllerutil.ContainsFinalizer(seen.reservation, agentv1.ReservationFinalizer) {
		return nil
	}
	if err := r.end(ctx, seen); err != nil {
		return err
	}
	before := seen.reservation.DeepCopy()
	controllerutil.RemoveFinalizer(seen.reservation, agentv1.ReservationFinalizer)
	return outcome.IgnoreGone(r.Client.Patch(ctx, seen.reservation, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

// abandon ends what the service reserves for a reservation that another replica released meanwhile.
func (r *Reconciler) abandon(ctx context.Context, seen *snapshot) error {
	now := &agentv1.AgentReservation{}
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(seen.reservation), now)
	switch {
	case err == nil && now.UID == seen.reservation.UID && controllerutil.ContainsFinalizer(now, agentv1.ReservationFinalizer):
		return nil // the machines are freed before the finalizer goes
	case err != nil && !outcome.IsGone(err):
		return fmt.Errorf("reading AgentReservation %s: %w", client.ObjectKeyFromObject(seen.reservation), err)
	}
	return r.end(ctx, seen)
}

// report writes the status where it changed. Another replica that wrote it meanwhile wins.
func (r *Reconciler) report(ctx context.Context, seen *snapshot, d reservationplan.Decision) error {
	now := metav1.NewTime(r.Clock.Now()).Rfc3339Copy()
	said := seen.reservation
	before := said.DeepCopy()
	before.Status = *seen.said.DeepCopy()
	condition := agentv1.Condition{Type: agentv1.ConditionReady, Status: corev1.ConditionFalse, Reason: d.Reason, Message: d.Message}
	if d.Ready {
		condition.Status = corev1.ConditionTrue
	}
	said.Status.Reserved = int32(min(d.Reserved, 1000)) //nolint:gosec // it is bounded
	agentv1.SetCondition(&said.Status.Conditions, condition, now)
	if equality.Semantic.DeepEqual(before.Status, said.Status) {
		return nil
	}
	apply := agentv1ac.AgentReservation(said.Name, said.Namespace).WithUID(said.UID).WithResourceVersion(said.ResourceVersion).WithStatus(configuration(&said.Status))
	if err := r.Client.Status().Apply(ctx, apply, owner, client.ForceOwnership); err != nil {
		err = fmt.Errorf("reporting on AgentReservation %s: %w", client.ObjectKeyFromObject(said), err)
		if err = errors.Join(r.abandon(ctx, seen), err); outcome.IsGone(err) {
			return nil
		}
		return err
	}
	conditionevent.Publish(r.Recorder, said, nil, eventRules, conditionevent.OfAgentInstall(before.Status.Conditions), conditionevent.OfAgentInstall(said.Status.Conditions))
	return nil
}

// configuration is a status to apply: what is not in it is cleared.
func configuration(status *agentv1.AgentReservationStatus) *agentv1ac.AgentReservationStatusApplyConfiguration {
	c := agentv1.FindCondition(status.Conditions, agentv1.ConditionReady)
	out := agentv1ac.AgentReservationStatus().WithReserved(status.Reserved).WithAgents(status.Agents...).WithConditions(agentv1ac.Condition().
		WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).WithMessage(c.Message).WithLastHeartbeatTime(c.LastHeartbeatTime).WithLastTransitionTime(c.LastTransitionTime))
	if status.ReservedUntil != nil {
		out.WithReservedUntil(*status.ReservedUntil)
	}
	return out
}
