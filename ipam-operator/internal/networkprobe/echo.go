// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package networkprobe

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// protocols of ICMP, as packets name them.
const (
	protocolICMP   = 1
	protocolICMPv6 = 58
)

// Echo asks by ICMP, with the sockets that need no privilege. The kernel hands each socket the replies to what it sent.
type Echo struct {
	// Timeout of a request.
	Timeout time.Duration

	v4, v6 *icmp.PacketConn
	mu     sync.Mutex
	waits  map[netip.Addr]chan struct{}
}

// NewEcho opens the sockets. An error says that the system permits none: see the sysctl net.ipv4.ping_group_range.
func NewEcho(timeout time.Duration) (*Echo, error) {
	e := &Echo{Timeout: timeout, waits: map[netip.Addr]chan struct{}{}}
	var err error
	if e.v4, err = icmp.ListenPacket("udp4", "0.0.0.0"); err != nil {
		return nil, fmt.Errorf("opening a socket for echo requests: %w", err)
	}
	go e.read(e.v4, protocolICMP)
	if v6, err := icmp.ListenPacket("udp6", "::"); err == nil { // not on a machine without IPv6
		e.v6 = v6
		go e.read(e.v6, protocolICMPv6)
	}
	return e, nil
}

// Close ends the sockets.
func (e *Echo) Close() {
	_ = e.v4.Close()
	if e.v6 != nil {
		_ = e.v6.Close()
	}
}

// Answers reports whether an address replies to an echo request.
func (e *Echo) Answers(ctx context.Context, addr netip.Addr) bool {
	conn, message := e.v4, icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{Seq: 1, Data: []byte("ipam-operator")}}
	if addr.Is6() {
		conn, message.Type = e.v6, ipv6.ICMPTypeEchoRequest
	}
	if conn == nil {
		return false
	}
	packet, err := message.Marshal(nil)
	if err != nil {
		return false
	}
	replied := make(chan struct{}, 1)
	e.mu.Lock()
	e.waits[addr] = replied
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.waits, addr)
	}()
	if _, err := conn.WriteTo(packet, &net.UDPAddr{IP: addr.AsSlice()}); err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	select {
	case <-replied:
		return true
	case <-ctx.Done():
		return false
	}
}

// read takes replies until the socket is closed.
func (e *Echo) read(conn *icmp.PacketConn, protocol int) {
	buffer := make([]byte, 1500)
	for {
		n, peer, err := conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		message, err := icmp.ParseMessage(protocol, buffer[:n])
		if err != nil || message.Type != ipv4.ICMPTypeEchoReply && message.Type != ipv6.ICMPTypeEchoReply {
			continue
		}
		if from, ok := peer.(*net.UDPAddr); ok {
			addr, _ := netip.AddrFromSlice(from.IP)
			e.replied(addr.Unmap())
		}
	}
}

func (e *Echo) replied(addr netip.Addr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case e.waits[addr] <- struct{}{}:
	default: // none waits, or it is served already
	}
}
