// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1ac "github.com/muster-io/muster/apis/applyconfiguration/metal3/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
)

// report writes the status of a host that this operator manages, if it changed, and says what happened. The write fails if the host
// changed since it was read, so that two replicas cannot take a host two ways.
func (r *Reconciler) report(ctx context.Context, w *work, step hoststate.Step, out outcome) error {
	old := &w.host.Status
	status := old.DeepCopy()
	moved := step.To != w.state
	status.Provisioning.State, status.Provisioning.ID, status.GoodCredentials = metal3v1.ProvisioningState(step.To), w.node, w.good
	if w.powered != nil {
		status.PoweredOn = *w.powered
	}
	now := metav1.NewTime(r.now())
	if moved {
		record(w, status, step.To, now)
	}
	switch {
	case out.kind != "":
		status.ErrorType, status.ErrorMessage, status.ErrorCount = out.kind, out.message, w.m.failures
	case moved || out.settled:
		status.ErrorType, status.ErrorMessage, status.ErrorCount = "", "", 0
	}
	switch {
	case status.ErrorType != "":
		status.OperationalStatus = metal3v1.OperationalStatusError
	case w.facts.PowerControl, step.To == hoststate.Provisioning, step.To == hoststate.Provisioned, step.To == hoststate.Deprovisioning:
		status.OperationalStatus = metal3v1.OperationalStatusOK
	default:
		status.OperationalStatus = metal3v1.OperationalStatusDiscovered
	}
	r.conditions(w, status, step, out)
	if equality.Semantic.DeepEqual(old, status) && w.host.HasStatus() {
		return nil
	}
	status.LastUpdated = &now
	object := metal3v1ac.BareMetalHost(w.host.Name, w.host.Namespace).WithUID(w.host.UID).WithResourceVersion(w.host.ResourceVersion).
		WithStatus(applied(status))
	if err := r.Client.SubResource("status").Apply(ctx, object, client.FieldOwner(lifeOwner), client.ForceOwnership); err != nil {
		return wrap(err, "writing the status of host %s", client.ObjectKeyFromObject(w.host))
	}
	if moved {
		ctrl.LoggerFrom(ctx).Info("host moved on", "BareMetalHost", client.ObjectKeyFromObject(w.host).String(), "from", string(w.state),
			"to", string(step.To), "why", step.Why)
		r.Events.Eventf(w.host, nil, corev1.EventTypeNormal, camel(string(step.To)), "Manage", "%s", sentence(step.Why))
	}
	if out.kind != "" && (old.ErrorType != out.kind || old.ErrorMessage != out.message) {
		r.Events.Eventf(w.host, nil, corev1.EventTypeWarning, out.reason, "Manage", "%s", out.message)
	}
	power := meta.FindStatusCondition(status.Conditions, metal3v1.ConditionPowerControl)
	if power.Reason == metal3v1.ReasonRebootNotPossible || power.Reason == metal3v1.ReasonInspectionNotPossible {
		before := meta.FindStatusCondition(old.Conditions, metal3v1.ConditionPowerControl)
		if before == nil || before.Reason != power.Reason {
			r.Events.Eventf(w.host, nil, corev1.EventTypeWarning, power.Reason, "Power", "%s", power.Message)
		}
	}
	return nil
}

// record writes down when an operation begins and ends, and which image it is about.
func record(w *work, status *metal3v1.BareMetalHostStatus, next hoststate.State, now metav1.Time) {
	history := &status.OperationHistory
	switch next { //nolint:exhaustive // the others begin nothing
	case hoststate.Inspecting:
		history.Inspect = metal3v1.OperationMetric{Start: &now}
	case hoststate.Provisioning:
		history.Provision = metal3v1.OperationMetric{Start: &now}
	case hoststate.Deprovisioning:
		history.Deprovision = metal3v1.OperationMetric{Start: &now}
	}
	switch {
	case w.state == hoststate.Inspecting && next == hoststate.MatchProfile:
		history.Inspect.End = &now
	case w.state == hoststate.Provisioning && next == hoststate.Provisioned:
		history.Provision.End = &now
	case w.state == hoststate.Deprovisioning && next == hoststate.Available:
		history.Deprovision.End = &now
	}
	switch next {
	case hoststate.Provisioning, hoststate.Provisioned:
		if w.host.Spec.Image != nil {
			status.Provisioning.Image = w.host.Spec.Image.DeepCopy()
		}
	case hoststate.Deprovisioning:
	default:
		if status.Provisioning.Image != nil {
			status.Provisioning.Image = &metal3v1.Image{}
		}
	}
}

