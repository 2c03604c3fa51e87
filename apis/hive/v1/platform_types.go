// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Platform says where and by whom a cluster is installed: exactly one of its fields is set.
//
// Platforms that another controller provisions are kept as they were written, whatever they contain, and are copied from a pool to its clusters byte for byte.
// +kubebuilder:validation:XValidation:rule="[has(self.agentBareMetal), has(self.aws), has(self.azure), has(self.baremetal), has(self.gcp), has(self.hosted), has(self.ibmcloud), has(self.none), has(self.nutanix), has(self.openstack), has(self.vsphere)].filter(p, p).size() == 1",message="set exactly one platform: hosted, agentBareMetal, aws, azure, baremetal, gcp, ibmcloud, none, nutanix, openstack or vsphere; for clusters that need nothing else write 'hosted: {}'"
type Platform struct {
	// hosted gives the cluster a control plane of its own (etcd, kube-apiserver, kube-controller-manager), run by pool-operator itself.
	// +optional
	Hosted *HostedPlatform `json:"hosted,omitempty"`

	// agentBareMetal installs on machines that registered with agent-service.
	// +optional
	AgentBareMetal *AgentBareMetalPlatform `json:"agentBareMetal,omitempty"`

	// aws is left to the controller that installs on AWS.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	AWS *runtime.RawExtension `json:"aws,omitempty"`

	// azure is left to the controller that installs on Azure.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	Azure *runtime.RawExtension `json:"azure,omitempty"`

	// baremetal is left to the controller that installs on bare metal with a provisioning host.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	BareMetal *runtime.RawExtension `json:"baremetal,omitempty"`

	// gcp is left to the controller that installs on Google Cloud.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	GCP *runtime.RawExtension `json:"gcp,omitempty"`

	// ibmcloud is left to the controller that installs on IBM Cloud.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	IBMCloud *runtime.RawExtension `json:"ibmcloud,omitempty"`

	// none is left to the controller that installs without a platform.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	None *runtime.RawExtension `json:"none,omitempty"`

	// nutanix is left to the controller that installs on Nutanix.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	Nutanix *runtime.RawExtension `json:"nutanix,omitempty"`

	// openstack is left to the controller that installs on OpenStack.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	OpenStack *runtime.RawExtension `json:"openstack,omitempty"`

	// vsphere is left to the controller that installs on vSphere.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	VSphere *runtime.RawExtension `json:"vsphere,omitempty"`
}

// HostedPlatform asks for a hosted control plane; 'hosted: {}' is all that it needs.
type HostedPlatform struct {
	// audit says how much of each request the API server of the cluster writes to its log: None, Metadata, Request or RequestResponse. Unset means None. A change takes effect at the
	// next start of the cluster.
	// +kubebuilder:validation:Enum=None;Metadata;Request;RequestResponse
	// +optional
	Audit AuditLevel `json:"audit,omitempty"`

	// nodes says that machines can join the cluster as nodes; 'nodes: {}' is all that it needs. Unset means that the cluster takes no nodes. A ClusterDeployment cannot change it.
	// +optional
	Nodes *HostedNodes `json:"nodes,omitempty"`
}

// Networks of hosted clusters that take nodes, where the cluster names none.
const (
	DefaultPodCIDR     = "10.244.0.0/16"
	DefaultServiceCIDR = "10.96.0.0/16"
)

// HostedNodes are the networks of a hosted cluster that takes nodes. Nodes, pods and Services have addresses of their own: the three do not overlap.
// +kubebuilder:validation:XValidation:rule="!has(self.clusterDNS) || cidr(has(self.serviceCIDR) ? self.serviceCIDR : '10.96.0.0/16').containsIP(self.clusterDNS)",message="clusterDNS must be an address of serviceCIDR",fieldPath=".clusterDNS"
// +kubebuilder:validation:XValidation:rule="!cidr(has(self.podCIDR) ? self.podCIDR : '10.244.0.0/16').containsCIDR(has(self.serviceCIDR) ? self.serviceCIDR : '10.96.0.0/16') && !cidr(has(self.serviceCIDR) ? self.serviceCIDR : '10.96.0.0/16').containsCIDR(has(self.podCIDR) ? self.podCIDR : '10.244.0.0/16')",message="podCIDR and serviceCIDR must not overlap"
type HostedNodes struct {
	// podCIDR holds the addresses of pods; each node gets a /24 of it. Unset means 10.244.0.0/16.
	// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self).ip().family() == 4 && cidr(self).prefixLength() <= 24 && string(cidr(self).masked()) == self",message="podCIDR must be a network of /24 or larger such as 10.244.0.0/16"
	// +kubebuilder:validation:MaxLength=43
	// +optional
	PodCIDR string `json:"podCIDR,omitempty"`

	// serviceCIDR holds the addresses of Services. Unset means 10.96.0.0/16.
	// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self).ip().family() == 4 && cidr(self).prefixLength() >= 12 && cidr(self).prefixLength() <= 28 && string(cidr(self).masked()) == self",message="serviceCIDR must be a network between /12 and /28 such as 10.96.0.0/16"
	// +kubebuilder:validation:MaxLength=43
	// +optional
	ServiceCIDR string `json:"serviceCIDR,omitempty"`

	// clusterDNS is the address of the cluster's resolver. Unset means the tenth address of serviceCIDR.
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="clusterDNS must be an address such as 10.96.0.10"
	// +kubebuilder:validation:MaxLength=45
	// +optional
	ClusterDNS string `json:"clusterDNS,omitempty"`
}

