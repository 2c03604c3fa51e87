// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"math"
	"net/netip"
)

// Tally counts a pool from the addresses that are in use, each once.
func Tally(layout *Layout, used map[netip.Addr]struct{}) Counts {
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
