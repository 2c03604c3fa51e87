// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package liveinit

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// configureAll brings interfaces up, as they appear, and keeps an address on each.
func configureAll(configured chan<- string) {
	known := map[string]bool{}
	for {
		interfaces, err := net.Interfaces()
		if err != nil {
			say("looking for interfaces: %v", err)
		}
		for _, i := range interfaces {
			if known[i.Name] {
				continue
			}
			known[i.Name] = true
			if err := up(i.Name); err != nil {
				say("bringing %s up: %v", i.Name, err)
			}
			if len(i.HardwareAddr) == 6 {
				go keepAddress(i, configured)
			}
		}
		time.Sleep(2 * time.Second) //nolint:forbidigo // the kernel brings interfaces when it finds them
	}
}

func keepAddress(i net.Interface, configured chan<- string) {
	for {
		l, err := ask(i)
		if err == nil {
			err = l.apply(i.Name)
		}
		if err != nil {
			time.Sleep(2 * time.Second) //nolint:forbidigo // a server that does not answer tells nothing
			continue
		}
		select {
		case configured <- l.address.String():
		default:
		}
		time.Sleep(max(l.duration/2, time.Minute)) //nolint:forbidigo // a lease is renewed at half its time
	}
}

// lease is what a DHCP server gave.
type lease struct {
	address, mask, router, server net.IP
	dns                           []net.IP
	name                          string
	duration                      time.Duration
}

const (
	optionMask, optionRouter, optionDNS, optionName, optionAddress, optionTime, optionKind, optionServer, optionWanted, optionEnd = 1, 3, 6, 12, 50, 51, 53, 54, 55, 255

	discover, offer, request, acknowledge = 1, 2, 3, 5
	cookie                                = 0x63825363
	answerPatience                        = 4 * time.Second
)

// ask gets a lease by DHCP (RFC 2131).
func ask(i net.Interface) (*lease, error) {
	connection, err := broadcastSocket(i.Name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = connection.Close() }()
	var id [4]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	offered, err := exchange(connection, message(id, i.HardwareAddr, discover, nil), id, offer)
	if err != nil {
		return nil, err
	}
	return exchange(connection, message(id, i.HardwareAddr, request, offered), id, acknowledge)
}

func broadcastSocket(name string) (net.PacketConn, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "dhcp")
	defer func() { _ = file.Close() }()
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1),
		unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, name),
		unix.Bind(fd, &unix.SockaddrInet4{Port: 68}),
	)
	if err != nil {
		return nil, err
	}
	return net.FilePacketConn(file)
}

func exchange(connection net.PacketConn, packet []byte, id [4]byte, want byte) (*lease, error) {
	if _, err := connection.WriteTo(packet, &net.UDPAddr{IP: net.IPv4bcast, Port: 67}); err != nil {
		return nil, err
	}
	if err := connection.SetReadDeadline(time.Now().Add(answerPatience)); err != nil {
		return nil, err
	}
	buffer := make([]byte, 4096)
	for {
		n, _, err := connection.ReadFrom(buffer)
		if err != nil {
			return nil, err
		}
		if kind, l := parse(buffer[:n], id); kind == want {
			return l, nil
		}
	}
}

func message(id [4]byte, mac net.HardwareAddr, kind byte, offered *lease) []byte {
	packet := make([]byte, 240, 320)
	packet[0], packet[1], packet[2] = 1, 1, 6
	copy(packet[4:], id[:])
	packet[10] = 0x80 // answers are to be broadcast: there is no address yet
	copy(packet[28:], mac)
	binary.BigEndian.PutUint32(packet[236:], cookie)
	packet = append(packet, optionKind, 1, kind, optionWanted, 4, optionMask, optionRouter, optionDNS, optionName)
	if offered != nil {
		packet = append(append(packet, optionAddress, 4), offered.address.To4()...)
		packet = append(append(packet, optionServer, 4), offered.server.To4()...)
	}
	return append(packet, optionEnd)
}

