// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package liveinit

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// staticPath has what the InfraEnv states about the networks of its machines.
const staticPath = "/etc/muster/network.json"

// networks gives this machine its addresses.
type networks struct {
	// stated returns what is stated for a card; nil where nothing is.
	stated func(net.Interface) (*static, error)
	// ours is false for interfaces that others configure.
	ours func(net.Interface) bool
	// configured gets each address.
	configured chan<- string
	// named is true where resolvers are stated.
	named atomic.Bool
}

// statedNetworks are what the InfraEnv states about this machine.
func statedNetworks(configured chan<- string) *networks {
	config, err := os.ReadFile(staticPath)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		say("%v", err)
	}
	return &networks{configured: configured, ours: func(net.Interface) bool { return true }, stated: func(i net.Interface) (*static, error) {
		if len(config) == 0 {
			return nil, nil
		}
		return staticFor(config, i.HardwareAddr.String())
	}}
}

// ConfigureInstalled gives the cards of an installed system their addresses, as profiles of NetworkManager in a directory
// state, else by DHCP. It leaves virtual interfaces alone, tells each address, and never returns.
func ConfigureInstalled(profiles string, configured chan<- string) {
	n := &networks{configured: configured, ours: physical, stated: func(i net.Interface) (*static, error) {
		return profiled(os.DirFS(profiles), i.HardwareAddr.String())
	}}
	n.configureAll()
}

// physical is true for a card that has a device, and for the loopback interface.
func physical(i net.Interface) bool {
	_, err := os.Stat("/sys/class/net/" + i.Name + "/device")
	return err == nil || i.Flags&net.FlagLoopback != 0
}

// configureAll brings interfaces up, as they appear, and keeps an address on each. It never returns.
func (n *networks) configureAll() {
	known := map[string]bool{}
	for {
		interfaces, err := net.Interfaces()
		if err != nil {
			say("looking for interfaces: %v", err)
		}
		for _, i := range interfaces {
			if known[i.Name] || !n.ours(i) {
				continue
			}
			known[i.Name] = true
			if err := up(i.Index, 0); err != nil {
				say("bringing %s up: %v", i.Name, err)
			}
			if len(i.HardwareAddr) == 6 {
				for _, made := range n.configure(i) {
					known[made] = true
				}
			}
		}
		time.Sleep(2 * time.Second) //nolint:forbidigo // the kernel brings interfaces when it finds them
	}
}

// configure does what is stated for an interface, else it asks by DHCP. It returns the names of interfaces that it made on top.
func (n *networks) configure(i net.Interface) (made []string) {
	wanted, err := n.stated(i)
	if err != nil {
		say("%v", err)
	}
	if wanted == nil {
		go n.keepAddress(i)
		return nil
	}
	if len(wanted.dns) > 0 {
		n.named.Store(true)
		if err := resolver(wanted.dns, wanted.search); err != nil {
			say("%v", err)
		}
	}
	for _, l := range wanted.links {
		if l.name != "" {
			made = append(made, l.name)
		}
		if err := n.apply(i, l); err != nil {
			say("configuring %s: %v", cmp.Or(l.name, i.Name), err)
		}
	}
	if err := callMachine("", i.HardwareAddr); err != nil {
		say("naming the machine: %v", err)
	}
	return made
}

func (n *networks) apply(i net.Interface, l link) error {
	if l.name != "" {
		index, err := addVLAN(l.name, i.Index, l.vlan)
		if err != nil {
			return err
		}
		i.Name, i.Index = l.name, index
	}
	errs := []error{up(i.Index, l.mtu)}
	for _, address := range l.addresses {
		errs = append(errs, addAddress(i.Index, address, 0))
		n.tell(address.Addr())
	}
	for _, r := range l.routes {
		errs = append(errs, addRoute(i.Index, r))
	}
	if l.dhcp {
		go n.keepAddress(i)
	}
	return errors.Join(errs...)
}

func (n *networks) tell(address netip.Addr) {
	select {
	case n.configured <- address.String():
	default:
	}
}

func (n *networks) keepAddress(i net.Interface) {
	for {
		l, err := ask(i)
		if err == nil {
			err = n.take(i, l)
		}
		if err != nil {
			time.Sleep(2 * time.Second) //nolint:forbidigo // a server that does not answer tells nothing
			continue
		}
		time.Sleep(max(l.duration/2, time.Minute)) //nolint:forbidigo // a lease is renewed at half its time
	}
}

// take uses a lease. Its address ends with it, if it is not renewed.
func (n *networks) take(i net.Interface, l *lease) error {
	address, mask := netip.AddrFrom4([4]byte(l.address.To4())), net.IPMask(l.mask.To4())
	bits, _ := mask.Size()
	if err := addAddress(i.Index, netip.PrefixFrom(address, bits), max(l.duration, 2*time.Minute)); err != nil {
		return fmt.Errorf("setting the address of %s: %w", i.Name, err)
	}
	if l.router != nil {
		// Stated settings have precedence.
		via := route{to: netip.PrefixFrom(netip.IPv4Unspecified(), 0), via: netip.AddrFrom4([4]byte(l.router.To4())), metric: uint32(100 + i.Index)} //nolint:gosec // indexes are small
		if err := addRoute(i.Index, via); err != nil {
			return fmt.Errorf("setting the route of %s: %w", i.Name, err)
		}
	}
	if err := callMachine(l.name, i.HardwareAddr); err != nil {
		return fmt.Errorf("naming the machine %q: %w", l.name, err)
	}
	n.tell(address)
	if n.named.Load() {
		return nil
	}
	var servers []netip.Addr
	for _, server := range l.dns {
		servers = append(servers, netip.AddrFrom4([4]byte(server.To4())))
	}
	return resolver(servers, nil)
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

// callMachine names a machine that has no name yet, as a DHCP server offers, else by the address of its card.
func callMachine(offered string, card net.HardwareAddr) error {
	present, err := os.Hostname()
	if err != nil {
		return err
	}
	if name := nameFor(present, offered, card); name != present {
		return unix.Sethostname([]byte(name))
	}
	return nil
}

// nameFor is the name of a machine. An offered name replaces an address, by which a server of another card did not name it.
func nameFor(present, offered string, card net.HardwareAddr) string {
	unnamed := present == "" || present == "(none)"
	_, notAddress := net.ParseMAC(present)
	switch {
	case offered != "" && (unnamed || notAddress == nil):
		return offered
	case unnamed:
		return strings.ReplaceAll(card.String(), ":", "-")
	}
	return present
}
