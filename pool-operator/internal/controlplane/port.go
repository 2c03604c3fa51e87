// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// PortRange holds the ports to choose from, both ends included. The zero range lets the kernel choose, which is right
// for a control plane that lives as long as its process: the kernel's choice may serve an outgoing connection of
// any process while the plane is stopped.
type PortRange struct {
	First, Last int
}

// reservation holds a port without listening on it. The API server shares the port (SO_REUSEPORT, which the kernel
// grants to processes of the same user only), and no other user's process can bind it.
type reservation struct {
	file *os.File
	port int
}

func (r *reservation) release() error {
	if r == nil {
		return nil
	}
	return r.file.Close()
}

// reserve takes one port, or any free one for 0. It returns a PortTakenError when another program has it.
func reserve(ctx context.Context, host netip.Addr, port int) (*reservation, error) {
	if port < 0 || port > math.MaxUint16 {
		return nil, fmt.Errorf("reserving a port: %d is none", port)
	}
	address := netip.AddrPortFrom(host, uint16(port))
	if port != 0 {
		// Sharing would also admit another program of this user that shares; an exclusive attempt finds that.
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address.String())
		if err != nil {
			return nil, asPortTaken(address, err)
		}
		if err := listener.Close(); err != nil {
			return nil, fmt.Errorf("probing port %d: %w", port, err)
		}
	}
	file, err := bindShared(address)
	if err != nil {
		return nil, asPortTaken(address, err)
	}
	bound, err := boundPort(file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &reservation{file: file, port: bound}, nil
}

// reserveIn takes a free port of the range, beginning anywhere, so that neighbours rarely try the same.
func reserveIn(ctx context.Context, host netip.Addr, ports PortRange, skip func(port int) bool) (*reservation, error) {
	if ports == (PortRange{}) {
		return reserve(ctx, host, 0)
	}
	size := ports.Last - ports.First + 1
	if size < 1 {
		return nil, &NoFreePortError{Range: ports}
	}
	for i, offset := 0, rand.IntN(size); i < size; i++ { //nolint:gosec // it only spreads, it protects nothing
		port := ports.First + (offset+i)%size
		if skip != nil && skip(port) {
			continue
		}
		held, err := reserve(ctx, host, port)
		if _, taken := errors.AsType[*PortTakenError](err); taken {
			continue
		}
		return held, err
	}
	return nil, &NoFreePortError{Range: ports}
}

func bindShared(address netip.AddrPort) (*os.File, error) {
	family, to := unix.AF_INET, unix.Sockaddr(nil)
	if address.Addr().Is4() {
		to = &unix.SockaddrInet4{Port: int(address.Port()), Addr: address.Addr().As4()}
	} else {
		family, to = unix.AF_INET6, &unix.SockaddrInet6{Port: int(address.Port()), Addr: address.Addr().As16()}
	}
	// The lock keeps a fork in another goroutine from inheriting the socket before it is marked.
	syscall.ForkLock.RLock()
	fd, err := unix.Socket(family, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, fmt.Errorf("opening a socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), address.String())
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	if err == nil {
		err = unix.Bind(fd, to)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func boundPort(file *os.File) (int, error) {
	name, err := unix.Getsockname(int(file.Fd()))
	if err != nil {
		return 0, fmt.Errorf("reading the bound port: %w", err)
	}
	switch name := name.(type) {
	case *unix.SockaddrInet4:
		return name.Port, nil
	case *unix.SockaddrInet6:
		return name.Port, nil
	default:
		return 0, fmt.Errorf("reading the bound port: unexpected address %T", name)
	}
}

func asPortTaken(address netip.AddrPort, err error) error {
	if errors.Is(err, unix.EADDRINUSE) {
		return &PortTakenError{Address: net.JoinHostPort(address.Addr().String(), strconv.Itoa(int(address.Port())))}
	}
	return fmt.Errorf("reserving port %s: %w", address, err)
}
