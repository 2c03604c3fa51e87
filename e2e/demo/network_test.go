// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheTableOfNetworkData(t *testing.T) {
	lines, err := networkTable([]byte(`
links:
- {id: eno1, ethernet_mac_address: "52:54:00:00:00:01", mtu: 1500, type: phy}
networks:
- id: baremetal
  ip_address: 198.51.100.10
  link: eno1
  netmask: 255.255.255.0
  routes: [{gateway: 198.51.100.1, netmask: 0.0.0.0, network: 0.0.0.0, services: []}]
- {id: v6, ip_address: "2001:db8::1", link: eno1, netmask: "ffff:ffff:ffff:ffff::"}
services:
- {address: 198.51.100.2, type: dns}
- {address: 198.51.100.3, type: dns}
`))
	require.NoError(t, err)
	assert.Equal(t, []string{
		"LINK  MAC                ADDRESS        NETMASK                GATEWAY       NAME SERVER",
		"eno1  52:54:00:00:00:01  198.51.100.10  255.255.255.0          198.51.100.1  198.51.100.2,198.51.100.3",
		"eno1  52:54:00:00:00:01  2001:db8::1    ffff:ffff:ffff:ffff::  -             198.51.100.2,198.51.100.3",
	}, lines)
	_, err = networkTable([]byte("links: none"))
	require.Error(t, err)
}
