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
	// errorMessage says why the claim has no address. It is retried the moment its cause changes.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	ErrorMessage *string `json:"errorMessage,omitempty"`
	// observedGeneration is the generation of the spec that conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions are Ready: the claim has its address.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// IPClaim asks for one address of a pool. The annotation ipAddress asks for that very address.
//
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

// IPClaimList is a list of claims.
//
// +kubebuilder:object:root=true
type IPClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the claims.
	Items []IPClaim `json:"items"`
}
