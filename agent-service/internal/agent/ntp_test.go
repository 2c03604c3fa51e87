// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// timeServer answers each request with the time of this machine and a stratum, until the test ends; it returns its port.
func timeServer(t *testing.T, stratum byte) int {
	t.Helper()
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		request := make([]byte, 512)
		for {
			n, from, err := server.ReadFromUDP(request)
			if err != nil {
				return
			}
			if n < 48 {
				continue
			}
			answer := make([]byte, 48)
			answer[0], answer[1] = 0x24, stratum // version 4, server
			copy(answer[24:32], request[40:48])  // the time at which the client asked, as the client has it
			now := time.Now().Add(70 * 365 * 24 * time.Hour).Add(17 * 24 * time.Hour)
			stamp := uint64(now.Unix())<<32 | uint64(now.Nanosecond())<<32/uint64(time.Second)
			for _, at := range []int{16, 32, 40} {
				binary.BigEndian.PutUint64(answer[at:], stamp)
			}
			_, _ = server.WriteToUDP(answer, from)
		}
	}()
	return server.LocalAddr().(*net.UDPAddr).Port
}

func TestTimeServersAreAsked(t *testing.T) {
	defer func(port int) { ntpPort = port }(ntpPort)

	ntpPort = timeServer(t, 2)
	assert.Equal(t, "synced", askTime(t.Context(), "127.0.0.1"))

	ntpPort = timeServer(t, 0)
	assert.Equal(t, "error", askTime(t.Context(), "127.0.0.1"), "a server of stratum 0 has no time to give")

	closed, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	ntpPort = closed.LocalAddr().(*net.UDPAddr).Port
	require.NoError(t, closed.Close())
	assert.Equal(t, "unreachable", askTime(t.Context(), "127.0.0.1"))
}
