// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package liveinit

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/nmstate"
)

const wanted = `
interfaces:
- {name: eth0, type: ethernet, state: up, mtu: 9000, ipv4: {enabled: true, dhcp: false, address: [{ip: 192.0.2.7, prefix-length: 24}]}, ipv6: {enabled: true, address: [{ip: "2001:db8::7", prefix-length: 64}]}}
- {name: eth1, type: ethernet, state: up, ipv4: {enabled: true, dhcp: true}}
- {name: eth0.12, type: vlan, state: up, vlan: {base-iface: eth0, id: 12}, ipv4: {enabled: true, address: [{ip: 198.51.100.7, prefix-length: 25}]}}
- {name: eth2, type: ethernet, state: down}
routes:
  config:
  - {destination: 0.0.0.0/0, next-hop-address: 192.0.2.1, next-hop-interface: eth0, metric: 150}
  - {destination: "::/0", next-hop-address: "2001:db8::1", next-hop-interface: eth0}
  - {destination: 203.0.113.9/24, next-hop-interface: eth0.12}
dns-resolver: {config: {server: [192.0.2.53, "2001:db8::53"], search: [example.com]}}
`

func statements(t *testing.T, state string) []byte {
	t.Helper()
	config, err := json.Marshal([]map[string]any{
		{"network_yaml": "interfaces: [{name: a}]", "mac_interface_map": []any{map[string]string{"mac_address": "52:54:00:00:00:99", "logical_nic_name": "a"}}},
		{"network_yaml": state, "mac_interface_map": []any{
			map[string]string{"mac_address": "52:54:00:00:00:AA", "logical_nic_name": "eth0"}, map[string]string{"mac_address": "52:54:00:00:00:ab", "logical_nic_name": "eth1"},
			map[string]string{"mac_address": "52:54:00:00:00:ac", "logical_nic_name": "eth2"},
		}},
	})
	require.NoError(t, err)
	return config
}

func TestACardGetsWhatIsStatedForItsAddress(t *testing.T) {
	config := statements(t, wanted)
	found, err := staticFor(config, "52:54:00:00:00:aa")
	require.NoError(t, err)
	assert.Equal(t, &static{
		dns: []netip.Addr{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("2001:db8::53")}, search: []string{"example.com"},
		links: []link{
			{
				mtu: 9000, addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.7/24"), netip.MustParsePrefix("2001:db8::7/64")},
				routes: []route{
					{to: netip.MustParsePrefix("0.0.0.0/0"), via: netip.MustParseAddr("192.0.2.1"), metric: 150}, {to: netip.MustParsePrefix("::/0"), via: netip.MustParseAddr("2001:db8::1")},
				},
			},
			{name: "eth0.12", vlan: 12, addresses: []netip.Prefix{netip.MustParsePrefix("198.51.100.7/25")}, routes: []route{{to: netip.MustParsePrefix("203.0.113.0/24")}}},
		},
	}, found)
	found, err = staticFor(config, "52:54:00:00:00:ab")
	require.NoError(t, err)
	assert.Equal(t, []link{{dhcp: true}}, found.links)
	for _, other := range []string{"52:54:00:00:00:ac", "52:54:00:00:00:01"} {
		found, err = staticFor(config, other)
		require.NoError(t, err)
		assert.Nil(t, found, "DHCP is left to it: %s", other)
	}
}

func TestAStaticNetworkThatCannotBeReadIsSaid(t *testing.T) {
	for _, state := range []string{
		"interfaces: 7", `interfaces: [{name: eth0, ipv4: {enabled: true, address: [{ip: 300.0.0.1, prefix-length: 24}]}}]`, `{interfaces: [{name: eth0}], dns-resolver: {config: {server: [x]}}}`,
		`{interfaces: [{name: eth0}], routes: {config: [{destination: x, next-hop-interface: eth0}]}}`,
	} {
		_, err := staticFor(statements(t, state), "52:54:00:00:00:aa")
		require.Error(t, err, state)
	}
	_, err := staticFor([]byte("no JSON"), "")
	require.ErrorContains(t, err, "reading the static network")
}

func FuzzStatic(f *testing.F) {
	f.Add(wanted)
	f.Fuzz(func(_ *testing.T, state string) {
		_, _ = stated(nmstate.Statement{YAML: state}, "eth0")
	})
}
