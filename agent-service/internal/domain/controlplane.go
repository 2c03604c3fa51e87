// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"net/netip"
	"slices"
	"strings"
)

// APIPort is the port of API servers that hosts run.
const APIPort = 6443

// Networks of clusters that state none.
var (
	defaultPodNetwork     = netip.MustParsePrefix("10.244.0.0/16")
	defaultServiceNetwork = netip.MustParsePrefix("10.96.0.0/16")
)

// controlPlanesTogether is how many hosts run the control plane of a cluster, where it is not one: etcd goes on without one of them.
const controlPlanesTogether = 3

// ControlPlane is what is public of a control plane that hosts of the cluster run. It is replaced, never changed in place.
type ControlPlane struct {
	// Host runs it, alone or as the first of Members.
	Host HostKey
	// Members run it together; empty where Host runs it alone.
	Members []ControlPlaneMember `json:",omitempty"`
	// Server is the URL of the API server, and CA the PEM certificate of the cluster's authority. The address in it is one of Host, or belongs to no host where there are Members.
	Server string
	CA     string
	// PodCIDRs and ServiceCIDRs are the networks of the cluster, and Version that of Kubernetes, v1.2.3.
	PodCIDRs     []netip.Prefix
	ServiceCIDRs []netip.Prefix
	Version      string
	// Shared is true where the cluster has workers: pods that tolerate nothing are not for the host.
	Shared bool `json:",omitempty"`
	// Sealed is true when the cluster is installed: its authority's key is on its hosts alone.
	Sealed bool `json:",omitempty"`
}

// ControlPlaneMember is a host that runs a control plane with others. Name and address are those of its member of etcd, and stay.
type ControlPlaneMember struct {
	Host    HostKey
	Name    string
	Address netip.Addr
}

// ClusterDNS is the address of the resolver: the tenth of the network of Services.
func (p *ControlPlane) ClusterDNS() netip.Addr {
	address := p.ServiceCIDRs[0].Masked().Addr()
	for range 10 {
		address = address.Next()
	}
	return address
}

// RunsOn says whether the host runs it. It may be asked of none.
func (p *ControlPlane) RunsOn(h *Host) bool {
	return p != nil && !h.DayTwo && (p.Host == h.HostKey || p.Member(h) != nil)
}

// Member is what the host is of a control plane that several run together, nil for others. The control plane may be nil.
func (p *ControlPlane) Member(h *Host) *ControlPlaneMember {
	if p == nil || h.DayTwo {
		return nil
	}
	if i := slices.IndexFunc(p.Members, func(m ControlPlaneMember) bool { return m.Host == h.HostKey }); i >= 0 {
		return &p.Members[i]
	}
	return nil
}

// Awaits says whether the host joins it before it answers. It may be asked of none.
func (p *ControlPlane) Awaits(h *Host) bool { return p != nil && !p.Sealed && !h.DayTwo }

// ControlPlaneOn is the control plane of a cluster, without its authority, on hosts that are known: one, or as many as run it together. Members are all hosts of the cluster. A refusal
// says why these hosts cannot run it.
func (c *Cluster) ControlPlaneOn(hosts, members []*Host) (*ControlPlane, error) {
	plane := &ControlPlane{
		Host: hosts[0].HostKey, Version: "v" + strings.TrimPrefix(c.OpenshiftVersion, "v"), Shared: c.WorkerCount > 0,
		PodCIDRs: networksOf(c.ClusterNetworks, defaultPodNetwork), ServiceCIDRs: networksOf(c.ServiceNetworks, defaultServiceNetwork),
	}
	var address netip.Addr
	var err error
	if len(hosts) == 1 {
		address, err = c.apiAddress(hosts[0])
	} else if address, err = c.virtualAddress(members); err == nil {
		plane.Members, err = c.planeMembers(hosts, address)
	}
	if err != nil {
		return nil, err
	}
	plane.Server = "https://" + netip.AddrPortFrom(address, APIPort).String()
	for _, network := range slices.Concat(plane.PodCIDRs, plane.ServiceCIDRs) {
		if network.Contains(address) {
			return nil, Refuse(Conflict, "NetworksOverlap", "the address %s of the API of cluster %s is in the network %s of pods or Services: state others (clusterNetwork, serviceNetwork)", address, c.Name, network)
		}
		if i := slices.IndexFunc(plane.Members, func(m ControlPlaneMember) bool { return network.Contains(m.Address) }); i >= 0 {
			return nil, Refuse(Conflict, "NetworksOverlap", "the address %s of host %s is in the network %s of pods or Services of cluster %s: state others (clusterNetwork, serviceNetwork)",
				plane.Members[i].Address, plane.Members[i].Name, network, c.Name)
		}
	}
	if network := plane.ServiceCIDRs[0]; !network.Contains(plane.ClusterDNS()) {
		return nil, Refuse(Conflict, "NetworkTooSmall", "the network %s of Services of cluster %s is too small: state one of at least 16 addresses (serviceNetwork)", network, c.Name)
	}
	return plane, nil
}

// virtualAddress is the address of an API that several hosts serve. It belongs to no host.
func (c *Cluster) virtualAddress(members []*Host) (netip.Addr, error) {
	if err := c.CheckControlPlanes(); err != nil {
		return netip.Addr{}, err
	}
	address := netip.MustParseAddr(c.APIVIPs[0]).Unmap()
	for _, h := range members {
		if h.Discovered(address) || slices.Contains(h.Addressing.IPs(), address) {
			return netip.Addr{}, Refuse(Conflict, "APIAddressTaken", "the address %s of the API of cluster %s is that of host %s, and would be lost with it: state one that belongs to no machine (apiVIPs)", address, c.Name, h.Label())
		}
	}
	return address, nil
}

