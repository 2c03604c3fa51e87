// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"math"
	"net/netip"
)

// Tally counts a pool from the addresses and the prefixes that are in use, each once.
func Tally(layout *Layout, used map[netip.Addr]struct{}, prefixes map[netip.Prefix]struct{}) Counts {
	if layout.prefixes || len(prefixes) > 0 {
		free := NewFree(layout)
		for addr := range used {
			free.Take(addr)
		}
		for prefix := range prefixes {
			free.Occupy(prefix.Addr(), prefix.Bits())
		}
		return free.Counts()
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