// conditions puts into the status what users read.
func (r *Reconciler) conditions(w *work, status *metal3v1.BareMetalHostStatus, step hoststate.Step, out outcome) {
	set := func(kind string, holds bool, reason, message string) {
		c := metav1.Condition{
			Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: w.host.Generation,
			LastTransitionTime: metav1.NewTime(r.now()).Rfc3339Copy(),
		}
		if holds {
			c.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&status.Conditions, c)
	}
	before := meta.FindStatusCondition(w.host.Status.Conditions, metal3v1.ConditionReady)
	ready := !out.blocked && (step.To == hoststate.Available || step.To == hoststate.ExternallyProvisioned || step.To == hoststate.Provisioned)
	switch {
	case out.reason != "" && (status.ErrorType == "" || out.kind != "" || out.blocked || out.user):
		set(metal3v1.ConditionReady, ready && status.ErrorType == "", out.reason, out.message)
	case status.ErrorType != "" && before != nil: // what is wrong was said before, and is being tried again
		set(metal3v1.ConditionReady, false, before.Reason, before.Message)
	case step.To == hoststate.Discovered && w.facts.Unapproved:
		set(metal3v1.ConditionReady, false, metal3v1.ReasonWaitingForApproval,
			`The host is held until the annotation `+metal3v1.ApprovedAnnotation+` is set to "true".`)
	default:
		reason, message := camel(string(step.To)), sentence(step.Why)
		if step.To == hoststate.Provisioned && !w.facts.PowerControl {
			message = "The image is deployed, and the machine has switched itself off. Switch it on to boot it: the host has no power control."
		}
		if before != nil && before.Reason == reason { // why the host is there does not change while it stays
			message = before.Message
		}
		set(metal3v1.ConditionReady, ready, reason, message)
	}
	switch verified := w.good.Reference != nil; {
	case !w.facts.PowerControl && len(hoststate.WishOf(w.host).Reboots) > 0:
		set(metal3v1.ConditionPowerControl, false, metal3v1.ReasonRebootNotPossible,
			"A reboot was asked for and is not done: the host has no power control. Remove the annotation, or set spec.bmc.")
	case !w.facts.PowerControl && w.facts.Reinspect:
		set(metal3v1.ConditionPowerControl, false, metal3v1.ReasonInspectionNotPossible,
			"An inspection was asked for and is not done: the host has no power control. Remove the annotation, or set spec.bmc.")
	case !w.facts.PowerControl:
		set(metal3v1.ConditionPowerControl, false, metal3v1.ReasonNoCredentials,
			"The machine is never powered on, off or rebooted. Set spec.bmc.address and spec.bmc.credentialsName to have it managed.")
	case !verified:
		set(metal3v1.ConditionPowerControl, false, metal3v1.ReasonCredentialsUnverified, "The management controller has not accepted the credentials yet.")
	case w.host.Spec.DisablePowerOff && !w.host.Spec.Online:
		set(metal3v1.ConditionPowerControl, true, metal3v1.ReasonCredentialsVerified, "The machine stays on, because spec.disablePowerOff is set.")
	default:
		set(metal3v1.ConditionPowerControl, true, metal3v1.ReasonCredentialsVerified, "The management controller has accepted the credentials.")
	}
	set(metal3v1.ConditionHandedOver, false, metal3v1.ReasonManagedHere, "This operator manages hosts itself; nothing is handed over.")
}

// applied is the part of a status that this controller owns.
func applied(s *metal3v1.BareMetalHostStatus) *metal3v1ac.BareMetalHostStatusApplyConfiguration {
	out := metal3v1ac.BareMetalHostStatus().WithOperationalStatus(s.OperationalStatus).WithErrorMessage(s.ErrorMessage).
		WithErrorCount(s.ErrorCount).WithPoweredOn(s.PoweredOn).WithProvisioningFailCount(s.ProvisioningFailCount).
		WithLastUpdated(*s.LastUpdated).
		WithProvisioning(provisioning(&s.Provisioning))
	if s.ErrorType != "" {
		out.WithErrorType(s.ErrorType)
	}
	if h := s.OperationHistory; h.Inspect.Start != nil || h.Provision.Start != nil || h.Deprovision.Start != nil {
		history := metal3v1ac.OperationHistory()
		history.Inspect, history.Provision, history.Deprovision = metric(h.Inspect), metric(h.Provision), metric(h.Deprovision)
		out.WithOperationHistory(history)
	}
	if ref := s.GoodCredentials.Reference; ref != nil {
		out.WithGoodCredentials(metal3v1ac.CredentialsStatus().WithVersion(s.GoodCredentials.Version).
			WithReference(*ref))
	}
	for i := range s.Conditions {
		switch c := &s.Conditions[i]; c.Type {
		case metal3v1.ConditionReady, metal3v1.ConditionPowerControl, metal3v1.ConditionHandedOver:
			out.WithConditions(metav1ac.Condition().WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).WithMessage(c.Message).
				WithObservedGeneration(c.ObservedGeneration).WithLastTransitionTime(c.LastTransitionTime))
		}
	}
	return out
}

func provisioning(p *metal3v1.ProvisionStatus) *metal3v1ac.ProvisionStatusApplyConfiguration {
	out := metal3v1ac.ProvisionStatus().WithState(p.State).WithID(p.ID)
	if image := p.Image; image != nil {
		out.WithImage(metal3v1ac.Image().WithURL(image.URL))
		if image.Checksum != "" {
			out.Image.WithChecksum(image.Checksum)
		}
		if image.ChecksumType != "" {
			out.Image.WithChecksumType(image.ChecksumType)
		}
		out.Image.DiskFormat, out.Image.OCIAuthSecretName = image.DiskFormat, image.OCIAuthSecretName
	}
	return out
}

func metric(m metal3v1.OperationMetric) *metal3v1ac.OperationMetricApplyConfiguration {
	if m.Start == nil {
		return nil
	}
	out := metal3v1ac.OperationMetric().WithStart(*m.Start)
	out.End = m.End
	return out
}

// camel writes a state as a reason.
func camel(state string) string {
	if hoststate.State(state) == hoststate.Discovered {
		return "Discovered"
	}
	var b strings.Builder
	for word := range strings.FieldsSeq(state) {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	if b.Len() == 0 {
		return "New"
	}
	return b.String()
}

func sentence(s string) string {
	return strings.ToUpper(s[:1]) + s[1:] + "."
}