// planeMembers are the hosts with the addresses by which they reach each other: those in the network of the API's address, which each of them can take over.
func (c *Cluster) planeMembers(hosts []*Host, api netip.Addr) ([]ControlPlaneMember, error) {
	var members []ControlPlaneMember
	for _, h := range hosts {
		own := h.networks()
		i := slices.IndexFunc(own, func(p netip.Prefix) bool { return p.Contains(api) })
		if i < 0 {
			return nil, Refuse(Conflict, "APIAddressElsewhere", "host %s cannot take over the address %s of the API of cluster %s: it is in none of the host's networks, which are %v: state an address of a network that all hosts of the control plane have (apiVIPs)",
				h.Label(), api, c.Name, own)
		}
		member := ControlPlaneMember{Host: h.HostKey, Name: strings.ToLower(h.Hostname()), Address: own[i].Addr()}
		for _, other := range members {
			if other.Address == member.Address || other.Name == member.Name {
				return nil, Refuse(Conflict, "AddressShared", "the hosts %s and %s of the control plane of cluster %s have the same name or the same address %s: each needs its own", other.Name, member.Name, c.Name, member.Address)
			}
		}
		members = append(members, member)
	}
	return members, nil
}

// networks are the addresses, with the length of their prefixes, of the system that is to be installed: those that pools give, else those that the discovery image reported.
func (h *Host) networks() []netip.Prefix {
	var own []netip.Prefix
	for _, given := range h.Addressing.Given {
		own = append(own, given.Address)
	}
	if len(own) > 0 {
		return own
	}
	for _, text := range h.Summary.Addresses {
		if prefix, err := netip.ParsePrefix(text); err == nil && prefix.Addr().IsGlobalUnicast() {
			own = append(own, netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()))
		}
	}
	return own
}

func networksOf(stated []string, otherwise netip.Prefix) []netip.Prefix {
	var networks []netip.Prefix
	for _, text := range stated {
		if network, err := netip.ParsePrefix(text); err == nil { // they were checked
			networks = append(networks, network.Masked())
		}
	}
	if len(networks) == 0 {
		return []netip.Prefix{otherwise}
	}
	return networks
}

// apiAddress is the address at which the host serves the API: the stated one, else one in the machine network, else its first of IPv4, else its first.
func (c *Cluster) apiAddress(h *Host) (netip.Addr, error) {
	var own []netip.Addr
	for _, held := range h.HeldAddresses() {
		if held.Address.IsGlobalUnicast() {
			own = append(own, held.Address)
		}
	}
	if len(c.APIVIPs) > 0 {
		i := slices.IndexFunc(own, func(a netip.Addr) bool { return slices.Contains(c.APIVIPs, a.String()) })
		if i < 0 {
			return netip.Addr{}, Refuse(Conflict, "APIAddressElsewhere", "cluster %s has its API at an address of the host that runs the control plane, and %s is none of host %s, which has %v: state one of these, or none (apiVIPs)",
				c.Name, strings.Join(c.APIVIPs, ", "), h.Label(), own)
		}
		return own[i], nil
	}
	if len(own) == 0 {
		return netip.Addr{}, Refuse(Conflict, "NoAddress", "host %s has no address for the API of cluster %s", h.Label(), c.Name)
	}
	in := func(a netip.Addr) bool {
		return slices.ContainsFunc(c.MachineNetworks, func(text string) bool {
			network, err := netip.ParsePrefix(text)
			return err == nil && network.Contains(a)
		})
	}
	for _, fits := range []func(netip.Addr) bool{in, netip.Addr.Is4} {
		if i := slices.IndexFunc(own, fits); i >= 0 {
			return own[i], nil
		}
	}
	return own[0], nil
}

// CheckControlPlanes is what is wrong with settings of a cluster whose image runs control planes, nil for nothing.
func (c *ClusterSettings) CheckControlPlanes() error {
	switch {
	case c.ControlPlaneCount == 1:
		return nil
	case c.ControlPlaneCount != controlPlanesTogether:
		return Refuse(Invalid, "ControlPlaneCountUnsupported", "version %s runs the control plane of a cluster on one machine or on three, and %d are asked for: set the number of control plane machines to 1 or 3 (provisionRequirements.controlPlaneAgents, control_plane_count)",
			c.OpenshiftVersion, c.ControlPlaneCount)
	case c.UserManagedNetworking:
		return Refuse(Invalid, "UserManagedNetworkingUnsupported", "machines of version %s that run a control plane together announce the address of the API themselves: leave out userManagedNetworking (user_managed_networking)", c.OpenshiftVersion)
	case len(c.APIVIPs) != 1:
		return Refuse(Invalid, "APIAddressRequired", "a control plane on three machines has its API at an address that belongs to none of them, and moves between them: state one address in their network (apiVIPs, api_vips), not %d", len(c.APIVIPs))
	}
	address, err := netip.ParseAddr(c.APIVIPs[0])
	inside := func(text string) bool {
		network, err := netip.ParsePrefix(text)
		return err != nil || network.Contains(address.Unmap())
	}
	if err != nil || len(c.MachineNetworks) > 0 && !slices.ContainsFunc(c.MachineNetworks, inside) {
		return Refuse(Invalid, "APIAddressElsewhere", "the address %s of the API is in none of the networks of the machines, %s: state one in them (apiVIPs, api_vips)", Truncate(c.APIVIPs[0], 64), strings.Join(c.MachineNetworks, ", "))
	}
	return nil
}
