// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// IPAddressSpec is an address that is taken, and by whom.
//
// +kubebuilder:validation:XValidation:rule="(has(self.prefixLength) ? self.prefixLength : 0) == (has(oldSelf.prefixLength) ? oldSelf.prefixLength : 0)",message="prefixLength cannot be modified",fieldPath=".prefixLength"
type IPAddressSpec struct {
	// claim is the claim that has the address: an IPClaim where no kind is stated. For a claim of another namespace, which cannot be an owner, uid says which
	// one. It cannot be modified.
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
	// prefixLength is the length in bits of the prefix that is taken as a whole; address is then its first address. Absent for a single address. It cannot be
	// modified.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	PrefixLength int `json:"prefixLength,omitempty"`
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

// Tenant is the namespace of the claim that has the address, where it is not the one of the pool; empty otherwise. The object is in the namespace of the pool, under
// whatever name that was when it was made.
func (a *IPAddress) Tenant() string {
	switch a.Spec.Claim.Namespace {
	case a.Namespace, a.Spec.Pool.Namespace:
		return ""
	default:
		return a.Spec.Claim.Namespace
	}
}

// ClaimKey is the namespace and the name of the claim that has the address.
func (a *IPAddress) ClaimKey() types.NamespacedName {
	return types.NamespacedName{Namespace: cmp.Or(a.Tenant(), a.Namespace), Name: a.Spec.Claim.Name}
}

// ClaimInPool is the name that the claim has in spec.preAllocations and status.indexes of its pool.
func (a *IPAddress) ClaimInPool() string {
	if tenant := a.Tenant(); tenant != "" {
		return tenant + "/" + a.Spec.Claim.Name
	}
	return a.Spec.Claim.Name
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
