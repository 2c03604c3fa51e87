// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"net/netip"
	"slices"

	"github.com/muster-io/muster/ipam-operator/internal/ipset"
)

// coverage finds the entry of an address by binary search: disjoint ranges in order.
type coverage []covered

type covered struct {
	ipset.Range
	entry int
}

// find returns the first entry that was added with a range that holds an address.
func (c coverage) find(addr netip.Addr) (entry int, ok bool) {
	at, found := slices.BinarySearchFunc(c, addr, func(part covered, addr netip.Addr) int { return part.First.Compare(addr) })
	if !found {
		at--
	}
	if at < 0 || !c[at].Contains(addr) {
		return 0, false
	}
	return c[at].entry, true
}

// coverer makes a coverage.
type coverer struct {
	seen  ipset.Set
	parts coverage
}

// add covers what is not covered yet of a range.
func (c *coverer) add(r ipset.Range, entry int) {
	for _, part := range c.seen.Without(r) {
		c.parts = append(c.parts, covered{part, entry})
	}
	c.seen.Add(r)
}

func (c *coverer) done() coverage {
	slices.SortFunc(c.parts, func(a, b covered) int { return a.First.Compare(b.First) })
	return c.parts
}
