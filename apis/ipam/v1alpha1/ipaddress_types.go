// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// IPAddressSpec is an address that is taken, and by whom.
type IPAddressSpec struct {
	// claim is the claim that has the address: an IPClaim where no kind is stated. It cannot be modified.
	// +required
	// +kubebuilder:validation:XValidation:rule="(has(self.name) ? self.name : 'unset') == (has(oldSelf.name) ? oldSelf.name : 'unset') && (has(self.__namespace__) ? self.__namespace__ : 'unset') == (has(oldSelf.__namespace__) ? oldSelf.__namespace__ : 'unset') && (has(self.kind) ? self.kind : 'unset') == (has(oldSelf.kind) ? oldSelf.kind : 'unset')",message="claim cannot be modified"
	Claim ObjectReference `json:"claim"`
	// pool is the IPPool that the address comes from. It cannot be modified.
	// +required
	// +kubebuilder:validation:XValidation:rule="(has(self.name) ? self.name : 'unset') == (has(oldSelf.name) ? oldSelf.name : 'unset') && (has(self.__namespace__) ? self.__namespace__ : 'unset') == (has(oldSelf.__namespace__) ? oldSelf.__namespace__ : 'unset') && (has(self.kind) ? self.kind : 'unset') == (has(oldSelf.kind) ? oldSelf.kind : 'unset')",message="pool cannot be modified"
	Pool ObjectReference `json:"pool"`
	// prefix is the length of the network prefix in bits.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	Prefix int `json:"prefix,omitempty"`
	// gateway is the default gateway.
	// +optional
	Gateway *IPAddressStr `json:"gateway,omitempty"`
	// address is the address. It cannot be modified.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="address cannot be modified"
	Address IPAddressStr `json:"address"`
	// dnsServers are addresses of name servers.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	DNSServers []IPAddressStr `json:"dnsServers,omitempty"`
}

// IPAddress is an address that is taken. Its name is the namePrefix of the pool, a dash and the address with dashes for
// dots and colons, so that an address is given to one claim only.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:metadata:labels="muster.io/crds=ipam-operator"
// +kubebuilder:resource:path=ipaddresses,scope=Namespaced,categories=metal3;muster,shortName=ipa;ipaddress;m3ipa;m3ipaddress;m3ipaddresses;metal3ipa;metal3ipaddress;metal3ipaddresses
// +kubebuilder:metadata:labels="cluster.x-k8s.io/provider=ipam-metal3"
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta1=v1beta1"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:printcolumn:name="Address",type="string",JSONPath=`.spec.address`,description="The address"
// +kubebuilder:printcolumn:name="Pool",type="string",JSONPath=`.spec.pool.name`,description="Pool that it comes from"
// +kubebuilder:printcolumn:name="Claim",type="string",JSONPath=`.spec.claim.name`,description="Claim that has it"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
type IPAddress struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the address, and who has it.
	// +optional
	Spec IPAddressSpec `json:"spec,omitempty"`
}

// IPAddressList is a list of addresses.
//
// +kubebuilder:object:root=true
type IPAddressList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the addresses.
	Items []IPAddress `json:"items"`
}
