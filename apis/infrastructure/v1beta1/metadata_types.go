// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

// MetaData is a list of keys and where their values come from. Of a key that is there twice, what is more specific counts:
// strings before annotations, labels, objectNames, namespaces, indexes, dnsServers, gateways, prefixes, addresses and interfaces.
type MetaData struct {
	// strings are values as written.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	Strings []MetaDataString `json:"strings,omitempty"`
	// objectNames are names of objects that belong to the machine.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	ObjectNames []MetaDataObjectName `json:"objectNames,omitempty"`
	// indexes are numbers made from the index of the Metal3Data.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	Indexes []MetaDataIndex `json:"indexes,omitempty"`
	// namespaces are the namespace of the Metal3Data.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	Namespaces []MetaDataNamespace `json:"namespaces,omitempty"`
	// ipAddressesFromIPPool are addresses.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	IPAddressesFromIPPool []MetaDataFromPool `json:"ipAddressesFromIPPool,omitempty"`
	// ipAddressesFromPool is another spelling of ipAddressesFromIPPool.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	IPAddressesFromPool []MetaDataFromPool `json:"ipAddressesFromPool,omitempty"`
	// prefixesFromIPPool are lengths of prefixes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	PrefixesFromIPPool []MetaDataFromPool `json:"prefixesFromIPPool,omitempty"`
	// prefixesFromPool is another spelling of prefixesFromIPPool.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	PrefixesFromPool []MetaDataFromPool `json:"prefixesFromPool,omitempty"`
	// gatewaysFromIPPool are gateways.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	GatewaysFromIPPool []MetaDataFromPool `json:"gatewaysFromIPPool,omitempty"`
	// gatewaysFromPool is another spelling of gatewaysFromIPPool.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	GatewaysFromPool []MetaDataFromPool `json:"gatewaysFromPool,omitempty"`
	// dnsServersFromIPPool are the name servers of a pool.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	DNSServersFromIPPool []MetaDataFromPool `json:"dnsServersFromIPPool,omitempty"`
	// dnsServersFromPool is another spelling of dnsServersFromIPPool.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	DNSServersFromPool []MetaDataFromPool `json:"dnsServersFromPool,omitempty"`
	// fromHostInterfaces are MAC addresses of the host.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	FromHostInterfaces []MetaDataHostInterface `json:"fromHostInterfaces,omitempty"`
	// fromLabels are values of labels; a label that is not there is the empty string.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	FromLabels []MetaDataFromLabel `json:"fromLabels,omitempty"`
	// fromAnnotations are values of annotations; an annotation that is not there is the empty string.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	FromAnnotations []MetaDataFromAnnotation `json:"fromAnnotations,omitempty"`
}

// MetaDataString is a value as written.
type MetaDataString struct {
	// key of the value.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Key string `json:"key"`
	// value as written.
	// +required
	// +kubebuilder:validation:MaxLength=65536
	Value string `json:"value"`
}

// MetaDataObjectName is the name of an object.
type MetaDataObjectName struct {
	// key of the value.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Key string `json:"key"`
	// object whose name is the value.
	// +required
	Object MachineObject `json:"object"`
}

// MetaDataIndex is prefix, offset + index × step, suffix.
type MetaDataIndex struct {
	// key of the value.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Key string `json:"key"`
	// offset is what index 0 gives.
	// +optional
	Offset int `json:"offset,omitempty"`
	// step between the numbers of neighbours.
	// +optional
	// +kubebuilder:default=1
	Step *int `json:"step,omitempty"`
	// prefix before the number.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Prefix string `json:"prefix,omitempty"`
	// suffix after the number.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Suffix string `json:"suffix,omitempty"`
}

// MetaDataNamespace is the namespace of the Metal3Data.
type MetaDataNamespace struct {
	// key of the value.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Key string `json:"key"`
}

// MetaDataFromPool is something that an address of a pool has.
type MetaDataFromPool struct {
	// key of the value.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Key string `json:"key"`
	// name of the pool.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Name string `json:"name"`
	// apiGroup of the pool.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	APIGroup string `json:"apiGroup,omitempty"`
	// kind of the pool.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Kind string `json:"kind,omitempty"`
}

// MetaDataHostInterface is the MAC address of an interface of the host.
//
// +kubebuilder:validation:XValidation:rule="(has(self.interface) && size(self.interface) > 0) != (has(self.fromBootMAC) && self.fromBootMAC)",message="write either interface or fromBootMAC: true"
type MetaDataHostInterface struct {
	// key of the value.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Key string `json:"key"`
	// interface is the name of the interface in what inspection found.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Interface string `json:"interface,omitempty"`
	// fromBootMAC takes the address that the host boots from.
	// +optional
	FromBootMAC bool `json:"fromBootMAC,omitempty"`
}

// MetaDataFromLabel is the value of a label.
type MetaDataFromLabel struct {
	// key of the value.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Key string `json:"key"`
	// object that has the label.
	// +required
	Object MachineObject `json:"object"`
	// label is its key.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Label string `json:"label"`
}

// MetaDataFromAnnotation is the value of an annotation.
//
// +kubebuilder:validation:XValidation:rule="self.annotation.matches('^([A-Za-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="annotation must be the key of an annotation, such as example.com/rack",fieldPath=".annotation"
type MetaDataFromAnnotation struct {
	// key of the value.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Key string `json:"key"`
	// object that has the annotation.
	// +required
	Object MachineObject `json:"object"`
	// annotation is its key.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Annotation string `json:"annotation"`
}
