// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AllocationStrategy says how an address is chosen from the free ones of a pool entry. Entries are used in order
// whatever the strategy.
//
// +kubebuilder:validation:Enum=sequential;random
type AllocationStrategy string

const (
	// SequentialAllocation chooses the lowest free address.
	SequentialAllocation AllocationStrategy = "sequential"
	// RandomAllocation chooses any free address.
	RandomAllocation AllocationStrategy = "random"
)

// IPPoolSpec describes the addresses that a pool hands out.
//
// +kubebuilder:validation:XValidation:rule="(has(self.allocationStrategy) ? self.allocationStrategy : 'sequential') == (has(oldSelf.allocationStrategy) ? oldSelf.allocationStrategy : 'sequential')",message="allocationStrategy cannot be modified after creation; create another pool",fieldPath=".allocationStrategy"
// +kubebuilder:validation:XValidation:rule="!has(self.allocationStrategy) || self.allocationStrategy != 'random' || !has(self.pools) || self.pools.all(p, has(p.end) || has(p.subnet))",message="with allocationStrategy random every entry of pools needs an end or a subnet",fieldPath=".pools"
type IPPoolSpec struct {
	// clusterName is the name of the Cluster that the pool belongs to. The pool is then owned by that Cluster and moves
	// with it; nothing is allocated while the Cluster is absent or paused. It cannot be modified while addresses are in use;
	// a pool without one can get one.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClusterName *string `json:"clusterName,omitempty"`
	// pools are the ranges of addresses, used in this order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Pools []Pool `json:"pools,omitempty"`
	// preAllocations maps the name of a claim to the address that only it gets. The address lies in an entry
	// of pools, or in the subnet of one. A claim of another namespace is written "namespace/name".
	// +optional
	// +kubebuilder:validation:MaxProperties=10000
	PreAllocations map[string]IPAddressStr `json:"preAllocations,omitempty"`
	// prefix is the length of the network prefix in bits, for entries of pools that state none. Without it the prefix of
	// the subnet of the entry counts.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	Prefix int `json:"prefix,omitempty"`
	// gateway is the default gateway, for entries of pools that state none. It is of their family, and is not handed out.
	// +optional
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="gateway must be an address such as 192.168.0.1 or fd00::1"
	Gateway *IPAddressStr `json:"gateway,omitempty"`
	// dnsServers are addresses of name servers, for entries of pools that state none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	DNSServers []IPAddressStr `json:"dnsServers,omitempty"`
	// namePrefix is the beginning of the names of the pool's IPAddress objects; the rest is the address. Pools of one
	// namespace with the same namePrefix never hand out the same address twice.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*-*$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="namePrefix cannot be modified; create another pool"
	NamePrefix string `json:"namePrefix"`
	// allocationStrategy says how an address is chosen from the free ones of an entry: the lowest (sequential) or any
	// (random). It cannot be modified.
	// +optional
	// +kubebuilder:default=sequential
	AllocationStrategy AllocationStrategy `json:"allocationStrategy,omitempty"`
	// excludedAddresses are never chosen and cannot be requested: single addresses, networks in CIDR notation or ranges
	// "first-last". A preAllocation may name one of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	ExcludedAddresses []AddressSpan `json:"excludedAddresses,omitempty"`
	// allocateReservedAddresses lets entries with a subnet hand out the network address and the IPv4 broadcast address. Without
	// it they are given to no claim but one that they are preallocated to. A gateway is never handed out otherwise.
	// +optional
	AllocateReservedAddresses bool `json:"allocateReservedAddresses,omitempty"`
	// addressReuseGracePeriodSeconds is how long an address stays taken after its claim gave it back, in seconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	AddressReuseGracePeriodSeconds int64 `json:"addressReuseGracePeriodSeconds,omitempty"`
	// stickyFor is how long a released address is kept for a claim of the same kind and name: one that is created within that time gets the address back,
	// and no other claim gets it. A duration such as 24h. Unset means that it is not kept.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="!self.matches('[0-9]{6}h|[0-9]{8}m([^s]|$)|[0-9]{10}s|[0-9]{13}ms|[0-9]{16}(us|µs)|[0-9]{19}ns')",message="the duration is too long to be represented; write at most 99999h, 9999999m or 999999999s"
	// +optional
	StickyFor *metav1.Duration `json:"stickyFor,omitempty"`
	// allowedNamespaces says which namespaces IPClaims may come from. Such a claim names the namespace of the pool. Claims of the pool's own namespace are always
	// served. A claim that has its address keeps it when its namespace is not allowed any more.
	// +optional
	AllowedNamespaces *AllowedNamespaces `json:"allowedNamespaces,omitempty"`
	// maxAddressesPerNamespace is how many addresses of the pool the claims of one other namespace can have together, released ones that stay taken included.
	// Zero sets no limit. Claims of the pool's own namespace are not limited.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	MaxAddressesPerNamespace int64 `json:"maxAddressesPerNamespace,omitempty"`
}

