// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta2

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
)

// Metal3DataTemplateSpec says what the files of a machine look like.
//
// +kubebuilder:validation:XValidation:rule="(has(self.clusterName) ? self.clusterName : 'unset') == (has(oldSelf.clusterName) ? oldSelf.clusterName : 'unset')",message="clusterName cannot be modified; create another template"
// +kubebuilder:validation:XValidation:rule="has(self.metaData) == has(oldSelf.metaData) && (!has(self.metaData) || self.metaData == oldSelf.metaData)",message="metaData cannot be modified; create another template"
// +kubebuilder:validation:XValidation:rule="has(self.networkData) == has(oldSelf.networkData) && (!has(self.networkData) || self.networkData == oldSelf.networkData)",message="networkData cannot be modified; create another template"
type Metal3DataTemplateSpec struct {
	// clusterName is the Cluster that the template belongs to. It cannot be modified.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	ClusterName string `json:"clusterName,omitempty"`
	// metaData is rendered into a Secret. It cannot be modified.
	// +optional
	MetaData *MetaData `json:"metaData,omitempty"`
	// networkData is rendered into a Secret. It cannot be modified.
	// +optional
	NetworkData *NetworkData `json:"networkData,omitempty"`
}

// MetaData is a list of keys and where their values come from. Of a key that is there twice, what is more specific counts:
// strings before annotations, labels, objectNames, namespaces, indexes, dnsServers, gateways, prefixes, addresses and interfaces.
type MetaData struct {
	// strings are values as written.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	Strings []infrav1.MetaDataString `json:"strings,omitempty"`
	// objectNames are names of objects that belong to the machine.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	ObjectNames []infrav1.MetaDataObjectName `json:"objectNames,omitempty"`
	// indexes are numbers made from the index of the Metal3Data.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	Indexes []infrav1.MetaDataIndex `json:"indexes,omitempty"`
	// namespaces are the namespace of the Metal3Data.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	Namespaces []infrav1.MetaDataNamespace `json:"namespaces,omitempty"`
	// ipAddressesFromPool are addresses.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	IPAddressesFromPool []infrav1.MetaDataFromPool `json:"ipAddressesFromPool,omitempty"`
	// prefixesFromPool are lengths of prefixes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	PrefixesFromPool []infrav1.MetaDataFromPool `json:"prefixesFromPool,omitempty"`
	// gatewaysFromPool are gateways.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	GatewaysFromPool []infrav1.MetaDataFromPool `json:"gatewaysFromPool,omitempty"`
	// dnsServersFromPool are the name servers of a pool.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	DNSServersFromPool []infrav1.MetaDataFromPool `json:"dnsServersFromPool,omitempty"`
	// fromHostInterfaces are MAC addresses of the host.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	FromHostInterfaces []infrav1.MetaDataHostInterface `json:"fromHostInterfaces,omitempty"`
	// fromLabels are values of labels; a label that is not there is the empty string.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	FromLabels []infrav1.MetaDataFromLabel `json:"fromLabels,omitempty"`
	// fromAnnotations are values of annotations; an annotation that is not there is the empty string.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	FromAnnotations []infrav1.MetaDataFromAnnotation `json:"fromAnnotations,omitempty"`
}

// NetworkData is what the network of a machine looks like.
type NetworkData struct {
	// links are the interfaces.
	// +optional
	Links NetworkLinks `json:"links,omitempty"`
	// networks are the addresses on them.
	// +optional
	Networks infrav1.Networks `json:"networks,omitempty"`
	// services are those of all networks.
	// +optional
	Services infrav1.NetworkServices `json:"services,omitempty"`
}

// NetworkLinks are interfaces.
type NetworkLinks struct {
	// ethernets are interfaces of the hardware.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	Ethernets []infrav1.Ethernet `json:"ethernets,omitempty"`
	// bonds are interfaces made of several.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	Bonds []Bond `json:"bonds,omitempty"`
	// vlans are interfaces with a tag.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	VLANs []infrav1.VLAN `json:"vlans,omitempty"`
}

// Bond is an interface made of several.
type Bond struct {
	// bondMode says how they work together.
	// +required
	// +kubebuilder:validation:Enum=balance-rr;active-backup;balance-xor;broadcast;balance-tlb;balance-alb;"802.3ad"
	BondMode string `json:"bondMode"`
	// bondXmitHashPolicy says what is sent over which of them.
	// +optional
	// +kubebuilder:validation:Enum=layer2;layer3+4;layer2+3
	BondXmitHashPolicy string `json:"bondXmitHashPolicy,omitempty"`
	// id that networks and other links name it by.
	// +required
	// +kubebuilder:validation:MaxLength=512
	ID string `json:"id"`
	// name in the machine.
	// +optional
	Name infrav1.LinkName `json:"name,omitempty"`
	// mtu of the interface.
	// +optional
	// +kubebuilder:default=1500
	MTU infrav1.MTU `json:"mtu,omitempty"`
	// macAddress of the interface.
	// +optional
	MACAddress *infrav1.LinkMAC `json:"macAddress,omitempty"`
	// parameters are further settings: each is rendered with the prefix bond_.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=512
	Parameters []BondParameter `json:"parameters,omitempty"`
	// bondLinks are the ids of the interfaces.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	// +kubebuilder:validation:items:MaxLength=512
	BondLinks []string `json:"bondLinks,omitempty"`
}

// BondParameter is a setting of a bond.
type BondParameter struct {
	// name of the setting.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Name string `json:"name"`
	// value of the setting, of any type.
	// +optional
	Value *apiextensionsv1.JSON `json:"value,omitempty"`
}

// Metal3DataTemplateStatus says who has which index.
type Metal3DataTemplateStatus struct {
	// indexes are the indexes that claims have.
	// +optional
	// +listType=map
	// +listMapKey=index
	// +kubebuilder:validation:MaxItems=4096
	Indexes []IndexEntry `json:"indexes,omitempty"`
	// lastUpdated is when indexes changed.
	// +optional
	LastUpdated *metav1.Time `json:"lastUpdated,omitempty"`
}

// IndexEntry is the index of a claim.
type IndexEntry struct {
	// name of the claim.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Name string `json:"name"`
	// index of the claim.
	// +required
	// +kubebuilder:validation:Minimum=0
	Index int32 `json:"index"`
}

// Metal3DataTemplate says what metadata and network data of machines look like.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:unservedversion
// +kubebuilder:metadata:labels="muster.io/crds=network-data"
// +kubebuilder:resource:path=metal3datatemplates,scope=Namespaced,categories=cluster-api;muster,shortName=m3dt;m3datatemplate;m3datatemplates;metal3dt;metal3datatemplate
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta1=v1beta1"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move="
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=`.metadata.labels.cluster\.x-k8s\.io/cluster-name`,description="Cluster that the template belongs to"
// +kubebuilder:printcolumn:name="Updated",type="date",JSONPath=`.status.lastUpdated`,description="When an index was given or taken back"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
type Metal3DataTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what the files look like.
	// +optional
	Spec Metal3DataTemplateSpec `json:"spec,omitempty"`
	// status says who has which index.
	// +optional
	Status Metal3DataTemplateStatus `json:"status,omitempty"`
}

// Metal3DataTemplateList is a list of templates.
//
// +kubebuilder:object:root=true
type Metal3DataTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the templates.
	Items []Metal3DataTemplate `json:"items"`
}
