// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
)

// defaultMTU is that of a link that states none, in bytes.
const defaultMTU infrav1.MTU = 1500

// NetworkData renders the network data of a template: YAML with the lists links, networks and services.
func NetworkData(template *infrav1.NetworkData, subject *Subject, addresses Addresses) ([]byte, error) {
	links, err := links(&template.Links, subject)
	if err != nil {
		return nil, err
	}
	networks := []any{}
	for _, network := range networksOf(&template.Networks) {
		entry, err := network.render(subject, addresses)
		if err != nil {
			return nil, fmt.Errorf("network %s: %w", network.id, err)
		}
		networks = append(networks, entry)
	}
	services, err := services(texts(template.Services.DNS), template.Services.DNSFromIPPool, addresses)
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(map[string]any{"links": links, "networks": networks, "services": services})
}

// links are bonds, then ethernets, then VLANs.
func links(template *infrav1.NetworkLinks, subject *Subject) ([]any, error) {
	out := []any{}
	for i := range template.Bonds {
		entry, err := bond(&template.Bonds[i], subject)
		if err != nil {
			return nil, err
		}
		out = append(out, entry)
	}
	for _, link := range template.Ethernets {
		mac, err := subject.mac(link.MACAddress)
		if err != nil {
			return nil, fmt.Errorf("link %s: %w", link.ID, err)
		}
		entry := linkEntry(link.Type, link.ID, link.Name, link.MTU)
		setUnlessEmpty(entry, "ethernet_mac_address", mac)
		out = append(out, entry)
	}
	for _, link := range template.VLANs {
		mac, err := subject.mac(link.MACAddress)
		if err != nil {
			return nil, fmt.Errorf("link %s: %w", link.ID, err)
		}
		entry := linkEntry("vlan", link.ID, link.Name, link.MTU)
		setUnlessEmpty(entry, "vlan_mac_address", mac)
		entry["vlan_id"], entry["vlan_link"] = link.VLANID, link.VLANLink
		out = append(out, entry)
	}
	return out, nil
}

func bond(link *infrav1.Bond, subject *Subject) (map[string]any, error) {
	mac, err := subject.mac(link.MACAddress)
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", link.ID, err)
	}
	entry := linkEntry("bond", link.ID, link.Name, link.MTU)
	setUnlessEmpty(entry, "ethernet_mac_address", mac)
	setUnlessEmpty(entry, "bond_xmit_hash_policy", link.BondXmitHashPolicy)
	entry["bond_mode"], entry["bond_links"] = link.BondMode, append([]string{}, link.BondLinks...)
	var refused []string
	for _, name := range slices.Sorted(maps.Keys(link.Parameters)) {
		key := "bond_" + name
		if _, stated := entry[key]; stated {
			refused = append(refused, name)
			continue
		}
		entry[key] = link.Parameters[name]
	}
	if len(refused) > 0 {
		return nil, fmt.Errorf(`illegal params "%s" into bond params blob into link id=%s`, strings.Join(refused, `", "`), link.ID)
	}
	return entry, nil
}

func linkEntry(kind, id string, name infrav1.LinkName, mtu infrav1.MTU) map[string]any {
	entry := map[string]any{"type": kind, "id": id, "mtu": cmp.Or(mtu, defaultMTU)}
	setUnlessEmpty(entry, "name", string(name))
	return entry
}

func setUnlessEmpty(entry map[string]any, key, value string) {
	if value != "" {
		entry[key] = value
	}
}

// network is a network of any kind. A source is where a static address comes from.
type network struct {
	kind, id, link string
	source         *source
	ipv4           bool
	routes         []route
}

// route is a route of either family.
type route struct {
	network  string
	prefix   int
	ipv4     bool
	gateway  string
	from     source
	services []string
	dnsFrom  *string
}

// networksOf are all networks, static ones first.
func networksOf(n *infrav1.Networks) []network {
	var out []network
	for _, v := range n.IPv4 {
		out = append(out, network{"ipv4", v.ID, v.Link, sourceOf(&v.NetworkSource), true, routes4(v.Routes)})
	}
	for _, v := range n.IPv6 {
		out = append(out, network{"ipv6", v.ID, v.Link, sourceOf(&v.NetworkSource), false, routes6(v.Routes)})
	}
	for _, v := range n.IPv4DHCP {
		out = append(out, network{"ipv4_dhcp", v.ID, v.Link, nil, true, routes4(v.Routes)})
	}
	for _, v := range n.IPv6DHCP {
		out = append(out, network{"ipv6_dhcp", v.ID, v.Link, nil, false, routes6(v.Routes)})
	}
	for _, v := range n.IPv6SLAAC {
		out = append(out, network{"ipv6_slaac", v.ID, v.Link, nil, false, routes6(v.Routes)})
	}
	return out
}

