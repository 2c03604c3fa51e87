// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

// Labels of Agents.
const (
	// InfraEnvLabel is on every Agent, with the name of its InfraEnv.
	InfraEnvLabel = "infraenvs.agent-install.openshift.io"
	// ClusterNamespaceLabel is on bound Agents, with the namespace of their ClusterDeployment.
	ClusterNamespaceLabel = "agent-install.openshift.io/clusterdeployment-namespace"
	// MachinePoolLabel is on Agents that a MachinePool took, with the name of the MachinePool.
	MachinePoolLabel = "agent-install.openshift.io/machine-pool"
	// MachinePoolNamespaceLabel is on Agents that a MachinePool took, with the namespace of the MachinePool.
	MachinePoolNamespaceLabel = "agent-install.openshift.io/machine-pool-namespace"
	// MachineReferenceLabel is on Agents that Cluster API's agent provider reserved. No other machine pool takes them.
	MachineReferenceLabel = "agentMachineRef"
	// BareMetalHostLabel is on an Agent that is linked to a BareMetalHost of its namespace, with the name of the host.
	BareMetalHostLabel = "agent-install.openshift.io/bmh"
	// ClaimOwnerLabel is on claims of addresses, with the name of the Agent that they are for.
	ClaimOwnerLabel = "agent-install.openshift.io/agent"
	// ClassificationPrefix precedes the label keys of AgentClassifications.
	ClassificationPrefix = "agentclassification.agent-install.openshift.io/"
	// InventoryPrefix precedes labels that are facts of the hardware.
	InventoryPrefix = "inventory.agent-install.openshift.io/"
)

// Labels of Agents that are facts of the hardware.
const (
	NonRotationalDiskLabel = InventoryPrefix + "storage-hasnonrotationaldisk"
	CPUArchitectureLabel   = InventoryPrefix + "cpu-architecture"
	CPUVirtEnabledLabel    = InventoryPrefix + "cpu-virtenabled"
	ManufacturerLabel      = InventoryPrefix + "host-manufacturer"
	ProductNameLabel       = InventoryPrefix + "host-productname"
	IsVirtualLabel         = InventoryPrefix + "host-isvirtual"
)

// Annotations and finalizers.
const (
	// InventoryVersionAnnotation says by which rules the facts were made labels.
	InventoryVersionAnnotation = InventoryPrefix + "version"
	// InventoryVersion is its value.
	InventoryVersion = "0.1"
	// TokenGenerationAnnotation is on an InfraEnv whose tokens were rotated: which generation of them counts.
	TokenGenerationAnnotation = "infraenv.agent-install.openshift.io/token-generation" //nolint:gosec // the name of an annotation, no credential
	// RevokeTokensAnnotation on an Agent, with any value, revokes the tokens of its machine. The service takes it away when that is done.
	RevokeTokensAnnotation = "agent.agent-install.openshift.io/revoke-tokens"
	// RevokeHostTokensAnnotation on an InfraEnv, with any value, revokes the tokens of all its machines. The service takes it away when that is done.
	RevokeHostTokensAnnotation = "infraenv.agent-install.openshift.io/revoke-host-tokens" //nolint:gosec // the name of an annotation, no credential
	// MachinePoolBoundAtAnnotation is on Agents that a MachinePool took: when, in RFC 3339.
	MachinePoolBoundAtAnnotation = "agent-install.openshift.io/machine-pool-bound-at"
	// MachinePoolWipeAnnotation is on Agents that a MachinePool took: what is wiped of the machine when it is released, None, InstalledDisk or AllDisks.
	MachinePoolWipeAnnotation = "agent-install.openshift.io/machine-pool-wipe"
	// MachinePoolNodeAnnotation is on Agents that a MachinePool took: what it put into their spec of the node, as JSON. It is taken back when the machine is released.
	MachinePoolNodeAnnotation = "agent-install.openshift.io/machine-pool-node"
	// DeleteMachineAnnotation on an Agent, with any value: a MachinePool that is scaled down releases it first.
	DeleteMachineAnnotation = "cluster.x-k8s.io/delete-machine"
	// AgentFinalizer keeps an Agent until the service has forgotten its host.
	AgentFinalizer = "agent.agent-install.openshift.io/ai-deprovision"
	// NodeAddressFinalizer keeps a claim, and with it the address, while the machine may use the address.
	NodeAddressFinalizer = "agent-install.openshift.io/node-address"
	// InfraEnvFinalizer keeps an InfraEnv until none of its hosts is bound.
	InfraEnvFinalizer = "infraenv.agent-install.openshift.io/ai-deprovision"
	// ClassificationFinalizer keeps an AgentClassification until its label is on no Agent.
	ClassificationFinalizer = "agentclassification.agent-install.openshift.io"
	// ReservationFinalizer keeps an AgentReservation until its machines are free for others.
	ReservationFinalizer = "agentreservation.agent-install.openshift.io"
)

