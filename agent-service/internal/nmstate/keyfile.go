// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nmstate

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// Keyfiles are profiles of NetworkManager for the network of one machine.
type Keyfiles struct {
	// Files are the profiles, by the names of their files.
	Files map[string]string
	// Ignored are interfaces of types that are not understood.
	Ignored []string
}

// profiles is the name space of profiles' UUIDs.
var profiles = uuid.MustParse("6d757374-6572-5f6e-8574-776f726b5f70")

var (
	interfaceName = regexp.MustCompile(`^[A-Za-z0-9_.@-]{1,15}$`)
	option        = regexp.MustCompile(`^[A-Za-z0-9_.,:+ -]*$`)
	hardware      = regexp.MustCompile(`^([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}$`)
)

// Keyfiles renders the statement for NetworkManager. Cards are found by their addresses, whatever the kernel calls them.
func (s Statement) Keyfiles() (Keyfiles, error) {
	k := Keyfiles{Files: map[string]string{}}
	state, err := s.complete()
	if err != nil {
		return k, err
	}
	for _, card := range s.Cards {
		if !hardware.MatchString(card.MAC) || !interfaceName.MatchString(card.Name) {
			return k, fmt.Errorf("%q and %q are not the address and the name of a card", card.MAC, card.Name)
		}
	}
	bonds := map[string]string{}
	for _, i := range state.Interfaces {
		for _, port := range i.ports() {
			bonds[port] = i.Name
		}
	}
	for _, i := range state.Interfaces {
		if i.Off() {
			continue
		}
		r := renderer{statement: s, state: state, bond: bonds[i.Name]}
		known, err := r.profile(i)
		switch {
		case err != nil:
			return Keyfiles{}, fmt.Errorf("interface %q: %w", i.Name, err)
		case known:
			k.Files[i.Name+".nmconnection"] = r.text.String()
		default:
			k.Ignored = append(k.Ignored, i.Name+" ("+i.Type+")")
		}
	}
	return k, nil
}

// renderer writes one profile.
type renderer struct {
	statement Statement
	state     State
	// bond is that which the interface is a port of.
	bond string
	text strings.Builder
}

// section writes names and values; those without a value are left out.
func (r *renderer) section(name string, pairs ...string) {
	if r.text.Len() > 0 {
		r.text.WriteString("\n")
	}
	r.text.WriteString("[" + name + "]\n")
	for pair := range slices.Chunk(pairs, 2) {
		if line := strings.Join(pair, "="); !strings.HasSuffix(line, "=") {
			r.text.WriteString(line + "\n")
		}
	}
}

func (r *renderer) uuid(name string) string {
	return uuid.NewSHA1(profiles, []byte(r.statement.YAML+"\n"+name)).String()
}

// profile is false for an interface whose type is not understood.
func (r *renderer) profile(i Interface) (known bool, err error) {
	kind := cmp.Or(i.Type, "ethernet")
	if !slices.Contains([]string{"ethernet", "vlan", "bond"}, kind) {
		return false, nil
	}
	if !interfaceName.MatchString(i.Name) {
		return false, fmt.Errorf("its name is not one of an interface")
	}
	mac := ""
	for _, card := range r.statement.Cards {
		if card.Name == i.Name && kind == "ethernet" {
			mac = card.MAC
		}
	}
	name := i.Name
	if mac != "" {
		name = "" // the card is found by its address
	}
	connection := []string{"id", i.Name, "uuid", r.uuid(i.Name), "type", kind, "interface-name", name, "autoconnect-priority", "1"}
	if r.bond != "" {
		connection = append(connection, "master", r.uuid(r.bond), "slave-type", "bond")
	}
	r.section("connection", connection...)
	mtu := ""
	if i.MTU > 0 {
		mtu = fmt.Sprint(i.MTU)
	}
	r.section("ethernet", "mac-address", strings.ToUpper(mac), "mtu", mtu)
	switch kind {
	case "vlan":
		err = r.vlan(i)
	case "bond":
		err = r.bonded(i)
	}
	if err != nil || r.bond != "" {
		return true, err
	}
	if err := r.family("ipv4", i, i.IPv4); err != nil {
		return true, err
	}
	return true, r.family("ipv6", i, i.IPv6)
}

