// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	ignitionv3 "github.com/coreos/ignition/v2/config/v3_2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/nmstate"
)

// bonded is the network of a machine with two cards.
func bonded(address string) string {
	return `
interfaces:
- {name: first, type: ethernet}
- {name: second, type: ethernet}
- {name: bond0, type: bond, link-aggregation: {mode: active-backup, options: {primary: second}, port: [first, second]}, ipv4: {enabled: true, address: [{ip: ` + address + `, prefix-length: 24}]}}
`
}

// networks states them for the machines of an InfraEnv, each with the addresses of its first and its second card.
func (w *testEnv) networks(infraEnv string, statements ...nmstate.Statement) {
	w.t.Helper()
	config, err := json.Marshal(statements)
	require.NoError(w.t, err)
	_, err = w.UpdateInfraEnv(w.t.Context(), alice, infraEnv, func(s *domain.InfraEnvSettings) error { s.StaticNetworkConfig = config; return nil })
	require.NoError(w.t, err)
}

func stated(yaml, first, second string) nmstate.Statement {
	return nmstate.Statement{YAML: yaml, Cards: []nmstate.Card{{MAC: first, Name: "first"}, {MAC: second, Name: "second"}}}
}

// cards replaces those that a host reported. Each host has an address.
func (w *testEnv) cards(key domain.HostKey, cards ...hardware.Interface) {
	w.t.Helper()
	h, err := w.GetHost(w.t.Context(), admin, key)
	require.NoError(w.t, err)
	var inventory hardware.Inventory
	require.NoError(w.t, json.Unmarshal([]byte(machine(h.Summary.Hostname)), &inventory))
	cards[0].IPV4Addresses = []string{fmt.Sprintf("192.0.2.%d/24", h.Summary.Hostname[1])}
	inventory.Interfaces = cards
	report, err := json.Marshal(inventory)
	require.NoError(w.t, err)
	w.reply(key, agentproto.StepInventory, 0, string(report))
}

// profiles are those of NetworkManager in the first-boot data of a host, which Ignition itself reads.
func (w *testEnv) profiles(key domain.HostKey) map[string]string {
	w.t.Helper()
	data, _, err := w.FirstBoot(w.t.Context(), key)
	require.NoError(w.t, err)
	config, report, err := ignitionv3.Parse(data)
	require.NoError(w.t, err, "%s\n%s", report.String(), data)
	assert.Empty(w.t, report.Entries)
	found := map[string]string{}
	for _, f := range config.Storage.Files {
		if path.Ext(f.Path) != ".nmconnection" {
			continue
		}
		assert.Equal(w.t, "/etc/NetworkManager/system-connections", path.Dir(path.Clean(f.Path)))
		assert.Equal(w.t, 0o600, *f.Mode, "NetworkManager takes no others")
		encoded, carried := strings.CutPrefix(*f.Contents.Source, "data:;base64,")
		require.True(w.t, carried)
		content, err := base64.StdEncoding.DecodeString(encoded)
		require.NoError(w.t, err)
		found[path.Base(f.Path)] = string(content)
	}
	return found
}

func (w *testEnv) ignoredNetworks(infraEnv string) []domain.Event {
	w.t.Helper()
	found, err := w.ListEvents(w.t.Context(), admin, domain.EventFilter{InfraEnvID: infraEnv})
	require.NoError(w.t, err)
	return slices.DeleteFunc(found.Items, func(e domain.Event) bool { return e.Name != "host_static_network_ignored" })
}

func TestAnInstalledSystemHasTheNetworkThatIsStatedForIt(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, keys := w.ready(4)
	e := keys[0].InfraEnvID
	w.networks(e,
		stated(bonded("192.0.2.11"), "52:54:00:00:00:1A", "52:54:00:00:00:1B"), stated(bonded("192.0.2.12"), "52:54:00:00:00:2a", "52:54:00:00:00:2b"),
		stated(bonded("192.0.2.99"), "52:54:00:00:00:1a", "52:54:00:00:00:2a"))
	// The first one has a bridge that borrows the address of the second one's card.
	w.cards(keys[0], hardware.Interface{Name: "br0", MACAddress: "52:54:00:00:00:2a", Type: "bridge"},
		hardware.Interface{Name: "enp1s0", MACAddress: "52:54:00:00:00:1a", Type: "physical"}, hardware.Interface{Name: "enp2s0", MACAddress: "52:54:00:00:00:1b", Type: "physical"})
	w.cards(keys[1], hardware.Interface{Name: "eno1", MACAddress: "52:54:00:00:00:2B"}, hardware.Interface{Name: "eno2", MACAddress: "52:54:00:00:00:77"})
	w.cards(keys[2], hardware.Interface{Name: "eno1", MACAddress: "52:54:00:00:00:03"})
	// Its agent says of both ports of the bond that they have the address of the bond.
	w.cards(keys[3], hardware.Interface{Name: "eno1", MACAddress: "52:54:00:00:00:2b"}, hardware.Interface{Name: "eno2", MACAddress: "52:54:00:00:00:2b"})
	w.install(c, keys)

	for i, is := range []struct{ address, primary string }{{"192.0.2.11", "enp2s0"}, {"192.0.2.12", "eno1"}, {}, {"192.0.2.12", "second"}} {
		profiles := w.profiles(keys[i])
		if is.address == "" {
			assert.Empty(t, profiles, "it has no statement")
			continue
		}
		assert.ElementsMatch(t, []string{"first.nmconnection", "second.nmconnection", "bond0.nmconnection"}, slices.Collect(maps.Keys(profiles)))
		assert.Contains(t, profiles["bond0.nmconnection"], "\naddress1="+is.address+"/24\n")
		assert.Contains(t, profiles["bond0.nmconnection"], "\nprimary="+is.primary+"\n")
	}
	assert.Contains(t, w.profiles(keys[0])["first.nmconnection"], "\nmac-address=52:54:00:00:00:1A\n")
	assert.Empty(t, w.ignoredNetworks(e))
}

