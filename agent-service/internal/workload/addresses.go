// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// master is the role of hosts that run a control plane. Users give it, and no machine takes it.
const master = "master"

// Addresses are those that the nodes of a cluster may serve at, by host. What a machine reports is its own word, in the discovery image, too: it gets no address that another host of the
// cluster had before it, and a reserved address by itself, such as the API server's, only if it was chosen to run the control plane. An installed system gets no reserved address at all
// that the discovery image did not report before.
func Addresses(hosts []domain.Host, reserved []netip.Prefix) map[domain.HostKey][]netip.Addr {
	first := holders(hosts)
	allowed := map[domain.HostKey][]netip.Addr{}
	for i := range hosts {
		h := &hosts[i]
		says := len(h.Addressing.Given) == 0
		reports := says && len(h.Node.Addresses) > 0
		for _, held := range h.HeldAddresses() {
			if says && first[held.Address].host != h.HostKey || reports && !h.Discovered(held.Address) && isReserved(held.Address, reserved) {
				continue
			}
			if says && h.Role != master && slices.Contains(reserved, netip.PrefixFrom(held.Address, held.Address.BitLen())) {
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

// RefusesName says that the name of a host is the API server's or a Service's, and that the host was not chosen to run the control plane: its serving certificate, which has the authority of
// the API server's, would be good in their place.
func (a *Access) RefusesName(h *domain.Host) bool {
	if h.Role == master {
		return false
	}
	name := NodeName(h)
	names := []string{"kubernetes", "kubernetes.default", strings.ToLower(a.values.TLSServerName)}
	if server, err := url.Parse(a.values.Server); err == nil {
		names = append(names, strings.ToLower(server.Hostname()))
	}
	return slices.Contains(names, name) || strings.HasSuffix(name, ".svc") || strings.HasSuffix(name, ".svc."+strings.ToLower(a.values.ClusterDomain))
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