// AuditLevel is how much of each request an API server logs.
type AuditLevel string

// Levels of auditing.
const (
	AuditNone            AuditLevel = "None"
	AuditMetadata        AuditLevel = "Metadata"
	AuditRequest         AuditLevel = "Request"
	AuditRequestResponse AuditLevel = "RequestResponse"
)

// AgentBareMetalPlatform installs on machines that registered with agent-service.
type AgentBareMetalPlatform struct {
	// agentSelector has no effect, and is kept for manifests of Hive, which requires it. Machines become part of the cluster by MachinePools, which have
	// selectors of their own, or when a user binds them.
	// +optional
	AgentSelector *metav1.LabelSelector `json:"agentSelector,omitempty"`
}

// Names of platforms, as they stand in spec.platform and in the label LabelClusterPlatform.
const (
	PlatformHosted         = "hosted"
	PlatformAgentBareMetal = "agent-baremetal"
	PlatformAWS            = "aws"
	PlatformAzure          = "azure"
	PlatformBareMetal      = "baremetal"
	PlatformGCP            = "gcp"
	PlatformIBMCloud       = "ibmcloud"
	PlatformNone           = "none"
	PlatformNutanix        = "nutanix"
	PlatformOpenStack      = "openstack"
	PlatformVSphere        = "vsphere"
)

// Name returns the name of the platform that is set, "" if none is.
func (p *Platform) Name() string {
	for _, candidate := range []struct {
		name string
		set  bool
	}{
		{PlatformHosted, p.Hosted != nil},
		{PlatformAgentBareMetal, p.AgentBareMetal != nil},
		{PlatformAWS, p.AWS != nil},
		{PlatformAzure, p.Azure != nil},
		{PlatformBareMetal, p.BareMetal != nil},
		{PlatformGCP, p.GCP != nil},
		{PlatformIBMCloud, p.IBMCloud != nil},
		{PlatformNone, p.None != nil},
		{PlatformNutanix, p.Nutanix != nil},
		{PlatformOpenStack, p.OpenStack != nil},
		{PlatformVSphere, p.VSphere != nil},
	} {
		if candidate.set {
			return candidate.name
		}
	}
	return ""
}

// foreign returns the settings of the platforms that another controller installs on, of those that are set.
func (p *Platform) foreign() []*runtime.RawExtension {
	all := []*runtime.RawExtension{p.AWS, p.Azure, p.BareMetal, p.GCP, p.IBMCloud, p.None, p.Nutanix, p.OpenStack, p.VSphere}
	return slices.DeleteFunc(all, func(settings *runtime.RawExtension) bool { return settings == nil })
}

// SecretRefs returns the names of all Secrets that the settings of a platform name which another controller installs on, by the field that names them, such as credentialsSecretRef.
func (p *Platform) SecretRefs() map[string]string {
	refs := map[string]string{}
	for _, settings := range p.foreign() {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(settings.Raw, &fields); err != nil {
			continue
		}
		for key, value := range fields {
			var ref LocalObjectReference
			if strings.HasSuffix(key, "SecretRef") && json.Unmarshal(value, &ref) == nil && ref.Name != "" {
				refs[key] = ref.Name
			}
		}
	}
	return refs
}

// SecretNames returns the names of all Secrets that the settings of a platform name which another controller installs on, each once and sorted: credentials, certificates, keys.
func (p *Platform) SecretNames() []string {
	return slices.Compact(slices.Sorted(maps.Values(p.SecretRefs())))
}
