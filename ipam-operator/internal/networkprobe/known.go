// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package networkprobe

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Known is which addresses have answered, and which ones the operator has given. It is safe for concurrent use.
type Known struct {
	subnets Subnets
	keep    time.Duration

	mu       sync.Mutex
	complete bool                                  // every address was probed once
	answered map[netip.Addr]time.Time              // when an address answered last
	given    map[types.NamespacedName]netip.Prefix // by the name of the IPAddress
}

// NewKnown returns a Known of the addresses of subnets. An address counts as taken until it has not answered for the time to keep it.
func NewKnown(subnets Subnets, keep time.Duration) *Known {
	return &Known{subnets: subnets, keep: keep, answered: map[netip.Addr]time.Time{}, given: map[types.NamespacedName]netip.Prefix{}}
}

// answer notes that an address has answered.
func (k *Known) answer(addr netip.Addr, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.isGiven(addr) { // it may have been given while it was probed
		k.answered[addr] = now
	}
}

// endRound notes that every address was probed since a time, and forgets those that have not answered since then, and for too long.
func (k *Known) endRound(started, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.complete = true
	for addr, at := range k.answered {
		if at.Before(started) && now.Sub(at) > k.keep {
			delete(k.answered, addr)
		}
	}
}

// Give notes that the operator has given an address or a prefix. It reports whether there was room to note it: the operator gives each address of a subnet once.
func (k *Known) Give(name types.NamespacedName, prefix netip.Prefix) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.given, name)
	if !slices.ContainsFunc(k.subnets, func(s Subnet) bool { return s.Prefix.Overlaps(prefix) }) {
		return true // it is not probed anyway
	}
	if len(k.given) >= maxAddresses {
		return false
	}
	k.given[name] = prefix
	for addr := range k.answered {
		if prefix.Contains(addr) {
			delete(k.answered, addr)
		}
	}
	return true
}

// Free notes that an address is free again. It is taken once it answers.
func (k *Known) Free(name types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.given, name)
}

// Taken are the addresses of a pool that answer and that the operator has not given, in order. False means that not every address was probed yet.
func (k *Known) Taken(pool types.NamespacedName) ([]netip.Addr, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := []netip.Addr{}
	for addr := range k.answered {
		if slices.ContainsFunc(k.subnets, func(s Subnet) bool { return s.isOf(pool) && s.Prefix.Contains(addr) }) {
			out = append(out, addr)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out, k.complete
}

// toProbe are the addresses of a round: those that the operator has given are not asked.
func (k *Known) toProbe() []netip.Addr {
	k.mu.Lock()
	defer k.mu.Unlock()
	single, wide := map[netip.Addr]bool{}, []netip.Prefix{}
	for _, prefix := range k.given {
		if prefix.IsSingleIP() {
			single[prefix.Addr()] = true
		} else {
			wide = append(wide, prefix)
		}
	}
	return slices.DeleteFunc(k.subnets.addresses(), func(addr netip.Addr) bool {
		return single[addr] || slices.ContainsFunc(wide, func(p netip.Prefix) bool { return p.Contains(addr) })
	})
}

func (k *Known) isGiven(addr netip.Addr) bool {
	for _, prefix := range k.given {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}