func sourceOf(s *infrav1.NetworkSource) *source {
	return &source{s.FromPoolAnnotation, s.FromPoolRef, cmp.Or(s.IPAddressFromIPPool, s.IPAddressfromIPPool)}
}

func gatewaySource(s *infrav1.GatewaySource) source {
	out := source{annotation: s.FromPoolAnnotation, ref: s.FromPoolRef}
	if s.FromIPPool != nil {
		out.name = *s.FromIPPool
	}
	return out
}

func routes4(routes []infrav1.RouteIPv4) []route {
	out := make([]route, 0, len(routes))
	for _, r := range routes {
		converted := route{string(r.Network), r.Prefix, true, "", gatewaySource(&r.Gateway.GatewaySource), texts(r.Services.DNS), r.Services.DNSFromIPPool}
		if r.Gateway.String != nil {
			converted.gateway = string(*r.Gateway.String)
		}
		out = append(out, converted)
	}
	return out
}

func routes6(routes []infrav1.RouteIPv6) []route {
	out := make([]route, 0, len(routes))
	for _, r := range routes {
		converted := route{string(r.Network), r.Prefix, false, "", gatewaySource(&r.Gateway.GatewaySource), texts(r.Services.DNS), r.Services.DNSFromIPPool}
		if r.Gateway.String != nil {
			converted.gateway = string(*r.Gateway.String)
		}
		out = append(out, converted)
	}
	return out
}

func (n *network) render(subject *Subject, addresses Addresses) (map[string]any, error) {
	entry := map[string]any{"type": n.kind, "id": n.id, "link": n.link}
	if n.source != nil {
		pool, err := n.source.pool(subject)
		if err != nil {
			return nil, err
		}
		address, err := addresses.of(pool.Name)
		if err != nil {
			return nil, err
		}
		if ip, err := netip.ParseAddr(address.IP); err != nil || ip.Unmap().Is4() != n.ipv4 {
			return nil, fmt.Errorf("pool %s gave %s, which is no address of an %s network", pool.Name, address.IP, n.kind)
		}
		entry["ip_address"] = address.IP
		prefix, err := address.prefix(pool.Name)
		if err != nil {
			return nil, err
		}
		if entry["netmask"], err = netmask(prefix, n.ipv4); err != nil {
			return nil, fmt.Errorf("pool %s: %w", pool.Name, err)
		}
	}
	routes := []any{}
	for i := range n.routes {
		route, err := n.routes[i].render(subject, addresses)
		if err != nil {
			return nil, fmt.Errorf("route to %s: %w", n.routes[i].network, err)
		}
		routes = append(routes, route)
	}
	entry["routes"] = routes
	return entry, nil
}

func (r *route) render(subject *Subject, addresses Addresses) (map[string]any, error) {
	gateway := r.gateway
	if gateway == "" {
		pool, err := r.from.pool(subject)
		if err != nil {
			return nil, err
		}
		if pool.Name != "" {
			address, err := addresses.of(pool.Name)
			if err != nil {
				return nil, err
			}
			gateway = address.Gateway
		}
	}
	mask, err := netmask(r.prefix, r.ipv4)
	if err != nil {
		return nil, err
	}
	services, err := services(r.services, r.dnsFrom, addresses)
	if err != nil {
		return nil, err
	}
	return map[string]any{"network": r.network, "netmask": mask, "gateway": gateway, "services": services}, nil
}

// services are name servers: those that are stated, then those of a pool.
func services(stated []string, from *string, addresses Addresses) ([]any, error) {
	servers := slices.Clone(stated)
	if from != nil && *from != "" {
		address, err := addresses.of(*from)
		if err != nil {
			return nil, err
		}
		servers = append(servers, address.DNSServers...)
	}
	out := []any{}
	for _, server := range servers {
		out = append(out, map[string]any{"type": "dns", "address": server})
	}
	return out, nil
}

// netmask writes the length of a prefix as an address: dotted, or with colons.
func netmask(prefix int, ipv4 bool) (string, error) {
	ones := netip.AddrFrom4([4]byte{255, 255, 255, 255})
	if !ipv4 {
		ones = netip.AddrFrom16([16]byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255})
	}
	network, err := ones.Prefix(prefix)
	if err != nil {
		return "", fmt.Errorf("prefix %d is not between 0 and %d", prefix, ones.BitLen())
	}
	return network.Addr().String(), nil
}

func texts[S ~string](in []S) []string {
	out := make([]string, 0, len(in))
	for _, s := range in {
		out = append(out, string(s))
	}
	return out
}
