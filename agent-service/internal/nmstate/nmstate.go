// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nmstate reads what InfraEnvs state about the networks of machines, in the language of nmstate, as far as it is understood here: Ethernet, VLANs and
// bonds, addresses, routes and resolvers.
package nmstate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Statement is the network of one machine: a state, and which card is meant by each name in it.
type Statement struct {
	YAML  string `json:"network_yaml"`
	Cards []Card `json:"mac_interface_map"`
}

// Card is a network card by its address.
type Card struct {
	MAC  string `json:"mac_address"`
	Name string `json:"logical_nic_name"`
	// Kernel is what the machine itself calls the card, empty where that is not known.
	Kernel string `json:"-"`
}

// State is what is understood of nmstate's language.
type State struct {
	Interfaces []Interface `json:"interfaces"`
	Routes     struct {
		Config []Route `json:"config"`
	} `json:"routes"`
	DNS struct {
		Config struct {
			Servers []string `json:"server"`
			Search  []string `json:"search"`
		} `json:"config"`
	} `json:"dns-resolver"`
}

// Interface is a card, or what is made on top of cards.
type Interface struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	State string `json:"state"`
	MTU   uint32 `json:"mtu"`
	VLAN  struct {
		Base string `json:"base-iface"`
		ID   uint16 `json:"id"`
	} `json:"vlan"`
	Bond struct {
		Mode    string                     `json:"mode"`
		Options map[string]json.RawMessage `json:"options"`
		Ports   []string                   `json:"port"`
		// Slaves is what ports were called before.
		Slaves []string `json:"slaves"`
	} `json:"link-aggregation"`
	IPv4 Addresses `json:"ipv4"`
	IPv6 Addresses `json:"ipv6"`
}

// Off is true for an interface that is not to be used.
func (i Interface) Off() bool { return i.State == "absent" || i.State == "down" }

// ports are what a bond is made of.
func (i Interface) ports() []string {
	if i.Off() || i.Type != "bond" {
		return nil
	}
	return slices.Concat(i.Bond.Ports, i.Bond.Slaves)
}

// Addresses are those of one family.
type Addresses struct {
	Enabled     bool  `json:"enabled"`
	DHCP        bool  `json:"dhcp"`
	Autoconf    bool  `json:"autoconf"`
	AutoDNS     *bool `json:"auto-dns"`
	AutoGateway *bool `json:"auto-gateway"`
	AutoRoutes  *bool `json:"auto-routes"`
	List        []struct {
		IP     string `json:"ip"`
		Length int    `json:"prefix-length"`
	} `json:"address"`
}

// Route is one that is there beside those of the addresses.
type Route struct {
	To        string `json:"destination"`
	Via       string `json:"next-hop-address"`
	Interface string `json:"next-hop-interface"`
	Metric    int64  `json:"metric"`
	Table     uint32 `json:"table-id"`
}

// Read reads the static_network_config of an InfraEnv.
func Read(config []byte) ([]Statement, error) {
	var statements []Statement
	if err := json.Unmarshal(config, &statements); err != nil {
		return nil, fmt.Errorf("reading the static network: %w", err)
	}
	return statements, nil
}

// For is the first statement that names a card of a machine, nil where none does. The machine's own names of its cards, empty where they are not known, are by their
// addresses in lower case.
func For(statements []Statement, cards map[string]string) *Statement {
	for _, s := range statements {
		s.Cards = slices.Clone(s.Cards)
		mine := false
		for n, card := range s.Cards {
			kernel, has := cards[strings.ToLower(card.MAC)]
			if mine = mine || has; interfaceName.MatchString(kernel) {
				s.Cards[n].Kernel = kernel
			}
		}
		if mine {
			return &s
		}
	}
	return nil
}

// called is what the machine calls an interface that has a name in the statement.
func (s Statement) called(name string) string {
	for _, card := range s.Cards {
		if card.Name == name && card.Kernel != "" {
			return card.Kernel
		}
	}
	return name
}

// State is what the statement states.
func (s Statement) State() (State, error) {
	var wanted State
	err := yaml.Unmarshal([]byte(s.YAML), &wanted)
	return wanted, err
}

// IsMapping is true where the YAML can state anything at all.
func (s Statement) IsMapping() bool {
	var wanted map[string]any
	return yaml.Unmarshal([]byte(s.YAML), &wanted) == nil && wanted != nil
}

// complete is the state with what it names and does not state: ports of bonds, and cards that VLANs are made on.
func (s Statement) complete() (State, error) {
	state, err := s.State()
	missing := func(name string) bool {
		return name != "" && !slices.ContainsFunc(state.Interfaces, func(i Interface) bool { return i.Name == name })
	}
	for _, i := range state.Interfaces {
		for _, port := range i.ports() {
			if missing(port) {
				state.Interfaces = append(state.Interfaces, Interface{Name: port})
			}
		}
		isCard := slices.ContainsFunc(s.Cards, func(c Card) bool { return c.Name == i.VLAN.Base })
		if i.Type == "vlan" && !i.Off() && isCard && missing(i.VLAN.Base) {
			state.Interfaces = append(state.Interfaces, Interface{Name: i.VLAN.Base})
		}
	}
	return state, err
}
