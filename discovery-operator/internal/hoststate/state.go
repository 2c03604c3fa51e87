// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hoststate

import metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"

// State is where a host is in its life, as it stands in status.provisioning.state.
type State string

// States. Other operators know all of them but Importing.
const (
	// None is a host that no operator has reconciled.
	None = State(metal3v1.StateNone)
	// Discovered is a host that is known and not used yet: it waits for approval, for its machine to report, or for credentials.
	Discovered = State(metal3v1.StateUnmanaged)
	// Importing looks for inspection data that Ironic has already, and never triggers an inspection.
	Importing             = State(metal3v1.StateImporting)
	Registering           = State(metal3v1.StateRegistering)
	Inspecting            = State(metal3v1.StateInspecting)
	MatchProfile          = State(metal3v1.StateMatchProfile)
	Preparing             = State(metal3v1.StatePreparing)
	Available             = State(metal3v1.StateAvailable)
	ExternallyProvisioned = State(metal3v1.StateExternallyProvisioned)
	Provisioning          = State(metal3v1.StateProvisioning)
	Provisioned           = State(metal3v1.StateProvisioned)
	Deprovisioning        = State(metal3v1.StateDeprovisioning)
	PoweringOff           = State(metal3v1.StatePoweringOffBefore)
	Deleting              = State(metal3v1.StateDeleting)
	// Gone is the end: the object may go. It is never written.
	Gone State = "gone"
)

// States are all that a host can be in, in the order of a life.
func States() []State {
	return []State{
		None, Discovered, Registering, Importing, Inspecting, MatchProfile, Preparing, Available, ExternallyProvisioned,
		Provisioning, Provisioned, Deprovisioning, PoweringOff, Deleting,
	}
}

// Of reads a state as it was written, by whomever. A state that is not known begins the life anew.
func Of(s metal3v1.ProvisioningState) State {
	switch s { //nolint:exhaustive // the others are read as they are written
	case metal3v1.StateDiscovered:
		return Discovered
	case metal3v1.StateReady:
		return Available
	}
	if _, known := table[State(s)]; known {
		return State(s)
	}
	return None
}

// Detachable reports whether a host in this state can be detached: its machine is idle or in use, and nothing is under way.
func (s State) Detachable() bool {
	return s == Available || s == ExternallyProvisioned || s == Provisioned
}

// Event is what happened to a host.
type Event string

// Events. Those of the first group are seen on the host, those of the second are what an effect led to.
const (
	// Nothing says that the host is unchanged: the activity of its state goes on.
	Nothing Event = "nothing new"
	// NotYet says that what failed is not due to be tried again.
	NotYet              Event = "not due yet"
	ApprovalMissing     Event = "approval missing"
	NoCredentials       Event = "no credentials"
	CredentialsArrived  Event = "credentials arrived"
	ExternallyInstalled Event = "externally provisioned"
	HardwareKnown       Event = "hardware known"
	HardwareWanted      Event = "hardware wanted"
	InspectionRequested Event = "inspection requested"
	DeletionRequested   Event = "deletion requested"
	// DeploymentWanted says that something is to be deployed on the machine, DeploymentRevoked that what is there is not wanted any more.
	DeploymentWanted  Event = "deployment wanted"
	DeploymentRevoked Event = "deployment revoked"
	// Detached says that a user has taken the host out of management.
	Detached         Event = "detached"
	NodeFound        Event = "node found"
	NodeLost         Event = "node lost"
	Verified         Event = "credentials verified"
	NoInspectionData Event = "no inspection data"
	Done             Event = "done"
	Failed           Event = "failed"
	GaveUp           Event = "given up"
)

// Events are all that can happen.
func Events() []Event {
	return []Event{
		Nothing, NotYet, ApprovalMissing, NoCredentials, CredentialsArrived, ExternallyInstalled, HardwareKnown, HardwareWanted,
		InspectionRequested, DeploymentWanted, DeploymentRevoked, Detached, DeletionRequested, NodeFound, NodeLost, Verified, NoInspectionData, Done, Failed,
		GaveUp,
	}
}

// Effect is a change of Ironic or of the machine that a pass asks for. Each can be repeated.
type Effect string

// Effects.
const (
	// Rest does nothing.
	Rest Effect = ""
	// FindNode looks for a node by the host's MAC.
	FindNode Effect = "find the node"
	// ImportHardware reads what Ironic knows of the machine.
	ImportHardware Effect = "import the hardware"
	// Register gives the node the host's driver and credentials, and has them verified.
	Register Effect = "register the node"
	// InspectMachine has the machine inspected.
	InspectMachine Effect = "inspect the machine"
	// EndInspection ends an inspection that is not wanted any more, if one is under way.
	EndInspection Effect = "end the inspection"
	// MaintainPower makes the machine's power what the host says, where there is power control.
	MaintainPower Effect = "maintain the power"
	// Deploy has an image deployed, or waits for a deployment that is under way.
	Deploy Effect = "deploy the image"
	// KeepDeployed makes Ironic adopt a machine that is deployed and whose node was made anew, and maintains the power.
	KeepDeployed Effect = "keep what is deployed"
	// Undeploy ends what was deployed, and has the machine cleaned.
	Undeploy Effect = "undeploy"
	// PowerOff switches the machine off.
	PowerOff Effect = "power off"
	// Detach removes the node of a machine that stays as it is.
	Detach Effect = "detach"
	// DeleteNode removes the node.
	DeleteNode Effect = "delete the node"
)

// Step is the answer to an event: the next state, what to do, and why.
type Step struct {
	To  State
	Do  Effect
	Why string
}

// Next answers an event. Every state has an answer to every event; Gone has none, because nothing is left.
func Next(s State, e Event) (Step, bool) {
	step, ok := table[s][e]
	return step, ok
}
