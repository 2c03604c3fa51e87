// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nmstate_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/agent-service/internal/nmstate"
)

// onMachine is a statement on a machine that has names of its own for the cards.
func onMachine(t *testing.T, state string) *nmstate.Statement {
	t.Helper()
	found := nmstate.For([]nmstate.Statement{statement(state)}, map[string]string{"52:54:00:00:00:aa": "enp1s0", "52:54:00:00:00:ab": "enp2s0"})
	require.NotNil(t, found)
	return found
}

func TestNetworkConfigOfCloudInit(t *testing.T) {
	t.Parallel()
	text, ignored, err := onMachine(t, wanted).Netplan()
	require.NoError(t, err)
	assert.Equal(t, []string{"br0 (linux-bridge)"}, ignored)
	assert.YAMLEq(t, `
version: 2
ethernets:
  enp1s0: {match: {macaddress: "52:54:00:00:00:aa"}}
  enp2s0: {match: {macaddress: "52:54:00:00:00:ab"}}
  eth2: {dhcp4: true, dhcp6: true, accept-ra: true, nameservers: {addresses: [192.0.2.53, "2001:db8::53"], search: [example.com]}}
bonds:
  bond0:
    interfaces: [enp1s0, enp2s0]
    parameters: {mode: active-backup, mii-monitor-interval: 1000000, primary: enp1s0}
    mtu: 9000
    accept-ra: false
    addresses: [192.0.2.7/24, "2001:db8::7/64"]
    nameservers: {addresses: [192.0.2.53, "2001:db8::53"], search: [example.com]}
    routes:
    - {to: 0.0.0.0/0, via: 192.0.2.1, metric: 150, table: 254}
    - {to: "::/0", via: "2001:db8::1"}
vlans:
  bond0.12:
    {id: 12, link: bond0, dhcp4: true, dhcp4-overrides: {use-dns: false, use-routes: false}, accept-ra: false, link-local: [],
    nameservers: {addresses: [192.0.2.53, "2001:db8::53"], search: [example.com]}, routes: [{to: 203.0.113.0/24, scope: link}]}
`, text)
	again, _, err := onMachine(t, wanted).Netplan()
	require.NoError(t, err)
	assert.Equal(t, text, again, "replicas render the same")
}

// odd is what needs care in YAML and in netplan.
const odd = `
interfaces:
- {name: eth1.0, type: vlan, vlan: {base-iface: eth1, id: 0}, ipv4: {enabled: true, address: [{ip: 198.51.100.7, prefix-length: 25}]}}
- {name: far, type: vlan, vlan: {base-iface: eno9, id: 7}}
- name: "0"
  type: ethernet
  ipv4: {enabled: true, dhcp: true, auto-dns: false}
  ipv6: {enabled: true, dhcp: true}
- {name: b, type: bond, link-aggregation: {mode: active-backup, options: {arp_interval: 100, primary: eth0, fail_over_mac: "active"}, port: [eth0]}, ipv6: {enabled: true}}
routes: {config: [{destination: "2001:db8:1::/48", next-hop-interface: eth1.0}, {destination: "2001:db8:2::/48", next-hop-interface: b}]}
`

func TestNetworkConfigOfOddNetworks(t *testing.T) {
	t.Parallel()
	odd := statement(odd)
	odd.Cards = append(odd.Cards, nmstate.Card{MAC: "52:54:00:12:34:56", Name: "0"})
	text, ignored, err := odd.Netplan()
	require.NoError(t, err)
	assert.Equal(t, []string{"b (the option arp_interval)"}, ignored)
	assert.YAMLEq(t, `
version: 2
ethernets:
  eth0: {match: {macaddress: "52:54:00:00:00:aa"}}
  eth1: {match: {macaddress: "52:54:00:00:00:ab"}, accept-ra: false, link-local: []}
  eno9: {}
  "0":
    match: {macaddress: "52:54:00:12:34:56"}
    dhcp4: true
    dhcp6: true
    dhcp4-overrides: {use-dns: false}
    dhcp6-overrides: {use-dns: false}
    accept-ra: true
bonds:
  b: {interfaces: [eth0], parameters: {mode: active-backup, primary: eth0, fail-over-mac-policy: active}, accept-ra: false, routes: [{to: "2001:db8:2::/48", scope: link}]}
vlans:
  eth1.0: {id: 0, link: eth1, addresses: [198.51.100.7/25], accept-ra: false, link-local: []}
  far: {id: 7, link: eno9, accept-ra: false, link-local: []}
`, text)
	assert.Contains(t, text, `macaddress: "52:54:00:12:34:56"`, "without quotes it is a number")

	_, _, err = statement(`interfaces: [{name: eth0, ipv4: {enabled: true, address: [{ip: 300.0.0.1, prefix-length: 24}]}}]`).Netplan()
	require.ErrorContains(t, err, `interface "eth0"`)
}

