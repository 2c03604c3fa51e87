// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nmstate_test

import (
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/nmstate"
)

const wanted = `
interfaces:
- {name: eth0, type: ethernet, state: up}
- {name: eth1, type: ethernet, state: up}
- name: bond0
  type: bond
  state: up
  mtu: 9000
  link-aggregation: {mode: active-backup, options: {miimon: 1000000, primary: eth0}, port: [eth0, eth1]}
  ipv4: {enabled: true, dhcp: false, address: [{ip: 192.0.2.7, prefix-length: 24}]}
  ipv6: {enabled: true, address: [{ip: "2001:db8::7", prefix-length: 64}]}
- {name: bond0.12, type: vlan, state: up, vlan: {base-iface: bond0, id: 12}, ipv4: {enabled: true, dhcp: true, auto-dns: false, auto-gateway: false}}
- {name: eth2, type: ethernet, state: up, ipv4: {enabled: true, dhcp: true}, ipv6: {enabled: true, autoconf: true, dhcp: true}}
- {name: eth3, type: ethernet, state: down}
- {name: br0, type: linux-bridge, state: up}
routes:
  config:
  - {destination: 0.0.0.0/0, next-hop-address: 192.0.2.1, next-hop-interface: bond0, metric: 150, table-id: 254}
  - {destination: "::/0", next-hop-address: "2001:db8::1", next-hop-interface: bond0}
  - {destination: 203.0.113.9/24, next-hop-interface: bond0.12}
dns-resolver: {config: {server: [192.0.2.53, "2001:db8::53"], search: [example.com]}}
`

func statement(state string) nmstate.Statement {
	return nmstate.Statement{YAML: state, Cards: []nmstate.Card{{MAC: "52:54:00:00:00:aa", Name: "eth0"}, {MAC: "52:54:00:00:00:ab", Name: "eth1"}}}
}

// plain is a profile without its own UUID, and with names in the place of those of others.
func plain(t *testing.T, files map[string]string, name string) string {
	t.Helper()
	text := files[name+".nmconnection"]
	require.NotEmpty(t, text, name)
	for other, content := range files {
		_, rest, found := strings.Cut(content, "\nuuid=")
		require.True(t, found)
		text = strings.ReplaceAll(text, rest[:36], "<"+strings.TrimSuffix(other, ".nmconnection")+">")
	}
	return text
}

func TestProfilesOfNetworkManager(t *testing.T) {
	t.Parallel()
	found, err := statement(wanted).Keyfiles()
	require.NoError(t, err)
	assert.Equal(t, []string{"br0 (linux-bridge)"}, found.Ignored)
	assert.ElementsMatch(t, []string{"eth0.nmconnection", "eth1.nmconnection", "bond0.nmconnection", "bond0.12.nmconnection", "eth2.nmconnection"}, slices.Collect(maps.Keys(found.Files)))
	for name, is := range map[string]string{
		"eth0": `[connection]
id=eth0
uuid=<eth0>
type=ethernet
autoconnect-priority=1
master=<bond0>
slave-type=bond

[ethernet]
mac-address=52:54:00:00:00:AA
`,
		"bond0": `[connection]
id=bond0
uuid=<bond0>
type=bond
interface-name=bond0
autoconnect-priority=1

[ethernet]
mtu=9000

[bond]
mode=active-backup
miimon=1000000
primary=eth0

[ipv4]
method=manual
address1=192.0.2.7/24
route1=0.0.0.0/0,192.0.2.1,150
route1_options=table=254
dns=192.0.2.53;
dns-search=example.com;

[ipv6]
method=manual
address1=2001:db8::7/64
route1=::/0,2001:db8::1
dns=2001:db8::53;
dns-search=example.com;
`,
		"bond0.12": `[connection]
id=bond0.12
uuid=<bond0.12>
type=vlan
interface-name=bond0.12
autoconnect-priority=1

[ethernet]

[vlan]
id=12
parent=<bond0>
flags=1

[ipv4]
method=auto
route1=203.0.113.0/24,0.0.0.0
dns=192.0.2.53;
dns-search=example.com;
ignore-auto-dns=true
never-default=true

[ipv6]
method=disabled
`,
		"eth2": `[connection]
id=eth2
uuid=<eth2>
type=ethernet
interface-name=eth2
autoconnect-priority=1

[ethernet]

[ipv4]
method=auto
dns=192.0.2.53;
dns-search=example.com;

[ipv6]
method=auto
dns=2001:db8::53;
dns-search=example.com;
`,
	} {
		assert.Equal(t, is, plain(t, found.Files, name))
	}
	again, err := statement(wanted).Keyfiles()
	require.NoError(t, err)
	assert.Equal(t, found, again, "replicas render the same")
}

