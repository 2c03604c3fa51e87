// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"math"
	"net/netip"
)

// Tally counts a pool from the addresses and the prefixes that are in use, each once, and from what an inventory says that others have.
func Tally(layout *Layout, used map[netip.Addr]struct{}, prefixes map[netip.Prefix]struct{}, external []netip.Prefix) Counts {
	if layout.prefixes || len(prefixes) > 0 || len(external) > 0 {
		free := NewFree(layout)
		for addr := range used {
			free.Take(addr)
		}
		for prefix := range prefixes {
			free.Occupy(prefix.Addr(), prefix.Bits())
		}
		for _, prefix := range external {
			free.Occupy(prefix.Addr(), blockBits(prefix))
		}
		return free.CountsBeside(external)
	}
	counts := Counts{Total: layout.Total(), Used: int64(len(used))}
	chosen := int64(0)
	for addr := range used {
		if layout.home(addr) >= 0 {
			chosen++
		}
		if !layout.InBounds(addr) {
			counts.OutOfRange++
		}
	}
	counts.Free = counts.Total
	if counts.Total != math.MaxInt64 {
		counts.Free = counts.Total - chosen - int64(len(layout.reservee))
	}
	return counts
}