// netplan itself reads what is rendered, where it is at hand.
func TestNetplanReadsNetworkConfig(t *testing.T) {
	t.Parallel()
	netplan, err := exec.LookPath("netplan")
	if err != nil {
		t.Skip("there is no netplan here: it does not read the network-config")
	}
	for name, c := range map[string]struct {
		state, unit string
		holds       []string
	}{
		"a bond":      {wanted, "bond0.network", []string{"Address=192.0.2.7/24\n", "Address=2001:db8::7/64\n", "Gateway=2001:db8::1\n"}},
		"its primary": {wanted, "enp1s0.network", []string{"PermanentMACAddress=52:54:00:00:00:aa\n", "Bond=bond0\n", "PrimarySlave=true\n"}},
		"a VLAN":      {wanted, "bond0.12.network", []string{"UseDNS=false\n", "Destination=203.0.113.0/24\n"}},
		"odd ones":    {odd, "eth1.0.network", []string{"LinkLocalAddressing=no\n", "Address=198.51.100.7/25\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, _, err := onMachine(t, c.state).Netplan()
			require.NoError(t, err)
			root := t.TempDir()
			var config any
			require.NoError(t, yaml.Unmarshal([]byte(text), &config))
			whole, err := yaml.Marshal(map[string]any{"network": config})
			require.NoError(t, err)
			require.NoError(t, os.MkdirAll(filepath.Join(root, "etc/netplan"), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(root, "etc/netplan/50-cloud-init.yaml"), whole, 0o600))
			output, err := exec.CommandContext(t.Context(), netplan, "generate", "--root-dir", root).CombinedOutput()
			require.NoError(t, err, "%s\n%s", output, text)
			unit, err := os.ReadFile(filepath.Join(root, "run/systemd/network/10-netplan-"+c.unit))
			require.NoError(t, err)
			for _, line := range c.holds {
				assert.Contains(t, string(unit), line)
			}
		})
	}
}

// cloud-init itself takes it to a system without netplan, where it is at hand.
func TestCloudInitReadsNetworkConfig(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("cloud-init")
	if err != nil {
		t.Skip("there is no cloud-init here: it does not read the network-config")
	}
	for name, holds := range map[string][]string{
		"bond0":    {"address1=192.0.2.7/24\n", "route1=0.0.0.0/0,192.0.2.1", "primary=enp1s0\n"},
		"bond0.12": {"type=vlan\n", "id=12\n", "method=auto\n"},
		"enp1s0":   {"mac-address=52:54:00:00:00:AA\n", "slave-type=bond\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, _, err := onMachine(t, wanted).Netplan()
			require.NoError(t, err)
			root := t.TempDir()
			config := filepath.Join(root, "network-config")
			require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
			convert := exec.CommandContext(t.Context(), program, "devel", "net-convert", "-p", config, "-k", "yaml", "-d", root, "-D", "rhel", "-O", "network-manager")
			output, err := convert.CombinedOutput()
			require.NoError(t, err, "%s\n%s", output, text)
			profile, err := os.ReadFile(filepath.Join(root, "etc/NetworkManager/system-connections/cloud-init-"+name+".nmconnection"))
			require.NoError(t, err)
			for _, line := range holds {
				assert.Contains(t, string(profile), line)
			}
		})
	}
}
