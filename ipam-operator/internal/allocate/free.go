// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"net/netip"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/ipset"
)

// Free is the addresses of a Layout that are not taken. It is not safe for concurrent use.
type Free struct {
	Layout *Layout

	sets  []*ipset.Set       // one for each entry
	taken map[netip.Addr]int // how many objects stand for the address

	nets    map[netip.Prefix]int          // how many objects stand for the prefix
	strays  int                           // taken addresses and prefixes that the layout would hand out in another form
	tenants map[string]map[netip.Addr]int // what claims of other namespaces have, by namespace
}

// NewFree returns all addresses of a layout.
func NewFree(layout *Layout) *Free {
	f := &Free{Layout: layout, taken: map[netip.Addr]int{}, nets: map[netip.Prefix]int{}, tenants: map[string]map[netip.Addr]int{}}
	for i := range layout.entries {
		f.sets = append(f.sets, layout.entries[i].base.Clone())
	}
	return f
}

// Take marks an address as taken, whether the pool would hand it out or not. It is free again after as many calls of
// Release as there were of Take: several objects may stand for one address.
func (f *Free) Take(addr netip.Addr) {
	f.taken[addr]++
	home := f.Layout.home(addr)
	switch {
	case home < 0:
	case f.Layout.entries[home].bits == 0:
		f.sets[home].Take(addr)
	default:
		if f.taken[addr] == 1 {
			f.strays++
		}
		f.clear(ipset.Range{First: addr, Last: addr})
	}
}

// Release undoes one Take and reports whether the address is free now.
func (f *Free) Release(addr netip.Addr) bool {
	if f.taken[addr] > 1 {
		f.taken[addr]--
		return false
	}
	if _, ok := f.taken[addr]; !ok {
		return false
	}
	delete(f.taken, addr)
	home := f.Layout.home(addr)
	switch {
	case home < 0:
	case f.strays == 0:
		f.sets[home].Release(addr)
	default:
		if f.Layout.entries[home].bits != 0 {
			f.strays--
		}
		f.restore(ipset.Range{First: addr, Last: addr})
	}
	return true
}

// IsTaken reports whether an address is taken.
func (f *Free) IsTaken(addr netip.Addr) bool {
	_, ok := f.taken[addr]
	return ok
}

// holders is how many objects stand for an address, or for a prefix.
func (f *Free) holders(addr netip.Addr, bits int) int {
	if bits != 0 {
		return f.nets[block(addr, bits)]
	}
	return f.taken[addr]
}

// Choosable reports whether any claim could get an address.
func (f *Free) Choosable(addr netip.Addr) bool {
	home := f.Layout.home(addr)
	return home >= 0 && f.sets[home].Contains(addr)
}

// choose returns the address that the strategy says: the lowest of the first entry that has one, or the one of that
// entry that the random number stands for. Of an entry that hands out prefixes it is the first address of one.
func (f *Free) choose(random ipset.Number, bits int) (netip.Addr, bool) {
	for i, set := range f.sets {
		if f.Layout.entries[i].bits != bits || set.Count().IsZero() {
			continue
		}
		if f.Layout.Strategy == ipamv1.SequentialAllocation {
			return set.First()
		}
		addr, ok := set.Pick(random)
		if bits != 0 {
			addr = block(addr, bits).Addr()
		}
		return addr, ok
	}
	return netip.Addr{}, false
}

// Counts are the numbers of a pool. Numbers beyond 64 bits are the greatest int64.
type Counts struct {
	// Total is what the pool can hand out.
	Total int64
	// Used is how many addresses are taken, in range or not.
	Used int64
	// Free is what any claim can get.
	Free int64
	// OutOfRange is how many taken addresses the pool would not hand out.
	OutOfRange int64
	// External is how many more any claim could get if an inventory did not say that others have them. They count neither as used nor as free.
	External int64
}

// CountsBeside is Counts where some of what is taken is what an inventory says that others have.
func (f *Free) CountsBeside(external []netip.Prefix) Counts {
	free := f.Count()
	for _, prefix := range external {
		f.Vacate(prefix.Addr(), blockBits(prefix))
	}
	counts := f.Counts()
	for _, prefix := range external {
		f.Occupy(prefix.Addr(), blockBits(prefix))
	}
	counts.Free, counts.External = free, counts.Free-free
	return counts
}

// blockBits is the length of a prefix as Occupy takes it: zero for a single address.
func blockBits(prefix netip.Prefix) int {
	if prefix.IsSingleIP() {
		return 0
	}
	return prefix.Bits()
}

// Counts returns the numbers. It looks at each taken address once.
func (f *Free) Counts() Counts {
	counts := Counts{Total: f.Layout.Total(), Used: int64(len(f.taken) + len(f.nets)), Free: f.Count()}
	for addr := range f.taken {
		if !f.Layout.InBounds(addr) {
			counts.OutOfRange++
		}
	}
	for prefix := range f.nets {
		if !f.Layout.inBounds(prefix.Addr(), prefix.Bits()) {
			counts.OutOfRange++
		}
	}
	return counts
}

// Count is how many addresses and prefixes any claim can get, at most the greatest int64.
func (f *Free) Count() int64 {
	free := ipset.Number{}
	for i, set := range f.sets {
		free = free.Plus(f.Layout.entries[i].units(set))
	}
	return free.Int64()
}