// ConditionReady sums the other conditions of an InfraEnv or an Agent up, for kubectl wait and GitOps tools. Reason and message are those of the
// condition that is in the way, else of the one that tells success.
const ConditionReady = "Ready"

// ReasonInitialized is the reason of a condition that has not been evaluated yet.
const ReasonInitialized = "Initialized"

// Annotations of a BareMetalHost that has InfraEnvLabel: each becomes a field of the spec of the machine's Agent, for as long as the annotation is there.
const (
	BMHRoleAnnotation                    = "bmac.agent-install.openshift.io/role"
	BMHHostnameAnnotation                = "bmac.agent-install.openshift.io/hostname"
	BMHMachineConfigPoolAnnotation       = "bmac.agent-install.openshift.io/machine-config-pool"
	BMHInstallerArgsAnnotation           = "bmac.agent-install.openshift.io/installer-args"
	BMHIgnitionConfigOverridesAnnotation = "bmac.agent-install.openshift.io/ignition-config-overrides"
	// BMHClusterReferenceAnnotation is <namespace>/<ClusterDeployment>; the empty value frees the machine.
	BMHClusterReferenceAnnotation = "bmac.agent-install.openshift.io/cluster-reference"
	// BMHNodeLabelAnnotationPrefix begins annotations of which each is a label of the Agent's nodeLabels: the rest of the key is the label's key.
	BMHNodeLabelAnnotationPrefix = "bmac.agent-install.openshift.io.node-label."
)

// BMHHibernatesAnnotation is on a BareMetalHost that was switched off with the cluster of its machine, with <namespace>/<ClusterDeployment>. It is switched on again with it, or when the
// machine leaves it. A host without the annotation is not switched on: another client switched it off.
const BMHHibernatesAnnotation = "agent-install.openshift.io/hibernates-with"

// A BareMetalHost with the annotation, whose value is not false, takes the Agent of its machine, and the machine's Node, with it when it is deleted. The finalizer keeps it until then.
const (
	BMHRemoveAgentAnnotation = "bmac.agent-install.openshift.io/remove-agent-and-node-on-delete"
	BMHFinalizer             = "bmac.agent-install.openshift.io/deprovision"
)

// LeavesClusterAnnotation is on an Agent that is deleted with its BareMetalHost as soon as its machine has left the cluster. It frees the machine also where the InfraEnv has a cluster of its own.
const LeavesClusterAnnotation = "agent-install.openshift.io/leaves-cluster"

// BMHRestartedAnnotation is on a BareMetalHost whose machine was restarted into the discovery image because it left its cluster, with the time, in RFC 3339, since which the condition
// Released of its Agent is False. The machine is restarted once for each release. The annotation goes when the machine has registered.
const BMHRestartedAnnotation = "agent-install.openshift.io/restarted-for-release"

// NodeIsRemoved is status.deprovision_info.message of an Agent while its former cluster loses the Node.
const NodeIsRemoved = "The Node is being removed from the cluster"

// Conditions of an InfraEnv, and their reasons.
const (
	ConditionImageCreated = "ImageCreated"

	ReasonInfraEnvAvailable        = "InfraEnvAvailable"
	ReasonImageCreationError       = "ImageCreationError"
	ReasonMissingClusterDeployment = "MissingClusterDeployment"
)

