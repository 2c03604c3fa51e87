// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nmstate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// plan is a network in the language of netplan, as far as cloud-init takes it in all systems.
type plan struct {
	Version   int             `json:"version"`
	Ethernets map[string]link `json:"ethernets,omitempty"`
	Bonds     map[string]link `json:"bonds,omitempty"`
	VLANs     map[string]link `json:"vlans,omitempty"`
}

type link struct {
	Match       map[string]string          `json:"match,omitempty"`
	Interfaces  []string                   `json:"interfaces,omitempty"`
	Parameters  map[string]json.RawMessage `json:"parameters,omitempty"`
	ID          *uint16                    `json:"id,omitempty"`
	Link        string                     `json:"link,omitempty"`
	MTU         uint32                     `json:"mtu,omitempty"`
	DHCP4       bool                       `json:"dhcp4,omitempty"`
	DHCP4Less   map[string]bool            `json:"dhcp4-overrides,omitempty"`
	DHCP6       bool                       `json:"dhcp6,omitempty"`
	DHCP6Less   map[string]bool            `json:"dhcp6-overrides,omitempty"`
	AcceptRA    *bool                      `json:"accept-ra,omitempty"`
	LinkLocal   *[]string                  `json:"link-local,omitempty"`
	Addresses   []string                   `json:"addresses,omitempty"`
	Routes      []planRoute                `json:"routes,omitempty"`
	Nameservers *nameservers               `json:"nameservers,omitempty"`
}

type planRoute struct {
	To     string `json:"to"`
	Via    string `json:"via,omitempty"`
	Scope  string `json:"scope,omitempty"`
	Metric int64  `json:"metric,omitempty"`
	Table  uint32 `json:"table,omitempty"`
}

type nameservers struct {
	Addresses []string `json:"addresses,omitempty"`
	Search    []string `json:"search,omitempty"`
}

// parameters are what netplan, and cloud-init where there is no netplan, call options of bonds.
var parameters = map[string]string{
	"ad_select": "ad-select", "downdelay": "down-delay", "fail_over_mac": "fail-over-mac-policy", "lacp_rate": "lacp-rate", "miimon": "mii-monitor-interval", "min_links": "min-links",
	"num_grat_arp": "gratuitous-arp", "primary": "primary", "primary_reselect": "primary-reselect-policy", "updelay": "up-delay", "xmit_hash_policy": "transmit-hash-policy",
}

// Netplan renders the statement in the language of netplan, version 2, which systems with cloud-init read. ignored is what it leaves out.
func (s Statement) Netplan() (text string, ignored []string, err error) {
	// They check what is stated: nothing that NetworkManager cannot use gets further.
	profiles, err := s.Keyfiles()
	if err != nil {
		return "", nil, err
	}
	state, err := s.complete()
	if err != nil {
		return "", nil, err
	}
	p := plan{Version: 2, Ethernets: map[string]link{}, Bonds: map[string]link{}, VLANs: map[string]link{}}
	ports := map[string]bool{}
	for _, i := range state.Interfaces {
		for _, port := range i.ports() {
			ports[port] = true
		}
	}
	ignored = profiles.Ignored
	for _, i := range state.Interfaces {
		if _, used := profiles.Files[i.Name+".nmconnection"]; !used {
			continue
		}
		l := link{MTU: i.MTU}
		if !ports[i.Name] {
			if err := l.reach(state, i); err != nil {
				return "", nil, fmt.Errorf("interface %q: %w", i.Name, err)
			}
		}
		switch i.Type {
		case "bond":
			ignored = append(ignored, l.bond(s, i)...)
			p.Bonds[i.Name] = l
		case "vlan":
			l.ID, l.Link = &i.VLAN.ID, s.called(i.VLAN.Base)
			p.VLANs[i.Name] = l
		default:
			for _, card := range s.Cards {
				if card.Name == i.Name {
					l.Match = map[string]string{"macaddress": strings.ToLower(card.MAC)}
				}
			}
			p.Ethernets[s.called(i.Name)] = l
		}
	}
	p.bases()
	rendered, err := yaml.Marshal(p)
	return string(rendered), ignored, err
}

// bases adds what VLANs are made on and nothing is stated of.
func (p plan) bases() {
	for _, vlan := range p.VLANs {
		_, card := p.Ethernets[vlan.Link]
		_, bond := p.Bonds[vlan.Link]
		_, other := p.VLANs[vlan.Link]
		if !card && !bond && !other {
			p.Ethernets[vlan.Link] = link{}
		}
	}
}

// bond returns the options that cloud-init has no words for.
func (l *link) bond(s Statement, i Interface) (ignored []string) {
	for _, port := range i.ports() {
		l.Interfaces = append(l.Interfaces, s.called(port))
	}
	l.Parameters = map[string]json.RawMessage{}
	for _, name := range slices.Sorted(maps.Keys(i.Bond.Options)) {
		value, word := i.Bond.Options[name], parameters[name]
		switch word {
		case "":
			ignored = append(ignored, i.Name+" (the option "+name+")")
			continue
		case "primary":
			value, _ = json.Marshal(s.called(strings.Trim(string(value), `"`))) //nolint:errchkjson // a string
		}
		l.Parameters[word] = value
	}
	if i.Bond.Mode != "" {
		l.Parameters["mode"], _ = json.Marshal(i.Bond.Mode) //nolint:errchkjson // a string
	}
	return ignored
}

// reach writes addresses, routes and resolvers.
func (l *link) reach(state State, i Interface) error {
	families := map[bool]Addresses{}
	less := map[string]bool{}
	for six, a := range map[bool]Addresses{false: i.IPv4, true: i.IPv6} {
		if !a.Enabled {
			continue
		}
		families[six] = a
		// Systems want the same for both families.
		for word, on := range map[string]string{"use-dns": not(a.AutoDNS), "use-routes": cmp.Or(not(a.AutoRoutes), not(a.AutoGateway))} {
			if a.DHCP && on != "" {
				less[word] = false
			}
		}
	}
	l.DHCP4, l.DHCP6 = families[false].DHCP, families[true].DHCP
	if l.DHCP4 {
		l.DHCP4Less = less
	}
	if l.DHCP6 {
		l.DHCP6Less = less
	}
	l.AcceptRA = new(families[true].Autoconf || families[true].DHCP)
	if _, six := families[true]; !six {
		l.LinkLocal = &[]string{}
	}
	for _, six := range []bool{false, true} {
		for _, address := range families[six].List {
			l.Addresses = append(l.Addresses, fmt.Sprintf("%s/%d", address.IP, address.Length))
		}
	}
	if len(families) == 0 {
		return nil
	}
	if dns := state.DNS.Config; len(dns.Servers)+len(dns.Search) > 0 {
		l.Nameservers = &nameservers{Addresses: dns.Servers, Search: dns.Search}
	}
	for _, route := range state.Routes.Config {
		if route.Interface != i.Name {
			continue
		}
		to, err := netip.ParsePrefix(route.To)
		if err != nil {
			return err
		}
		if _, enabled := families[to.Addr().Is6()]; !enabled {
			continue
		}
		one := planRoute{To: to.Masked().String(), Via: route.Via, Metric: max(route.Metric, 0), Table: route.Table}
		if route.Via == "" {
			one.Scope = "link"
		}
		l.Routes = append(l.Routes, one)
	}
	return nil
}
