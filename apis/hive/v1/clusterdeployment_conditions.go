// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

// Power states. Spec knows PowerStateRunning and PowerStateHibernating; status all of them.
const (
	// PowerStateRunning: the cluster runs and its API answers.
	PowerStateRunning PowerState = "Running"
	// PowerStateHibernating: the cluster is stopped, its data is kept.
	PowerStateHibernating PowerState = "Hibernating"
	// PowerStateSyncSetsNotApplied: the cluster is not stopped before its first configuration was applied.
	PowerStateSyncSetsNotApplied PowerState = "SyncSetsNotApplied"
	// PowerStateStopping: the cluster is being stopped.
	PowerStateStopping PowerState = "Stopping"
	// PowerStateFailedToStop: stopping failed and is tried again.
	PowerStateFailedToStop PowerState = "FailedToStop"
	// PowerStateWaitingForMachinesToStop: machines were asked to stop and have not yet.
	PowerStateWaitingForMachinesToStop PowerState = "WaitingForMachinesToStop"
	// PowerStateStartingMachines: the cluster is being started (step 1 of 4).
	PowerStateStartingMachines PowerState = "StartingMachines"
	// PowerStateFailedToStartMachines: starting failed and is tried again.
	PowerStateFailedToStartMachines PowerState = "FailedToStartMachines"
	// PowerStateWaitingForMachines: machines, or processes, were asked to start and have not yet (step 1 of 4).
	PowerStateWaitingForMachines PowerState = "WaitingForMachines"
	// PowerStateWaitingForNodes: nodes are not ready yet (step 2 of 4).
	PowerStateWaitingForNodes PowerState = "WaitingForNodes"
	// PowerStatePausingForClusterOperatorsToSettle: cluster operators get time to notice that they were asleep (step 3 of 4).
	PowerStatePausingForClusterOperatorsToSettle PowerState = "PausingForClusterOperatorsToSettle"
	// PowerStateWaitingForClusterOperators: cluster operators, or the API's own readiness checks, are not ready yet (step 4 of 4).
	PowerStateWaitingForClusterOperators PowerState = "WaitingForClusterOperators"
	// PowerStateUnknown: power is not observed, because power is paused or the cluster is being deleted.
	PowerStateUnknown PowerState = "Unknown"
)

// Condition types of a ClusterDeployment that pools, power and hosted clusters read or write.
const (
	// ClusterDeploymentReady is True while the cluster runs and is usable.
	ClusterDeploymentReady = "Ready"
	// ClusterDeploymentHibernating is True while the cluster is stopped.
	ClusterDeploymentHibernating = "Hibernating"
	// ClusterDeploymentProvisioned is True once the cluster is installed.
	ClusterDeploymentProvisioned = "Provisioned"
	// ClusterDeploymentProvisionStopped is True when installation failed for good.
	ClusterDeploymentProvisionStopped = "ProvisionStopped"
	// ClusterDeploymentProvisionFailed is True when an attempt of installation failed.
	ClusterDeploymentProvisionFailed = "ProvisionFailed"
	// ClusterDeploymentRequirementsMet is True when everything that installation needs is there.
	ClusterDeploymentRequirementsMet = "RequirementsMet"
	// ClusterDeploymentUnreachable is True when the cluster should answer and does not.
	ClusterDeploymentUnreachable = "Unreachable"
	// ClusterDeploymentDataAtRisk is True while the data of a cluster that runs goes when it ends. A cluster whose data was never at risk does not have it.
	ClusterDeploymentDataAtRisk = "DataAtRisk"
)

// Condition types that mirror those of the install object.
const (
	// ClusterDeploymentInstallRequirementsMet mirrors ClusterInstallRequirementsMet.
	ClusterDeploymentInstallRequirementsMet = "ClusterInstallRequirementsMet"
	// ClusterDeploymentInstallCompleted mirrors ClusterInstallCompleted.
	ClusterDeploymentInstallCompleted = "ClusterInstallCompleted"
	// ClusterDeploymentInstallFailed mirrors ClusterInstallFailed.
	ClusterDeploymentInstallFailed = "ClusterInstallFailed"
	// ClusterDeploymentInstallStopped mirrors ClusterInstallStopped.
	ClusterDeploymentInstallStopped = "ClusterInstallStopped"
)