// vlan is made on top of the profile of its base, or of an interface that has none by its name.
func (r *renderer) vlan(i Interface) error {
	if !interfaceName.MatchString(i.VLAN.Base) || i.VLAN.ID > 4094 {
		return fmt.Errorf("a VLAN needs a base-iface and an id up to 4094")
	}
	parent := i.VLAN.Base
	if slices.ContainsFunc(r.state.Interfaces, func(other Interface) bool { return other.Name == i.VLAN.Base && !other.Off() }) {
		parent = r.uuid(i.VLAN.Base)
	}
	r.section("vlan", "id", fmt.Sprint(i.VLAN.ID), "parent", parent, "flags", "1")
	return nil
}

func (r *renderer) bonded(i Interface) error {
	pairs := []string{"mode", i.Bond.Mode}
	for _, name := range slices.Sorted(maps.Keys(i.Bond.Options)) {
		value := strings.Trim(string(i.Bond.Options[name]), `"`)
		if name == "primary" {
			value = r.statement.called(value) // the one card that is not found by its address
		}
		pairs = append(pairs, name, value)
	}
	for _, text := range pairs {
		if !option.MatchString(text) {
			return fmt.Errorf("%q is not an option of a bond", text)
		}
	}
	r.section("bond", pairs...)
	return nil
}

// family writes the addresses, routes and resolvers of one family.
func (r *renderer) family(name string, i Interface, a Addresses) error {
	if !a.Enabled {
		r.section(name, "method", "disabled")
		return nil
	}
	six := name == "ipv6"
	pairs := []string{"method", method(six, a)}
	for n, address := range a.List {
		prefix, err := netip.ParsePrefix(fmt.Sprintf("%s/%d", address.IP, address.Length))
		if err != nil {
			return err
		}
		pairs = append(pairs, fmt.Sprintf("address%d", n+1), prefix.String())
	}
	routes, err := r.routes(six, i.Name)
	if err != nil {
		return err
	}
	pairs = append(pairs, routes...)
	var resolvers []string
	for _, server := range r.state.DNS.Config.Servers {
		address, err := netip.ParseAddr(server)
		if err != nil {
			return err
		}
		if address.Is6() == six {
			resolvers = append(resolvers, server+";")
		}
	}
	var search []string
	for _, domain := range r.state.DNS.Config.Search {
		if !option.MatchString(domain) {
			return fmt.Errorf("%q is not a domain", domain)
		}
		search = append(search, domain+";")
	}
	pairs = append(pairs, "dns", strings.Join(resolvers, ""), "dns-search", strings.Join(search, ""))
	pairs = append(pairs, "ignore-auto-dns", not(a.AutoDNS), "ignore-auto-routes", not(a.AutoRoutes), "never-default", not(a.AutoGateway))
	r.section(name, pairs...)
	return nil
}

func method(six bool, a Addresses) string {
	switch {
	case six && a.Autoconf, !six && a.DHCP:
		return "auto"
	case a.DHCP:
		return "dhcp"
	case len(a.List) > 0:
		return "manual"
	case six:
		return "link-local"
	}
	return "disabled"
}

// not is true where something that is on by default was switched off.
func not(on *bool) string {
	if on != nil && !*on {
		return "true"
	}
	return ""
}

func (r *renderer) routes(six bool, name string) ([]string, error) {
	var pairs []string
	n := 0
	for _, route := range r.state.Routes.Config {
		if route.Interface != name {
			continue
		}
		to, err := netip.ParsePrefix(route.To)
		if err != nil {
			return nil, err
		}
		if to.Addr().Is6() != six {
			continue
		}
		n++
		via := netip.IPv4Unspecified()
		if six {
			via = netip.IPv6Unspecified()
		}
		if route.Via != "" {
			if via, err = netip.ParseAddr(route.Via); err != nil {
				return nil, err
			}
		}
		text := to.Masked().String() + "," + via.String()
		if route.Metric > 0 {
			text += fmt.Sprintf(",%d", route.Metric)
		}
		pairs = append(pairs, fmt.Sprintf("route%d", n), text)
		if route.Table > 0 {
			pairs = append(pairs, fmt.Sprintf("route%d_options", n), fmt.Sprintf("table=%d", route.Table))
		}
	}
	return pairs, nil
}
