// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"fmt"
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

// ControlPlane is what is public of a control plane that a host of the cluster runs. It is replaced, never changed in place.
type ControlPlane struct {
	// Host runs it.
	Host HostKey
	// Server is the URL of the API server, which is an address of the host, and CA the PEM certificate of the cluster's authority.
	Server string
	CA     string
	// PodCIDRs and ServiceCIDRs are the networks of the cluster, and Version that of Kubernetes, v1.2.3.
	PodCIDRs     []netip.Prefix
	ServiceCIDRs []netip.Prefix
	Version      string
	// Shared is true where the cluster has workers: pods that tolerate nothing are not for the host.
	Shared bool `json:",omitempty"`
	// Sealed is true when the cluster is installed: its authority's key is on the host alone.
	Sealed bool `json:",omitempty"`
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
func (p *ControlPlane) RunsOn(h *Host) bool { return p != nil && p.Host == h.HostKey && !h.DayTwo }

// Awaits says whether the host joins it before it answers. It may be asked of none.
func (p *ControlPlane) Awaits(h *Host) bool { return p != nil && !p.Sealed && !h.DayTwo }

// ControlPlaneOn is the control plane of a cluster, without its authority, on a host that is known. A refusal says why the host cannot run it.
func (c *Cluster) ControlPlaneOn(h *Host) (*ControlPlane, error) {
	address, err := c.apiAddress(h)
	if err != nil {
		return nil, err
	}
	plane := &ControlPlane{
		Host: h.HostKey, Server: "https://" + netip.AddrPortFrom(address, APIPort).String(), Version: "v" + strings.TrimPrefix(c.OpenshiftVersion, "v"), Shared: c.WorkerCount > 0,
		PodCIDRs: networksOf(c.ClusterNetworks, defaultPodNetwork), ServiceCIDRs: networksOf(c.ServiceNetworks, defaultServiceNetwork),
	}
	for _, network := range slices.Concat(plane.PodCIDRs, plane.ServiceCIDRs) {
		if network.Contains(address) {
			return nil, Refuse(Conflict, "NetworksOverlap", "the address %s of host %s is in the network %s of pods or Services of cluster %s: state others (clusterNetwork, serviceNetwork)", address, h.Label(), network, c.Name)
		}
	}
	if network := plane.ServiceCIDRs[0]; !network.Contains(plane.ClusterDNS()) {
		return nil, Refuse(Conflict, "NetworkTooSmall", "the network %s of Services of cluster %s is too small: state one of at least 16 addresses (serviceNetwork)", network, c.Name)
	}
	return plane, nil
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

// RefuseControlPlanes says that an image runs another number of control planes than is asked for.
func RefuseControlPlanes(version string, count int) error {
	return Refuse(Invalid, "ControlPlaneCountUnsupported", "version %s runs the control plane of a cluster on one machine, and %s asked for: set the number of control plane machines to 1 (provisionRequirements.controlPlaneAgents, control_plane_count)",
		version, fmt.Sprintf("%d are", count))
}
