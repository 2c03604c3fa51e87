// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package liveinit

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// linkOf is the link with an index, for calls that need no more of it.
func linkOf(index int) netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// up starts a link; an mtu of 0 leaves it as it is.
func up(index int, mtu uint32) error {
	if mtu > 0 {
		if err := netlink.LinkSetMTU(linkOf(index), int(mtu)); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(linkOf(index))
}

// addAddress gives a link an address, for ever or for some time. An address that is there gets the new time.
func addAddress(index int, address netip.Prefix, valid time.Duration) error {
	seconds := int(min(valid.Seconds(), 1<<31-1))
	return netlink.AddrReplace(linkOf(index), &netlink.Addr{IPNet: ipNet(address), ValidLft: seconds, PreferedLft: seconds})
}

// addRoute sets a route of the main table, or replaces the one that is there.
func addRoute(index int, r route) error {
	wanted := &netlink.Route{
		LinkIndex: index, Dst: ipNet(r.to), Protocol: unix.RTPROT_STATIC, Scope: netlink.SCOPE_UNIVERSE, Priority: int(r.metric),
	}
	if r.via.IsValid() {
		wanted.Gw = r.via.AsSlice()
	} else {
		wanted.Scope = netlink.SCOPE_LINK
	}
	return netlink.RouteReplace(wanted)
}

// addVLAN makes a link for a VLAN on top of another, and returns its index. One that is there is taken.
func addVLAN(name string, base int, id uint16) (int, error) {
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.ParentIndex = name, base
	wanted := &netlink.Vlan{LinkAttrs: attributes, VlanId: int(id), VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
	if err := netlink.LinkAdd(wanted); err != nil && !os.IsExist(err) {
		return 0, err
	}
	made, err := net.InterfaceByName(name)
	if err != nil {
		return 0, err
	}
	return made.Index, nil
}

// resolver is the DNS server. A stated one has precedence over what DHCP offers.
func resolver(servers []netip.Addr, search []string) error {
	var lines []byte
	if len(search) > 0 {
		lines = append(lines, "search"...)
		for _, domain := range search {
			lines = append(lines, " "+domain...)
		}
		lines = append(lines, '\n')
	}
	for _, server := range slices.Compact(servers) {
		lines = append(lines, "nameserver "+server.String()+"\n"...)
	}
	return os.WriteFile("/etc/resolv.conf", lines, 0o644) //nolint:gosec // world-readable
}
