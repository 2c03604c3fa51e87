// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package liveinit

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"

	"github.com/muster-io/muster/apis/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

// The kernel has what is stated, once, also where it is stated again. VLANs, which few kernels of containers have, are tested by machines that boot.
func TestTheKernelHasWhatIsStated(t *testing.T) {
	netnstest.Need(t)
	netnstest.IP(t, "link add card0 type bridge")
	t.Cleanup(func() { netnstest.IP(t, "link del card0") })
	card, err := net.InterfaceByName("card0")
	require.NoError(t, err)
	own, router, other := netip.MustParsePrefix("192.0.2.5/24"), netip.MustParseAddr("192.0.2.1"), netip.MustParsePrefix("198.51.100.0/24")

	for range 2 {
		require.NoError(t, up(card.Index, 1400))
		require.NoError(t, addAddress(card.Index, own, time.Hour))
		require.NoError(t, addAddress(card.Index, netip.MustParsePrefix("2001:db8::5/64"), 0))
		require.NoError(t, addRoute(card.Index, route{to: netip.PrefixFrom(netip.IPv4Unspecified(), 0), via: router, metric: 101}))
		require.NoError(t, addRoute(card.Index, route{to: other}))
	}

	link, err := netlink.LinkByIndex(card.Index)
	require.NoError(t, err)
	assert.Equal(t, 1400, link.Attrs().MTU)
	assert.NotZero(t, link.Attrs().Flags&net.FlagUp)
	addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
	require.NoError(t, err)
	require.Len(t, addresses, 1)
	assert.Equal(t, "192.0.2.5/24", addresses[0].IPNet.String())
	assert.InDelta(t, 3600, addresses[0].ValidLft, 60, "the address ends with its lease")
	addresses, err = netlink.AddrList(link, netlink.FAMILY_V6)
	require.NoError(t, err)
	var stated []string
	for _, a := range addresses {
		if a.Scope == int(netlink.SCOPE_UNIVERSE) {
			stated = append(stated, a.IPNet.String())
			assert.Greater(t, a.ValidLft, 1<<31-1, "an address without a lease does not end")
		}
	}
	assert.Equal(t, []string{"2001:db8::5/64"}, stated)
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{LinkIndex: card.Index, Protocol: 4}, netlink.RT_FILTER_OIF|netlink.RT_FILTER_PROTOCOL)
	require.NoError(t, err)
	require.Len(t, routes, 2)
	for _, r := range routes {
		if r.Gw != nil {
			assert.Equal(t, "192.0.2.1", r.Gw.String())
			assert.Equal(t, 101, r.Priority)
			continue
		}
		assert.Equal(t, other.String(), r.Dst.String())
		assert.Equal(t, netlink.SCOPE_LINK, r.Scope)
	}
}
