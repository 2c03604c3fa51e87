// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"net/netip"
	"reflect"
	"strings"

	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

// AddressPool gives each installed host of an InfraEnv one address.
type AddressPool struct {
	Group, Kind, Name string
	// Interface is the card that gets the address, empty for the one that Addressing finds.
	Interface string `json:",omitempty"`
}

// String is "IPPool rack-a".
func (p AddressPool) String() string { return p.Kind + " " + p.Name }

// NodeAddress is an address of a pool, and the card that it is for.
type NodeAddress struct {
	Pool AddressPool
	// Interface is what the machine calls the card, or the name of an interface that is stated for it. MAC is empty for the latter.
	Interface string
	MAC       string `json:",omitempty"`
	// Address has the length of its prefix. Gateway is the zero value where there is none.
	Address netip.Prefix
	Gateway netip.Addr   `json:",omitzero"`
	DNS     []netip.Addr `json:",omitempty"`
}

// Addressing is how the installed system of a host gets its addresses. It begins with a binding, and lasts until the host is free.
type Addressing struct {
	// Installation is a random name: claims of an earlier installation are not taken for those of this one. It is empty where the service lost its data.
	Installation string        `json:",omitempty"`
	Pools        []AddressPool `json:",omitempty"`
	// Given are the addresses, one per pool in the order of Pools; none before all are there.
	Given []NodeAddress `json:",omitempty"`
	// Missing says which pool gives no address, and why.
	Missing string `json:",omitempty"`
}

// Waits is true while an installation cannot begin.
func (a Addressing) Waits() bool { return len(a.Given) < len(a.Pools) }

// Why says what the host waits for.
func (a Addressing) Why() string {
	if a.Missing != "" {
		return "it waits for its addresses: " + a.Missing
	}
	names := make([]string, 0, len(a.Pools))
	for _, pool := range a.Pools {
		names = append(names, pool.String())
	}
	return "it waits for its addresses of " + strings.Join(names, " and ")
}

// IPs are the addresses without their prefixes.
func (a Addressing) IPs() []netip.Addr {
	var ips []netip.Addr
	for _, given := range a.Given {
		ips = append(ips, given.Address.Addr())
	}
	return ips
}

// AddressedAs is true while nothing has changed since a host was read that decides about its addresses.
func (h *Host) AddressedAs(was *Host) bool {
	return h.ClusterID == was.ClusterID && h.State == was.State && reflect.DeepEqual(h.Addressing, was.Addressing)
}

// NeedsAddresses is true while addresses of a bound host are looked for: it runs the discovery image, and is not being installed.
func (h *Host) NeedsAddresses() bool {
	return h.ClusterID != "" && (lifecycle.Idle(h.State) || h.State == lifecycle.PreparingFailed)
}

// ReleaseMoved is true for a host whose machine goes on with its release as a host of another InfraEnv, or did: what that one says decides about the addresses of this one.
func (h *Host) ReleaseMoved() bool {
	return h.ClusterID == "" && !h.ReleaseMovedAt.IsZero() && !h.Release.Underway()
}

// MayUseAddresses is true while a system of the last installation may run: from its beginning until the machine has booted the discovery image again and is wiped.
func (h *Host) MayUseAddresses() bool {
	return h.Release.Underway() || !h.NeedsAddresses() && !lifecycle.Free(h.State)
}
