// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package liveinit

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/muster-io/muster/agent-service/internal/nmstate"
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

// staticFor is what is stated for the card with an address; nil if nothing is.
func staticFor(config []byte, mac string) (*static, error) {
	statements, err := nmstate.Read(config)
	if err != nil {
		return nil, err
	}
	for _, s := range statements {
		for _, card := range s.Cards {
			if strings.EqualFold(card.MAC, mac) {
				return stated(s, card.Name)
			}
		}
	}
	return nil, nil
}

// stated is what is stated for a card by its name; nil if only other cards of the machine are meant.
func stated(s nmstate.Statement, name string) (*static, error) {
	wanted, err := s.State()
	if err != nil {
		return nil, fmt.Errorf("reading the static network of %s: %w", name, err)
	}
	found := &static{search: wanted.DNS.Config.Search}
	for _, i := range wanted.Interfaces {
		l := link{mtu: i.MTU, dhcp: i.IPv4.Enabled && i.IPv4.DHCP}
		switch {
		case i.Off():
			continue
		case i.Type == "vlan" && i.VLAN.Base == name:
			l.name, l.vlan = i.Name, i.VLAN.ID
		case i.Name != name:
			continue
		}
		for _, family := range []nmstate.Addresses{i.IPv4, i.IPv6} {
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
		if l.routes, err = routes(wanted, i.Name); err != nil {
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

func routes(s nmstate.State, name string) ([]route, error) {
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
