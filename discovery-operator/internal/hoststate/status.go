// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hoststate

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// Status is the status of a host after a pass. LastUpdated is that of the host before.
func (d Decision) Status(at time.Time) *metal3v1.BareMetalHostStatus {
	s, out, now := d.Known, *d.Then, metav1.NewTime(at)
	status := s.Host.Status.DeepCopy()
	moved := d.Step.To != s.State
	status.Provisioning.State, status.Provisioning.ID, status.GoodCredentials = metal3v1.ProvisioningState(d.Step.To), s.NodeID, s.Good
	if s.Powered != nil {
		status.PoweredOn = *s.Powered
	}
	if moved {
		s.record(status, d.Step.To, now)
	}
	switch {
	case out.Kind != "":
		status.ErrorType, status.ErrorMessage, status.ErrorCount = out.Kind, out.Message, s.Memory.Failures
	case moved || out.Settled:
		status.ErrorType, status.ErrorMessage, status.ErrorCount = "", "", 0
	}
	switch {
	case status.ErrorType != "":
		status.OperationalStatus = metal3v1.OperationalStatusError
	case out.Reason == metal3v1.ReasonDetached:
		status.OperationalStatus = metal3v1.OperationalStatusDetached
	case s.Facts.PowerControl, d.Step.To == Provisioning, d.Step.To == Provisioned, d.Step.To == Deprovisioning:
		status.OperationalStatus = metal3v1.OperationalStatusOK
	default:
		status.OperationalStatus = metal3v1.OperationalStatusDiscovered
	}
	s.conditions(now, status, d.Step, out)
	return status
}

// record writes down when an operation begins and ends, and which image it is about.
func (s Snapshot) record(status *metal3v1.BareMetalHostStatus, next State, now metav1.Time) {
	history := &status.OperationHistory
	switch next { //nolint:exhaustive // the others begin nothing
	case Inspecting:
		history.Inspect = metal3v1.OperationMetric{Start: &now}
	case Provisioning:
		history.Provision = metal3v1.OperationMetric{Start: &now}
	case Deprovisioning:
		history.Deprovision = metal3v1.OperationMetric{Start: &now}
	}
	switch {
	case s.State == Inspecting && next == MatchProfile:
		history.Inspect.End = &now
	case s.State == Provisioning && next == Provisioned:
		history.Provision.End = &now
	case s.State == Deprovisioning && next == Available:
		history.Deprovision.End = &now
	}
	switch next {
	case Provisioning, Provisioned:
		if s.Host.Spec.Image != nil {
			status.Provisioning.Image = s.Host.Spec.Image.DeepCopy()
		}
	case Deprovisioning:
	default:
		if status.Provisioning.Image != nil {
			status.Provisioning.Image = &metal3v1.Image{}
		}
		status.Provisioning.CustomDeploy = nil
	}
}

// conditions puts into the status what users read.
func (s Snapshot) conditions(now metav1.Time, status *metal3v1.BareMetalHostStatus, step Step, out Outcome) {
	set := func(kind string, holds bool, reason, message string) {
		c := metav1.Condition{
			Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: s.Host.Generation,
			LastTransitionTime: now.Rfc3339Copy(),
		}
		if holds {
			c.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&status.Conditions, c)
	}
	before := meta.FindStatusCondition(s.Host.Status.Conditions, metal3v1.ConditionReady)
	ready := !out.Blocked && out.Reason != metal3v1.ReasonDetached && (step.To == Available || step.To == ExternallyProvisioned || step.To == Provisioned)
	switch {
	case out.Reason != "" && (status.ErrorType == "" || out.Kind != "" || out.Blocked || out.User):
		set(metal3v1.ConditionReady, ready && status.ErrorType == "", out.Reason, out.Message)
	case status.ErrorType != "" && before != nil: // what is wrong was said before, and is being tried again
		set(metal3v1.ConditionReady, false, before.Reason, before.Message)
	case step.To == Discovered && s.Facts.Unapproved:
		set(metal3v1.ConditionReady, false, metal3v1.ReasonWaitingForApproval,
			`The host is held until the annotation `+metal3v1.ApprovedAnnotation+` is set to "true".`)
	default:
		reason, message := step.To.Reason(), Sentence(step.Why)
		if step.To == Provisioned && !s.Facts.PowerControl {
			message = "The image is deployed, and the machine has switched itself off. Switch it on to boot it: the host has no power control."
		}
		if before != nil && before.Reason == reason { // why the host is there does not change while it stays
			message = before.Message
		}
		set(metal3v1.ConditionReady, ready, reason, message)
	}
	switch verified := s.Good.Reference != nil; {
	case out.Reason == metal3v1.ReasonDetached:
		set(metal3v1.ConditionPowerControl, false, metal3v1.ReasonDetached, "The power is left to another system while the host is detached.")
	case !s.Facts.PowerControl && len(DesiredPowerOf(s.Host).Reboots) > 0:
		set(metal3v1.ConditionPowerControl, false, metal3v1.ReasonRebootNotPossible,
			"A reboot was asked for and is not done: the host has no power control. Remove the annotation, or set spec.bmc.")
	case !s.Facts.PowerControl && s.Facts.Reinspect:
		set(metal3v1.ConditionPowerControl, false, metal3v1.ReasonInspectionNotPossible,
			"An inspection was asked for and is not done: the host has no power control. Remove the annotation, or set spec.bmc.")
	case !s.Facts.PowerControl:
		set(metal3v1.ConditionPowerControl, false, metal3v1.ReasonNoCredentials,
			"The machine is never powered on, off or rebooted. Set spec.bmc.address and spec.bmc.credentialsName to have it managed.")
	case !verified:
		set(metal3v1.ConditionPowerControl, false, metal3v1.ReasonCredentialsUnverified, "The management controller has not accepted the credentials yet.")
	case s.Host.Spec.DisablePowerOff && !s.Host.Spec.Online:
		set(metal3v1.ConditionPowerControl, true, metal3v1.ReasonCredentialsVerified, "The machine stays on, because spec.disablePowerOff is set.")
	default:
		set(metal3v1.ConditionPowerControl, true, metal3v1.ReasonCredentialsVerified, "The management controller has accepted the credentials.")
	}
	set(metal3v1.ConditionHandedOver, false, metal3v1.ReasonManagedHere, "This operator manages hosts itself; they are not handed over.")
}
