// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nmstate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Assigned is an address that a machine gets beside what is stated for it.
type Assigned struct {
	// Interface is the name of a card, or of an interface of the statement. MAC is that of the card, empty for other interfaces.
	Interface, MAC string
	Address        netip.Prefix
	// Gateway is the zero value for none.
	Gateway netip.Addr
	DNS     []netip.Addr
}

// Assign gives an interface of the statement the address instead of those of its family: with its gateway as the only default route of the family, and its name servers
// first. A card that the statement does not name is added.
func (s Statement) Assign(a Assigned) (Statement, error) {
	state := map[string]any{}
	if err := yaml.Unmarshal([]byte(s.YAML), &state); err != nil {
		return s, err
	}
	name := a.Interface
	s.Cards = slices.Clone(s.Cards)
	at := slices.IndexFunc(s.Cards, func(c Card) bool { return a.MAC != "" && strings.EqualFold(c.MAC, a.MAC) })
	if at >= 0 {
		name = s.Cards[at].Name
	} else if a.MAC != "" {
		s.Cards = append(s.Cards, Card{MAC: a.MAC, Name: name, Kernel: name})
	}
	described, err := s.State()
	if err != nil {
		return s, err
	}
	for _, i := range described.Interfaces {
		if slices.Contains(i.ports(), name) {
			return s, fmt.Errorf("%s is a port of %s, which can have an address: write that as interface", name, i.Name)
		}
	}
	interfaces, _ := state["interfaces"].([]any)
	chosen := find(interfaces, name)
	if chosen == nil {
		if a.MAC == "" {
			return s, fmt.Errorf("no interface %s is stated for the machine", name)
		}
		automatic := map[string]any{"enabled": true, "dhcp": true, "autoconf": true}
		chosen = map[string]any{"name": name, "type": "ethernet", "state": "up", "ipv4": automatic, "ipv6": automatic}
		interfaces = append(interfaces, chosen)
	}
	family, everywhere := "ipv4", "0.0.0.0/0"
	if a.Address.Addr().Is6() {
		family, everywhere = "ipv6", "::/0"
	}
	chosen["state"] = "up"
	chosen[family] = map[string]any{
		"enabled": true, "dhcp": false, "autoconf": false, "address": []any{map[string]any{"ip": a.Address.Addr().String(), "prefix-length": a.Address.Bits()}},
	}
	state["interfaces"] = interfaces
	if a.Gateway.IsValid() {
		routes := slices.DeleteFunc(under(state, "routes", "config"), func(route any) bool {
			entry, _ := route.(map[string]any)
			return entry["destination"] == everywhere
		})
		set(state, append(routes, map[string]any{"destination": everywhere, "next-hop-address": a.Gateway.String(), "next-hop-interface": name}), "routes", "config")
	}
	preferServers(state, a.DNS)
	text, err := yaml.Marshal(state)
	s.YAML = string(text)
	return s, err
}

// preferServers puts name servers before those that are stated.
func preferServers(state map[string]any, first []netip.Addr) {
	var servers []any
	for _, server := range first {
		servers = append(servers, server.String())
	}
	for _, server := range under(state, "dns-resolver", "config", "server") {
		if !slices.Contains(servers, server) {
			servers = append(servers, server)
		}
	}
	if len(servers) > 0 {
		set(state, servers, "dns-resolver", "config", "server")
	}
}

// find is the interface of a name, nil for none.
func find(interfaces []any, name string) map[string]any {
	for _, one := range interfaces {
		if entry, _ := one.(map[string]any); entry != nil && entry["name"] == name {
			return entry
		}
	}
	return nil
}

// under is the list at a path, nil where there is none.
func under(state map[string]any, path ...string) []any {
	for _, key := range path[:len(path)-1] {
		state, _ = state[key].(map[string]any)
	}
	list, _ := state[path[len(path)-1]].([]any)
	return list
}

// set puts a list at a path.
func set(state map[string]any, list []any, path ...string) {
	for _, key := range path[:len(path)-1] {
		next, _ := state[key].(map[string]any)
		if next == nil {
			next = map[string]any{}
			state[key] = next
		}
		state = next
	}
	state[path[len(path)-1]] = list
}
