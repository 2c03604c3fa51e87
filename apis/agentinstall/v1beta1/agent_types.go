// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AgentSpec is what is wanted of a machine.
//
// +kubebuilder:validation:XValidation:rule="!has(self.installation_disk_id) || size(self.installation_disk_id) == 0 || !has(self.installation_disk_path) || size(self.installation_disk_path) == 0",message="Either InstallationDiskID or InstallationDiskPath can be set, not both."
type AgentSpec struct {
	// clusterDeploymentName is the cluster that the machine is for. Setting it binds, removing it frees, changing it moves the machine; at any time but during an installation.
	// +optional
	ClusterDeploymentName *ClusterReference `json:"clusterDeploymentName,omitempty"`
	// role is auto-assign, master, worker or arbiter.
	// +kubebuilder:validation:MaxLength=32
	Role string `json:"role"`
	// approved lets the machine be installed. It can be bound without.
	Approved bool `json:"approved"`
	// hostname that the machine gets when it is installed; empty is the one that it reports.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Hostname string `json:"hostname,omitempty"`
	// machineConfigPool of a worker.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	MachineConfigPool string `json:"machineConfigPool,omitempty"`
	// installation_disk_id is the id of the disk in the inventory that is installed to.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	InstallationDiskID string `json:"installation_disk_id,omitempty"`
	// installation_disk_path is the disk that is installed to, as a path below /dev/disk.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	InstallationDiskPath string `json:"installation_disk_path,omitempty"`
	// installerArgs is a JSON list of arguments for the installer.
	// +kubebuilder:validation:MaxLength=65536
	// +optional
	InstallerArgs string `json:"installerArgs,omitempty"`
	// ignitionConfigOverrides is JSON that is merged into the first-boot data.
	// +kubebuilder:validation:MaxLength=262144
	// +optional
	IgnitionConfigOverrides string `json:"ignitionConfigOverrides,omitempty"`
	// ignitionEndpointTokenReference names a Secret of this namespace with a token for the ignition endpoint.
	// +optional
	IgnitionEndpointTokenReference *TokenReference `json:"ignitionEndpointTokenReference,omitempty"`
	// ignitionEndpointHTTPHeaders are sent to the ignition endpoint.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	IgnitionEndpointHTTPHeaders map[string]string `json:"ignitionEndpointHTTPHeaders,omitempty"`
	// nodeLabels are put on the node when it joins.
	// +kubebuilder:validation:MaxProperties=256
	// +optional
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
	// nodeTaints are put on the node when it joins.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	NodeTaints []NodeTaint `json:"nodeTaints,omitempty"`
	// fencingCredentialsSecretRef names a Secret of this namespace with credentials for fencing.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	FencingCredentialsSecretRef string `json:"fencingCredentialsSecretRef,omitempty"`
}

// NodeTaint keeps pods that do not tolerate it from a node.
type NodeTaint struct {
	// key of the taint, such as example.com/gpu.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +required
	Key string `json:"key"`
	// value of the taint.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Value string `json:"value,omitempty"`
	// effect on pods that do not tolerate the taint: NoSchedule, PreferNoSchedule or NoExecute.
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	// +required
	Effect string `json:"effect"`
}

// HostProgress is how far an installation is.
type HostProgress struct {
	// currentStage is empty before an installation.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	CurrentStage string `json:"currentStage,omitempty"`
	// progressInfo says more about the stage.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	ProgressInfo string `json:"progressInfo,omitempty"`
	// installationPercentage of the whole installation.
	// +optional
	InstallationPercentage int64 `json:"installationPercentage,omitempty"`
	// progressStages are all stages in their order.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	// +optional
	ProgressStages []string `json:"progressStages,omitempty"`
	// stageStartTime is when the stage began.
	// +optional
	StageStartTime *metav1.Time `json:"stageStartTime,omitempty"`
	// stageUpdateTime is when the stage was last reported.
	// +optional
	StageUpdateTime *metav1.Time `json:"stageUpdateTime,omitempty"`
}

// HostNTPSource is a time server as the machine sees it.
type HostNTPSource struct {
	// sourceName of the server.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	SourceName string `json:"sourceName,omitempty"`
	// sourceState is synced, combined, not_combined, error, variable or unreachable.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	SourceState string `json:"sourceState,omitempty"`
}

// ValidationResult is the outcome of one validation.
type ValidationResult struct {
	// id of the validation.
	// +kubebuilder:validation:MaxLength=128
	ID string `json:"id"`
	// status is success, failure, pending, error or disabled.
	// +kubebuilder:validation:MaxLength=64
	Status string `json:"status"`
	// message is one sentence.
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message"`
}

// ValidationResults are the outcomes of one category.
// +kubebuilder:validation:MaxItems=256
// +listType=atomic
type ValidationResults []ValidationResult

// CSRInfo is a certificate request that was approved for a machine.
type CSRInfo struct {
	// name of the request.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// type is client or serving.
	// +kubebuilder:validation:MaxLength=32
	Type string `json:"type"`
	// approvedAt is when it was approved.
	ApprovedAt metav1.Time `json:"approvedAt"`
}

// CSRStatus is what was approved for a machine.
type CSRStatus struct {
	// approvedCSRs are the requests that were approved.
	// +kubebuilder:validation:MaxItems=128
	// +listType=atomic
	// +optional
	ApprovedCSRs []CSRInfo `json:"approvedCSRs,omitempty"`
	// lastApprovalAttempt is when approval was last tried.
	// +optional
	LastApprovalAttempt *metav1.Time `json:"lastApprovalAttempt,omitempty"`
}