// Reasons of ClusterDeploymentHibernating and ClusterDeploymentReady, besides the names of power states and ReasonRunning.
const (
	// ReasonStoppingOrHibernating: the cluster is stopped or being stopped. Ready is False.
	ReasonStoppingOrHibernating = "StoppingOrHibernating"
	// ReasonResumingOrRunning: the cluster runs or is being started. Hibernating is False.
	ReasonResumingOrRunning = "ResumingOrRunning"
	// ReasonSyncSetsNotApplied: the first configuration was not applied yet, so the cluster is not stopped.
	ReasonSyncSetsNotApplied = "SyncSetsNotApplied"
	// ReasonSyncSetsApplied: the first configuration was applied.
	ReasonSyncSetsApplied = "SyncSetsApplied"
	// ReasonUnsupported: the operator cannot stop and start clusters of this platform.
	ReasonUnsupported = "Unsupported"
	// ReasonPowerStatePaused: AnnotationPowerStatePause is set. The status is Unknown.
	ReasonPowerStatePaused = "PowerStatePaused"
	// ReasonClusterDeploymentDeleted: the cluster is being deleted. The status is Unknown.
	ReasonClusterDeploymentDeleted = "ClusterDeploymentDeleted"
	// ReasonStopping: the cluster is being stopped.
	ReasonStopping = "Stopping"
	// ReasonFailedToStop: stopping failed and is tried again.
	ReasonFailedToStop = "FailedToStop"
	// ReasonWaitingForMachinesToStop: machines were asked to stop and have not yet.
	ReasonWaitingForMachinesToStop = "WaitingForMachinesToStop"
	// ReasonStartingMachines: the cluster is being started (step 1 of 4).
	ReasonStartingMachines = "StartingMachines"
	// ReasonFailedToStartMachines: starting failed and is tried again.
	ReasonFailedToStartMachines = "FailedToStartMachines"
	// ReasonWaitingForMachines: machines, or processes, were asked to start and have not yet (step 1 of 4).
	ReasonWaitingForMachines = "WaitingForMachines"
	// ReasonWaitingForNodes: nodes are not ready yet (step 2 of 4).
	ReasonWaitingForNodes = "WaitingForNodes"
	// ReasonPausingForClusterOperatorsToSettle: cluster operators get time to settle (step 3 of 4).
	ReasonPausingForClusterOperatorsToSettle = "PausingForClusterOperatorsToSettle"
	// ReasonWaitingForClusterOperators: cluster operators, or the API's own readiness checks, are not ready yet (step 4 of 4).
	ReasonWaitingForClusterOperators = "WaitingForClusterOperators"
	// ReasonNotAnswering: the cluster ran, and its API no longer answers.
	ReasonNotAnswering = "NotAnswering"
)

// ClusterDeploymentClaimMissing is True when the claim that the cluster records does not exist; otherwise it is absent.
const ClusterDeploymentClaimMissing = "ClaimMissing"

// Reasons of ClusterDeploymentClaimMissing.
const (
	// ReasonClaimDeleted: the claim was there and was deleted without giving the cluster back, as by removing its finalizer. The cluster is deleted ten minutes later.
	ReasonClaimDeleted = "ClaimDeleted"
	// ReasonClaimNotRestored: the cluster was restored from a backup, and its claim was not yet. The cluster is kept as long as its label says that it was restored.
	ReasonClaimNotRestored = "ClaimNotRestored"
)

// Reasons of ClusterDeploymentProvisioned.
const (
	// ReasonProvisioned: the cluster is installed. The condition is True.
	ReasonProvisioned = "Provisioned"
	// ReasonProvisioning: installation is under way.
	ReasonProvisioning = "Provisioning"
	// ReasonProvisionStopped: installation failed for good.
	ReasonProvisionStopped = "ProvisionStopped"
	// ReasonDeprovisioning: the cluster is being taken down.
	ReasonDeprovisioning = "Deprovisioning"
	// ReasonDeprovisionFailed: taking the cluster down failed and is tried again.
	ReasonDeprovisionFailed = "DeprovisionFailed"
)