// parse reads a message of a server; its kind is 0 if it is not for us.
func parse(packet []byte, id [4]byte) (byte, *lease) {
	if len(packet) < 240 || packet[0] != 2 || !bytes.Equal(packet[4:8], id[:]) || binary.BigEndian.Uint32(packet[236:]) != cookie {
		return 0, nil
	}
	l := &lease{address: net.IP(bytes.Clone(packet[16:20])), mask: net.IPv4(255, 255, 255, 0), duration: time.Hour}
	var kind byte
	for options := packet[240:]; len(options) >= 2 && options[0] != optionEnd; {
		if options[0] == 0 {
			options = options[1:]
			continue
		}
		length := int(options[1])
		if len(options) < 2+length {
			return 0, nil
		}
		value := bytes.Clone(options[2 : 2+length])
		switch {
		case options[0] == optionKind && length == 1:
			kind = value[0]
		case options[0] == optionName:
			l.name = string(value)
		case length < 4:
		case options[0] == optionMask:
			l.mask = value[:4]
		case options[0] == optionRouter:
			l.router = value[:4]
		case options[0] == optionServer:
			l.server = value[:4]
		case options[0] == optionTime:
			l.duration = time.Duration(binary.BigEndian.Uint32(value)) * time.Second
		case options[0] == optionDNS:
			for ; len(value) >= 4; value = value[4:] {
				l.dns = append(l.dns, value[:4])
			}
		}
		options = options[2+length:]
	}
	if l.server == nil {
		return 0, nil
	}
	return kind, l
}

func (l *lease) apply(name string) error {
	if err := setAddress(name, unix.SIOCSIFADDR, l.address); err != nil {
		return fmt.Errorf("setting the address of %s: %w", name, err)
	}
	if err := setAddress(name, unix.SIOCSIFNETMASK, l.mask); err != nil {
		return fmt.Errorf("setting the mask of %s: %w", name, err)
	}
	if l.router != nil {
		if err := defaultRoute(l.router); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("setting the route of %s: %w", name, err)
		}
	}
	if err := callMachine(l.name); err != nil {
		return fmt.Errorf("naming the machine %q: %w", l.name, err)
	}
	var resolver strings.Builder
	for _, server := range l.dns {
		fmt.Fprintf(&resolver, "nameserver %s\n", server)
	}
	return os.WriteFile("/etc/resolv.conf", []byte(resolver.String()), 0o644) //nolint:gosec // everybody may look
}

// callMachine names a machine that has no name yet.
func callMachine(name string) error {
	if present, err := os.Hostname(); err != nil || name == "" || present != "" && present != "(none)" {
		return err
	}
	return unix.Sethostname([]byte(name))
}

func withSocket(do func(fd int) error) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return do(fd)
}

func up(name string) error {
	return withSocket(func(fd int) error {
		r, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, r); err != nil {
			return err
		}
		r.SetUint16(r.Uint16() | unix.IFF_UP)
		return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
	})
}

func setAddress(name string, what uint, address net.IP) error {
	return withSocket(func(fd int) error {
		r, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		if err := r.SetInet4Addr(address.To4()); err != nil {
			return err
		}
		return unix.IoctlIfreq(fd, what, r)
	})
}

// routeEntry is struct rtentry of the kernel on 64-bit machines.
type routeEntry struct {
	_                    uint64
	to, gateway, netmask unix.RawSockaddrInet4
	flags                uint16
	_                    int16
	_                    uint64
	_                    uint64
	_                    int16
	_                    uint64
	_, _                 uint64
	_                    uint16
}

func defaultRoute(router net.IP) error {
	any4 := unix.RawSockaddrInet4{Family: unix.AF_INET}
	entry := routeEntry{to: any4, gateway: any4, netmask: any4, flags: unix.RTF_UP | unix.RTF_GATEWAY}
	copy(entry.gateway.Addr[:], router.To4())
	return withSocket(func(fd int) error {
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), unix.SIOCADDRT, uintptr(unsafe.Pointer(&entry)))
		if errno != 0 {
			return errno
		}
		return nil
	})
}