// AgentDeprovisionInfo is the cluster that a machine was part of.
type AgentDeprovisionInfo struct {
	// cluster_name is the name of its ClusterDeployment.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ClusterName string `json:"cluster_name,omitempty"`
	// cluster_namespace is the namespace of its ClusterDeployment.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ClusterNamespace string `json:"cluster_namespace,omitempty"`
	// node_name is the name of its node.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	NodeName string `json:"node_name,omitempty"`
	// message says what is left to do.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Message string `json:"message,omitempty"`
}

// AgentDebugInfo is for those who look for an error.
type AgentDebugInfo struct {
	// state of the host in the state machine.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	State string `json:"state,omitempty"`
	// stateInfo says the same in a sentence.
	// +kubebuilder:validation:MaxLength=8192
	// +optional
	StateInfo string `json:"stateInfo,omitempty"`
	// eventsURL is of the events of the host.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	EventsURL string `json:"eventsURL,omitempty"`
	// logsURL is of the logs of the host.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	LogsURL string `json:"logsURL,omitempty"`
}

// NodeAddress is an address that the installed machine has of a pool.
type NodeAddress struct {
	// pool is the kind and the name of the pool, as in "IPPool rack-a".
	// +kubebuilder:validation:MaxLength=320
	Pool string `json:"pool"`
	// address with the length of its prefix in bits, as in 192.0.2.7/24.
	// +kubebuilder:validation:MaxLength=64
	Address string `json:"address"`
	// gateway is the default gateway.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Gateway string `json:"gateway,omitempty"`
	// dnsServers are addresses of name servers.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +listType=atomic
	// +optional
	DNSServers []string `json:"dnsServers,omitempty"`
	// interface that has the address.
	// +kubebuilder:validation:MaxLength=64
	Interface string `json:"interface"`
}

// AgentStatus is what a machine is and how far it is.
type AgentStatus struct {
	// bootstrap is true for the machine that starts its cluster.
	// +optional
	Bootstrap bool `json:"bootstrap,omitempty"`
	// role that the machine has or will have.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Role string `json:"role,omitempty"`
	// kind is Host, or AddToExistingClusterHost for a machine that joins an installed cluster.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Kind string `json:"kind,omitempty"`
	// inventory is what the machine is made of.
	// +optional
	Inventory HostInventory `json:"inventory,omitempty,omitzero"`
	// progress of the installation.
	// +optional
	Progress HostProgress `json:"progress,omitempty,omitzero"`
	// ntpSources as the machine sees them.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	NtpSources []HostNTPSource `json:"ntpSources,omitempty"`
	// validationsInfo are the validations by category.
	// +kubebuilder:validation:MaxProperties=16
	// +optional
	ValidationsInfo map[string]ValidationResults `json:"validationsInfo,omitempty"`
	// installation_disk_id is the disk that is installed to.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	InstallationDiskID string `json:"installation_disk_id,omitempty"`
	// csrStatus is what was approved for the machine.
	// +optional
	CSRStatus CSRStatus `json:"csrStatus,omitempty,omitzero"`
	// addresses are those that the machine has of the pools of its InfraEnv (spec.nodeAddresses).
	// +kubebuilder:validation:MaxItems=2
	// +listType=atomic
	// +optional
	Addresses []NodeAddress `json:"addresses,omitempty"`
	// deprovision_info is the cluster that the machine was part of.
	// +optional
	DeprovisionInfo *AgentDeprovisionInfo `json:"deprovision_info,omitempty"`
	// debugInfo is for those who look for an error.
	// +optional
	DebugInfo AgentDebugInfo `json:"debugInfo,omitempty,omitzero"`
	// conditions are SpecSynced, Connected, RequirementsMet, Validated, Installed and Bound; Joined where the cluster takes nodes; Released after a binding ended; Reserved while an allocation of REST holds the machine; AddressesAssigned where the InfraEnv names pools.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`
}

// Agent is a machine that booted the image of an InfraEnv. It is made by the service; its name is the id of the host.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="muster.io/crds=agent-service"
// +kubebuilder:resource:path=agents,shortName=ag,categories=muster
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".spec.clusterDeploymentName.name",description="The cluster that the machine is for"
// +kubebuilder:printcolumn:name="Approved",type="boolean",JSONPath=".spec.approved",description="Whether the machine may be installed"
// +kubebuilder:printcolumn:name="Role",type="string",JSONPath=".status.role",description="The role that the machine has or will have"
// +kubebuilder:printcolumn:name="State",type="string",JSONPath=".status.debugInfo.state",description="Where the machine is in its life"
// +kubebuilder:printcolumn:name="Stage",type="string",JSONPath=".status.progress.currentStage",description="The stage of the installation"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason",description="Why the machine is, or is not, what its spec asks for"
// +kubebuilder:printcolumn:name="Hostname",type="string",JSONPath=".status.inventory.hostname",priority=1,description="The name that the machine gave itself"
// +kubebuilder:printcolumn:name="Requested Hostname",type="string",JSONPath=".spec.hostname",priority=1,description="The name that it shall have"
// +kubebuilder:printcolumn:name="Info",type="string",JSONPath=".status.debugInfo.stateInfo",priority=1,description="The state in a sentence"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",priority=1,description="The reason in a sentence"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since the machine registered"
type Agent struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is wanted of the machine.
	// +optional
	Spec AgentSpec `json:"spec,omitempty"`
	// status is what the machine is and how far it is.
	// +optional
	Status AgentStatus `json:"status,omitempty"`
}

// AgentList is a list of Agent.
//
// +kubebuilder:object:root=true
type AgentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Agent `json:"items"`
}
