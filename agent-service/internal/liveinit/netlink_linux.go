// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package liveinit

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// attribute is one of a netlink message.
type attribute struct {
	kind  uint16
	value []byte
}

func number[T uint16 | uint32](kind uint16, value T) attribute {
	return attribute{kind, native(value)}
}

func text(kind uint16, value string) attribute { return attribute{kind, append([]byte(value), 0)} }

func nested(kind uint16, attributes ...attribute) attribute {
	return attribute{kind, encode(attributes)}
}

// native is a value of fixed size as the kernel has it in memory.
func native(value any) []byte {
	encoded, err := binary.Append(nil, binary.NativeEndian, value)
	if err != nil {
		panic(err)
	}
	return encoded
}

func encode(attributes []attribute) []byte {
	var encoded []byte
	for _, a := range attributes {
		encoded = append(encoded, native(unix.RtAttr{Len: uint16(unix.SizeofRtAttr + len(a.value)), Type: a.kind})...) //nolint:gosec // they are short
		encoded = append(encoded, a.value...)
		encoded = append(encoded, make([]byte, -len(encoded)&(unix.RTA_ALIGNTO-1))...)
	}
	return encoded
}

// change has the kernel change the network (rtnetlink). Existing settings are replaced.
func change(kind uint16, message any, attributes ...attribute) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	body := append(native(message), encode(attributes)...)
	header := unix.NlMsghdr{
		Len: uint32(unix.SizeofNlMsghdr + len(body)), Type: kind, Flags: unix.NLM_F_REQUEST | unix.NLM_F_ACK | unix.NLM_F_CREATE | unix.NLM_F_REPLACE, //nolint:gosec // they are short
	}
	if err := unix.Sendto(fd, append(native(header), body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 8192)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 {
		return errors.New("the kernel's answer is cut off")
	}
	// An acknowledgement is an error with the number 0.
	if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 { //nolint:gosec // it is signed there
		return unix.Errno(-code) //nolint:gosec // is positive
	}
	return nil
}

func family(address netip.Addr) uint8 {
	if address.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// up starts a link; an mtu of 0 leaves it as it is.
func up(index int, mtu uint32) error {
	var attributes []attribute
	if mtu > 0 {
		attributes = append(attributes, number(unix.IFLA_MTU, mtu))
	}
	return change(unix.RTM_SETLINK, unix.IfInfomsg{Family: unix.AF_UNSPEC, Index: int32(index), Flags: unix.IFF_UP, Change: unix.IFF_UP}, attributes...) //nolint:gosec // indexes are small
}

// addAddress gives a link an address, for ever or for some time.
func addAddress(index int, address netip.Prefix, valid time.Duration) error {
	raw := address.Addr().AsSlice()
	attributes := []attribute{{unix.IFA_LOCAL, raw}, {unix.IFA_ADDRESS, raw}}
	if valid > 0 {
		seconds := uint32(min(valid.Seconds(), 1<<31))
		attributes = append(attributes, attribute{unix.IFA_CACHEINFO, native(unix.IfaCacheinfo{Prefered: seconds, Valid: seconds})}) //nolint:misspell // the kernel spells it so
	}
	return change(unix.RTM_NEWADDR, unix.IfAddrmsg{Family: family(address.Addr()), Prefixlen: uint8(address.Bits()), Index: uint32(index)}, attributes...) //nolint:gosec // indexes are small
}

func addRoute(index int, r route) error {
	message := unix.RtMsg{
		Family: family(r.to.Addr()), Dst_len: uint8(r.to.Bits()), Table: unix.RT_TABLE_MAIN, Protocol: unix.RTPROT_STATIC, Scope: unix.RT_SCOPE_UNIVERSE, Type: unix.RTN_UNICAST, //nolint:gosec // at most 128
	}
	attributes := []attribute{{unix.RTA_DST, r.to.Addr().AsSlice()}, number(unix.RTA_OIF, uint32(index))} //nolint:gosec // indexes are small
	if r.via.IsValid() {
		attributes = append(attributes, attribute{unix.RTA_GATEWAY, r.via.AsSlice()})
	} else {
		message.Scope = unix.RT_SCOPE_LINK
	}
	if r.metric > 0 {
		attributes = append(attributes, number(unix.RTA_PRIORITY, r.metric))
	}
	return change(unix.RTM_NEWROUTE, message, attributes...)
}

// addVLAN makes a link for a VLAN on top of another, and returns its index.
func addVLAN(name string, base int, id uint16) (int, error) {
	err := change(unix.RTM_NEWLINK, unix.IfInfomsg{Family: unix.AF_UNSPEC}, text(unix.IFLA_IFNAME, name), number(unix.IFLA_LINK, uint32(base)), //nolint:gosec // indexes are small
		nested(unix.IFLA_LINKINFO, text(unix.IFLA_INFO_KIND, "vlan"), nested(unix.IFLA_INFO_DATA, number(unix.IFLA_VLAN_ID, id))))
	if err != nil {
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
