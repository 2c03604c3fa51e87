// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MachinePoolSpec says how many machines a cluster has beside its control plane, and which. Fields that other controllers read are kept as they were written.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="!has(self.platform.agentBareMetal) || self.clusterDeploymentRef == oldSelf.clusterDeploymentRef && self.name == oldSelf.name",message="clusterDeploymentRef and name cannot change; create another MachinePool"
// +kubebuilder:validation:XValidation:rule="!has(self.platform.agentBareMetal) || !has(oldSelf.platform.agentBareMetal) || self.platform.agentBareMetal.agentSelector == oldSelf.platform.agentBareMetal.agentSelector && (has(self.platform.agentBareMetal.agentNamespace) ? self.platform.agentBareMetal.agentNamespace : \"\") == (has(oldSelf.platform.agentBareMetal.agentNamespace) ? oldSelf.platform.agentBareMetal.agentNamespace : \"\")",message="agentSelector and agentNamespace cannot change; create another MachinePool"
// +kubebuilder:validation:XValidation:rule="!has(self.platform.agentBareMetal) || !has(self.taints) || self.taints.all(t, t.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",message="write the effect of a taint as NoSchedule, PreferNoSchedule or NoExecute",fieldPath=".taints"
// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || !has(self.autoscaling)",message="set replicas or autoscaling, not both"
// +kubebuilder:validation:XValidation:rule="!has(self.maxReplicas) || !has(self.replicas) || self.replicas <= self.maxReplicas",message="replicas must not be more than maxReplicas",fieldPath=".replicas"
type MachinePoolSpec struct {
	// clusterDeploymentRef names the ClusterDeployment, in the namespace of the MachinePool, that the machines are for. Immutable.
	// +required
	ClusterDeploymentRef LocalObjectReference `json:"clusterDeploymentRef"`

	// name of the pool within its cluster, such as worker: the MachinePool is named <ClusterDeployment>-<name>, and its machines <name>-<8 characters> where their Agent states no
	// hostname. Immutable.
	// +kubebuilder:validation:MaxLength=63
	// +required
	Name string `json:"name"`

	// replicas is how many machines are wanted. Unset means 0, and with autoscaling as many as there are.
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="replicas must not be negative; write 0 to release all machines"
	// +optional
	Replicas *int64 `json:"replicas,omitempty"`

	// maxReplicas is the most machines that replicas may ask for. Unset means no limit.
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxReplicas *int64 `json:"maxReplicas,omitempty"`

	// autoscaling bounds how many machines an autoscaler wants. It has no effect on machines of agentBareMetal, as the condition UnsupportedConfiguration says: without replicas, a pool keeps
	// the machines that it has.
	// +optional
	Autoscaling *MachinePoolAutoscaling `json:"autoscaling,omitempty"`

	// platform says where machines come from: one of its members. Members other than agentBareMetal are left to other controllers.
	// +required
	Platform MachinePoolPlatform `json:"platform"`

	// labels are put on the nodes when they join. Machines that the pool has keep theirs when this changes.
	// +kubebuilder:validation:MaxProperties=256
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// taints are put on the nodes when they join. Machines that the pool has keep theirs when this changes.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Taints []corev1.Taint `json:"taints,omitempty"`
}

// MachinePoolAutoscaling bounds how many machines an autoscaler wants.
type MachinePoolAutoscaling struct {
	// minReplicas is the fewest machines.
	// +required
	MinReplicas int32 `json:"minReplicas"`

	// maxReplicas is the most machines.
	// +required
	MaxReplicas int32 `json:"maxReplicas"`
}

// MachinePoolPlatform says where machines come from.
//
// +kubebuilder:pruning:PreserveUnknownFields
type MachinePoolPlatform struct {
	// agentBareMetal takes machines that registered with agent-service.
	// +optional
	AgentBareMetal *AgentBareMetalMachinePool `json:"agentBareMetal,omitempty"`
}

