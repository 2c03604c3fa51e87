// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

// NetworkData is what the network of a machine looks like.
type NetworkData struct {
	// links are the interfaces.
	// +optional
	Links NetworkLinks `json:"links,omitempty"`
	// networks are the addresses on them.
	// +optional
	Networks Networks `json:"networks,omitempty"`
	// services are those of all networks.
	// +optional
	Services NetworkServices `json:"services,omitempty"`
}

// NetworkLinks are interfaces.
type NetworkLinks struct {
	// ethernets are interfaces of the hardware.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	Ethernets []Ethernet `json:"ethernets,omitempty"`
	// bonds are interfaces made of several.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	Bonds []Bond `json:"bonds,omitempty"`
	// vlans are interfaces with a tag.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	VLANs []VLAN `json:"vlans,omitempty"`
}

// LinkName is the name that the machine's kernel is to give to an interface.
//
// +kubebuilder:validation:MaxLength=15
// +kubebuilder:validation:Pattern=`^[a-zA-Z][a-zA-Z0-9._-]*$`
type LinkName string

// MTU is the size of the largest packet, in bytes.
//
// +kubebuilder:validation:Minimum=1280
// +kubebuilder:validation:Maximum=9000
type MTU int

// LinkMAC says where the MAC address of a link comes from. None: the link has none, and is found by its name.
//
// +kubebuilder:validation:XValidation:rule="!has(self.string) || self.string.matches('^([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}$')",message="string must be a MAC address such as 52:54:00:12:34:56",fieldPath=".string"
// +kubebuilder:validation:XValidation:rule="!has(self.fromAnnotation) || self.fromAnnotation.annotation.matches('^([A-Za-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="fromAnnotation.annotation must be the key of an annotation, such as example.com/mac",fieldPath=".fromAnnotation"
type LinkMAC struct {
	// string is the address as written.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	String *string `json:"string,omitempty"`
	// fromHostInterface is the name of an interface in what inspection found.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	FromHostInterface *string `json:"fromHostInterface,omitempty"`
	// fromAnnotation is an annotation that holds the address.
	// +optional
	FromAnnotation *AnnotationReference `json:"fromAnnotation,omitempty"`
}

// Ethernet is an interface of the hardware.
type Ethernet struct {
	// type of the interface.
	// +required
	// +kubebuilder:validation:Enum=bridge;dvs;hw_veb;hyperv;ovs;tap;vhostuser;vif;phy
	Type string `json:"type"`
	// id that networks and other links name it by.
	// +required
	// +kubebuilder:validation:MaxLength=512
	ID string `json:"id"`
	// name in the machine.
	// +optional
	Name LinkName `json:"name,omitempty"`
	// mtu of the interface.
	// +optional
	// +kubebuilder:default=1500
	MTU MTU `json:"mtu,omitempty"`
	// macAddress of the interface.
	// +optional
	MACAddress *LinkMAC `json:"macAddress,omitempty"`
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
	Name LinkName `json:"name,omitempty"`
	// mtu of the interface.
	// +optional
	// +kubebuilder:default=1500
	MTU MTU `json:"mtu,omitempty"`
	// macAddress of the interface.
	// +optional
	MACAddress *LinkMAC `json:"macAddress,omitempty"`
	// parameters are further settings: each is rendered with the prefix bond_.
	// +optional
	// +kubebuilder:validation:MaxProperties=512
	Parameters map[string]apiextensionsv1.JSON `json:"parameters,omitempty"`
	// bondLinks are the ids of the interfaces.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	// +kubebuilder:validation:items:MaxLength=512
	BondLinks []string `json:"bondLinks,omitempty"`
}

// VLAN is an interface with a tag.
type VLAN struct {
	// vlanID is the tag.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4096
	VLANID int `json:"vlanID"`
	// vlanLink is the id of the link that it runs on.
	// +required
	// +kubebuilder:validation:MaxLength=512
	VLANLink string `json:"vlanLink"`
	// id that networks and other links name it by.
	// +required
	// +kubebuilder:validation:MaxLength=512
	ID string `json:"id"`
	// name in the machine.
	// +optional
	Name LinkName `json:"name,omitempty"`
	// mtu of the interface.
	// +optional
	// +kubebuilder:default=1500
	MTU MTU `json:"mtu,omitempty"`
	// macAddress of the interface.
	// +optional
	MACAddress *LinkMAC `json:"macAddress,omitempty"`
}

