// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

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
	// bits is the length of the prefixes that the entry hands out whole; zero for one that hands out addresses.
	bits int
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
	// CoolDown is how long an address stays taken after its release.
	CoolDown time.Duration
	// PerNamespace is how many addresses the claims of one other namespace can have; zero sets no limit.
	PerNamespace int64
	// Problems are the parts of the spec that cannot be used, one sentence each.
	Problems []string

	allowed  labels.Selector // the namespaces whose claims are served, beside that of the pool
	entries  []entry
	ranges   coverage // by range
	subnets  coverage // by subnet
	excluded *ipset.Set
	special  map[netip.Addr]string // what an address is that no machine gets
	reserved map[string]netip.Addr // claim name to address
	reservee map[netip.Addr]string // and back
	given    []ipset.Range         // what any claim can get, in order
	prefixes bool                  // an entry hands out prefixes
}

// Parse reads a spec. It never fails: what cannot be used is left out and named in Problems, so that one bad entry does not
// block the others. Strategy is used where the spec states none.
func Parse(spec *ipamv1.IPPoolSpec, strategy ipamv1.AllocationStrategy) *Layout {
	l := &Layout{
		NamePrefix: spec.NamePrefix, Strategy: spec.AllocationStrategy, CoolDown: coolDown(spec), excluded: ipset.New(),
		PerNamespace: spec.MaxAddressesPerNamespace, allowed: labels.Nothing(),
		special: map[netip.Addr]string{}, reserved: map[string]netip.Addr{}, reservee: map[netip.Addr]string{},
	}
	if l.Strategy == "" {
		l.Strategy = strategy
	}
	l.allow(spec.AllowedNamespaces)
	for i, text := range spec.ExcludedAddresses {
		span, err := ParseSpan(string(text))
		if err != nil {
			l.complain("excludedAddresses[%d]: %v", i, err)
			continue
		}
		l.excluded.Add(span)
	}
	for i := range spec.Pools {
		e, err := parseEntry(&spec.Pools[i], spec)
		if err != nil {
			l.complain("pools[%d]: %v", i, err)
		}
		l.entries = append(l.entries, e)
		l.prefixes = l.prefixes || e.bits != 0
	}
	l.cover()
	l.setApart(spec)
	l.reserve(spec.PreAllocations)
	l.cut()
	l.given = l.rangesGiven()
	return l
}

func (l *Layout) complain(format string, args ...any) {
	l.Problems = append(l.Problems, fmt.Sprintf(format, args...))
}

// cover makes the indexes of ranges and subnets. Where entries overlap, the first one counts.
func (l *Layout) cover() {
	var ranges, subnets coverer
	for i := range l.entries {
		e := &l.entries[i]
		if e.all != nil {
			ranges.add(*e.all, i)
		}
		if e.subnet.IsValid() {
			subnets.add(ipset.PrefixRange(e.subnet), i)
		}
	}
	l.ranges, l.subnets = ranges.done(), subnets.done()
}

