// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Kinds of this group.
const (
	// IPPoolKind is the kind of a pool.
	IPPoolKind = "IPPool"
	// IPClaimKind is the kind of a claim.
	IPClaimKind = "IPClaim"
	// IPAddressKind is the kind of an address.
	IPAddressKind = "IPAddress"
)

// Finalizers that the operator puts on the objects of this group.
const (
	// IPPoolFinalizer keeps a pool until none of its addresses is left.
	IPPoolFinalizer = "ippool.ipam.metal3.io"
	// IPClaimFinalizer keeps a claim until its address is given back.
	IPClaimFinalizer = "ipclaim.ipam.metal3.io"
	// IPAddressFinalizer keeps an address until its claim has given it back.
	IPAddressFinalizer = "ipaddress.ipam.metal3.io"
)

// Finalizers that the operator puts on objects of ipam.cluster.x-k8s.io.
const (
	// ContractClaimFinalizer keeps an IPAddressClaim of Cluster API until its address is given back.
	ContractClaimFinalizer = "ipam.metal3.io/ipaddressclaim"
	// ContractAddressFinalizer keeps an IPAddress of Cluster API while its claim has it.
	ContractAddressFinalizer = "ipam.metal3.io/ipaddress"
)

// Labels and annotations on the objects of this group.
const (
	// ClusterNameLabel names the Cluster that a pool, a claim or an address belongs to.
	ClusterNameLabel = "cluster.x-k8s.io/cluster-name"
	// ProviderLabel marks a pool as one of this provider.
	ProviderLabel = "cluster.x-k8s.io/provider"
	// ProviderName is the value of ProviderLabel.
	ProviderName = "ipam-metal3"
	// WatchFilterLabel names the instance of a provider that serves an object, where several run in one cluster.
	WatchFilterLabel = "cluster.x-k8s.io/watch-filter"
	// PausedAnnotation, with any value, stops everything for an object that carries it, and for what belongs to it.
	PausedAnnotation = "cluster.x-k8s.io/paused"
	// DeleteForMoveAnnotation marks an object that is deleted here because it lives on in another management cluster.
	DeleteForMoveAnnotation = "clusterctl.cluster.x-k8s.io/delete-for-move"
	// RequestedAddressAnnotation on a claim asks for the address that it holds.
	RequestedAddressAnnotation = "ipAddress"
	// PrefixLengthAnnotation on an IPAddressClaim of Cluster API asks for a whole prefix of the length in bits that it holds. An IPClaim has a field for it.
	PrefixLengthAnnotation = "ipam.metal3.io/prefix-length"
	// ClaimNamespaceLabel on an IPAddress is the namespace of its claim, where that is not the one of the pool.
	ClaimNamespaceLabel = "ipam.metal3.io/claim-namespace"
	// ImportedFromLabel on a pool and on an address that is reserved is the provider whose pool was imported.
	ImportedFromLabel = "ipam.metal3.io/imported-from"
	// ImportedPoolAnnotation on a pool that was imported is the kind and the name of the pool that it was.
	ImportedPoolAnnotation = "ipam.metal3.io/imported-pool"
	// AddressNameLabel on a claim that the operator has made for another claim is the name of the address in spec.additionalAddresses of that one.
	AddressNameLabel = "ipam.metal3.io/address-name"
	// FormerAddressAnnotation on a claim is the address of a former claim of its name. The operator writes it before it takes that address over.
	FormerAddressAnnotation = "ipam.metal3.io/former-address"
	// ClusterAbsentAnnotation marks an IPAddress of a claim of another namespace whose Cluster did not exist since the address was allocated.
	ClusterAbsentAnnotation = "ipam.metal3.io/cluster-absent"
	// ReleasedAtAnnotation on an IPAddress that was deleted while its claim had it is when the claim released it.
	ReleasedAtAnnotation = "ipam.metal3.io/released-at"
)

// Condition types of this group.
const (
	// ReadyCondition sums up: a pool whose spec is usable, a claim that has its address.
	ReadyCondition = "Ready"
	// ExhaustedCondition is true while a pool has no address to give.
	ExhaustedCondition = "Exhausted"
	// OverlappingCondition is true while another pool of the namespace hands out the same addresses.
	OverlappingCondition = "Overlapping"
)

// Reasons of the conditions of a pool.
const (
	// ReasonPoolUsable says that every part of the spec is used as written.
	ReasonPoolUsable = "Usable"
	// ReasonPoolInvalid says that a part of the spec cannot be used; the message names it.
	ReasonPoolInvalid = "InvalidSpec"
	// ReasonPoolDeleting says that the pool waits for its addresses to be given back.
	ReasonPoolDeleting = "Deleting"
	// ReasonAddressesOutOfRange says that addresses in use lie outside of the ranges.
	ReasonAddressesOutOfRange = "AddressesOutOfRange"
	// ReasonAddressesFree says that the pool has addresses to give.
	ReasonAddressesFree = "AddressesFree"
	// ReasonNoAddressFree says that every address is taken or reserved.
	ReasonNoAddressFree = "NoAddressFree"
	// ReasonAddressesCoolDown says that every address is taken or reserved and that released ones are free soon; the message says when.
	ReasonAddressesCoolDown = "AddressesCoolDown"
	// ReasonRangesOverlap says that another pool of the namespace, with another namePrefix, hands out the same addresses; the message names both.
	ReasonRangesOverlap = "RangesOverlap"
	// ReasonRangesSeparate says that no pool overlaps this one any more.
	ReasonRangesSeparate = "RangesSeparate"
)

// Reasons of the condition Ready of a claim.
const (
	// ReasonAllocated says that the claim has its address.
	ReasonAllocated = "Allocated"
	// ReasonAddressesPending says that the claim has its first address, and that claims for its additional ones are made.
	ReasonAddressesPending = "AddressesPending"
	// ReasonPoolExhausted says that the pool has no address to give.
	ReasonPoolExhausted = "PoolExhausted"
	// ReasonAllocationFailed says that the claim asks for what it cannot get; the message says why.
	ReasonAllocationFailed = "AllocationFailed"
	// ReasonPoolNotReady says that the pool is absent, being deleted or not usable.
	ReasonPoolNotReady = "PoolNotReady"
	// ReasonNamespaceNotAllowed says that the pool that a claim of another namespace names does not exist or does not allow its namespace.
	ReasonNamespaceNotAllowed = "NamespaceNotAllowed"
	// ReasonQuotaExceeded says that the claims of a namespace have as many addresses of the pool as one namespace may have.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonNotServed is the reason of the event that says that a claim names a pool of a kind that is not served.
	ReasonNotServed = "NotServed"
	// ReasonClusterNotFound says that the Cluster that the pool names does not exist yet.
	ReasonClusterNotFound = "ClusterNotFound"
)
