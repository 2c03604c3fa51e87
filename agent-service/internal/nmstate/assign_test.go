// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nmstate_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/nmstate"
)

func four(name, mac string) nmstate.Assigned {
	return nmstate.Assigned{
		Interface: name, MAC: mac, Address: netip.MustParsePrefix("198.51.100.9/25"), Gateway: netip.MustParseAddr("198.51.100.1"), DNS: []netip.Addr{netip.MustParseAddr("198.51.100.53")},
	}
}

func profile(t *testing.T, s nmstate.Statement, name string) string {
	t.Helper()
	profiles, err := s.Keyfiles()
	require.NoError(t, err)
	return plain(t, profiles.Files, name)
}

func TestACardThatNothingIsStatedForGetsAnAddress(t *testing.T) {
	assigned, err := nmstate.Statement{}.Assign(four("eno1", "52:54:00:00:00:01"))
	require.NoError(t, err)
	assert.Equal(t, `[connection]
id=eno1
uuid=<eno1>
type=ethernet
autoconnect-priority=1

[ethernet]
mac-address=52:54:00:00:00:01

[ipv4]
method=manual
address1=198.51.100.9/25
route1=0.0.0.0/0,198.51.100.1
dns=198.51.100.53;

[ipv6]
method=auto
`, profile(t, assigned, "eno1"))
	six, err := assigned.Assign(nmstate.Assigned{Interface: "eno1", MAC: "52:54:00:00:00:01", Address: netip.MustParsePrefix("2001:db8::9/64")})
	require.NoError(t, err)
	both := profile(t, six, "eno1")
	assert.Contains(t, both, "address1=198.51.100.9/25")
	assert.Contains(t, both, "[ipv6]\nmethod=manual\naddress1=2001:db8::9/64\n")
	text, ignored, err := six.Netplan()
	require.NoError(t, err)
	assert.Empty(t, ignored)
	assert.Contains(t, text, "198.51.100.9/25")
	assert.Contains(t, text, "2001:db8::9/64")
}

func TestAnAddressTakesThePlaceOfThoseThatAreStated(t *testing.T) {
	assigned, err := statement(wanted).Assign(four("bond0", ""))
	require.NoError(t, err)
	bond := profile(t, assigned, "bond0")
	assert.Contains(t, bond, "address1=198.51.100.9/25\nroute1=0.0.0.0/0,198.51.100.1\ndns=198.51.100.53;192.0.2.53;\n")
	assert.NotContains(t, bond, "192.0.2.7/24")
	assert.NotContains(t, bond, "192.0.2.1,150")
	assert.Contains(t, bond, "address1=2001:db8::7/64", "the other family stays")
	assert.Contains(t, bond, "mode=active-backup")

	_, err = statement(wanted).Assign(four("eno1", "52:54:00:00:00:AA"))
	require.ErrorContains(t, err, "eth0 is a port of bond0, which can have an address: write that as interface")
	_, err = statement(wanted).Assign(four("bond7", ""))
	require.ErrorContains(t, err, "no interface bond7 is stated for the machine")
	_, err = nmstate.Statement{YAML: ": : ["}.Assign(four("eno1", "52:54:00:00:00:01"))
	require.Error(t, err)
	again, err := statement("interfaces: []").Assign(four("eno1", "52:54:00:00:00:AA"))
	require.NoError(t, err)
	assert.Contains(t, profile(t, again, "eth0"), "mac-address=52:54:00:00:00:AA", "the card is called as the statement calls it")
}
