// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hoststate

import metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"

// Facts are what the next event rests on.
type Facts struct {
	// Deleting says that the host is being deleted, and that nothing delays it.
	Deleting bool
	// Detached says that a user has taken the host out of management.
	Detached bool
	// Unapproved says that a user has to approve the host first.
	Unapproved bool
	// PowerControl says that the host names a management controller and credentials.
	PowerControl bool
	// Unverified says that these are not the ones that the management controller last accepted.
	Unverified bool
	// External says that something else installed the machine.
	External bool
	// NeedsInspection says that the hardware is neither known nor unwanted.
	NeedsInspection bool
	// Reinspect says that a user asked for a new inspection of known hardware.
	Reinspect bool
	// NodeKnown says that a node is recorded for the host.
	NodeKnown bool
	// Deployable says that something is to be deployed on the machine, Revoked that what was recorded to be deployed is not wanted any more.
	Deployable, Revoked bool
	// Resting says that what failed last is not due to be tried again.
	Resting bool
}

// FactsOf reads the facts that stand in a host.
func FactsOf(h *metal3v1.BareMetalHost) Facts {
	return Facts{
		Deleting:     h.DeletionTimestamp != nil && !h.DeletionDelayed(),
		Detached:     h.Detached(),
		Unapproved:   h.Labels[metal3v1.ApprovalLabel] == "pending" && h.Annotations[metal3v1.ApprovedAnnotation] != "true",
		PowerControl: h.HasPowerControl(), External: h.Spec.ExternallyProvisioned, NeedsInspection: h.NeedsHardwareInspection(),
		Reinspect: h.InspectionRequested(), NodeKnown: h.Status.Provisioning.ID != "",
		Deployable: h.WantsDeployment(), Revoked: h.DeploymentRevoked(),
	}
}

// EventOf says which event the facts are for a host in a state.
func EventOf(s State, f Facts) Event {
	switch {
	case f.Deleting && f.Resting:
		return NotYet
	case f.Deleting:
		return DeletionRequested
	case f.Unapproved && (s == None || s == Discovered):
		return ApprovalMissing
	case f.Resting:
		return NotYet
	case f.Detached && s.Detachable():
		return Detached
	case f.PowerControl && (f.Unverified || s.Detachable() && !f.NodeKnown) && s != Registering:
		return CredentialsArrived
	}
	switch s { //nolint:exhaustive // in the others what the state does leads on
	case None, Registering, Inspecting, PoweringOff, Deleting:
		if !f.PowerControl {
			return NoCredentials
		}
	}
	switch s { //nolint:exhaustive // the others have nothing to wait for
	case Discovered, Importing, ExternallyProvisioned, Inspecting, Available, MatchProfile:
		return f.course(s)
	case Provisioning, Provisioned:
		if f.Revoked {
			return DeploymentRevoked
		}
	}
	return Nothing
}

// course is the event for a host that needs no registration.
func (f Facts) course(s State) Event {
	switch {
	case f.External && s != ExternallyProvisioned:
		return ExternallyInstalled
	case f.External:
		return Nothing
	case s == Available && f.Reinspect && f.PowerControl:
		return InspectionRequested
	case s == Available && f.Deployable:
		return DeploymentWanted
	case s == Available, s == MatchProfile:
		return Nothing
	case s == Inspecting && f.Reinspect:
		return Nothing
	case !f.NeedsInspection:
		return HardwareKnown
	case s == ExternallyProvisioned, s == Discovered && f.NodeKnown:
		return HardwareWanted
	default:
		return Nothing
	}
}

// AfterVerification is the event when the management controller has accepted the credentials.
func AfterVerification(f Facts) Event {
	switch {
	case f.External:
		return ExternallyInstalled
	case !f.NeedsInspection:
		return HardwareKnown
	default:
		return Verified
	}
}
