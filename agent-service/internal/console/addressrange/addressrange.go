// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package addressrange draws the ranges of an IPPool as strips 600 units wide: what claims have of them, what is excluded, and between these what is free.
package addressrange

import (
	"cmp"
	"math"
	"math/big"
	"net/netip"
	"slices"
	"strings"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// strip is how wide the picture of a range is, and thinnest how wide a single address of a large one.
const strip, thinnest = 600.0, 2.0

// Range is an entry of a pool as a strip from its first address to its last.
type Range struct {
	First, Last netip.Addr
	// Used is how many claims have addresses in the range.
	Used  int
	Marks []Mark
}

// Mark is a part of the strip, in its units: Kind is "used" or "excluded".
type Mark struct {
	Kind     string
	From, To float64
}

// Width of the mark, in units of the picture.
func (m Mark) Width() float64 { return m.To - m.From }

// Of draws the entries of a pool that can be read; the operator says what is wrong with others.
func Of(pool *ipamv1.IPPool) []Range {
	var list []Range
	for i := range pool.Spec.Pools {
		r, ok := bounds(&pool.Spec.Pools[i])
		if !ok {
			continue
		}
		for _, text := range pool.Spec.ExcludedAddresses {
			r.mark("excluded", string(text))
		}
		excluded := r.Marks
		r.Marks = nil
		for _, text := range pool.Status.Allocations {
			if r.mark("used", string(text)) {
				r.Used++
			}
		}
		r.Marks = append(merged(excluded), merged(r.Marks)...)
		list = append(list, r)
	}
	return list
}

// bounds are the first and the last address of an entry.
func bounds(entry *ipamv1.Pool) (r Range, ok bool) {
	var first, last netip.Addr
	if entry.Subnet != nil {
		subnet, err := netip.ParsePrefix(string(*entry.Subnet))
		if err != nil {
			return r, false
		}
		first, last = subnet.Addr().Next(), lastOf(subnet)
	}
	for text, into := range map[*ipamv1.IPAddressStr]*netip.Addr{entry.Start: &first, entry.End: &last} {
		if text != nil {
			*into, _ = netip.ParseAddr(string(*text)) // what is no address is not valid, and not drawn
		}
	}
	if !last.IsValid() {
		last = first
	}
	return Range{First: first, Last: last}, first.IsValid() && first.BitLen() == last.BitLen() && !last.Less(first)
}

// lastOf is the last address of a network.
func lastOf(network netip.Prefix) netip.Addr {
	raw := network.Addr().AsSlice()
	for bit := network.Bits(); bit < len(raw)*8; bit++ {
		raw[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(raw)
	return last
}

// mark draws an address, a network or a range "first-last", as far as it is in the range; false where it is not.
func (r *Range) mark(kind, text string) bool {
	first, last, ok := span(text)
	if !ok || first.BitLen() != r.First.BitLen() || last.Less(r.First) || r.Last.Less(first) {
		return false
	}
	if first.Less(r.First) {
		first = r.First
	}
	if r.Last.Less(last) {
		last = r.Last
	}
	all := distance(r.First, r.Last) + 1
	from, to := distance(r.First, first)/all*strip, (distance(r.First, last)+1)/all*strip
	if to-from < thinnest {
		from = min(from, strip-thinnest)
		to = from + thinnest
	}
	r.Marks = append(r.Marks, Mark{kind, from, to})
	return true
}

func span(text string) (first, last netip.Addr, ok bool) {
	if network, err := netip.ParsePrefix(text); err == nil {
		return network.Masked().Addr(), lastOf(network), true
	}
	from, to, isRange := strings.Cut(text, "-")
	first, err := netip.ParseAddr(from)
	if err != nil || !isRange {
		return first, first, err == nil
	}
	last, err = netip.ParseAddr(to)
	return first, last, err == nil
}

// distance is how many addresses lie between two, as exactly as a picture needs.
func distance(from, to netip.Addr) float64 {
	number := func(a netip.Addr) *big.Int { return new(big.Int).SetBytes(a.AsSlice()) }
	d, _ := new(big.Float).SetInt(new(big.Int).Sub(number(to), number(from))).Float64()
	return d
}

// merged joins marks that touch, so that a full pool is one mark.
func merged(marks []Mark) []Mark {
	slices.SortFunc(marks, func(a, b Mark) int { return cmp.Compare(a.From, b.From) })
	var list []Mark
	for _, m := range marks {
		if end := len(list) - 1; end >= 0 && m.From <= list[end].To+0.01 {
			list[end].To = max(list[end].To, m.To)
			continue
		}
		list = append(list, m)
	}
	for i := range list {
		list[i].From, list[i].To = round(list[i].From), round(list[i].To)
	}
	return list
}

func round(x float64) float64 { return math.Round(x*100) / 100 }
