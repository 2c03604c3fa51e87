// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"net/netip"

	"github.com/muster-io/muster/ipam-operator/internal/ipset"
)

// block is the prefix of a length that holds an address.
func block(addr netip.Addr, bits int) netip.Prefix {
	prefix, err := addr.Prefix(bits)
	if err != nil {
		return netip.PrefixFrom(addr, addr.BitLen())
	}
	return prefix
}

// widen is the smallest range of whole prefixes of a length that holds a range; zero bits leave it as it is.
func widen(r ipset.Range, bits int) ipset.Range {
	if bits == 0 {
		return r
	}
	return ipset.Range{First: block(r.First, bits).Addr(), Last: ipset.PrefixRange(block(r.Last, bits)).Last}
}

// whole is the greatest range of whole prefixes of a length inside of a range; false means that there is none. Zero bits leave it as it is.
func whole(r ipset.Range, bits int) (ipset.Range, bool) {
	if bits == 0 {
		return r, true
	}
	if first := block(r.First, bits); first.Addr() != r.First {
		r.First = ipset.PrefixRange(first).Last.Next()
	}
	if last := block(r.Last, bits); ipset.PrefixRange(last).Last != r.Last {
		r.Last = last.Addr().Prev()
	}
	return r, r.First.IsValid() && r.Last.IsValid() && r.First.Is4() == r.Last.Is4() && !r.Last.Less(r.First)
}

// units is how many addresses, or prefixes, of the entry a set holds.
func (e *entry) units(set *ipset.Set) ipset.Number {
	if e.bits == 0 || e.all == nil {
		return set.Count()
	}
	return set.Count().ShiftRight(e.all.First.BitLen() - e.bits)
}

// HasPrefixes reports whether an entry hands out prefixes of a length. Every pool is one for single addresses, whose length is zero here.
func (l *Layout) HasPrefixes(bits int) bool {
	for i := range l.entries {
		if l.entries[i].bits == bits && l.entries[i].all != nil {
			return true
		}
	}
	return bits == 0
}

// Occupy is Take for a prefix of a length that begins with an address; zero bits mean the address alone.
func (f *Free) Occupy(addr netip.Addr, bits int) {
	if bits == 0 {
		f.Take(addr)
		return
	}
	prefix := block(addr, bits)
	if f.nets[prefix]++; f.nets[prefix] == 1 && !f.isRegular(prefix) {
		f.strays++
	}
	f.clear(ipset.PrefixRange(prefix))
}

// Vacate undoes one Occupy and reports whether the prefix is free now.
func (f *Free) Vacate(addr netip.Addr, bits int) bool {
	if bits == 0 {
		return f.Release(addr)
	}
	prefix := block(addr, bits)
	if f.nets[prefix] > 1 {
		f.nets[prefix]--
		return false
	}
	if _, ok := f.nets[prefix]; !ok {
		return false
	}
	delete(f.nets, prefix)
	if f.isRegular(prefix) && f.strays == 0 {
		f.sets[f.Layout.home(prefix.Addr())].Add(ipset.PrefixRange(prefix))
		return true
	}
	if !f.isRegular(prefix) {
		f.strays--
	}
	f.restore(ipset.PrefixRange(prefix))
	return true
}

// isRegular reports whether a prefix is one that an entry hands out.
func (f *Free) isRegular(prefix netip.Prefix) bool {
	home := f.Layout.home(prefix.Addr())
	return home >= 0 && f.Layout.entries[home].bits == prefix.Bits()
}

// clear takes a range off what is free, and each prefix that it touches.
func (f *Free) clear(r ipset.Range) {
	for i, set := range f.sets {
		set.Remove(widen(r, f.Layout.entries[i].bits))
	}
}

// restore frees a range as far as the layout hands it out and nothing else is taken there. It looks at everything that is taken: it is for what an earlier layout has
// handed out in another form.
func (f *Free) restore(r ipset.Range) {
	for i, set := range f.sets {
		e := &f.Layout.entries[i]
		span := widen(r, e.bits)
		part := ipset.New(span)
		for _, gap := range e.base.Without(span) {
			part.Remove(gap)
		}
		for free := range part.Ranges() {
			set.Add(free)
		}
		for addr := range f.taken {
			if span.Contains(addr) {
				set.Remove(widen(ipset.Range{First: addr, Last: addr}, e.bits))
			}
		}
		for prefix := range f.nets {
			if taken := ipset.PrefixRange(prefix); touch(taken, span) {
				set.Remove(widen(taken, e.bits))
			}
		}
	}
}

func touch(a, b ipset.Range) bool {
	return a.First.Is4() == b.First.Is4() && !a.Last.Less(b.First) && !b.Last.Less(a.First)
}

// isOccupied reports whether an address, or any of a prefix, is taken.
func (f *Free) isOccupied(addr netip.Addr, bits int) bool {
	span := ipset.Range{First: addr, Last: addr}
	if bits != 0 {
		span = ipset.PrefixRange(block(addr, bits))
		for taken := range f.taken {
			if span.Contains(taken) {
				return true
			}
		}
	} else if f.IsTaken(addr) {
		return true
	}
	for prefix := range f.nets {
		if touch(ipset.PrefixRange(prefix), span) {
			return true
		}
	}
	return false
}

// CountOf is how many prefixes of a length any claim can get, at most the greatest int64; zero bits mean single addresses.
func (f *Free) CountOf(bits int) int64 {
	free := ipset.Number{}
	for i, set := range f.sets {
		if e := &f.Layout.entries[i]; e.bits == bits {
			free = free.Plus(e.units(set))
		}
	}
	return free.Int64()
}