// Conditions of an Agent.
const (
	ConditionSpecSynced      = "SpecSynced"
	ConditionConnected       = "Connected"
	ConditionRequirementsMet = "RequirementsMet"
	ConditionValidated       = "Validated"
	ConditionInstalled       = "Installed"
	ConditionBound           = "Bound"
	// ConditionJoined says whether the machine is a Ready node of its cluster. It is on Agents whose cluster takes nodes.
	ConditionJoined = "Joined"
	// ConditionReleased is False from the end of a binding until the machine may be bound again. It is on Agents that were bound once, and are not now.
	ConditionReleased = "Released"
	// ConditionReserved is True while the free machine is reserved: for the user who allocated it over REST, or by an AgentReservation. It is on Agents of such machines only.
	ConditionReserved = "Reserved"
	// ConditionAddressesAssigned says whether the machine has an address of each pool that its InfraEnv names. It is on Agents of such machines from binding until they are free.
	ConditionAddressesAssigned = "AddressesAssigned"
)

// Reasons of the conditions of an Agent.
const (
	ReasonSyncOK       = "SyncOK"
	ReasonBackendError = "BackendError"
	ReasonInputError   = "InputError"

	// ReasonNotAvailable: the service does not know the machine; nothing is known of it until it registers.
	ReasonNotAvailable = "NotAvailable"

	ReasonAgentIsConnected    = "AgentIsConnected"
	ReasonAgentIsDisconnected = "AgentIsDisconnected"

	ReasonAgentIsReady             = "AgentIsReady"
	ReasonAgentNotReady            = "AgentNotReady"
	ReasonAgentAlreadyInstalling   = "AgentAlreadyInstalling"
	ReasonAgentInstallationStopped = "AgentInstallationStopped"
	ReasonAgentIsNotApproved       = "AgentIsNotApproved"

	ReasonValidationsPassing     = "ValidationsPassing"
	ReasonValidationsFailing     = "ValidationsFailing"
	ReasonValidationsUserPending = "ValidationsUserPending"
	ReasonValidationsUnknown     = "ValidationsUnknown"

	ReasonInstallationCompleted  = "InstallationCompleted"
	ReasonInstallationFailed     = "InstallationFailed"
	ReasonInstallationNotStarted = "InstallationNotStarted"
	ReasonInstallationInProgress = "InstallationInProgress"

	ReasonBound                      = "Bound"
	ReasonUnbound                    = "Unbound"
	ReasonBinding                    = "Binding"
	ReasonUnbinding                  = "Unbinding"
	ReasonUnbindingPendingUserAction = "UnbindingPendingUserAction"

	ReasonWaitingForBoot = "WaitingForBoot"
	ReasonWaitingForCSR  = "WaitingForCSR"
	ReasonNodeNotReady   = "NodeNotReady"
	ReasonNodeReady      = "NodeReady"

	ReasonDraining       = "Draining"
	ReasonRebooting      = "Rebooting"
	ReasonWiping         = "Wiping"
	ReasonWipeFailed     = "WipeFailed"
	ReasonWaitingForUser = "WaitingForUser"
	ReasonReleased       = "Released"
	// Reasons of AddressesAssigned.
	ReasonAddressesAssigned = "AddressesAssigned"
	ReasonAddressesMissing  = "AddressesMissing"

	ReasonAllocated = "Allocated"
)

// Conditions of an AgentClassification, and their reasons.
const (
	ConditionQueryErrors = "QueryErrors"

	ReasonHasQueryErrors = "HasQueryErrors"
	ReasonNoQueryErrors  = "NoQueryErrors"
)

// Reasons of the condition Ready of an AgentReservation.
const (
	// ReasonReserving: machines are reserved in the service, and their Agents do not all say so yet.
	ReasonReserving = "Reserving"
	// ReasonMachinesReserved: all machines were reserved together. Some may have been bound since.
	ReasonMachinesReserved = "MachinesReserved"
	// ReasonMachinesBound: all machines that were reserved are bound.
	ReasonMachinesBound = "MachinesBound"
	// ReasonTooFewAgents: none is reserved, because too few can be.
	ReasonTooFewAgents = "TooFewAgents"
	// ReasonInvalidSelector: the selector cannot be read.
	ReasonInvalidSelector = "InvalidSelector"
	// ReasonReservationExpired: the time is over.
	ReasonReservationExpired = "Expired"
	// ReasonReservationEnded: the reservation ended before its time, over REST or with the data of the service.
	ReasonReservationEnded = "Ended"
)
