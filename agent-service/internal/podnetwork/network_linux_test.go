// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package podnetwork_test

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/apis/netnstest"

	"github.com/muster-io/muster/agent-service/internal/podnetwork"
	"github.com/muster-io/muster/agent-service/internal/routeplan"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

// routes are those of the kernel to networks of pods. The bridge of the tests has no carrier.
func routes(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ip", "route", "show", "root", "10.0.0.0/8").Output()
	require.NoError(t, err)
	var list []string
	for line := range strings.Lines(string(out)) {
		list = append(list, strings.TrimSpace(strings.NewReplacer("proto 109", "", "linkdown", "").Replace(line)))
	}
	return list
}

func route(to, via string) routeplan.Route {
	return routeplan.Route{To: netip.MustParsePrefix(to), Via: netip.MustParseAddr(via)}
}

func TestTheKernelHasTheRoutesThatAreWanted(t *testing.T) {
	netnstest.Need(t)
	netnstest.IP(t, "link add rack0 type bridge")
	t.Cleanup(func() { netnstest.IP(t, "link del rack0") })
	netnstest.IP(t, "link set rack0 up")
	netnstest.IP(t, "address add 192.0.2.5/24 dev rack0")
	netnstest.IP(t, "route add 10.99.0.0/24 via 192.0.2.99")
	const users = "10.99.0.0/24 via 192.0.2.99 dev rack0"
	var said []string
	say := func(format string, _ ...any) { said = append(said, format) }

	first := []routeplan.Route{route("10.244.1.0/24", "192.0.2.1"), route("10.244.2.0/24", "192.0.2.2")}
	require.NoError(t, podnetwork.Sync(first, say))
	assert.ElementsMatch(t, []string{users, "10.244.1.0/24 via 192.0.2.1 dev rack0", "10.244.2.0/24 via 192.0.2.2 dev rack0"}, routes(t))
	said = nil
	require.NoError(t, podnetwork.Sync(first, say))
	assert.Empty(t, said, "nothing changes")

	err := podnetwork.Sync([]routeplan.Route{route("10.244.3.0/24", "198.51.100.3"), route("10.244.2.0/24", "192.0.2.7")}, say)
	require.ErrorContains(t, err, "routing to pods in 10.244.3.0/24 by 198.51.100.3", "it is on no link")
	assert.ElementsMatch(t, []string{users, "10.244.2.0/24 via 192.0.2.7 dev rack0"}, routes(t))

	netnstest.IP(t, "link set rack0 down")
	netnstest.IP(t, "link set rack0 up")
	require.NoError(t, podnetwork.Sync([]routeplan.Route{route("10.244.2.0/24", "192.0.2.7")}, say))
	assert.Equal(t, []string{"10.244.2.0/24 via 192.0.2.7 dev rack0"}, routes(t), "a link that was down has its routes again")
	require.NoError(t, podnetwork.Sync(nil, say))
	assert.Empty(t, routes(t))
}
