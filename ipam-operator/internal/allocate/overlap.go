// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"slices"

	"github.com/muster-io/muster/ipam-operator/internal/ipset"
)

// Overlap is the lowest addresses that both of two pools would hand out; false means that there are none. Pools with one namePrefix take the same locks,
// so that they never give an address twice and do not count as overlapping, unless one of them hands out prefixes.
func Overlap(a, b *Layout) (ipset.Range, bool) {
	if a.NamePrefix == b.NamePrefix && !a.prefixes && !b.prefixes {
		return ipset.Range{}, false
	}
	for i, j := 0, 0; i < len(a.given) && j < len(b.given); {
		first, last := a.given[i].First, a.given[i].Last
		if first.Less(b.given[j].First) {
			first = b.given[j].First
		}
		if b.given[j].Last.Less(last) {
			last = b.given[j].Last
		}
		if !last.Less(first) {
			return ipset.Range{First: first, Last: last}, true
		}
		if a.given[i].Last.Less(b.given[j].Last) {
			i++
		} else {
			j++
		}
	}
	return ipset.Range{}, false
}

// rangesGiven are the ranges that any claim can get, in order.
func (l *Layout) rangesGiven() []ipset.Range {
	var out []ipset.Range
	for i := range l.entries {
		out = slices.AppendSeq(out, l.entries[i].base.Ranges())
	}
	slices.SortFunc(out, func(a, b ipset.Range) int { return a.First.Compare(b.First) })
	return out
}
