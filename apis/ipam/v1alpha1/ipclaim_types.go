// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// IPClaimSpec says which pool an address is wanted from.
//
// +kubebuilder:validation:XValidation:rule="has(self.poolSelector) ? !has(self.pool) || !has(self.pool.name) || size(self.pool.name) == 0 : has(self.pool) && has(self.pool.name) && size(self.pool.name) > 0",message="pool.name must name an IPPool, or poolSelector choose one, and not both",fieldPath=".pool"
// +kubebuilder:validation:XValidation:rule="has(self.poolSelector) == has(oldSelf.poolSelector) && (!has(self.poolSelector) || self.poolSelector == oldSelf.poolSelector)",message="poolSelector cannot be modified; create another claim",fieldPath=".poolSelector"
// +kubebuilder:validation:XValidation:rule="has(self.additionalAddresses) == has(oldSelf.additionalAddresses)",message="additionalAddresses cannot be modified; create another claim",fieldPath=".additionalAddresses"
// +kubebuilder:validation:XValidation:rule="(has(self.prefixLength) ? self.prefixLength : 0) == (has(oldSelf.prefixLength) ? oldSelf.prefixLength : 0)",message="prefixLength cannot be modified; create another claim",fieldPath=".prefixLength"
type IPClaimSpec struct {
	// pool is the IPPool. One of another namespace is named with its namespace, and must allow that of the claim in spec.allowedNamespaces. It cannot be modified.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.name) ? self.name : 'unset') == (has(oldSelf.name) ? oldSelf.name : 'unset') && (has(self.__namespace__) ? self.__namespace__ : 'unset') == (has(oldSelf.__namespace__) ? oldSelf.__namespace__ : 'unset') && (has(self.kind) ? self.kind : 'unset') == (has(oldSelf.kind) ? oldSelf.kind : 'unset')",message="pool cannot be modified; create another claim"
	Pool ObjectReference `json:"pool,omitzero"`
	// poolSelector chooses among the IPPools of the namespace of the claim by their labels, instead of pool: the first by name that has something free is used. It
	// cannot be modified.
	// +optional
	PoolSelector *metav1.LabelSelector `json:"poolSelector,omitempty"`
	// prefixLength asks for a whole prefix of this length in bits instead of an address. Its pool has an entry with this allocationPrefixLength. It cannot be modified.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	PrefixLength int `json:"prefixLength,omitempty"`
	// additionalAddresses are the addresses that the claim has beside its first one, such as one of the other family. Each is served by an IPClaim that the operator
	// makes: its name is that of the claim, a dash and the name of the address. They cannot be modified.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="additionalAddresses cannot be modified; create another claim"
	AdditionalAddresses []AdditionalAddress `json:"additionalAddresses,omitempty"`
}

// AdditionalAddress is one more address that a claim asks for, and the pool that it is wanted from.
//
// +kubebuilder:validation:XValidation:rule="has(self.pool) != has(self.poolSelector)",message="pool must name an IPPool, or poolSelector choose one, and not both"
type AdditionalAddress struct {
	// name tells the addresses of a claim apart, such as v6.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^[a-z0-9]+$`
	Name string `json:"name"`
	// pool is the IPPool.
	// +optional
	Pool *PoolReference `json:"pool,omitempty"`
	// poolSelector chooses among the IPPools of the namespace of the claim by their labels, instead of pool: the first by name that has something free is used.
	// +optional
	PoolSelector *metav1.LabelSelector `json:"poolSelector,omitempty"`
	// prefixLength asks for a whole prefix of this length in bits instead of an address.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	PrefixLength int `json:"prefixLength,omitempty"`
}

// ClaimAddress is an address that a claim has beside its first one.
type ClaimAddress struct {
	// name is that of the address in spec.additionalAddresses.
	// +required
	// +kubebuilder:validation:MaxLength=16
	Name string `json:"name"`
	// address is the IPAddress.
	// +required
	Address ObjectReference `json:"address"`
	// ipAddress is the address that the IPAddress holds.
	// +required
	IPAddress IPAddressStr `json:"ipAddress"`
	// pool is the IPPool that the address comes from.
	// +optional
	Pool *PoolReference `json:"pool,omitempty"`
	// prefix is the length of the network prefix in bits that the address comes with.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	Prefix int `json:"prefix,omitempty"`
	// gateway is the default gateway that the address comes with.
	// +optional
	Gateway *IPAddressStr `json:"gateway,omitempty"`
	// dnsServers are the name servers that the address comes with.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	DNSServers []IPAddressStr `json:"dnsServers,omitempty"`
}

