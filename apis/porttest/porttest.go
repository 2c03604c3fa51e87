// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package porttest finds ports for servers of tests that begin to listen after their address is known, or that listen on it again.
package porttest

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// The ports lie below those of hosted control planes, and below those that the kernel gives away: until a server listens, and while it is down, one of
// these could be taken.
const first, last = 11000, 19899

// Free returns a port of 127.0.0.1 on which no process listens. No other caller gets it until the test ends.
func Free(t testing.TB) string {
	t.Helper()
	port, claim, err := find()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = claim.Close() })
	return port
}

// Find is Free for a program: no other caller gets the port until the program ends.
func Find() (string, error) {
	port, claim, err := find()
	claims.Store(port, claim)
	return port, err
}

// claims keeps what Find returned: a socket that nothing refers to is closed.
var claims sync.Map

func find() (port string, claim io.Closer, err error) {
	loopback := net.IPv4(127, 0, 0, 1)
	for range 100 {
		number := first + rand.IntN(last-first+1) //nolint:gosec // it only spreads, it protects nothing
		// The namesake of UDP is in no server's way, and keeps other processes away.
		claim, err := net.ListenUDP("udp", &net.UDPAddr{IP: loopback, Port: number})
		if err != nil {
			continue
		}
		listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: loopback, Port: number})
		if err != nil {
			_ = claim.Close()
			continue
		}
		return strconv.Itoa(number), claim, listener.Close()
	}
	return "", nil, errors.New("looking for a free port: a hundred were taken")
}
