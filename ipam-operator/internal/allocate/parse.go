// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/ipset"
)

// ParseAddr reads an address in any spelling and returns its canonical form: all comparisons are between those. An
// IPv4-mapped IPv6 address is the IPv4 address.
func ParseAddr(text string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%q is not a valid IP address", text)
	}
	return addr.Unmap(), nil
}

// ParseSpan reads an address, a network in CIDR notation or a range "first-last".
func ParseSpan(text string) (ipset.Range, error) {
	if strings.Contains(text, "/") {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return ipset.Range{}, fmt.Errorf("%q is not a valid network", text)
		}
		return ipset.PrefixRange(prefix), nil
	}
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	return parseRange(first, last)
}

func parseRange(first, last string) (ipset.Range, error) {
	lo, err := ParseAddr(first)
	if err != nil {
		return ipset.Range{}, err
	}
	hi, err := ParseAddr(last)
	if err != nil {
		return ipset.Range{}, err
	}
	switch {
	case lo.Is4() != hi.Is4():
		return ipset.Range{}, fmt.Errorf("%s and %s are not of the same family", lo, hi)
	case hi.Less(lo):
		return ipset.Range{}, fmt.Errorf("%s is greater than %s", lo, hi)
	}
	return ipset.Range{First: lo, Last: hi}, nil
}

// parseEntry reads one element of spec.pools. The entry is usable whatever the error: it then yields no address, or addresses without a gateway.
func parseEntry(p *ipamv1.Pool, spec *ipamv1.IPPoolSpec) (entry, error) {
	e := entry{}
	if p.Subnet != nil {
		prefix, err := netip.ParsePrefix(string(*p.Subnet))
		if err != nil {
			return e, fmt.Errorf("subnet %q is not a valid network", *p.Subnet)
		}
		e.subnet = prefix
	}
	e.network = networkOf(p, spec, e.subnet)
	if p.AllocationPrefixLength != 0 {
		if !e.subnet.IsValid() || p.AllocationPrefixLength < e.subnet.Bits() || p.AllocationPrefixLength > e.subnet.Addr().BitLen() {
			return e, fmt.Errorf("allocationPrefixLength %d needs a subnet of at most that prefix length", p.AllocationPrefixLength)
		}
		e.bits, e.network.Prefix = p.AllocationPrefixLength, p.AllocationPrefixLength
	}
	if p.Start == nil && p.Subnet == nil {
		return e, errors.New("an entry with neither start nor subnet has no addresses")
	}
	all, err := bounds(p, e.subnet)
	if err != nil {
		return e, err
	}
	if e.network.Prefix > all.First.BitLen() {
		return e, fmt.Errorf("prefix %d is too long for %s", e.network.Prefix, all.First)
	}
	e.all = &all
	if gateway := e.network.Gateway; gateway != nil && !isOfFamily(*gateway, all.First) {
		e.network.Gateway = nil
		return e, fmt.Errorf("gateway %s is not of the family of %s: write a gateway of that family into the entry", *gateway, all.First)
	}
	return e, nil
}

func isOfFamily(text ipamv1.IPAddressStr, addr netip.Addr) bool {
	parsed, err := ParseAddr(string(text))
	return err == nil && parsed.Is4() == addr.Is4()
}

// bounds is the range of an entry: from start, or behind the address that subnet states, to end, or to the end of
// subnet, or as far as addresses go; and never beyond subnet.
func bounds(p *ipamv1.Pool, subnet netip.Prefix) (ipset.Range, error) {
	first := subnet.Addr().Next()
	if p.AllocationPrefixLength != 0 {
		first = subnet.Masked().Addr()
	}
	if p.Start != nil {
		start, err := ParseAddr(string(*p.Start))
		if err != nil {
			return ipset.Range{}, fmt.Errorf("start: %w", err)
		}
		first = start
	}
	if subnet.IsValid() && !subnet.Contains(first) {
		return ipset.Range{}, fmt.Errorf("subnet %s has no address to begin with", subnet)
	}
	last := ipset.PrefixRange(netip.PrefixFrom(first, 0)).Last
	if subnet.IsValid() {
		last = ipset.PrefixRange(subnet).Last
	}
	if p.End != nil {
		end, err := ParseAddr(string(*p.End))
		if err != nil {
			return ipset.Range{}, fmt.Errorf("end: %w", err)
		}
		if end.Is4() != first.Is4() {
			return ipset.Range{}, fmt.Errorf("start %s and end %s are not of the same family", first, end)
		}
		if end.Less(last) {
			last = end
		}
	}
	if last.Less(first) {
		return ipset.Range{}, fmt.Errorf("start %s is greater than end %s", first, last)
	}
	return ipset.Range{First: first, Last: last}, nil
}

// networkOf is what the addresses of an entry come with: the entry's own values before those of the pool. Without a prefix, that of the subnet
// counts.
func networkOf(p *ipamv1.Pool, spec *ipamv1.IPPoolSpec, subnet netip.Prefix) Network {
	n := Network{Prefix: spec.Prefix, Gateway: spec.Gateway, DNSServers: spec.DNSServers}
	if p.Prefix != 0 {
		n.Prefix = p.Prefix
	}
	if n.Prefix == 0 && subnet.IsValid() {
		n.Prefix = subnet.Bits()
	}
	if p.Gateway != nil {
		n.Gateway = p.Gateway
	}
	if len(p.DNSServers) > 0 {
		n.DNSServers = p.DNSServers
	}
	return n
}
