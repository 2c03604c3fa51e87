// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AgentApproval says who approves Agents.
type AgentApproval struct {
	// autoApprove makes Agents approved when they appear. For trusted networks only: any machine that boots the image can then be installed.
	// +kubebuilder:default=false
	// +optional
	AutoApprove bool `json:"autoApprove,omitempty"`
}

// Proxy is how hosts reach the network.
type Proxy struct {
	// httpProxy is the URL of the proxy for http.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	HTTPProxy string `json:"httpProxy,omitempty"`
	// httpsProxy is the URL of the proxy for https.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	HTTPSProxy string `json:"httpsProxy,omitempty"`
	// noProxy lists domains and networks, separated by commas, that are reached directly.
	// +kubebuilder:validation:MaxLength=32768
	// +optional
	NoProxy string `json:"noProxy,omitempty"`
}

// KernelArgument is one change to the kernel command line of the discovery image.
type KernelArgument struct {
	// operation is append, replace or delete.
	// +kubebuilder:validation:Enum=append;replace;delete
	// +optional
	Operation string `json:"operation,omitempty"`
	// value is a parameter, or parameter=value.
	// +kubebuilder:validation:Pattern=`^(?:(?:[^ \t\n\r"]+)|(?:"[^"]*"))+$`
	// +optional
	Value string `json:"value,omitempty"`
}

// WipePolicy says what is erased of a machine before it is free again.
// +kubebuilder:validation:Enum=None;InstalledDisk;AllDisks
type WipePolicy string

const (
	// WipeNone leaves disks as they are.
	WipeNone WipePolicy = "None"
	// WipeInstalledDisk erases the disks that the service had written, which it finds by serial number and id.
	WipeInstalledDisk WipePolicy = "InstalledDisk"
	// WipeAllDisks erases every other disk that can be installed to, too.
	WipeAllDisks WipePolicy = "AllDisks"
)

// ReleasePolicy says what is done with a machine before it is free again.
type ReleasePolicy struct {
	// wipe is None, InstalledDisk or AllDisks. A machine that could not be wiped is not free.
	Wipe WipePolicy `json:"wipe"`
}

// FromNamespaces says which namespaces are allowed.
// +kubebuilder:validation:Enum=Same;Selector;All
type FromNamespaces string

const (
	// FromSame allows the namespace of the InfraEnv.
	FromSame FromNamespaces = "Same"
	// FromSelector allows the namespaces whose labels match, too.
	FromSelector FromNamespaces = "Selector"
	// FromAll allows all namespaces.
	FromAll FromNamespaces = "All"
)

// AllowedClusters is a choice of clusters.
type AllowedClusters struct {
	// namespaces are those of the clusters. Unset means that of the InfraEnv.
	// +optional
	Namespaces *ClusterNamespaces `json:"namespaces,omitempty"`
}

