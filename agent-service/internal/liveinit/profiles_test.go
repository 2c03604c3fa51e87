// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package liveinit

import (
	"net/netip"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/nmstate"
)

const installedState = `
interfaces:
- {name: nic0, type: ethernet, state: up, mtu: 9000, ipv4: {enabled: true, address: [{ip: 10.0.2.77, prefix-length: 24}]}, ipv6: {enabled: true, address: [{ip: 'fd00:77::7', prefix-length: 64}]}}
- {name: nic0.12, type: vlan, state: up, vlan: {base-iface: nic0, id: 12}, ipv4: {enabled: true, address: [{ip: 192.0.2.7, prefix-length: 25}]}}
- {name: nic1, type: ethernet, state: up, ipv4: {enabled: true, dhcp: true}}
routes: {config: [{destination: 0.0.0.0/0, next-hop-address: 10.0.2.2, next-hop-interface: nic0, metric: 7}, {destination: 203.0.113.0/24, next-hop-interface: nic0.12}]}
dns-resolver: {config: {server: [10.0.2.3], search: [example.com]}}
`

// rendered are the profiles that first-boot data brings.
func rendered(t *testing.T, state string) fstest.MapFS {
	t.Helper()
	profiles, err := nmstate.Statement{YAML: state, Cards: []nmstate.Card{{MAC: "52:54:00:00:00:aa", Name: "nic0"}, {MAC: "52:54:00:00:00:ab", Name: "nic1"}}}.Keyfiles()
	require.NoError(t, err)
	files := fstest.MapFS{"README": {Data: []byte("[connection]\n")}}
	for name, text := range profiles.Files {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return files
}

func TestACardIsConfiguredAsItsProfilesState(t *testing.T) {
	found, err := profiled(rendered(t, installedState), "52:54:00:00:00:AA")
	require.NoError(t, err)
	assert.Equal(t, &static{
		dns: []netip.Addr{netip.MustParseAddr("10.0.2.3")}, search: []string{"example.com"},
		links: []link{
			{
				mtu: 9000, addresses: []netip.Prefix{netip.MustParsePrefix("10.0.2.77/24"), netip.MustParsePrefix("fd00:77::7/64")},
				routes: []route{{to: netip.MustParsePrefix("0.0.0.0/0"), via: netip.MustParseAddr("10.0.2.2"), metric: 7}},
			},
			{
				name: "nic0.12", vlan: 12, addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.7/25")},
				routes: []route{{to: netip.MustParsePrefix("203.0.113.0/24")}},
			},
		},
	}, found)
	found, err = profiled(rendered(t, installedState), "52:54:00:00:00:ab")
	require.NoError(t, err)
	require.Len(t, found.links, 1)
	assert.True(t, found.links[0].dhcp)
	found, err = profiled(rendered(t, installedState), "52:54:00:00:00:ac")
	require.NoError(t, err)
	assert.Nil(t, found, "it has no statement")
}

func TestAProfileThatCannotBeReadIsReported(t *testing.T) {
	for says, profile := range map[string]string{
		"makes it a part of a bond": "[connection]\nid=a\ntype=ethernet\nslave-type=bond\n[ethernet]\nmac-address=52:54:00:00:00:AA\n",
		"reading the profile a":     "[connection]\nid=a\ntype=ethernet\n[ethernet]\nmac-address=52:54:00:00:00:AA\n[ipv4]\naddress1=everywhere\n",
		"the mtu":                   "[connection]\nid=a\ntype=ethernet\n[ethernet]\nmac-address=52:54:00:00:00:AA\nmtu=large\n",
	} {
		_, err := profiled(fstest.MapFS{"a.nmconnection": {Data: []byte(profile)}}, "52:54:00:00:00:aa")
		assert.ErrorContains(t, err, says)
	}
}