// FromNamespaces says which namespaces are allowed.
//
// +kubebuilder:validation:Enum=Same;Selector;All
type FromNamespaces string

const (
	// FromSame allows the namespace of the pool.
	FromSame FromNamespaces = "Same"
	// FromSelector allows the namespaces whose labels match, too.
	FromSelector FromNamespaces = "Selector"
	// FromAll allows all namespaces.
	FromAll FromNamespaces = "All"
)

// AllowedNamespaces is a choice of namespaces.
//
// +kubebuilder:validation:XValidation:rule="(has(self.from) && self.from == 'Selector') == has(self.selector)",message="selector goes with from: Selector, and from: Selector needs a selector",fieldPath=".selector"
type AllowedNamespaces struct {
	// from is Same (that of the pool), Selector (those that selector matches, too) or All.
	// +optional
	// +kubebuilder:default=Same
	From FromNamespaces `json:"from,omitempty"`
	// selector matches labels of namespaces, with from Selector. The label kubernetes.io/metadata.name is the name of a namespace.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// AddressSpan is an address, a network in CIDR notation or a range "first-last".
//
// +kubebuilder:validation:MinLength=2
// +kubebuilder:validation:MaxLength=91
// +kubebuilder:validation:Pattern=`^[0-9a-fA-F.:]+(/[0-9]{1,3}|-[0-9a-fA-F.:]+)?$`
// +kubebuilder:validation:XValidation:rule="self.contains('/') ? isCIDR(self) : self.contains('-') ? isIP(self.substring(0, self.indexOf('-'))) && isIP(self.substring(self.indexOf('-') + 1)) : isIP(self)",message="write an address, a network such as 192.168.0.0/28, or a range such as 192.168.0.10-192.168.0.20"
type AddressSpan string

// Pool is one range of addresses: from start to end, inside of subnet. Without start, the range begins behind the
// address that subnet states; without end, it goes to the end of subnet.
//
// +kubebuilder:validation:XValidation:rule="has(self.start) || has(self.end) || has(self.subnet)",message="pool entry must specify at least one of start, end, or subnet"
// +kubebuilder:validation:XValidation:rule="!has(self.start) || !has(self.end) || ip(self.start).family() == ip(self.end).family()",message="start and end must be of the same family, IPv4 or IPv6"
// +kubebuilder:validation:XValidation:rule="!has(self.start) || !has(self.subnet) || cidr(self.subnet).containsIP(self.start)",message="start must lie inside of subnet",fieldPath=".start"
// +kubebuilder:validation:XValidation:rule="!has(self.end) || !has(self.subnet) || cidr(self.subnet).containsIP(self.end)",message="end must lie inside of subnet",fieldPath=".end"
// +kubebuilder:validation:XValidation:rule="!has(self.prefix) || self.prefix <= 32 || (has(self.start) ? self.start.contains(':') : has(self.subnet) ? self.subnet.contains(':') : true)",message="the prefix of an IPv4 range is at most 32",fieldPath=".prefix"
// +kubebuilder:validation:XValidation:rule="!has(self.gateway) || !has(self.start) || ip(self.gateway).family() == ip(self.start).family()",message="gateway must be of the family of the range, IPv4 or IPv6",fieldPath=".gateway"
// +kubebuilder:validation:XValidation:rule="!has(self.gateway) || has(self.start) || !has(self.subnet) || ip(self.gateway).family() == cidr(self.subnet).ip().family()",message="gateway must be of the family of subnet, IPv4 or IPv6",fieldPath=".gateway"
// +kubebuilder:validation:XValidation:rule="!has(self.start) || !has(self.end) || self.start.contains(':') || self.end.contains(':') || [self.start, self.end].map(a, a.split('.', 4)).map(o, int(o[0]) * 16777216 + int(o[1]) * 65536 + int(o[2]) * 256 + int(o[3])).isSorted()",message="start must not be greater than end",fieldPath=".end"
// +kubebuilder:validation:XValidation:rule="!has(self.allocationPrefixLength) || has(self.subnet) && self.allocationPrefixLength >= cidr(self.subnet).prefixLength() && self.allocationPrefixLength <= (self.subnet.contains(':') ? 128 : 32)",message="an entry with allocationPrefixLength needs a subnet of at most that prefix length: whole prefixes are cut out of it",fieldPath=".allocationPrefixLength"
type Pool struct {
	// start is the first address of the range.
	// +optional
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="start must be an address such as 192.168.0.10 or fd00::10"
	Start *IPAddressStr `json:"start,omitempty"`
	// end is the last address of the range.
	// +optional
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="end must be an address such as 192.168.0.10 or fd00::10"
	End *IPAddressStr `json:"end,omitempty"`
	// subnet bounds the range. Where start is not given, the range begins at the address before the slash plus one:
	// 192.168.0.0/24 begins at 192.168.0.1.
	// +optional
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="subnet must be a network such as 192.168.0.0/24 or fd00::/64"
	Subnet *IPSubnetStr `json:"subnet,omitempty"`
	// prefix is the length of the network prefix in bits. It overrides that of the pool.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	Prefix int `json:"prefix,omitempty"`
	// allocationPrefixLength makes the entry hand out whole prefixes of this length in bits, to claims that ask for one with prefixLength, and no single addresses.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	AllocationPrefixLength int `json:"allocationPrefixLength,omitempty"`
	// gateway is the default gateway. It overrides that of the pool.
	// +optional
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="gateway must be an address such as 192.168.0.1 or fd00::1"
	Gateway *IPAddressStr `json:"gateway,omitempty"`
	// dnsServers are addresses of name servers. They override those of the pool.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	DNSServers []IPAddressStr `json:"dnsServers,omitempty"`
}

// IPPoolStatus is what is taken of a pool, at most a second or so behind the IPAddress objects that it is made from.
type IPPoolStatus struct {
	// lastUpdated is when indexes changed.
	// +optional
	LastUpdated *metav1.Time `json:"lastUpdated,omitempty"`
	// indexes maps the name of a claim, or "namespace/name" for one of another namespace, to its address. A pool with more than 4096 addresses in use shows the first 4096
	// claims by name, and indexesTruncated is true.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=4096
	Allocations map[string]IPAddressStr `json:"indexes,omitempty"`
	// indexesTruncated says that indexes is cut; the counts are not.
	// +optional
	IndexesTruncated bool `json:"indexesTruncated,omitempty"`
	// total is the number of addresses that the pool can hand out; 9223372036854775807 stands for any greater number.
	// +optional
	Total *int64 `json:"total,omitempty"`
	// used is the number of addresses in use.
	// +optional
	Used *int64 `json:"used,omitempty"`
	// free is the number of addresses that any claim can get; 9223372036854775807 stands for any greater number.
	// +optional
	Free *int64 `json:"free,omitempty"`
	// outOfRange is the number of addresses in use that the pool would not hand out any more.
	// +optional
	OutOfRange *int64 `json:"outOfRange,omitempty"`
	// external is the number of addresses that any claim could get if an inventory outside of the cluster did not say that others have them.
	// +optional
	External *int64 `json:"external,omitempty"`
	// observedGeneration is the generation of the spec that conditions speak of. -1 while no controller has looked at the object.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions are Ready (the spec is used as written) and Exhausted (no address is free).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// IPPool is a set of addresses that claims are served from.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.spec) || !has(oldSelf.spec.clusterName) || size(oldSelf.spec.clusterName) == 0 || has(self.spec) && has(self.spec.clusterName) && self.spec.clusterName == oldSelf.spec.clusterName || !has(oldSelf.status) || !has(oldSelf.status.used) || oldSelf.status.used == 0",message="clusterName cannot be modified while addresses of the pool are in use; delete their claims first",fieldPath=".spec.clusterName"
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="muster.io/crds=ipam-operator"
// +kubebuilder:resource:path=ippools,scope=Namespaced,categories=cluster-api;muster,shortName=ipp;ippool;m3ipp;m3ippool;m3ippools;metal3ipp;metal3ippool;metal3ippools
// +kubebuilder:metadata:labels="cluster.x-k8s.io/provider=ipam-metal3"
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta1=v1beta1"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=`.metadata.labels.cluster\.x-k8s\.io/cluster-name`,description="Cluster that the pool belongs to"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the spec is used as written"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why, or why not"
// +kubebuilder:printcolumn:name="Total",type="integer",JSONPath=`.status.total`,description="Addresses that the pool can hand out"
// +kubebuilder:printcolumn:name="Used",type="integer",JSONPath=`.status.used`,description="Addresses in use"
// +kubebuilder:printcolumn:name="Free",type="integer",JSONPath=`.status.free`,description="Addresses that any claim can get"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
type IPPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec describes the addresses.
	// +optional
	Spec IPPoolSpec `json:"spec,omitempty"`
	// status is what is taken of them.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status IPPoolStatus `json:"status,omitempty"`
}

// IPPoolList is a list of pools.
//
// +kubebuilder:object:root=true
type IPPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the pools.
	Items []IPPool `json:"items"`
}
