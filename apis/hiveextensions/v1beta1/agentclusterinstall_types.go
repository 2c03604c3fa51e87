// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// Reasons for which an AgentClusterInstall waits: of its condition RequirementsMet, and of Completed.
const (
	// ReasonInsufficientAgents says that fewer machines are ready than the cluster needs.
	ReasonInsufficientAgents = "InsufficientAgents"
	// ReasonUnapprovedAgents says that machines are not approved.
	ReasonUnapprovedAgents = "UnapprovedAgents"
	// ReasonInstallationOnHold says that spec.holdInstallation keeps the cluster from being installed.
	ReasonInstallationOnHold = "InstallationOnHold"
)

// FinalizerAgentClusterInstall keeps an AgentClusterInstall until agent-service has forgotten the cluster.
const FinalizerAgentClusterInstall = "agentclusterinstall.agent-install.openshift.io/ai-deprovision"

// ClusterNetworkEntry is a network of pods.
type ClusterNetworkEntry struct {
	// cidr of all pods.
	// +kubebuilder:validation:MaxLength=64
	CIDR string `json:"cidr"`
	// hostPrefix is the prefix length of one node.
	// +optional
	HostPrefix int32 `json:"hostPrefix,omitempty"`
}

// MachineNetworkEntry is a network of machines.
type MachineNetworkEntry struct {
	// cidr of the network.
	// +kubebuilder:validation:MaxLength=64
	CIDR string `json:"cidr"`
}

// Networking are the networks of a cluster. Fields that are not modelled are kept.
// +kubebuilder:pruning:PreserveUnknownFields
type Networking struct {
	// machineNetwork are the networks that the machines have addresses in.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	MachineNetwork []MachineNetworkEntry `json:"machineNetwork,omitempty"`
	// clusterNetwork are the networks of pods.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	ClusterNetwork []ClusterNetworkEntry `json:"clusterNetwork,omitempty"`
	// serviceNetwork are the networks of services.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	// +optional
	ServiceNetwork []string `json:"serviceNetwork,omitempty"`
	// userManagedNetworking leaves load balancing and name resolution to the user.
	// +optional
	UserManagedNetworking *bool `json:"userManagedNetworking,omitempty"`
	// networkType has no effect: what is installed brings its network.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	NetworkType string `json:"networkType,omitempty"`
}

// ProvisionRequirements are how many machines an installation waits for. Fields that are not modelled are kept.
// +kubebuilder:pruning:PreserveUnknownFields
type ProvisionRequirements struct {
	// controlPlaneAgents are machines of the control plane, 1, 3 or more.
	ControlPlaneAgents int `json:"controlPlaneAgents"`
	// workerAgents are other machines.
	// +kubebuilder:validation:Minimum=0
	// +optional
	WorkerAgents int `json:"workerAgents,omitempty"`
	// arbiterAgents are machines that only vote.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ArbiterAgents int `json:"arbiterAgents,omitempty"`
}

// Proxy is how the installed cluster reaches the network.
type Proxy struct {
	// httpProxy is the URL of the proxy for http.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	HTTPProxy string `json:"httpProxy,omitempty"`
	// httpsProxy is the URL of the proxy for https.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	HTTPSProxy string `json:"httpsProxy,omitempty"`
	// noProxy lists what is reached directly, separated by commas.
	// +kubebuilder:validation:MaxLength=32768
	// +optional
	NoProxy string `json:"noProxy,omitempty"`
}