func TestANamedCardWithoutStatementHasAProfile(t *testing.T) {
	t.Parallel()
	found, err := statement(`
interfaces:
- {name: bond0, type: bond, link-aggregation: {mode: 802.3ad, slaves: [eth0, eth7]}, ipv4: {enabled: true, dhcp: true}}
- {name: gone, type: bond, state: absent, link-aggregation: {mode: 802.3ad, port: [eth8]}}
- {name: office, type: vlan, vlan: {base-iface: eth1, id: 7}}
- {name: other, type: vlan, vlan: {base-iface: eth9, id: 7}}
`).Keyfiles()
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"bond0.nmconnection", "eth0.nmconnection", "eth7.nmconnection", "office.nmconnection", "eth1.nmconnection", "other.nmconnection"}, slices.Collect(maps.Keys(found.Files)))
	for name, holds := range map[string]string{
		"eth0": "master=<bond0>\nslave-type=bond\n\n[ethernet]\nmac-address=52:54:00:00:00:AA\n", "eth7": "interface-name=eth7\nautoconnect-priority=1\nmaster=<bond0>\n",
		"eth1": "mac-address=52:54:00:00:00:AB\n\n[ipv4]\nmethod=disabled\n", "office": "parent=<eth1>\n", "other": "parent=eth9\n",
	} {
		assert.Contains(t, plain(t, found.Files, name), holds)
	}
}

func TestAMachineFindsItsStatement(t *testing.T) {
	t.Parallel()
	other := nmstate.Statement{YAML: "interfaces: []", Cards: []nmstate.Card{{MAC: "52:54:00:00:00:99", Name: "eth0"}}}
	upper := statement(wanted)
	upper.Cards = []nmstate.Card{{MAC: "52:54:00:00:00:AA", Name: "eth0"}, {MAC: "52:54:00:00:00:AB", Name: "eth1"}}
	all := []nmstate.Statement{other, upper, statement("interfaces: 7")}
	primary := func(cards map[string]string) string {
		found := nmstate.For(all, cards)
		require.NotNil(t, found)
		profiles, err := found.Keyfiles()
		require.NoError(t, err)
		_, rest, _ := strings.Cut(profiles.Files["bond0.nmconnection"], "\nprimary=")
		name, _, _ := strings.Cut(rest, "\n")
		return name
	}
	assert.Equal(t, "enp1s0", primary(map[string]string{"52:54:00:00:00:aa": "enp1s0", "52:54:00:00:00:ab": "enp2s0"}), "the first statement that names a card")
	assert.Equal(t, "eth0", primary(map[string]string{"52:54:00:00:00:ab": "enp2s0"}), "the machine's own name of the card is unknown")
	assert.Equal(t, "eth0", primary(map[string]string{"52:54:00:00:00:aa": "enp1s0\nmode=active-backup"}), "this is no name")
	assert.Empty(t, upper.Cards[0].Kernel, "the argument is not changed")
	assert.Nil(t, nmstate.For(all, map[string]string{"52:54:00:00:00:01": "eth0", "": "eth1"}))
	assert.Nil(t, nmstate.For(nil, map[string]string{"52:54:00:00:00:aa": "eth0"}))
}

