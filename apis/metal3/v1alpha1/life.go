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
)

// ReasonManagedHere is of ConditionHandedOver and says that nothing is handed over because this operator manages hosts itself.
const ReasonManagedHere = "ManagedHere"

// Reasons of ConditionReady of a BareMetalHost that this operator manages. While all goes well, the reason is the state. While Ironic
// does not answer, it is one of those of ConditionEndpointReady.
const (
	// ReasonBMCCredentialsRefused says that the management controller does not accept the credentials.
	ReasonBMCCredentialsRefused = "BMCCredentialsRefused"
	// ReasonBMCUnreachable says that the management controller does not answer Ironic as it should.
	ReasonBMCUnreachable     = "BMCUnreachable"
	ReasonInspecting         = "Inspecting"
	ReasonInspectionFailed   = "InspectionFailed"
	ReasonPowerChangeFailed  = "PowerChangeFailed"
	ReasonUndeployFailed     = "UndeployFailed"
	ReasonDeploymentFailed   = "DeploymentFailed"
	ReasonNodeRefused        = "NodeRefused"
	ReasonNodeBusy           = "NodeBusy"
	ReasonWaitingForMachine  = "WaitingForMachine"
	ReasonWaitingForData     = "WaitingForInspectionData"
	ReasonPoweringOn         = "PoweringOn"
	ReasonPoweringOff        = "PoweringOff"
	ReasonVerifyingAccess    = "VerifyingCredentials"
	ReasonMachineUsedByOther = "NodeUsedByAnotherHost"
)