// AgentBareMetalMachinePool says which machines that registered with agent-service become nodes. A machine is taken if its Agent is free, approved, connected and valid, matches
// agentSelector and minimum, and its InfraEnv allows the namespace of the cluster.
type AgentBareMetalMachinePool struct {
	// agentSelector selects Agents by their labels; an empty selector matches all. Immutable.
	// +required
	AgentSelector metav1.LabelSelector `json:"agentSelector"`

	// agentNamespace is where the Agents are. Unset means the namespace of the MachinePool. Immutable.
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="write the name of a namespace: lower-case letters, digits and '-'"
	// +kubebuilder:validation:MaxLength=63
	// +optional
	AgentNamespace string `json:"agentNamespace,omitempty"`

	// minimum is what a machine has at least.
	// +optional
	Minimum *MachineMinimum `json:"minimum,omitempty"`

	// spreadBy is the key of a label of Agents, such as topology.example.com/rack: machines are taken from the value of which the pool has the fewest.
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')`,message="write the key of a label, such as 'topology.example.com/rack'"
	// +kubebuilder:validation:MaxLength=317
	// +optional
	SpreadBy string `json:"spreadBy,omitempty"`

	// bindAt says when machines are bound: Creation (the default), or Claim, when the cluster is claimed. Until then the machines serve any pool.
	// +kubebuilder:validation:Enum=Creation;Claim
	// +optional
	BindAt MachineBinding `json:"bindAt,omitempty"`

	// nodeDrainTimeout is how long pods of a node may take to leave it when its machine is released. A duration such as 10m. Unset means 5m.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+$')",message="write a duration of hours, minutes and seconds, such as '10m' or '1h30m'; days are not known"
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="!self.matches('[0-9]{6}h|[0-9]{8}m([^s]|$)|[0-9]{10}s|[0-9]{13}ms|[0-9]{16}(us|µs)|[0-9]{19}ns')",message="the duration is too long to be represented; write at most 99999h, 9999999m or 999999999s"
	// +optional
	NodeDrainTimeout *metav1.Duration `json:"nodeDrainTimeout,omitempty"`

	// onRelease says what is done to a machine before it is free again. The InfraEnv of the machine can ask for more. Machines that the pool has keep what it said when it bound them.
	// +optional
	OnRelease *MachineRelease `json:"onRelease,omitempty"`
}

// MachineMinimum is the least hardware that a machine has. Fields that are not set are not compared.
type MachineMinimum struct {
	// cpuCores is how many logical processors a machine has at least.
	// +kubebuilder:validation:Minimum=0
	// +optional
	CPUCores int64 `json:"cpuCores,omitempty"`

	// memoryGiB is how much memory a machine has at least, in GiB.
	// +kubebuilder:validation:Minimum=0
	// +optional
	MemoryGiB int64 `json:"memoryGiB,omitempty"`

	// diskGB is how large the largest disk is at least that can be installed to, in GB (10^9 bytes).
	// +kubebuilder:validation:Minimum=0
	// +optional
	DiskGB int64 `json:"diskGB,omitempty"`
}

// MachineBinding says when machines are bound to a cluster.
type MachineBinding string

// Values of MachineBinding.
const (
	// BindAtCreation binds machines as soon as the cluster is installed.
	BindAtCreation MachineBinding = "Creation"
	// BindAtClaim binds machines when a ClusterClaim has the cluster.
	BindAtClaim MachineBinding = "Claim"
)

// MachineRelease says what is done to a machine before it is free again.
type MachineRelease struct {
	// wipe says which disks are wiped: None, InstalledDisk (the default) or AllDisks. Nothing is wiped only where the InfraEnv says None, too.
	// +kubebuilder:validation:Enum=None;InstalledDisk;AllDisks
	// +optional
	Wipe MachineWipe `json:"wipe,omitempty"`
}

// MachineWipe says which disks of a released machine are wiped.
type MachineWipe string

// Values of MachineWipe.
const (
	WipeNone          MachineWipe = "None"
	WipeInstalledDisk MachineWipe = "InstalledDisk"
	WipeAllDisks      MachineWipe = "AllDisks"
)

