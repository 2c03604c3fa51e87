// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiaddress moves an address between machines of one network: it adds it to an interface, announces to the neighbours which machine has it, and removes it.
package apiaddress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Interfaces are those of this machine.
type Interfaces struct{}

// Addresses are those of the machine, without those of a link alone.
func (Interfaces) Addresses() ([]netip.Addr, error) {
	all, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	var addresses []netip.Addr
	for i := range all {
		if address := addressOf(&all[i]); address.IsGlobalUnicast() {
			addresses = append(addresses, address)
		}
	}
	return addresses, nil
}

// Add gives the address to the interface that has the other one, and announces it. It is no address that the machine sends from by itself.
func (Interfaces) Add(address, beside netip.Addr) error {
	link, err := linkWith(beside)
	if err != nil {
		return err
	}
	wanted := &netlink.Addr{IPNet: single(address)}
	if address.Is6() {
		wanted.Flags, wanted.ValidLft, wanted.PreferedLft = unix.IFA_F_NODAD, math.MaxUint32, 0
	}
	if err := netlink.AddrReplace(link, wanted); err != nil {
		return fmt.Errorf("adding %s to %s: %w", address, link.Attrs().Name, err)
	}
	if len(link.Attrs().HardwareAddr) != 6 {
		return nil // it has no neighbours
	}
	if err := announce(link, address); err != nil {
		return fmt.Errorf("announcing %s on %s: %w", address, link.Attrs().Name, err)
	}
	return nil
}

// Remove takes the address from all interfaces.
func (Interfaces) Remove(address netip.Addr) error {
	all, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for i := range all {
		if addressOf(&all[i]) != address {
			continue
		}
		link := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: all[i].LinkIndex}}
		if err := netlink.AddrDel(link, &netlink.Addr{IPNet: all[i].IPNet}); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("removing %s: %w", address, err)
		}
	}
	return nil
}

// linkWith is the interface that has an address.
func linkWith(address netip.Addr) (netlink.Link, error) {
	all, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if addressOf(&all[i]) == address {
			return netlink.LinkByIndex(all[i].LinkIndex)
		}
	}
	return nil, fmt.Errorf("no interface has the address %s", address)
}

func addressOf(a *netlink.Addr) netip.Addr {
	address, _ := netip.AddrFromSlice(a.IP)
	return address.Unmap()
}

func single(address netip.Addr) *net.IPNet {
	return &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(address.BitLen(), address.BitLen())}
}

// announce tells all neighbours to which card they send what is for the address.
func announce(link netlink.Link, address netip.Addr) error {
	if address.Is4() {
		return gratuitousARP(link, address)
	}
	return unsolicitedAdvertisement(link, address)
}

// gratuitousARP sends an announcement (RFC 5227) as a request and as an answer: neighbours differ in which they take.
func gratuitousARP(link netlink.Link, address netip.Addr) error {
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }()
	to := &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ARP), Ifindex: link.Attrs().Index, Halen: 6, Addr: [8]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}
	for _, operation := range []uint16{1, 2} {
		if err := unix.Sendto(socket, arp(operation, link.Attrs().HardwareAddr, address), 0, to); err != nil {
			return err
		}
	}
	return nil
}

// arp is a packet in which sender and target have the same address.
func arp(operation uint16, card net.HardwareAddr, address netip.Addr) []byte {
	packet := []byte{0, 1, 8, 0, 6, 4} // Ethernet, IPv4, and their lengths
	packet = binary.BigEndian.AppendUint16(packet, operation)
	packet = append(append(packet, card...), address.AsSlice()...)
	target := make(net.HardwareAddr, 6)
	if operation == 2 {
		target = card
	}
	return append(append(packet, target...), address.AsSlice()...)
}

func networkOrder(value uint16) uint16 {
	var order [2]byte
	binary.BigEndian.PutUint16(order[:], value)
	return binary.NativeEndian.Uint16(order[:])
}

// unsolicitedAdvertisement sends a neighbour advertisement (RFC 4861, 7.2.6) that overrides what neighbours know.
func unsolicitedAdvertisement(link netlink.Link, address netip.Addr) error {
	socket, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }()
	index := link.Attrs().Index
	for _, set := range []error{
		unix.SetsockoptInt(socket, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255),
		unix.SetsockoptInt(socket, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, index),
		unix.Bind(socket, &unix.SockaddrInet6{Addr: address.As16()}),
	} {
		if set != nil {
			return set
		}
	}
	const advertisement, override, targetLinkAddress = 136, 0x20, 2
	packet := append([]byte{advertisement, 0, 0, 0, override, 0, 0, 0}, address.AsSlice()...) // the kernel adds the checksum
	packet = append(append(packet, targetLinkAddress, 1), link.Attrs().HardwareAddr...)
	return unix.Sendto(socket, packet, 0, &unix.SockaddrInet6{Addr: netip.MustParseAddr("ff02::1").As16(), ZoneId: uint32(index)}) //nolint:gosec // indexes are small
}
