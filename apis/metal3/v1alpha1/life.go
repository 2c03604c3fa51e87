// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// ConditionPowerControl on a BareMetalHost that this operator manages says whether its power can be switched.
const ConditionPowerControl = "PowerControl"

// Reasons of ConditionPowerControl; ReasonRebootNotPossible is one, too.
const (
	ReasonNoCredentials         = "NoCredentials"
	ReasonCredentialsVerified   = "CredentialsVerified"
	ReasonCredentialsUnverified = "CredentialsUnverified"
	ReasonInspectionNotPossible = "InspectionNotPossible"
)

// Reasons of events on a BareMetalHost that this operator manages.
const (
	EventInspectionStarted  = "InspectionStarted"
	EventInspectionComplete = "InspectionComplete"
	// EventDeploymentStarted says that Ironic was asked to deploy an image.
	EventDeploymentStarted = "DeploymentStarted"
	// EventAdoptionStarted says that Ironic was asked to adopt a machine as it is.
	EventAdoptionStarted = "AdoptionStarted"
	// EventAgentSilent says that a ramdisk is started again: its agent took the token of the node and sent no heartbeat, or it did not report in its time to an Ironic
	// that would wait without end.
	EventAgentSilent = "AgentSilent"
	// EventCleaningStarted says that Ironic was asked to end a deployment and clean the machine.
	EventCleaningStarted = "CleaningStarted"
)

// ReasonManagedHere is of ConditionHandedOver and says that nothing is handed over because this operator manages hosts itself.
const ReasonManagedHere = "ManagedHere"

// Reasons of ConditionReady of a BareMetalHost that this operator manages. While all goes well, the reason is the state. While Ironic
// does not answer, it is one of those of ConditionEndpointReady.
const (
	// ReasonBMCCredentialsRefused says that the management controller does not accept the credentials.
	ReasonBMCCredentialsRefused = "BMCCredentialsRefused"
	// ReasonBMCUnreachable says that the management controller does not answer Ironic as it should.
	ReasonBMCUnreachable    = "BMCUnreachable"
	ReasonInspecting        = "Inspecting"
	ReasonInspectionFailed  = "InspectionFailed"
	ReasonPowerChangeFailed = "PowerChangeFailed"
	ReasonUndeployFailed    = "UndeployFailed"
	ReasonDeploymentFailed  = "DeploymentFailed"
	// ReasonAdopting and ReasonAdoptionFailed say that Ironic takes over a machine that is deployed and whose node it had lost, or failed to.
	ReasonAdopting       = "Adopting"
	ReasonAdoptionFailed = "AdoptionFailed"
	// ReasonCleaningFailed says that the machine was not cleaned before or after a deployment.
	ReasonCleaningFailed = "CleaningFailed"
	// ReasonImageUnusable says that spec.image cannot be deployed as it is written.
	ReasonImageUnusable = "ImageUnusable"
	// ReasonConfigUnusable says that a Secret with user data, network data or metadata is missing or cannot be read.
	ReasonConfigUnusable = "ConfigUnusable"
	// ReasonAgentAway says that the machine does not run Ironic's ramdisk and cannot be restarted by Ironic.
	ReasonAgentAway = "AgentAway"
	// ReasonProvisioning and ReasonDeprovisioning say what Ironic does with the image of a host.
	ReasonProvisioning       = "Provisioning"
	ReasonDeprovisioning     = "Deprovisioning"
	ReasonNodeRefused        = "NodeRefused"
	ReasonNodeBusy           = "NodeBusy"
	ReasonWaitingForMachine  = "WaitingForMachine"
	ReasonWaitingForData     = "WaitingForInspectionData"
	ReasonPoweringOn         = "PoweringOn"
	ReasonPoweringOff        = "PoweringOff"
	ReasonVerifyingAccess    = "VerifyingCredentials"
	ReasonMachineUsedByOther = "NodeUsedByAnotherHost"
	// ReasonDetached says that a user has taken the host out of management; it is one of ConditionPowerControl, too.
	ReasonDetached = "Detached"
)