// MachinePoolStatus says which machines a pool has. Fields that other controllers write are kept.
//
// +kubebuilder:pruning:PreserveUnknownFields
type MachinePoolStatus struct {
	// replicas is how many machines are bound to the cluster.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// readyReplicas is how many of them are Ready nodes.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`

	// firstReadyTime is when all machines were Ready nodes for the first time.
	// +optional
	FirstReadyTime *metav1.Time `json:"firstReadyTime,omitempty"`

	// machines are at most 64 of the pool's machines: those that are not Ready first, then by name. The labels of Agents name all.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Machines []MachinePoolMachine `json:"machines,omitempty"`

	// conditions are MachinesAvailable, Ready and UnsupportedConfiguration.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`
}

// MachinePoolMachine is a machine of a pool.
type MachinePoolMachine struct {
	// agent is the Agent of the machine.
	// +required
	Agent AgentReference `json:"agent"`

	// node is the name of its Node.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Node string `json:"node,omitempty"`

	// phase is Binding, Installing, Joining, Ready, NotReady, Failed or Releasing.
	// +kubebuilder:validation:MaxLength=64
	// +required
	Phase MachinePhase `json:"phase"`

	// message says what the machine does or waits for.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
}

// MachinePhase says how far a machine is.
type MachinePhase string

// Phases of a machine of a pool.
const (
	// MachinePhaseBinding: the machine is bound, and its installation has not begun.
	MachinePhaseBinding MachinePhase = "Binding"
	// MachinePhaseInstalling: its disk is written.
	MachinePhaseInstalling MachinePhase = "Installing"
	// MachinePhaseJoining: it starts from its disk, and its Node is not Ready.
	MachinePhaseJoining MachinePhase = "Joining"
	// MachinePhaseReady: its Node is Ready.
	MachinePhaseReady MachinePhase = "Ready"
	// MachinePhaseNotReady: its Node was Ready, and is not any more.
	MachinePhaseNotReady MachinePhase = "NotReady"
	// MachinePhaseFailed: its installation failed.
	MachinePhaseFailed MachinePhase = "Failed"
	// MachinePhaseReleasing: it leaves the cluster.
	MachinePhaseReleasing MachinePhase = "Releasing"
)

// AgentReference names an Agent.
type AgentReference struct {
	// namespace of the Agent.
	// +kubebuilder:validation:MaxLength=63
	// +required
	Namespace string `json:"namespace"`

	// name of the Agent.
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// MachinePool gives a cluster machines beside its control plane.
// +kubebuilder:validation:XValidation:rule="!has(self.spec.platform.agentBareMetal) || self.metadata.name == self.spec.clusterDeploymentRef.name + '-' + self.spec.name",message="write metadata.name as <spec.clusterDeploymentRef.name>-<spec.name>"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.platform.agentBareMetal) || self.metadata.name.size() <= 63",message="write a name of at most 63 characters: it becomes a label of Agents"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.platform.agentBareMetal) || self.spec.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && self.spec.name.size() <= 54",message="write spec.name of at most 54 lower-case letters, digits and '-', such as 'worker': it becomes part of the names of nodes"
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas
// +kubebuilder:metadata:labels="muster.io/crds=machine-pool"
// +kubebuilder:resource:path=machinepools,scope=Namespaced,shortName=mpool,categories=muster
// +kubebuilder:printcolumn:name="PoolName",type=string,JSONPath=`.spec.name`,description="Name of the pool within its cluster"
// +kubebuilder:printcolumn:name="ClusterDeployment",type=string,JSONPath=`.spec.clusterDeploymentRef.name`,description="Cluster that the machines are for"
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.spec.replicas`,description="Machines wanted"
// +kubebuilder:printcolumn:name="Bound",type=integer,JSONPath=`.status.replicas`,description="Machines that are bound to the cluster"
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`,description="Machines that are Ready nodes"
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].reason`,description="Whether the pool is as it should be, and if not why"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=='Ready')].message`,description="What keeps the pool from being as it should be"
type MachinePool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says how many machines the cluster has, and which.
	// +required
	Spec MachinePoolSpec `json:"spec"`

	// status says which machines the pool has.
	// +optional
	Status MachinePoolStatus `json:"status,omitempty"`
}

// MachinePoolList is a list of MachinePools.
// +kubebuilder:object:root=true
type MachinePoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the MachinePools.
	Items []MachinePool `json:"items"`
}