// Networks are addresses on links.
type Networks struct {
	// ipv4 are addresses of pools.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	IPv4 []NetworkIPv4 `json:"ipv4,omitempty"`
	// ipv6 are addresses of pools.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	IPv6 []NetworkIPv6 `json:"ipv6,omitempty"`
	// ipv4DHCP are addresses that a DHCP server gives.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	IPv4DHCP []DynamicIPv4 `json:"ipv4DHCP,omitempty"`
	// ipv6DHCP are addresses that a DHCP server gives.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	IPv6DHCP []DynamicIPv6 `json:"ipv6DHCP,omitempty"`
	// ipv6SLAAC are addresses that the machine makes from what routers announce.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	IPv6SLAAC []DynamicIPv6 `json:"ipv6SLAAC,omitempty"`
}

// NetworkSource says which pool an address comes from. fromPoolAnnotation counts before fromPoolRef, and that before
// ipAddressFromIPPool.
type NetworkSource struct {
	// ipAddressFromIPPool is the name of an IPPool.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	IPAddressFromIPPool string `json:"ipAddressFromIPPool,omitempty"`
	// ipAddressfromIPPool is another spelling of ipAddressFromIPPool.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	IPAddressfromIPPool string `json:"ipAddressfromIPPool,omitempty"`
	// fromPoolRef names a pool of any kind.
	// +optional
	FromPoolRef *PoolReference `json:"fromPoolRef,omitempty"`
	// fromPoolAnnotation is an annotation that holds the name of an IPPool.
	// +optional
	FromPoolAnnotation *AnnotationReference `json:"fromPoolAnnotation,omitempty"`
}

// NetworkIPv4 is an address of a pool on a link.
//
// +kubebuilder:validation:XValidation:rule="has(self.ipAddressFromIPPool) || has(self.ipAddressfromIPPool) || has(self.fromPoolRef) || has(self.fromPoolAnnotation)",message="write ipAddressFromIPPool, fromPoolRef or fromPoolAnnotation: the address comes from a pool"
// +kubebuilder:validation:XValidation:rule="!has(self.fromPoolAnnotation) || self.fromPoolAnnotation.annotation.matches('^([A-Za-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="fromPoolAnnotation.annotation must be the key of an annotation, such as example.com/pool",fieldPath=".fromPoolAnnotation"
type NetworkIPv4 struct {
	NetworkSource `json:",inline"`
	// id of the network.
	// +required
	// +kubebuilder:validation:MaxLength=512
	ID string `json:"id"`
	// link is the id of the link.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Link string `json:"link"`
	// routes over the network.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	Routes []RouteIPv4 `json:"routes,omitempty"`
}

// NetworkIPv6 is an address of a pool on a link.
//
// +kubebuilder:validation:XValidation:rule="has(self.ipAddressFromIPPool) || has(self.ipAddressfromIPPool) || has(self.fromPoolRef) || has(self.fromPoolAnnotation)",message="write ipAddressFromIPPool, fromPoolRef or fromPoolAnnotation: the address comes from a pool"
// +kubebuilder:validation:XValidation:rule="!has(self.fromPoolAnnotation) || self.fromPoolAnnotation.annotation.matches('^([A-Za-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="fromPoolAnnotation.annotation must be the key of an annotation, such as example.com/pool",fieldPath=".fromPoolAnnotation"
type NetworkIPv6 struct {
	NetworkSource `json:",inline"`
	// id of the network.
	// +required
	// +kubebuilder:validation:MaxLength=512
	ID string `json:"id"`
	// link is the id of the link.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Link string `json:"link"`
	// routes over the network.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	Routes []RouteIPv6 `json:"routes,omitempty"`
}

