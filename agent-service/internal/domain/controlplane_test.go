// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/hardware"
)

// planeHosts are three hosts of which each has an address by DHCP, which they may lose, and four with a worker.
func planeHosts() []*Host {
	var hosts []*Host
	for i := range 4 {
		h := &Host{HostKey: HostKey{HostID: fmt.Sprint(i)}, Summary: hardware.Summary{Addresses: []string{fmt.Sprintf("192.0.2.%d/24", 11+i), "fe80::1/64"}}}
		h.RequestedHostname = fmt.Sprintf("Host-%d", i)
		hosts = append(hosts, h)
	}
	return hosts
}

func TestMembersHaveTheAddressesOfTheirInstalledSystems(t *testing.T) {
	c := &Cluster{Name: "c", ClusterSettings: ClusterSettings{ControlPlaneCount: 3, APIVIPs: []string{"192.0.2.100"}}}
	hosts := planeHosts()
	hosts[1].Addressing.Given = []NodeAddress{{Address: netip.MustParsePrefix("192.0.2.77/24")}}
	hosts[1].Node.Addresses = []HeldAddress{{Address: netip.MustParseAddr("192.0.2.100")}} // it was a control plane before
	plane, err := c.ControlPlaneOn(hosts[:3], hosts)
	require.NoError(t, err)
	assert.Equal(t, "https://192.0.2.100:6443", plane.Server)
	assert.Equal(t, []ControlPlaneMember{
		{hosts[0].HostKey, "host-0", netip.MustParseAddr("192.0.2.11")}, {hosts[1].HostKey, "host-1", netip.MustParseAddr("192.0.2.77")}, {hosts[2].HostKey, "host-2", netip.MustParseAddr("192.0.2.13")},
	}, plane.Members)
	for i, h := range hosts {
		assert.Equal(t, i < 3, plane.RunsOn(h))
		assert.Equal(t, i < 3, plane.Member(h) != nil)
	}
	assert.False(t, (*ControlPlane)(nil).RunsOn(hosts[0]))
	assert.Nil(t, (*ControlPlane)(nil).Member(hosts[0]))
}

func TestHostsThatCannotRunAControlPlaneTogetherAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		reason, says string
		change       func(*Cluster, []*Host)
	}{
		"the address of a worker": {"APIAddressTaken", "that of host Host-3", func(c *Cluster, _ []*Host) { c.APIVIPs = []string{"192.0.2.14"} }},
		"an address that a pool gave": {"APIAddressTaken", "that of host Host-2", func(_ *Cluster, hosts []*Host) {
			hosts[2].Addressing.Given = []NodeAddress{{Address: netip.MustParsePrefix("192.0.2.100/24")}}
		}},
		"one in another network": {"APIAddressElsewhere", "host Host-1 cannot take over the address 192.0.2.100", func(_ *Cluster, hosts []*Host) { hosts[1].Summary.Addresses = []string{"198.51.100.1/24"} }},
		"the same address twice": {"AddressShared", "host-0 and host-1", func(_ *Cluster, hosts []*Host) { hosts[1].Summary.Addresses = []string{"192.0.2.11/24"} }},
		"the same name twice":    {"AddressShared", "host-0 and host-0", func(_ *Cluster, hosts []*Host) { hosts[1].RequestedHostname = "host-0" }},
		"the API among Services": {"NetworksOverlap", "192.0.2.100 of the API", func(c *Cluster, _ []*Host) { c.ServiceNetworks = []string{"192.0.2.96/28"} }},
		"a host among pods":      {"NetworksOverlap", "192.0.2.13 of host host-2", func(c *Cluster, _ []*Host) { c.ClusterNetworks = []string{"192.0.2.13/32"} }},
		"no address":             {"APIAddressRequired", "state one address", func(c *Cluster, _ []*Host) { c.APIVIPs = nil }},
	} {
		c := &Cluster{Name: "c", ClusterSettings: ClusterSettings{ControlPlaneCount: 3, APIVIPs: []string{"192.0.2.100"}}}
		hosts := planeHosts()
		test.change(c, hosts)
		_, err := c.ControlPlaneOn(hosts[:3], hosts)
		assert.Equal(t, test.reason, ReasonOf(err), name)
		require.ErrorContains(t, err, test.says, name)
	}
}