// ReasonClusterInstallNotFound is the reason of ClusterDeploymentRequirementsMet when the install object, or its kind, does not exist, or may not be read.
const ReasonClusterInstallNotFound = "ClusterInstallNotFound"

// Reasons of ClusterDeploymentProvisionStopped.
const (
	// ReasonProvisionNotStopped: installation goes on or has succeeded. The condition is False.
	ReasonProvisionNotStopped = "ProvisionNotStopped"
	// ReasonInstallAttemptsLimitReached: installation failed as often as installAttemptsLimit allows. The condition is True.
	ReasonInstallAttemptsLimitReached = "InstallAttemptsLimitReached"
)

// Reasons that hosted clusters give when installing, starting or stopping fails.
const (
	// ReasonPortsUnavailable: no free ports, or another process has taken a port.
	ReasonPortsUnavailable = "PortsUnavailable"
	// ReasonStorageFull: there is no space left for the cluster's data.
	ReasonStorageFull = "StorageFull"
	// ReasonBinaryMissing: a control plane binary is not where it should be.
	ReasonBinaryMissing = "BinaryMissing"
	// ReasonProcessExited: a process of the control plane ended by itself; the message has its last words.
	ReasonProcessExited = "ProcessExited"
	// ReasonImageUnavailable: a container image cannot be pulled.
	ReasonImageUnavailable = "ImageUnavailable"
	// ReasonUnschedulable: no node takes the pod, or its volume cannot be had.
	ReasonUnschedulable = "Unschedulable"
	// ReasonAddressPending: the cluster is to be reached at an address that it has not been given yet.
	ReasonAddressPending = "AddressPending"
	// ReasonRefused: the API server refused an object: quota, admission or authorization.
	ReasonRefused = "Refused"
	// ReasonDataDamaged: there is data of the cluster, and it cannot be used.
	ReasonDataDamaged = "DataDamaged"
	// ReasonDataMissing: the cluster is installed, and its data is not here: it is on another machine, or lost.
	ReasonDataMissing = "DataMissing"
	// ReasonVolumeDeleted: the volume claim of the cluster was deleted, and goes with the pod. DataAtRisk is True.
	ReasonVolumeDeleted = "VolumeDeleted"
	// ReasonVolumeKept: the volume of the cluster stays. DataAtRisk is False.
	ReasonVolumeKept = "VolumeKept"
	// ReasonNotHere: another replica of the operator holds the cluster's data and acts on it.
	ReasonNotHere = "NotHere"
	// ReasonStartTimedOut: the control plane did not become ready in time.
	ReasonStartTimedOut = "StartTimedOut"
	// ReasonRuntimeFailed: what runs the control plane (processes or pods) refused; the message says how.
	ReasonRuntimeFailed = "RuntimeFailed"
)

// Condition types about the machines of a cluster that takes nodes. They are there once it had machines.
const (
	// ClusterDeploymentMachinesStopped is True while the machines of a hibernating cluster are off. A control plane is stopped after its machines, and started before them.
	ClusterDeploymentMachinesStopped = "MachinesStopped"
	// ClusterDeploymentMachinesPowerManaged is False while machines of the cluster cannot be switched off and on with it; its message names them.
	ClusterDeploymentMachinesPowerManaged = "MachinesPowerManaged"
)

// Reasons of ClusterDeploymentMachinesStopped, besides ReasonStartingMachines: machines were stopped, and their nodes are not all Ready again.
const (
	// ReasonMachinesStopped: the machines are off. The condition is True.
	ReasonMachinesStopped = "MachinesStopped"
	// ReasonStoppingMachines: machines were asked to stop, and not all have.
	ReasonStoppingMachines = "StoppingMachines"
	// ReasonMachinesRunning: the machines are not stopped.
	ReasonMachinesRunning = "MachinesRunning"
)

// Reasons of ClusterDeploymentMachinesPowerManaged.
const (
	// ReasonPowerManaged: the machines are stopped and started with the cluster. The condition is True.
	ReasonPowerManaged = "PowerManaged"
	// ReasonMachinesWithoutPowerControl: machines stay as they are when the cluster hibernates or resumes. The message names them.
	ReasonMachinesWithoutPowerControl = "MachinesWithoutPowerControl"
)
