// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"net/netip"
	"time"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// CoolDown is how long an address of a pool stays taken after its release: until it may be used again, or for as long as it is kept for a claim of its name.
// A pool that is being deleted does not wait for it.
func CoolDown(pool *ipamv1.IPPool) time.Duration {
	if !pool.DeletionTimestamp.IsZero() {
		return 0
	}
	return coolDown(&pool.Spec)
}

func coolDown(spec *ipamv1.IPPoolSpec) time.Duration {
	return max(time.Duration(spec.AddressReuseGracePeriodSeconds)*time.Second, KeptFor(spec))
}

// KeptFor is how long a released address of a pool is kept for a claim of the same kind and name; zero means not at all.
func KeptFor(spec *ipamv1.IPPoolSpec) time.Duration {
	if spec.StickyFor == nil {
		return 0
	}
	return max(spec.StickyFor.Duration, 0)
}

// isTaken reports whether an address is taken by anything but the released object that is kept for this claim.
func (s Snapshot) isTaken(addr netip.Addr) bool {
	if addr == s.Kept.IP {
		return s.Pool.Free.holders(addr, s.Claim.PrefixLength) > 1
	}
	return s.Pool.Free.isOccupied(addr, s.Claim.PrefixLength)
}

// former are the addresses that the claim, or one of its name, had before: they are tried in this order before any other is chosen. A gateway, and other addresses that no claim
// gets, stay with a claim whose status names them, and go to no other: users can write the annotation with the address that a claim was about to take over.
func (s Snapshot) former() []netip.Addr {
	var out []netip.Addr
	if before, ok := addressOfName(s.Pool.Free.Layout.NamePrefix, s.Claim.Bound); ok {
		out = append(out, before)
	}
	for _, addr := range []netip.Addr{s.Claim.Intended, s.Kept.IP} {
		if _, isSpecial := s.Pool.Free.Layout.special[addr]; addr.IsValid() && !isSpecial {
			out = append(out, addr)
		}
	}
	return out
}