// setApart notes the addresses that machines do not get: every gateway, and unless the spec hands them out the network and the broadcast
// address of each subnet. An entry without a subnet has no such two.
func (l *Layout) setApart(spec *ipamv1.IPPoolSpec) {
	for i := range l.entries {
		if subnet := l.entries[i].subnet; subnet.IsValid() && l.entries[i].bits == 0 && !spec.AllocateReservedAddresses && subnet.Addr().BitLen()-subnet.Bits() > 1 {
			whole := ipset.PrefixRange(subnet)
			l.special[whole.First] = "the network address of " + subnet.Masked().String()
			if whole.First.Is4() {
				l.special[whole.Last] = "the broadcast address of " + subnet.Masked().String()
			}
		}
	}
	gateways := []*ipamv1.IPAddressStr{spec.Gateway}
	for i := range spec.Pools {
		gateways = append(gateways, spec.Pools[i].Gateway)
	}
	for _, text := range gateways {
		if text == nil {
			continue
		}
		if gateway, err := ParseAddr(string(*text)); err == nil {
			l.special[gateway] = "a gateway of the pool"
		}
	}
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
		if !l.isLocated(addr) {
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
func (l *Layout) cut() {
	blocked := l.excluded.Clone()
	for addr := range l.reservee {
		blocked.Release(addr)
	}
	for addr := range l.special {
		blocked.Release(addr)
	}
	for i := range l.entries {
		e := &l.entries[i]
		e.base = ipset.New()
		if e.all == nil {
			continue
		}
		for _, part := range blocked.Without(*e.all) {
			if part, ok := whole(part, e.bits); ok {
				e.base.Add(part)
			}
		}
		blocked.Add(*e.all)
	}
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

// Withheld says why an address is not given to a claim of a name; empty where it can be. A preallocation to the claim lifts every other reason.
func (l *Layout) Withheld(addr netip.Addr, claim string) string {
	owner, isReserved := l.reservee[addr]
	what, isSpecial := l.special[addr]
	switch {
	case isReserved && owner == claim:
		return ""
	case isReserved:
		return "preallocated to claim " + owner
	case l.isExcluded(addr):
		return "excluded"
	case isSpecial:
		return what
	}
	return ""
}

// Gives reports whether a claim of a name can get an address, or the prefix of a length that begins with it, again.
func (l *Layout) Gives(addr netip.Addr, bits int, claim string) bool {
	_, ok := l.network(addr, bits)
	return ok && l.Withheld(addr, claim) == ""
}

// network is what an address that lies in a range of the pool comes with. Bits is the length of the prefix that it begins; zero for a single address.
func (l *Layout) network(addr netip.Addr, bits int) (Network, bool) {
	if i, ok := l.ranges.find(addr); ok && l.entries[i].bits == bits && (bits == 0 || block(addr, bits).Addr() == addr) {
		return l.entries[i].network, true
	}
	return Network{}, false
}

// NetworkOf is what an address comes with, or the prefix of a length that it begins; zero bits mean the address alone. It is like network and also accepts an address that lies inside of
// an entry's subnet only: the rule for preallocations. False means that the address lies in no range and in no subnet of the pool.
func (l *Layout) NetworkOf(addr netip.Addr, bits int) (Network, bool) {
	if network, ok := l.network(addr, bits); ok {
		return network, true
	}
	if i, ok := l.subnets.find(addr); ok && l.entries[i].bits == bits && (bits == 0 || block(addr, bits).Addr() == addr) {
		return l.entries[i].network, true
	}
	return Network{}, false
}

// isLocated reports whether an address lies in a range or a subnet of the pool.
func (l *Layout) isLocated(addr netip.Addr) bool {
	_, inRange := l.ranges.find(addr)
	_, inSubnet := l.subnets.find(addr)
	return inRange || inSubnet
}

func (l *Layout) isExcluded(addr netip.Addr) bool { return l.excluded.Contains(addr) }

// InBounds reports whether an address in use is one of the pool: it lies in a range, or it is preallocated, and then the subnet of an entry is
// enough. This is the one notion of it: counts and conditions use it, and the admission policy ippool-used-addresses says the same in CEL.
func (l *Layout) InBounds(addr netip.Addr) bool { return l.inBounds(addr, 0) }

func (l *Layout) inBounds(addr netip.Addr, bits int) bool {
	if _, ok := l.reservee[addr]; ok {
		return true
	}
	i, ok := l.ranges.find(addr)
	return ok && l.entries[i].bits == bits
}

// home is the entry that an address returns to when it is given back; -1 where no claim may choose it.
func (l *Layout) home(addr netip.Addr) int {
	if i, ok := l.ranges.find(addr); ok && l.entries[i].base.Contains(addr) {
		return i
	}
	return -1
}

// Total is the number of addresses and prefixes that the pool can hand out, to any claim or to those that they are preallocated to.
func (l *Layout) Total() int64 {
	total := ipset.Number{Lo: uint64(len(l.reservee))}
	for i := range l.entries {
		total = total.Plus(l.entries[i].units(l.entries[i].base))
	}
	return total.Int64()
}
