// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

// Condition types of a MachinePool.
const (
	// MachinePoolMachinesAvailable is True while the pool has as many machines as are wanted.
	MachinePoolMachinesAvailable = "MachinesAvailable"
	// MachinePoolReady is True while all machines that are wanted are Ready nodes.
	MachinePoolReady = "Ready"
	// MachinePoolUnsupportedConfiguration is True while a field of spec has no effect.
	MachinePoolUnsupportedConfiguration = "UnsupportedConfiguration"
)

// Reasons of MachinePoolMachinesAvailable.
const (
	// ReasonMachinesBound: the pool has its machines. The condition is True.
	ReasonMachinesBound = "MachinesBound"
	// ReasonNoSuitableAgents: machines are missing, and no Agent can be taken. The message counts why.
	ReasonNoSuitableAgents = "NoSuitableAgents"
	// ReasonBinding: machines are missing, and are about to be bound.
	ReasonBinding = "Binding"
)

// Reasons of MachinePoolReady.
const (
	// ReasonAllNodesReady: all machines are Ready nodes. The condition is True.
	ReasonAllNodesReady = "AllNodesReady"
	// ReasonWaitingForClaim: machines are bound when the cluster is claimed. The condition is True. Ready of a ClusterDeployment has it, too.
	ReasonWaitingForClaim = "WaitingForClaim"
	// ReasonMachinesMissing: machines are missing; MachinesAvailable says why.
	ReasonMachinesMissing = "MachinesMissing"
	// ReasonMachinesFailed: the installation of machines failed; the message names them.
	ReasonMachinesFailed = "MachinesFailed"
	// ReasonInstalling: machines are being installed.
	ReasonInstalling = "Installing"
	// ReasonJoining: machines start from their disks, and their nodes are not Ready.
	ReasonJoining = "Joining"
	// ReasonNodesNotReady: nodes were Ready, and are not any more; the message names them.
	ReasonNodesNotReady = "NodesNotReady"
	// ReasonReleasing: machines leave the cluster.
	ReasonReleasing = "Releasing"
	// ReasonClusterMissing: there is no ClusterDeployment of that name, or it is being deleted.
	ReasonClusterMissing = "ClusterMissing"
	// ReasonClusterNotInstalled: the cluster is not installed yet.
	ReasonClusterNotInstalled = "ClusterNotInstalled"
	// ReasonNoNodeAccess: the cluster takes no nodes: its spec.clusterMetadata names no nodeAccessSecretRef.
	ReasonNoNodeAccess = "NoNodeAccess"
	// ReasonClusterHibernating: the cluster is stopped, or is to be.
	ReasonClusterHibernating = "ClusterHibernating"
	// ReasonClusterNotReachable: machines are installed, and the cluster does not say whether their nodes are Ready.
	ReasonClusterNotReachable = "ClusterNotReachable"
)

// Reasons of MachinePoolUnsupportedConfiguration.
const (
	// ReasonUnsupportedFields: fields have no effect; the message names them. The condition is True.
	ReasonUnsupportedFields = "UnsupportedFields"
	// ReasonConfigurationSupported: all fields have their effect. The condition is False.
	ReasonConfigurationSupported = "ConfigurationSupported"
)

// FinalizerMachinePool keeps a MachinePool until its machines are released.
const FinalizerMachinePool = "hive.openshift.io/machine-pool-release"