func TestASystemWithCloudInitHasTheNetworkThatIsStatedForIt(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, keys := w.ready(2)
	e := keys[0].InfraEnvID
	w.networks(e, stated(bonded("192.0.2.11"), "52:54:00:00:00:1A", "52:54:00:00:00:1B"))
	w.cards(keys[0], hardware.Interface{Name: "enp1s0", MACAddress: "52:54:00:00:00:1a"}, hardware.Interface{Name: "enp2s0", MACAddress: "52:54:00:00:00:1b"})
	w.cards(keys[1], hardware.Interface{Name: "eno1", MACAddress: "52:54:00:00:00:03"})
	w.OSImages[0].FirstBoot, w.OSImages[0].Template = "cloud-init", `{{range $name, $content := .Networks}}{{$name}} {{end}}`
	config := func(key domain.HostKey) string {
		got, err := w.NextInstructions(t.Context(), key, 0)
		require.NoError(t, err)
		require.Len(t, got.Steps, 1)
		require.Equal(t, agentproto.StepInstall, got.Steps[0].Type)
		var args agentproto.InstallArgs
		require.NoError(t, json.Unmarshal([]byte(got.Steps[0].Args[0]), &args))
		return args.NetworkConfig
	}
	w.install(c, keys)
	assert.YAMLEq(t, `
version: 2
ethernets:
  enp1s0: {match: {macaddress: "52:54:00:00:00:1a"}}
  enp2s0: {match: {macaddress: "52:54:00:00:00:1b"}}
bonds:
  bond0: {interfaces: [enp1s0, enp2s0], parameters: {mode: active-backup, primary: enp2s0}, addresses: [192.0.2.11/24], accept-ra: false, link-local: []}
`, config(keys[0]))
	assert.Empty(t, config(keys[1]), "it has no statement")
	data, _, err := w.FirstBoot(t.Context(), keys[0])
	require.NoError(t, err)
	assert.Equal(t, "bond0.nmconnection first.nmconnection second.nmconnection ", string(data), "a template of one's own has the profiles, whatever reads them")
	assert.Empty(t, w.ignoredNetworks(e))
}

func TestANetworkThatCannotBeUsedDoesNotKeepAHostFromInstalling(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state, says string
		profiles    []string
	}{
		"a name that leaves the directory":      {`interfaces: [{name: ../../../etc/shadow, type: ethernet}]`, `cannot be used: interface "../../../etc/shadow": its name is not one of an interface`, nil},
		"a port that leaves it":                 {`interfaces: [{name: b, type: bond, link-aggregation: {mode: 802.3ad, port: ["../../a"]}}]`, `interface "../../a"`, nil},
		"a setting that brings a line with it":  {`interfaces: [{name: b, type: bond, link-aggregation: {mode: "802.3ad\nprimary=x"}}]`, "is not an option of a bond", nil},
		"a number as interfaces":                {`interfaces: 7`, "cannot be used: ", nil},
		"an interface that is not understood":   {`interfaces: [{name: first, type: ethernet}, {name: br0, type: linux-bridge}]`, "not understood and left out: br0 (linux-bridge)", []string{"first.nmconnection"}},
		"nothing, and a card with an odd name.": {bonded("192.0.2.11"), "", []string{"bond0.nmconnection", "first.nmconnection", "second.nmconnection"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			cluster, keys := w.ready(1)
			w.networks(keys[0].InfraEnvID, stated(c.state, "52:54:00:00:00:1a", "52:54:00:00:00:1b"))
			w.cards(keys[0], hardware.Interface{Name: "enp1s0", MACAddress: "52:54:00:00:00:1a"}, hardware.Interface{Name: "../x\nmode=0", MACAddress: "52:54:00:00:00:1b"})
			w.install(cluster, keys)
			for range 2 { // an agent asks again where an answer is lost
				profiles := w.profiles(keys[0])
				assert.Equal(t, c.profiles, slices.Sorted(maps.Keys(profiles)))
				assert.NotContains(t, profiles["bond0.nmconnection"], "mode=0")
			}
			events := w.ignoredNetworks(keys[0].InfraEnvID)
			if c.says == "" {
				assert.Empty(t, events)
				return
			}
			require.Len(t, events, 1)
			assert.Contains(t, events[0].Message, c.says)
			assert.Equal(t, domain.Warning, events[0].Severity)
			assert.EqualValues(t, 2, events[0].Count)
			assert.Equal(t, cluster.ID, events[0].ClusterID)
		})
	}
}