// NetworkManager itself reads what is rendered, where it is at hand.
func TestNetworkManagerReadsProfiles(t *testing.T) {
	t.Parallel()
	nmcli, err := exec.LookPath("nmcli")
	if err != nil {
		t.Skip("there is no nmcli here: NetworkManager does not read the profiles")
	}
	found, err := statement(wanted).Keyfiles()
	require.NoError(t, err)
	for name, content := range found.Files {
		command := exec.CommandContext(t.Context(), nmcli, "--offline", "connection", "modify", "connection.zone", "")
		command.Stdin, command.Env = strings.NewReader(content), append(os.Environ(), "LC_ALL=C.UTF-8")
		output, err := command.CombinedOutput()
		require.NoError(t, err, "%s: %s", name, output)
		for line := range strings.Lines(content) {
			// It leaves out that there is no next hop.
			assert.Contains(t, string(output), strings.TrimSuffix(strings.TrimSpace(line), ",0.0.0.0"), name)
		}
	}
}

func TestUnusableNetworksAreRefused(t *testing.T) {
	t.Parallel()
	for state, says := range map[string]string{
		"interfaces: 7": "cannot unmarshal",
		`interfaces: [{name: "a/b", type: ethernet}]`:                                                                                                      "not one of an interface",
		`interfaces: [{name: eth0, ipv4: {enabled: true, address: [{ip: 300.0.0.1, prefix-length: 24}]}}]`:                                                 `interface "eth0"`,
		`interfaces: [{name: v, type: vlan, vlan: {id: 7}}]`:                                                                                               "needs a base-iface",
		`interfaces: [{name: b, type: bond, link-aggregation: {mode: "x\ny"}}]`:                                                                            "not an option of a bond",
		`{interfaces: [{name: eth0, ipv4: {enabled: true}}], dns-resolver: {config: {server: [x]}}}`:                                                       "x",
		`{interfaces: [{name: eth0, ipv4: {enabled: true}}], dns-resolver: {config: {search: ["a\nb"]}}}`:                                                  "not a domain",
		`{interfaces: [{name: eth0, ipv4: {enabled: true}}], routes: {config: [{destination: x, next-hop-interface: eth0}]}}`:                              "x",
		`{interfaces: [{name: eth0, ipv4: {enabled: true}}], routes: {config: [{destination: 0.0.0.0/0, next-hop-address: z, next-hop-interface: eth0}]}}`: "z",
	} {
		found, err := statement(state).Keyfiles()
		require.ErrorContains(t, err, says, state)
		assert.Empty(t, found.Files)
	}
	_, err := nmstate.Read([]byte("no JSON"))
	require.ErrorContains(t, err, "reading the static network")
	for _, card := range []nmstate.Card{{MAC: "x", Name: "a"}, {MAC: "52:54:00:00:00:aa", Name: "a/b"}} {
		_, err = nmstate.Statement{YAML: "interfaces: [{name: a}]", Cards: []nmstate.Card{card}}.Keyfiles()
		require.ErrorContains(t, err, "are not the address and the name of a card")
	}
}

func FuzzKeyfiles(f *testing.F) {
	f.Add(wanted)
	f.Add(odd)
	f.Fuzz(func(t *testing.T, state string) {
		found, err := statement(state).Keyfiles()
		_, _, same := statement(state).Netplan()
		assert.Equal(t, err, same, "netplan accepts what NetworkManager accepts")
		for name, content := range found.Files {
			assert.NotContains(t, name, "/")
			for line := range strings.Lines(content) {
				assert.Regexp(t, `^(\[(connection|ethernet|vlan|bond|ipv4|ipv6)\]|[a-zA-Z0-9_.,:+ -]+=[^\n]+)?\n$`, line)
			}
		}
	})
}
