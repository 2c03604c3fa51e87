// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/ipset"
)

// Network is what an address of an entry comes with.
type Network struct {
	// Prefix is the length of the network prefix in bits; zero where the pool states none.
	Prefix int
	// Gateway is nil where the pool states none.
	Gateway *ipamv1.IPAddressStr
	// DNSServers are the name servers, the entry's own before those of the pool.
	DNSServers []ipamv1.IPAddressStr
}

// entry is one element of spec.pools.
type entry struct {
	network Network
	// all is the range as written; nil for an entry that yields nothing.
	all *ipset.Range
	// subnet is the network that bounds the range; invalid where the entry states none.
	subnet netip.Prefix
	// base is what may be chosen: the range without excluded, reserved and preallocated addresses and without what an
	// earlier entry has.
	base *ipset.Set
}

// Layout is a pool's spec, parsed: which addresses may be given to whom. It is never changed after Parse.
type Layout struct {
	// NamePrefix is the beginning of the names of the IPAddress objects.
	NamePrefix string
	// Strategy says how an address is chosen within an entry.
	Strategy ipamv1.AllocationStrategy
	// Problems are the parts of the spec that cannot be used, one sentence each.
	Problems []string

	entries  []entry
	excluded []ipset.Range
	reserved map[string]netip.Addr // claim name to address
	reservee map[netip.Addr]string // and back
}

// Parse reads a spec. It never fails: what cannot be used is left out and named in Problems, so that one bad entry stops
// nobody else. Strategy is used where the spec states none.
func Parse(spec *ipamv1.IPPoolSpec, strategy ipamv1.AllocationStrategy) *Layout {
	l := &Layout{NamePrefix: spec.NamePrefix, Strategy: spec.AllocationStrategy, reserved: map[string]netip.Addr{}, reservee: map[netip.Addr]string{}}
	if l.Strategy == "" {
		l.Strategy = strategy
	}
	for i, text := range spec.ExcludedAddresses {
		span, err := parseSpan(string(text))
		if err != nil {
			l.complain("excludedAddresses[%d]: %v", i, err)
			continue
		}
		l.excluded = append(l.excluded, span)
	}
	for i := range spec.Pools {
		e, err := parseEntry(&spec.Pools[i], spec)
		if err != nil {
			l.complain("pools[%d]: %v", i, err)
		}
		l.entries = append(l.entries, e)
	}
	l.reserve(spec.PreAllocations)
	l.cut(spec.AllocateReservedAddresses)
	return l
}

func (l *Layout) complain(format string, args ...any) {
	l.Problems = append(l.Problems, fmt.Sprintf(format, args...))
}

// reserve reads the preallocations. The first claim by name keeps an address that two of them name.
func (l *Layout) reserve(wanted map[string]ipamv1.IPAddressStr) {
	for _, claim := range slices.Sorted(maps.Keys(wanted)) {
		addr, err := ParseAddr(string(wanted[claim]))
		if err != nil {
			l.complain("preAllocations[%s]: %v", claim, err)
			continue
		}
		l.reserved[claim] = addr
		if _, ok := l.reservation(addr); !ok {
			l.complain("preAllocations[%s]: %s is out of bounds of the pools given", claim, addr)
			continue
		}
		if other, ok := l.reservee[addr]; ok {
			l.complain("preAllocations[%s]: %s is already pre-allocated to claim %s", claim, addr, other)
			continue
		}
		l.reservee[addr] = claim
	}
}

// cut makes what may be chosen of each entry.
func (l *Layout) cut(handOutReserved bool) {
	for i := range l.entries {
		e := &l.entries[i]
		e.base = ipset.New()
		if e.all == nil {
			continue
		}
		e.base.Add(*e.all)
		for _, earlier := range l.entries[:i] {
			if earlier.all != nil && earlier.all.First.Is4() == e.all.First.Is4() {
				e.base.Remove(*earlier.all)
			}
		}
		for _, span := range l.excluded {
			if span.First.Is4() == e.all.First.Is4() {
				e.base.Remove(span)
			}
		}
		for addr := range l.reservee {
			if addr.Is4() == e.all.First.Is4() {
				e.base.Take(addr)
			}
		}
		if !handOutReserved {
			for _, addr := range e.special() {
				e.base.Take(addr)
			}
		}
	}
}

// special are the addresses of a subnet that machines do not get: network, broadcast, gateway. An entry without a subnet
// says by its bounds what it hands out.
func (e *entry) special() []netip.Addr {
	if !e.subnet.IsValid() {
		return nil
	}
	var out []netip.Addr
	if whole := ipset.PrefixRange(e.subnet); e.subnet.Addr().BitLen()-e.subnet.Bits() > 1 {
		out = append(out, whole.First)
		if whole.First.Is4() {
			out = append(out, whole.Last)
		}
	}
	if e.network.Gateway != nil {
		if gateway, err := ParseAddr(string(*e.network.Gateway)); err == nil {
			out = append(out, gateway)
		}
	}
	return out
}

// Reserved is the address that is preallocated to a claim. It may be out of bounds.
func (l *Layout) Reserved(claim string) (netip.Addr, bool) {
	addr, ok := l.reserved[claim]
	return addr, ok
}

// ReservedFor names the claim that an address is preallocated to.
func (l *Layout) ReservedFor(addr netip.Addr) (claim string, ok bool) {
	claim, ok = l.reservee[addr]
	return claim, ok
}

// network is what an address that lies in a range of the pool comes with.
func (l *Layout) network(addr netip.Addr) (Network, bool) {
	for i := range l.entries {
		if all := l.entries[i].all; all != nil && all.Contains(addr) {
			return l.entries[i].network, true
		}
	}
	return Network{}, false
}

// reservation is like network and also accepts an address that lies inside of an entry's subnet only.
func (l *Layout) reservation(addr netip.Addr) (Network, bool) {
	if network, ok := l.network(addr); ok {
		return network, true
	}
	for i := range l.entries {
		if l.entries[i].subnet.IsValid() && l.entries[i].subnet.Contains(addr) {
			return l.entries[i].network, true
		}
	}
	return Network{}, false
}

func (l *Layout) isExcluded(addr netip.Addr) bool {
	return slices.ContainsFunc(l.excluded, func(r ipset.Range) bool { return r.Contains(addr) })
}

// InBounds reports whether the pool may give an address to somebody.
func (l *Layout) InBounds(addr netip.Addr) bool {
	_, ok := l.reservation(addr)
	return ok
}

// home is the entry that an address returns to when it is given back; -1 where nobody may choose it.
func (l *Layout) home(addr netip.Addr) int {
	return slices.IndexFunc(l.entries, func(e entry) bool { return e.base.Contains(addr) })
}

// Total is the number of addresses that the pool can hand out, to any claim or to those that they are preallocated to.
func (l *Layout) Total() int64 {
	total := ipset.Number{Lo: uint64(len(l.reservee))}
	for i := range l.entries {
		total = total.Plus(l.entries[i].base.Count())
	}
	return total.Int64()
}
