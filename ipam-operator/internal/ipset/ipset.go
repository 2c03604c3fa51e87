// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ipset keeps a set of IP addresses as sorted disjoint intervals, so that its size is what was cut out of it and
// not how many addresses it holds: a /64 costs no more than a /24.
//
// The intervals are the nodes of a balanced search tree that also knows how many addresses each branch holds. Finding,
// taking and releasing an address, and picking the lowest one or the n-th one, take time that grows with the logarithm of
// the number of intervals.
package ipset

import (
	"fmt"
	"iter"
	"net/netip"
)

// Range is the addresses from First to Last, both included. Both are of one family and First is not greater than Last.
type Range struct{ First, Last netip.Addr }

// String is the form "first-last", or the address alone.
func (r Range) String() string {
	if r.First == r.Last {
		return r.First.String()
	}
	return fmt.Sprintf("%s-%s", r.First, r.Last)
}

// Contains reports whether the range holds an address.
func (r Range) Contains(addr netip.Addr) bool {
	return addr.IsValid() && r.First.Is4() == addr.Is4() && r.First.Compare(addr) <= 0 && addr.Compare(r.Last) <= 0
}

// PrefixRange is the range that a network spans.
func PrefixRange(prefix netip.Prefix) Range {
	first := prefix.Masked().Addr()
	raw := first.As16()
	bit := prefix.Bits()
	if first.Is4() {
		bit += 96
	}
	for ; bit < 128; bit++ {
		raw[bit/8] |= 1 << (7 - bit%8)
	}
	last := netip.AddrFrom16(raw)
	if first.Is4() {
		last = last.Unmap()
	}
	return Range{First: first, Last: last}
}

// intervals are the numbers of a range. An IPv6 range that spans the block of IPv4-mapped addresses leaves it out: those numbers are the
// IPv4 addresses.
func (r Range) intervals() []interval {
	whole := interval{numberOf(r.First), numberOf(r.Last)}
	if r.First.Is4() || whole.last.less(mapped.first) || mapped.last.less(whole.first) {
		return []interval{whole}
	}
	var out []interval
	if whole.first.less(mapped.first) {
		out = append(out, interval{whole.first, mapped.first.previous()})
	}
	if mapped.last.less(whole.last) {
		out = append(out, interval{mapped.last.next(), whole.last})
	}
	return out
}

// Set is a set of addresses. The zero value is empty. A Set is not safe for concurrent use.
type Set struct{ root *node }

// New returns the set of all addresses of the ranges, which may overlap.
func New(ranges ...Range) *Set {
	set := &Set{}
	for _, r := range ranges {
		set.Add(r)
	}
	return set
}

// Add puts every address of a range into the set.
func (s *Set) Add(r Range) {
	for _, i := range r.intervals() {
		s.add(i)
	}
}

// Remove takes every address of a range out of the set.
func (s *Set) Remove(r Range) {
	for _, i := range r.intervals() {
		s.remove(i)
	}
}

// Take removes one address and reports whether the set had it.
func (s *Set) Take(addr netip.Addr) bool {
	if !s.Contains(addr) {
		return false
	}
	n := numberOf(addr)
	s.remove(interval{n, n})
	return true
}

// Release adds one address and reports whether the set lacked it.
func (s *Set) Release(addr netip.Addr) bool {
	if s.Contains(addr) {
		return false
	}
	n := numberOf(addr)
	s.add(interval{n, n})
	return true
}

// Contains reports whether the set has an address.
func (s *Set) Contains(addr netip.Addr) bool {
	if !addr.IsValid() {
		return false
	}
	n := numberOf(addr)
	for at := s.root; at != nil; {
		switch {
		case n.less(at.first):
			at = at.left
		case at.last.less(n):
			at = at.right
		default:
			return true
		}
	}
	return false
}

// Count is the number of addresses.
func (s *Set) Count() Number { return s.root.total() }

// First returns the lowest address; false means that the set is empty.
func (s *Set) First() (netip.Addr, bool) {
	if s.root == nil {
		return netip.Addr{}, false
	}
	at := s.root
	for at.left != nil {
		at = at.left
	}
	return at.first.addr(), true
}

// Pick returns the address that a random number stands for: every address of the set is as likely as any other. The
// set is not changed; false means that it is empty.
func (s *Set) Pick(random Number) (netip.Addr, bool) {
	if s.root == nil {
		return netip.Addr{}, false
	}
	rank := random.modulo(s.root.count)
	at := s.root
	for {
		left := at.left.total()
		if rank.less(left) {
			at = at.left
			continue
		}
		rank = rank.minus(left)
		own := at.size()
		if rank.less(own) {
			return at.first.Plus(rank).addr(), true
		}
		rank = rank.minus(own)
		at = at.right
	}
}

// Clone returns a set of the same addresses that can be changed on its own.
func (s *Set) Clone() *Set { return &Set{root: s.root.clone()} }

// Without returns the parts of a range that the set lacks, in order.
func (s *Set) Without(r Range) []Range {
	var out []Range
	for _, whole := range r.intervals() {
		rest, open := whole.first, true
		s.root.overlapping(whole, func(i interval) bool {
			if rest.less(i.first) {
				out = append(out, Range{First: rest.addr(), Last: i.first.previous().addr()})
			}
			if open = i.last.less(whole.last); open {
				rest = i.last.next()
			}
			return open
		})
		if open {
			out = append(out, Range{First: rest.addr(), Last: whole.last.addr()})
		}
	}
	return out
}

// Ranges goes through the intervals in order. No two of them overlap or touch.
func (s *Set) Ranges() iter.Seq[Range] {
	return func(yield func(Range) bool) {
		s.root.walk(func(i interval) bool {
			return yield(Range{First: i.first.addr(), Last: i.last.addr()})
		})
	}
}