// IPClaimStatus says which address the claim has.
type IPClaimStatus struct {
	// address is the IPAddress of the claim.
	// +optional
	Address *ObjectReference `json:"address,omitempty"`
	// ipAddress is the address that the IPAddress holds. A claim that got its address before this field was there does not have it.
	// +optional
	IPAddress *IPAddressStr `json:"ipAddress,omitempty"`
	// prefix is the length of the network prefix in bits that the address comes with.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	Prefix int `json:"prefix,omitempty"`
	// gateway is the default gateway that the address comes with.
	// +optional
	Gateway *IPAddressStr `json:"gateway,omitempty"`
	// dnsServers are the name servers that the address comes with.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	DNSServers []IPAddressStr `json:"dnsServers,omitempty"`
	// addresses are those that the claim has of spec.additionalAddresses.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Addresses []ClaimAddress `json:"addresses,omitempty"`
	// errorMessage says why the claim has no address. It is retried the moment its cause changes.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	ErrorMessage *string `json:"errorMessage,omitempty"`
	// observedGeneration is the generation of the spec that conditions speak of. -1 while no controller has looked at the object.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions are Ready: the claim has its addresses.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// IPClaim asks for one address of a pool, and for others beside it where spec.additionalAddresses says so. The annotation ipAddress asks for that very address.
//
// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.additionalAddresses) || self.spec.additionalAddresses.all(a, size(self.metadata.name) + size(a.name) < 253)",message="the name of the claim is too long for one of additionalAddresses: the two and a dash are at most 253 characters"
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="muster.io/crds=ipam-operator"
// +kubebuilder:resource:path=ipclaims,scope=Namespaced,categories=cluster-api;muster,shortName=ipc;ipclaim;m3ipc;m3ipclaim;m3ipclaims;metal3ipc;metal3ipclaim;metal3ipclaims
// +kubebuilder:metadata:labels="cluster.x-k8s.io/provider=ipam-metal3"
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta1=v1beta1"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:printcolumn:name="Pool",type="string",JSONPath=`.spec.pool.name`,description="Pool that the address comes from"
// +kubebuilder:printcolumn:name="Address",type="string",JSONPath=`.status.ipAddress`,description="Address of the claim"
// +kubebuilder:printcolumn:name="Additional",type="string",JSONPath=`.status.addresses[*].ipAddress`,description="Addresses beside the first one",priority=1
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the claim has its address"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why, or why not"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
// +kubebuilder:printcolumn:name="IPAddress",type="string",JSONPath=`.status.address.name`,description="IPAddress object of the claim",priority=1
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What the claim waits for, or has",priority=1
type IPClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which pool an address is wanted from.
	// +optional
	Spec IPClaimSpec `json:"spec,omitempty"`
	// status says which address the claim has.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status IPClaimStatus `json:"status,omitempty"`
}

// PoolKey is the namespace and the name of the pool that the claim names. The name is empty where the claim chooses a pool by labels.
func (c *IPClaim) PoolKey() types.NamespacedName {
	return types.NamespacedName{Namespace: cmp.Or(c.Spec.Pool.Namespace, c.Namespace), Name: c.Spec.Pool.Name}
}

// NameInPool is the name that the claim has in spec.preAllocations and status.indexes of its pool.
func (c *IPClaim) NameInPool() string {
	if c.PoolKey().Namespace != c.Namespace {
		return c.Namespace + "/" + c.Name
	}
	return c.Name
}

// AddressClaimName is the name of the IPClaim that serves an address of spec.additionalAddresses.
func (c *IPClaim) AddressClaimName(address string) string { return c.Name + "-" + address }

// IPClaimList is a list of claims.
//
// +kubebuilder:object:root=true
type IPClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the claims.
	Items []IPClaim `json:"items"`
}
