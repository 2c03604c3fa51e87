// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// Addresses are those that the nodes of a cluster may serve at, by host. A report of an installed system is its own word: it gets no reserved address that the discovery image
// did not report before, and none that another host of the cluster had before it.
func Addresses(hosts []domain.Host, reserved []netip.Prefix) map[domain.HostKey][]netip.Addr {
	first := holders(hosts)
	allowed := map[domain.HostKey][]netip.Addr{}
	for i := range hosts {
		h := &hosts[i]
		reports := len(h.Addressing.Given) == 0 && len(h.Node.Addresses) > 0
		for _, held := range h.HeldAddresses() {
			if reports && (first[held.Address].host != h.HostKey || !h.Discovered(held.Address) && isReserved(held.Address, reserved)) {
				continue
			}
			allowed[h.HostKey] = append(allowed[h.HostKey], held.Address)
		}
	}
	return allowed
}

// holder is the host that had an address first.
type holder struct {
	host  domain.HostKey
	since time.Time
}

// holders are by address. Of two hosts that had it at the same time it is the one that comes first by name.
func holders(hosts []domain.Host) map[netip.Addr]holder {
	first := map[netip.Addr]holder{}
	for i := range hosts {
		h := &hosts[i]
		for _, held := range h.HeldAddresses() {
			other, known := first[held.Address]
			if !known || held.Since.Before(other.since) || held.Since.Equal(other.since) && h.String() < other.host.String() {
				first[held.Address] = holder{h.HostKey, held.Since}
			}
		}
	}
	return first
}

func isReserved(address netip.Addr, reserved []netip.Prefix) bool {
	return !address.IsGlobalUnicast() || slices.ContainsFunc(reserved, func(p netip.Prefix) bool { return p.Contains(address) })
}

// Reserved are the networks of addresses that are none of a node: the API server, Services and pods have them.
func (a *Access) Reserved() []netip.Prefix {
	reserved := slices.Concat(a.values.ServiceCIDRs, a.values.PodCIDRs)
	addresses := a.values.ClusterDNS
	if server, err := url.Parse(a.values.Server); err == nil {
		if address, err := netip.ParseAddr(server.Hostname()); err == nil {
			addresses = append(slices.Clone(addresses), address.Unmap())
		}
	}
	for _, address := range addresses {
		reserved = append(reserved, netip.PrefixFrom(address, address.BitLen()))
	}
	return reserved
}
