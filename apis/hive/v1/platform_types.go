// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"encoding/json"

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
	// agentSelector selects, by their labels, the machines that may become part of the cluster.
	// +required
	AgentSelector metav1.LabelSelector `json:"agentSelector"`
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

// CredentialsSecretName returns the name of the Secret with the credentials of a platform that another controller installs on; "" when the platform names none.
func (p *Platform) CredentialsSecretName() string {
	for _, settings := range []*runtime.RawExtension{p.AWS, p.Azure, p.BareMetal, p.GCP, p.IBMCloud, p.None, p.Nutanix, p.OpenStack, p.VSphere} {
		if settings == nil {
			continue
		}
		var named struct {
			CredentialsSecretRef LocalObjectReference `json:"credentialsSecretRef"`
		}
		if err := json.Unmarshal(settings.Raw, &named); err == nil && named.CredentialsSecretRef.Name != "" {
			return named.CredentialsSecretRef.Name
		}
	}
	return ""
}
