// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package apiaddress_test

import (
	"encoding/hex"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/muster-io/muster/agent-service/internal/apiaddress"
	"github.com/muster-io/muster/apis/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

const card = "52:54:00:00:00:0a"

// newCard makes a card with an address of each family, and returns what comes out of its cable.
func newCard(t *testing.T) *cable {
	t.Helper()
	netnstest.Need(t)
	netnstest.IP(t, "link add card0 address "+card+" type veth peer name cable0")
	t.Cleanup(func() { netnstest.IP(t, "link del card0") })
	netnstest.IP(t, "address add 192.0.2.11/24 dev card0")
	netnstest.IP(t, "address add 2001:db8::11/64 dev card0 nodad")
	netnstest.IP(t, "link set cable0 up")
	netnstest.IP(t, "link set card0 up")
	other, err := net.InterfaceByName("cable0")
	require.NoError(t, err)
	all := int(unix.ETH_P_ALL)
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, all<<8|all>>8)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(socket) })
	require.NoError(t, unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: uint16(all<<8 | all>>8), Ifindex: other.Index}))
	require.NoError(t, unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}))
	return &cable{socket}
}

// cable is the end of a cable.
type cable struct{ socket int }

// carries waits for a frame that has these bytes, written as hexadecimal digits, somewhere.
func (c *cable) carries(t *testing.T, what, digits string) {
	t.Helper()
	wanted, err := hex.DecodeString(digits)
	require.NoError(t, err)
	frame := make([]byte, 2048)
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		n, _, err := unix.Recvfrom(c.socket, frame, 0)
		if err == nil && slices.ContainsFunc(windows(frame[:n], len(wanted)), func(w []byte) bool { return string(w) == string(wanted) }) {
			return
		}
	}
	require.Fail(t, "no such frame", what)
}

func windows(all []byte, size int) (parts [][]byte) {
	for i := 0; i+size <= len(all); i++ {
		parts = append(parts, all[i:i+size])
	}
	return parts
}

// source is the address that the machine sends from by itself.
func source(t *testing.T, to string) string {
	t.Helper()
	var routes []netlink.Route
	require.Eventually(t, func() bool {
		var err error
		routes, err = netlink.RouteGet(net.ParseIP(to))
		return err == nil && len(routes) > 0
	}, 20*time.Second, 50*time.Millisecond)
	return routes[0].Src.String()
}

func TestAnAddressMovesToAMachineAndIsAnnounced(t *testing.T) {
	c := newCard(t)
	for _, test := range []struct{ address, own, neighbour, what, frame string }{
		// Hardware and protocol, their lengths, request, sender and target.
		{"192.0.2.100", "192.0.2.11", "192.0.2.50", "ARP request", "ffffffffffff" + "52540000000a" + "0806" + "000108000604" + "0001" + "52540000000a" + "c0000264" + "000000000000" + "c0000264"},
		{"192.0.2.100", "192.0.2.11", "192.0.2.50", "ARP answer", "ffffffffffff" + "52540000000a" + "0806" + "000108000604" + "0002" + "52540000000a" + "c0000264" + "52540000000a" + "c0000264"},
		// Override, target, and its link-layer address.
		{"2001:db8::100", "2001:db8::11", "2001:db8::50", "neighbour advertisement", "20000000" + "20010db8000000000000000000000100" + "0201" + "52540000000a"},
	} {
		address, own := netip.MustParseAddr(test.address), netip.MustParseAddr(test.own)
		var interfaces apiaddress.Interfaces
		for range 2 {
			require.NoError(t, interfaces.Add(address, own))
		}
		c.carries(t, test.what, test.frame)
		has, err := interfaces.Addresses()
		require.NoError(t, err)
		assert.Contains(t, has, address)
		assert.Equal(t, test.own, source(t, test.neighbour), "the machine sends from its own address")

		for range 2 {
			require.NoError(t, interfaces.Remove(address))
			has, err = interfaces.Addresses()
			require.NoError(t, err)
			assert.ElementsMatch(t, []netip.Addr{netip.MustParseAddr("192.0.2.11"), netip.MustParseAddr("2001:db8::11")}, has)
		}
	}
}

func TestAnAddressThatIsLeftOverIsRemovedFromEachInterface(t *testing.T) {
	newCard(t)
	netnstest.IP(t, "link add card1 type bridge")
	t.Cleanup(func() { netnstest.IP(t, "link del card1") })
	netnstest.IP(t, "address add 192.0.2.100/24 dev card1")
	netnstest.IP(t, "address add 192.0.2.100/32 dev card0")
	var interfaces apiaddress.Interfaces
	require.NoError(t, interfaces.Remove(netip.MustParseAddr("192.0.2.100")))
	has, err := interfaces.Addresses()
	require.NoError(t, err)
	assert.NotContains(t, has, netip.MustParseAddr("192.0.2.100"))
	require.ErrorContains(t, interfaces.Add(netip.MustParseAddr("192.0.2.100"), netip.MustParseAddr("192.0.2.99")), "no interface has the address 192.0.2.99")
}
