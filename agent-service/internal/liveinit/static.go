// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package liveinit

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"sigs.k8s.io/yaml"
)

// static is what the InfraEnv states for one network card of this machine.
type static struct {
	// links are the card itself, whose name is empty, and VLANs on top of it.
	links []link
	// dns and search are for all names.
	dns    []netip.Addr
	search []string
}

type link struct {
	name      string
	vlan      uint16
	mtu       uint32
	dhcp      bool
	addresses []netip.Prefix
	routes    []route
}

type route struct {
	to netip.Prefix
	// via is not valid for networks that are reached directly.
	via    netip.Addr
	metric uint32
}

// statement is an entry of an InfraEnv's static_network_config: a state in the language of nmstate, and which card is meant by each name in it.
type statement struct {
	State string `json:"network_yaml"`
	Cards []struct {
		MAC  string `json:"mac_address"`
		Name string `json:"logical_nic_name"`
	} `json:"mac_interface_map"`
}

// state is what is understood of nmstate's language: Ethernet and VLANs, addresses, routes, resolvers.
type state struct {
	Interfaces []struct {
		Name  string `json:"name"`
		Type  string `json:"type"`
		State string `json:"state"`
		MTU   uint32 `json:"mtu"`
		VLAN  struct {
			Base string `json:"base-iface"`
			ID   uint16 `json:"id"`
		} `json:"vlan"`
		IPv4 addresses `json:"ipv4"`
		IPv6 addresses `json:"ipv6"`
	} `json:"interfaces"`
	Routes struct {
		Config []struct {
			To        string `json:"destination"`
			Via       string `json:"next-hop-address"`
			Interface string `json:"next-hop-interface"`
			Metric    int64  `json:"metric"`
		} `json:"config"`
	} `json:"routes"`
	DNS struct {
		Config struct {
			Servers []string `json:"server"`
			Search  []string `json:"search"`
		} `json:"config"`
	} `json:"dns-resolver"`
}

type addresses struct {
	Enabled bool `json:"enabled"`
	DHCP    bool `json:"dhcp"`
	List    []struct {
		IP     string `json:"ip"`
		Length int    `json:"prefix-length"`
	} `json:"address"`
}

// staticFor is what is stated for the card with an address; nil if nothing is.
func staticFor(config []byte, mac string) (*static, error) {
	var statements []statement
	if err := json.Unmarshal(config, &statements); err != nil {
		return nil, fmt.Errorf("reading the static network: %w", err)
	}
	for _, s := range statements {
		for _, card := range s.Cards {
			if strings.EqualFold(card.MAC, mac) {
				return s.of(card.Name)
			}
		}
	}
	return nil, nil
}

// of is what is stated for a card by its name; nil if only other cards of the machine are meant.
func (s statement) of(name string) (*static, error) {
	var wanted state
	if err := yaml.Unmarshal([]byte(s.State), &wanted); err != nil {
		return nil, fmt.Errorf("reading the static network of %s: %w", name, err)
	}
	found := &static{search: wanted.DNS.Config.Search}
	for _, i := range wanted.Interfaces {
		l := link{mtu: i.MTU, dhcp: i.IPv4.Enabled && i.IPv4.DHCP}
		switch {
		case i.State == "absent" || i.State == "down":
			continue
		case i.Type == "vlan" && i.VLAN.Base == name:
			l.name, l.vlan = i.Name, i.VLAN.ID
		case i.Name != name:
			continue
		}
		for _, family := range []addresses{i.IPv4, i.IPv6} {
			if !family.Enabled {
				continue
			}
			for _, a := range family.List {
				address, err := netip.ParsePrefix(fmt.Sprintf("%s/%d", a.IP, a.Length))
				if err != nil {
					return nil, fmt.Errorf("reading the static network of %s: %w", name, err)
				}
				l.addresses = append(l.addresses, address)
			}
		}
		var err error
		if l.routes, err = wanted.routes(i.Name); err != nil {
			return nil, fmt.Errorf("reading the static network of %s: %w", name, err)
		}
		found.links = append(found.links, l)
	}
	for _, server := range wanted.DNS.Config.Servers {
		address, err := netip.ParseAddr(server)
		if err != nil {
			return nil, fmt.Errorf("reading the static network of %s: %w", name, err)
		}
		found.dns = append(found.dns, address)
	}
	if len(found.links) == 0 {
		return nil, nil
	}
	return found, nil
}

func (s state) routes(name string) ([]route, error) {
	var found []route
	for _, r := range s.Routes.Config {
		if r.Interface != name {
			continue
		}
		to, err := netip.ParsePrefix(r.To)
		if err != nil {
			return nil, err
		}
		one := route{to: to.Masked(), metric: uint32(max(r.Metric, 0))} //nolint:gosec // metrics are small
		if r.Via != "" {
			if one.via, err = netip.ParseAddr(r.Via); err != nil {
				return nil, err
			}
		}
		found = append(found, one)
	}
	return found, nil
}
