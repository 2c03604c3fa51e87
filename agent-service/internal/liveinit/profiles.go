// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package liveinit

import (
	"cmp"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// profile is one of NetworkManager: its settings by section and name.
type profile map[string]map[string]string

// profiled is what the profiles in a directory state for the card with an address; nil if nothing is. Ethernet and VLANs are
// understood.
func profiled(directory fs.FS, mac string) (*static, error) {
	all, err := readProfiles(directory)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(all, func(p profile) bool {
		return p["connection"]["type"] == "ethernet" && strings.EqualFold(p["ethernet"]["mac-address"], mac)
	})
	if at < 0 {
		return nil, nil
	}
	card := all[at]
	if kind := card["connection"]["slave-type"]; kind != "" {
		return nil, fmt.Errorf("the profile of %s makes it a part of a %s, which is not understood", mac, kind)
	}
	found := &static{}
	upon := func(p profile) bool {
		return p["connection"]["type"] == "vlan" && cmp.Or(p["vlan"]["parent"], "-") == card["connection"]["uuid"]
	}
	for _, p := range append([]profile{card}, slices.DeleteFunc(all, func(p profile) bool { return !upon(p) })...) {
		if err := found.add(p, upon(p)); err != nil {
			return nil, fmt.Errorf("reading the profile %s: %w", p["connection"]["id"], err)
		}
	}
	return found, nil
}

func readProfiles(directory fs.FS) ([]profile, error) {
	names, err := fs.Glob(directory, "*.nmconnection")
	if err != nil {
		return nil, err
	}
	var all []profile
	for _, name := range names {
		text, err := fs.ReadFile(directory, name)
		if err != nil {
			return nil, err
		}
		all = append(all, parseProfile(string(text)))
	}
	return all, nil
}

func parseProfile(text string) profile {
	p, section := profile{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch name, value, pair := strings.Cut(line, "="); {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]"):
			section = strings.Trim(line, "[]")
			p[section] = map[string]string{}
		case pair && p[section] != nil:
			p[section][name] = value
		}
	}
	return p
}

// add takes the link that a profile is for.
func (s *static) add(p profile, vlan bool) error {
	l := link{dhcp: p["ipv4"]["method"] == "auto"}
	if vlan {
		id, err := strconv.ParseUint(p["vlan"]["id"], 10, 12)
		if err != nil {
			return fmt.Errorf("the id of the VLAN: %w", err)
		}
		l.name, l.vlan = p["connection"]["interface-name"], uint16(id)
	}
	if mtu := p["ethernet"]["mtu"]; mtu != "" {
		size, err := strconv.ParseUint(mtu, 10, 32)
		if err != nil {
			return fmt.Errorf("the mtu: %w", err)
		}
		l.mtu = uint32(size)
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		if err := s.addFamily(&l, p[family]); err != nil {
			return err
		}
	}
	s.links = append(s.links, l)
	return nil
}

func (s *static) addFamily(l *link, settings map[string]string) error {
	for n := 1; settings[fmt.Sprintf("address%d", n)] != ""; n++ {
		text, _, _ := strings.Cut(settings[fmt.Sprintf("address%d", n)], ",")
		address, err := netip.ParsePrefix(text)
		if err != nil {
			return err
		}
		l.addresses = append(l.addresses, address)
	}
	for n := 1; settings[fmt.Sprintf("route%d", n)] != ""; n++ {
		r, err := parseRoute(settings[fmt.Sprintf("route%d", n)])
		if err != nil {
			return err
		}
		l.routes = append(l.routes, r)
	}
	for text := range strings.FieldsFuncSeq(settings["dns"], separator) {
		server, err := netip.ParseAddr(text)
		if err != nil {
			return err
		}
		if !slices.Contains(s.dns, server) {
			s.dns = append(s.dns, server)
		}
	}
	for domain := range strings.FieldsFuncSeq(settings["dns-search"], separator) {
		if !slices.Contains(s.search, domain) {
			s.search = append(s.search, domain)
		}
	}
	return nil
}

func separator(r rune) bool { return r == ';' || r == ',' || r == ' ' }

// parseRoute reads destination, next hop and metric.
func parseRoute(text string) (r route, err error) {
	parts := strings.Split(text, ",")
	if r.to, err = netip.ParsePrefix(parts[0]); err != nil {
		return r, err
	}
	if len(parts) > 1 && parts[1] != "" {
		if r.via, err = netip.ParseAddr(parts[1]); err != nil {
			return r, err
		}
		if r.via.IsUnspecified() {
			r.via = netip.Addr{}
		}
	}
	if len(parts) > 2 {
		metric, err := strconv.ParseUint(parts[2], 10, 32)
		if err != nil {
			return r, err
		}
		r.metric = uint32(metric)
	}
	return r, nil
}
