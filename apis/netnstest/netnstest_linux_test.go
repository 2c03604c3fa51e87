// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package netnstest_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/apis/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

func TestALinkOfATestIsNoLinkOfTheMachine(t *testing.T) {
	netnstest.Need(t)
	all, err := net.Interfaces()
	require.NoError(t, err)
	require.Len(t, all, 1, "there is loopback alone")
	assert.NotZero(t, all[0].Flags&net.FlagUp)
	netnstest.IP(t, "link add rack0 type bridge")
	t.Cleanup(func() { netnstest.IP(t, "link del rack0") })
	_, err = net.InterfaceByName("rack0")
	require.NoError(t, err)
}

func TestALinkHasTheTestsAndCardsOfMachines(t *testing.T) {
	netnstest.Need(t)
	link := netnstest.NewLink(t)
	for _, name := range []string{link.Tap(t), link.Tap(t)} {
		_, err := net.InterfaceByName(name)
		require.NoError(t, err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", netnstest.Address+":0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
}