// ClusterNamespaces is a choice of namespaces.
//
// +kubebuilder:validation:XValidation:rule="(has(self.from) && self.from == 'Selector') == has(self.selector)",message="selector goes with from: Selector, and from: Selector needs a selector",fieldPath=".selector"
type ClusterNamespaces struct {
	// from is Same (that of the InfraEnv), Selector (those that selector matches, too) or All.
	// +kubebuilder:default=Same
	// +optional
	From FromNamespaces `json:"from,omitempty"`
	// selector matches labels of namespaces, with from Selector. Namespaces of clusters of a ClusterPool have the labels hive.openshift.io/cluster-pool-name and
	// hive.openshift.io/cluster-pool-namespace.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// NodeAddressPool is a pool that gives each installed machine one address.
type NodeAddressPool struct {
	// apiGroup of the kind of the pool.
	// +kubebuilder:default=ipam.metal3.io
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:MinLength=1
	// +optional
	APIGroup string `json:"apiGroup,omitempty"`
	// kind of the pool: IPPool of ipam.metal3.io, or one of a provider of Cluster API's contract.
	// +kubebuilder:default=IPPool
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:MinLength=1
	// +optional
	Kind string `json:"kind,omitempty"`
	// name of the pool, in the namespace of the InfraEnv.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// interface is the network card that gets the address, as the machine calls it, or an interface that the NMStateConfig of the machine names. Unset is the card that
	// has an address of the same network in the discovery image, else the only one with a carrier.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.@-]{1,15}$`
	// +kubebuilder:validation:MaxLength=15
	// +optional
	Interface string `json:"interface,omitempty"`
}

// InfraEnvSpec is what the discovery image of an InfraEnv is like.
//
// +kubebuilder:validation:XValidation:rule="!has(self.ntpSources) || size(self.ntpSources) == 0 || !has(self.additionalNTPSources) || size(self.additionalNTPSources) == 0",message="ntpSources replaces all time servers and additionalNTPSources adds some: write one of them"
// +kubebuilder:validation:XValidation:rule="has(self.clusterRef) == has(oldSelf.clusterRef) && (!has(self.clusterRef) || self.clusterRef == oldSelf.clusterRef)",message="Attempted to change Spec.ClusterRef which is immutable after InfraEnv creation."
// +kubebuilder:validation:XValidation:rule="!has(self.cpuArchitecture) || !has(oldSelf.cpuArchitecture) || self.cpuArchitecture == oldSelf.cpuArchitecture",message="Attempted to change Spec.CpuArchitecture which is immutable after InfraEnv creation."
type InfraEnvSpec struct {
	// pullSecretRef names a Secret with the key .dockerconfigjson in this namespace, for the discovery image only.
	PullSecretRef SecretReference `json:"pullSecretRef"`
	// clusterRef binds hosts to a cluster when they register. Without it hosts stay free until a user binds them. Immutable.
	// +optional
	ClusterRef *ClusterReference `json:"clusterRef,omitempty"`
	// osImageVersion is the version of the discovery image; empty is the service's default.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	OSImageVersion string `json:"osImageVersion,omitempty"`
	// cpuArchitecture of the machines, x86_64 or aarch64. Immutable.
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:default=x86_64
	// +optional
	CPUArchitecture string `json:"cpuArchitecture,omitempty"`
	// imageType is full-iso, minimal-iso (which fetches the root file system when it boots) or disconnected-iso.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	ImageType string `json:"imageType,omitempty"`
	// sshAuthorizedKey may log in to machines that run the discovery image.
	// +kubebuilder:validation:MaxLength=65536
	// +optional
	SSHAuthorizedKey string `json:"sshAuthorizedKey,omitempty"`
	// additionalTrustBundle is PEM of certificates that the discovery image trusts.
	// +kubebuilder:validation:MaxLength=262144
	// +optional
	AdditionalTrustBundle string `json:"additionalTrustBundle,omitempty"`
	// proxy is how the discovery image reaches the network.
	// +optional
	Proxy *Proxy `json:"proxy,omitempty"`
	// ntpSources are the only time servers of the hosts.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=atomic
	// +optional
	NTPSources []string `json:"ntpSources,omitempty"`
	// additionalNTPSources are time servers beside those that the hosts learn otherwise.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=atomic
	// +optional
	AdditionalNTPSources []string `json:"additionalNTPSources,omitempty"`
	// agentLabels are put on Agents when they are made, never later.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	AgentLabels map[string]string `json:"agentLabels,omitempty"`
	// agentApproval says who approves Agents.
	// +optional
	AgentApproval *AgentApproval `json:"agentApproval,omitempty"`
	// onRelease says what is done with machines that were installed, before they are free again. Unset is wipe: None. Of machines that a MachinePool bound, what
	// it says is wiped where that is more.
	// +optional
	OnRelease *ReleasePolicy `json:"onRelease,omitempty"`
	// nodeAddresses are pools of this namespace. A machine that is installed gets one address of each, at most one per family, and keeps it until it has booted the
	// discovery image again and is wiped. Its installation waits for them.
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:XValidation:rule="size(self) < 2 || self[0].name != self[1].name || self[0].kind != self[1].kind || self[0].apiGroup != self[1].apiGroup",message="nodeAddresses names a pool twice: write one pool per family"
	// +listType=atomic
	// +optional
	NodeAddresses []NodeAddressPool `json:"nodeAddresses,omitempty"`
	// allowedClusters says the clusters of which namespaces MachinePools may take these machines for. Machines that a cluster has already stay.
	// +optional
	AllowedClusters *AllowedClusters `json:"allowedClusters,omitempty"`
	// nmStateConfigLabelSelector chooses the NMStateConfigs of this namespace that the image carries.
	// +optional
	NMStateConfigLabelSelector metav1.LabelSelector `json:"nmStateConfigLabelSelector,omitempty,omitzero"`
	// ignitionConfigOverride is JSON that is merged into the ignition of the discovery image.
	// +kubebuilder:validation:MaxLength=262144
	// +optional
	IgnitionConfigOverride string `json:"ignitionConfigOverride,omitempty"`
	// kernelArguments change the kernel command line of the discovery image, in this order.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	KernelArguments []KernelArgument `json:"kernelArguments,omitempty"`
	// ipxeScriptType is DiscoveryImageAlways, or BootOrderControl: machines that are installed boot from their disk.
	// +kubebuilder:validation:Enum="";DiscoveryImageAlways;BootOrderControl
	// +kubebuilder:default=DiscoveryImageAlways
	// +optional
	IPXEScriptType string `json:"ipxeScriptType,omitempty"`
	// mirrorRegistryRef names a ConfigMap of this namespace with registries.conf and, where needed, ca-bundle.crt.
	// +optional
	MirrorRegistryRef *ConfigMapReference `json:"mirrorRegistryRef,omitempty"`
	// networkDiscoveryDelaySeconds is how many seconds a minimal image waits for interfaces before it gives them names.
	// +kubebuilder:validation:Minimum=0
	// +optional
	NetworkDiscoveryDelaySeconds *int64 `json:"networkDiscoveryDelaySeconds,omitempty"`
}

// BootArtifacts are addresses of parts of the image, for network boot.
type BootArtifacts struct {
	// discoveryIgnitionURL is of the ignition alone.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	DiscoveryIgnitionURL string `json:"discoveryIgnitionURL,omitempty"`
	// initrd is of the initial RAM disk with the InfraEnv's ignition.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	InitrdURL string `json:"initrd,omitempty"`
	// ipxeScript is of a script that boots the image by iPXE.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	IpxeScriptURL string `json:"ipxeScript,omitempty"`
	// kernel is of the kernel.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	KernelURL string `json:"kernel,omitempty"`
	// rootfs is of the root file system.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	RootfsURL string `json:"rootfs,omitempty"`
}

// InfraEnvDebugInfo are addresses for those who look for an error.
type InfraEnvDebugInfo struct {
	// eventsURL is of the events of the InfraEnv.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	EventsURL string `json:"eventsURL,omitempty"`
	// staticNetworkDownloadURL is of the static network that the image carries.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	StaticNetworkDownloadURL string `json:"staticNetworkDownloadURL,omitempty"`
}

// InfraEnvStatus says where the image is.
type InfraEnvStatus struct {
	// isoDownloadURL is where the image can be fetched. Anyone with the address can boot machines into this InfraEnv.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	ISODownloadURL string `json:"isoDownloadURL,omitempty"`
	// createdTime is when the content of the image changed last.
	// +optional
	CreatedTime *metav1.Time `json:"createdTime,omitempty"`
	// bootArtifacts are for network boot.
	// +optional
	BootArtifacts BootArtifacts `json:"bootArtifacts,omitempty,omitzero"`
	// agentLabelSelector finds the Agents that booted this image.
	// +optional
	AgentLabelSelector metav1.LabelSelector `json:"agentLabelSelector,omitempty,omitzero"`
	// debugInfo are addresses for those who look for an error.
	// +optional
	InfraEnvDebugInfo InfraEnvDebugInfo `json:"debugInfo,omitempty,omitzero"`
	// conditions: ImageCreated.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`
}

// InfraEnv is an image that any number of machines boot. Each becomes an Agent in this namespace.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="muster.io/crds=agent-service"
// +kubebuilder:resource:path=infraenvs,shortName=ie,categories=muster
// +kubebuilder:printcolumn:name="Image",type="string",JSONPath=".status.conditions[?(@.type=='ImageCreated')].reason",description="Whether the image can be fetched, and why not"
// +kubebuilder:printcolumn:name="ISO Created At",type="string",JSONPath=".status.createdTime",description="When the content of the image changed last"
// +kubebuilder:printcolumn:name="ISO URL",type="string",JSONPath=".status.isoDownloadURL",priority=1,description="Where the image can be fetched"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='ImageCreated')].message",priority=1,description="Why it can, or cannot, be fetched, in a sentence"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since the InfraEnv was made"
type InfraEnv struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the discovery image is like.
	// +optional
	Spec InfraEnvSpec `json:"spec,omitempty"`
	// status says where the image is.
	// +optional
	// +kubebuilder:default={conditions: {{type: "Ready", status: "Unknown", reason: "Initialized", message: "agent-service has not looked at the object yet"}}}
	Status InfraEnvStatus `json:"status,omitempty"`
}

// InfraEnvList is a list of InfraEnv.
//
// +kubebuilder:object:root=true
type InfraEnvList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []InfraEnv `json:"items"`
}