// DynamicIPv4 is an address that the network gives.
type DynamicIPv4 struct {
	// id of the network.
	// +required
	// +kubebuilder:validation:MaxLength=512
	ID string `json:"id"`
	// link is the id of the link.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Link string `json:"link"`
	// routes over the network.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	Routes []RouteIPv4 `json:"routes,omitempty"`
}

// DynamicIPv6 is an address that the network gives.
type DynamicIPv6 struct {
	// id of the network.
	// +required
	// +kubebuilder:validation:MaxLength=512
	ID string `json:"id"`
	// link is the id of the link.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Link string `json:"link"`
	// routes over the network.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	Routes []RouteIPv6 `json:"routes,omitempty"`
}

// RouteIPv4 is a route.
type RouteIPv4 struct {
	// network that it leads to; 0.0.0.0 with the prefix 0 is the default route.
	// +required
	Network IPv4Str `json:"network"`
	// prefix is the length of the network's prefix.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=32
	Prefix int `json:"prefix,omitempty"`
	// gateway of the route.
	// +required
	Gateway GatewayIPv4 `json:"gateway"`
	// services that are reached over it.
	// +optional
	Services ServicesIPv4 `json:"services,omitempty"`
}

// RouteIPv6 is a route.
type RouteIPv6 struct {
	// network that it leads to; :: with the prefix 0 is the default route.
	// +required
	Network IPv6Str `json:"network"`
	// prefix is the length of the network's prefix.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	Prefix int `json:"prefix,omitempty"`
	// gateway of the route.
	// +required
	Gateway GatewayIPv6 `json:"gateway"`
	// services that are reached over it.
	// +optional
	Services ServicesIPv6 `json:"services,omitempty"`
}

// GatewaySource says which pool a gateway comes from. fromPoolAnnotation counts before fromPoolRef, and that before fromIPPool.
type GatewaySource struct {
	// fromIPPool is the name of an IPPool.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	FromIPPool *string `json:"fromIPPool,omitempty"`
	// fromPoolRef names a pool of any kind.
	// +optional
	FromPoolRef *PoolReference `json:"fromPoolRef,omitempty"`
	// fromPoolAnnotation is an annotation that holds the name of an IPPool.
	// +optional
	FromPoolAnnotation *AnnotationReference `json:"fromPoolAnnotation,omitempty"`
}

// GatewayIPv4 says where a gateway comes from. None: the route has an empty one.
//
// +kubebuilder:validation:XValidation:rule="!has(self.string) || isIP(self.string)",message="string must be an address such as 192.168.0.1",fieldPath=".string"
type GatewayIPv4 struct {
	GatewaySource `json:",inline"`
	// string is the gateway as written; it counts before the others.
	// +optional
	String *IPv4Str `json:"string,omitempty"`
}

// GatewayIPv6 says where a gateway comes from. None: the route has an empty one.
//
// +kubebuilder:validation:XValidation:rule="!has(self.string) || isIP(self.string)",message="string must be an address such as fd00::1",fieldPath=".string"
type GatewayIPv6 struct {
	GatewaySource `json:",inline"`
	// string is the gateway as written; it counts before the others.
	// +optional
	String *IPv6Str `json:"string,omitempty"`
}

// ServicesIPv4 are services that are reached over a route.
type ServicesIPv4 struct {
	// dns are name servers.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	DNS []IPv4Str `json:"dns,omitempty"`
	// dnsFromIPPool is the name of a pool whose name servers follow those of dns.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	DNSFromIPPool *string `json:"dnsFromIPPool,omitempty"`
}

// ServicesIPv6 are services that are reached over a route.
type ServicesIPv6 struct {
	// dns are name servers.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	DNS []IPv6Str `json:"dns,omitempty"`
	// dnsFromIPPool is the name of a pool whose name servers follow those of dns.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	DNSFromIPPool *string `json:"dnsFromIPPool,omitempty"`
}

// NetworkServices are services of all networks.
type NetworkServices struct {
	// dns are name servers.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	DNS []IPStr `json:"dns,omitempty"`
	// dnsFromIPPool is the name of a pool whose name servers follow those of dns.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	DNSFromIPPool *string `json:"dnsFromIPPool,omitempty"`
}