// ManifestsConfigMapReference names a ConfigMap with manifests, in this namespace.
type ManifestsConfigMapReference struct {
	// name of the ConfigMap.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// ObjectReference names an object of some namespace.
type ObjectReference struct {
	// name of the object.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// namespace of the object.
	// +kubebuilder:validation:MaxLength=253
	Namespace string `json:"namespace"`
}

// DiskEncryption is how installation disks are encrypted.
type DiskEncryption struct {
	// enableOn says on which roles.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:default=none
	// +optional
	EnableOn *string `json:"enableOn,omitempty"`
	// mode is tpmv2 or tang.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Mode *string `json:"mode,omitempty"`
	// tangServers are JSON.
	// +kubebuilder:validation:MaxLength=65536
	// +optional
	TangServers string `json:"tangServers,omitempty"`
}

// IgnitionEndpoint is where machines get their ignition, instead of the service.
type IgnitionEndpoint struct {
	// url of the endpoint.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	URL string `json:"url,omitempty"`
	// caCertificateReference names the Secret with the certificate that it is trusted by.
	// +optional
	CaCertificateReference *ObjectReference `json:"caCertificateReference,omitempty"`
}

// AgentMachinePool is how machines of a role are set up.
type AgentMachinePool struct {
	// name of the role.
	// +kubebuilder:validation:MaxLength=64
	Name string `json:"name"`
	// hyperthreading is Enabled or Disabled.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:default=Enabled
	// +optional
	Hyperthreading string `json:"hyperthreading,omitempty"`
}

// LoadBalancer is what balances the load of the cluster.
type LoadBalancer struct {
	// type is ClusterManaged or UserManaged.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:default=ClusterManaged
	// +optional
	Type string `json:"type,omitempty"`
}

// ExternalPlatform is a platform that is integrated from outside.
type ExternalPlatform struct {
	// platformName is what the platform is called.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:default=Unknown
	// +optional
	PlatformName string `json:"platformName,omitempty"`
	// cloudControllerManager is External where the platform brings its own.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:default=""
	// +optional
	CloudControllerManager string `json:"cloudControllerManager,omitempty"`
}

// AgentClusterInstallSpec is how a ClusterDeployment is installed on Agents. Fields that are not modelled are kept.
// +kubebuilder:pruning:PreserveUnknownFields
type AgentClusterInstallSpec struct {
	// clusterDeploymentRef names the ClusterDeployment, in this namespace.
	ClusterDeploymentRef hivev1.LocalObjectReference `json:"clusterDeploymentRef"`
	// imageSetRef names the ClusterImageSet that says what is installed.
	// +optional
	ImageSetRef *hivev1.ClusterImageSetReference `json:"imageSetRef,omitempty"`
	// clusterMetadata says how to get into the installed cluster. Written by the service.
	// +optional
	ClusterMetadata *hivev1.ClusterMetadata `json:"clusterMetadata,omitempty"`
	// networking are the networks of the cluster.
	Networking Networking `json:"networking"`
	// provisionRequirements are how many machines the installation waits for.
	ProvisionRequirements ProvisionRequirements `json:"provisionRequirements"`
	// sshPublicKey may log in to the installed machines.
	// +kubebuilder:validation:MaxLength=65536
	// +optional
	SSHPublicKey string `json:"sshPublicKey,omitempty"`
	// apiVIP is the address of the API.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	APIVIP string `json:"apiVIP,omitempty"`
	// apiVIPs are the addresses of the API, one of each family.
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	// +optional
	APIVIPs []string `json:"apiVIPs,omitempty"`
	// ingressVIP is the address of services for users.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	IngressVIP string `json:"ingressVIP,omitempty"`
	// ingressVIPs are the addresses of services for users, one of each family.
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	// +optional
	IngressVIPs []string `json:"ingressVIPs,omitempty"`
	// holdInstallation keeps the installation from beginning although everything is there.
	// +optional
	HoldInstallation bool `json:"holdInstallation,omitempty"`
	// proxy is how the installed cluster reaches the network.
	// +optional
	Proxy *Proxy `json:"proxy,omitempty"`
	// ntpSources are the time servers of the installed cluster.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	// +optional
	NTPSources []string `json:"ntpSources,omitempty"`
	// manifestsConfigMapRef is manifestsConfigMapRefs with one entry, of former clients. It has no effect.
	// +optional
	ManifestsConfigMapRef *hivev1.LocalObjectReference `json:"manifestsConfigMapRef,omitempty"`
	// manifestsConfigMapRefs have no effect: manifests of a cluster are stated over REST.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	ManifestsConfigMapRefs []ManifestsConfigMapReference `json:"manifestsConfigMapRefs,omitempty"`
	// mirrorRegistryRef has no effect: that of the InfraEnv is of the discovery image.
	// +optional
	MirrorRegistryRef *ObjectReference `json:"mirrorRegistryRef,omitempty"`
	// platformType has no effect: networking says whether addresses are managed.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	PlatformType string `json:"platformType,omitempty"`
	// diskEncryption has no effect: what is written is the image as it is.
	// +optional
	DiskEncryption *DiskEncryption `json:"diskEncryption,omitempty"`
	// ignitionEndpoint has no effect: first-boot data comes from the service.
	// +optional
	IgnitionEndpoint *IgnitionEndpoint `json:"ignitionEndpoint,omitempty"`
	// controlPlane has no effect: machines are installed as they are.
	// +optional
	ControlPlane *AgentMachinePool `json:"controlPlane,omitempty"`
	// compute has no effect: machines are installed as they are.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Compute []AgentMachinePool `json:"compute,omitempty"`
	// arbiter has no effect: machines are installed as they are.
	// +optional
	Arbiter *AgentMachinePool `json:"arbiter,omitempty"`
	// mastersSchedulable has no effect: what is installed says which nodes take pods.
	// +optional
	MastersSchedulable bool `json:"mastersSchedulable,omitempty"`
	// loadBalancer has no effect: networking says whether load balancing is left to the user.
	// +optional
	LoadBalancer *LoadBalancer `json:"loadBalancer,omitempty"`
	// external has no effect: no platform is integrated.
	// +optional
	External *ExternalPlatform `json:"external,omitempty"`
}

// ClusterProgress is how far the installation of a cluster is.
type ClusterProgress struct {
	// totalPercentage of the whole installation.
	TotalPercentage int64 `json:"totalPercentage"`
}

// ClusterDebugInfo is for those who look for an error.
type ClusterDebugInfo struct {
	// eventsURL is of the events of the cluster.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	EventsURL string `json:"eventsURL,omitempty"`
	// logsURL is of the logs of the cluster.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	LogsURL string `json:"logsURL,omitempty"`
	// state of the cluster in the state machine.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	State string `json:"state,omitempty"`
	// stateInfo says the same in a sentence.
	// +kubebuilder:validation:MaxLength=8192
	// +optional
	StateInfo string `json:"stateInfo,omitempty"`
}

// AgentClusterInstallStatus is how far the installation is. Fields that are not modelled are kept.
// +kubebuilder:pruning:PreserveUnknownFields
type AgentClusterInstallStatus struct {
	// conditions are those of the install contract (RequirementsMet, Completed, Failed, Stopped), SpecSynced and Validated.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Conditions []hivev1.Condition `json:"conditions,omitempty"`
	// controlPlaneAgentsDiscovered are machines of the control plane that are bound.
	// +optional
	ControlPlaneAgentsDiscovered int `json:"controlPlaneAgentsDiscovered,omitempty"`
	// controlPlaneAgentsReady are machines of the control plane that can be installed.
	// +optional
	ControlPlaneAgentsReady int `json:"controlPlaneAgentsReady,omitempty"`
	// workerAgentsDiscovered are other machines that are bound.
	// +optional
	WorkerAgentsDiscovered int `json:"workerAgentsDiscovered,omitempty"`
	// workerAgentsReady are other machines that can be installed.
	// +optional
	WorkerAgentsReady int `json:"workerAgentsReady,omitempty"`
	// validationsInfo are the validations of the cluster, by category.
	// +kubebuilder:validation:MaxProperties=16
	// +optional
	ValidationsInfo map[string]agentv1.ValidationResults `json:"validationsInfo,omitempty"`
	// debugInfo is for those who look for an error.
	// +optional
	DebugInfo ClusterDebugInfo `json:"debugInfo,omitempty,omitzero"`
	// progress of the installation.
	// +optional
	Progress *ClusterProgress `json:"progress,omitempty"`
}

// AgentClusterInstall installs a ClusterDeployment on Agents that are bound to it.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="muster.io/crds=agent-service"
// +kubebuilder:resource:path=agentclusterinstalls,shortName=aci,categories=muster
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".spec.clusterDeploymentRef.name",description="The ClusterDeployment that is installed"
// +kubebuilder:printcolumn:name="State",type="string",JSONPath=".status.debugInfo.state",description="Where the cluster is in its life"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason",description="Why the cluster is, or is not, installed"
// +kubebuilder:printcolumn:name="Info",type="string",JSONPath=".status.debugInfo.stateInfo",priority=1,description="The state in a sentence"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",priority=1,description="The reason in a sentence"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since the object was made"
type AgentClusterInstall struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is how the ClusterDeployment is installed.
	// +optional
	Spec AgentClusterInstallSpec `json:"spec,omitempty"`
	// status is how far the installation is.
	// +optional
	// +kubebuilder:default={conditions: {{type: "Ready", status: "Unknown", reason: "Initialized", message: "agent-service has not looked at the object yet"}}}
	Status AgentClusterInstallStatus `json:"status,omitempty"`
}

// AgentClusterInstallList is a list of AgentClusterInstall.
//
// +kubebuilder:object:root=true
type AgentClusterInstallList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AgentClusterInstall `json:"items"`
}
