// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types of a BareMetalHostDiscovery.
const (
	// ConditionReady is the summary: True while Ironic answers and hosts can be made. Machines that wait or are refused do
	// not make it False; its message counts them.
	ConditionReady = "Ready"
	// ConditionEndpointReady says whether Ironic can be read, and if not, why.
	ConditionEndpointReady = "EndpointReady"
	// ConditionSelectorEvaluated is present while there is a selector. It is False when the selector cannot be evaluated on a machine, which is not taken.
	ConditionSelectorEvaluated = "SelectorEvaluated"
	// ConditionStalled is present and True while only a change of the resource can help.
	ConditionStalled = "Stalled"
)

// Reasons of ConditionEndpointReady, and of ConditionReady while the endpoint is what is wrong.
const (
	ReasonReachable           = "Reachable"
	ReasonNotPolledYet        = "NotPolledYet"
	ReasonEndpointMissing     = "EndpointMissing"
	ReasonEndpointNotShared   = "EndpointNotShared"
	ReasonEndpointUnreachable = "EndpointUnreachable"
	ReasonEndpointTimedOut    = "EndpointTimedOut"
	ReasonCredentialsMissing  = "CredentialsMissing"
	ReasonCredentialsRefused  = "CredentialsRefused"
	ReasonAPITooOld           = "APITooOld"
	ReasonAnswerInvalid       = "AnswerInvalid"
	// ReasonNodesDisappeared says that most nodes went at once: another database, or another Ironic. Nothing is deleted.
	ReasonNodesDisappeared = "NodesDisappeared"
)

// Reasons of ConditionSelectorEvaluated.
const (
	ReasonEvaluated         = "Evaluated"
	ReasonEvaluationFailure = "EvaluationFailed"
)

// Further reasons of ConditionReady and ConditionStalled.
const (
	ReasonDiscovering     = "Discovering"
	ReasonPaused          = "Paused"
	ReasonMachinesWaiting = "MachinesWaiting"
	ReasonMachinesRefused = "MachinesRefused"
	ReasonSelectorInvalid = "SelectorInvalid"
	ReasonTemplateInvalid = "TemplateInvalid"
)

// Reasons why a machine waits.
const (
	WaitingForPorts     = "WaitingForPorts"
	WaitingForInventory = "WaitingForInventory"
	WaitingForReading   = "WaitingForReading"
	WaitingForRate      = "WaitingForRate"
	WaitingForResume    = "WaitingForResume"
	WaitingForName      = "WaitingForName"
	WaitingForNode      = "WaitingForNode"
	WaitingForCreation  = "WaitingForCreation"
	// WaitingForDryRunEnd says that the machine would be a host if the resource did not run dry.
	WaitingForDryRunEnd = "DryRun"
)

// Reasons why a machine is refused.
const (
	RefusedDiscoveryFailed = "DiscoveryFailed"
	RefusedDuplicateMAC    = "DuplicateMAC"
	// RefusedDriver says that the machine has a host that a user registered by hand, and that its node still has the driver of discovery.
	RefusedDriver          = "DriverNotSwitched"
	RefusedDuplicateSerial = "DuplicateSerial"
	RefusedDuplicateBMC    = "DuplicateBMC"
	RefusedNameTaken       = "NameTaken"
	RefusedMACUnusable     = "MACUnusable"
	RefusedNodeInUse       = "NodeInUse"
	RefusedMaxHosts        = "MaxHostsReached"
	RefusedReserved        = "ReservedElsewhere"
	RefusedTemplateInvalid = "TemplateInvalid"
	RefusedHostRejected    = "HostRejected"
)

// Reasons of events on a BareMetalHostDiscovery and its hosts.
const (
	EventHostDiscovered  = "HostDiscovered"
	EventHostsDiscovered = "HostsDiscovered"
	EventNameFellBack    = "NameFellBack"
	EventNodeDeleted     = "NodeDeleted"
	EventNodeKept        = "NodeKept"
	EventFinalizerKept   = "FinalizerKept"
	EventHardwareCut     = "HardwareCut"
	EventHostApproved    = "HostApproved"
	EventNodeReplaced    = "NodeReplaced"
	EventHardwareUpdated = "HardwareUpdated"
	EventHandedOver      = "HandedOver"
)

// ConditionHandedOver on a discovered BareMetalHost says how far the hand-over to the operator that manages hosts is.
const ConditionHandedOver = "HandedOver"

// ConditionNodePresent is False on a host that discovery holds while Ironic does not know its node, and absent otherwise.
const ConditionNodePresent = "NodePresent"

// ReasonNodeGone is the reason of ConditionNodePresent.
const ReasonNodeGone = "NodeGone"

// Reasons of ConditionHandedOver.
const (
	ReasonWaitingForCredentials = "WaitingForCredentials"
	ReasonRebootNotPossible     = "RebootNotPossible"
	ReasonWaitingForApproval    = "WaitingForApproval"
	ReasonCredentialsNotFound   = "CredentialsNotFound"
	ReasonBMCUnsupported        = "BMCUnsupported"
	ReasonDriverRefused         = "DriverRefused"
	ReasonDriverSwitching       = "DriverSwitching"
	ReasonNodeNotFound          = "NodeNotFound"
	ReasonNodeMoved             = "NodeMoved"
	ReasonStatusNotRestored     = "StatusNotRestored"
	// ReasonNodeNotReserved says that no reservation gives the host the node that it names.
	ReasonNodeNotReserved = "NodeNotReserved"
	ReasonHandedOver      = "HandedOver"
)
