// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"maps"
	"slices"
	"sync"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// indexes computes the changes of status.indexes of a pool while its claims get addresses or give them back, as the operator writes them: the status shows the first
// claims by name, up to a limit. It is safe for concurrent use.
type indexes struct {
	limit     int
	names     []string // in order
	addresses map[string]ipamv1.IPAddressStr

	mu    sync.Mutex
	has   map[string]bool // claims that have their address
	shown map[string]bool // claims that the status shows
}

// newIndexes returns the indexes of claims without addresses. The map holds the address that each claim gets.
func newIndexes(addresses map[string]ipamv1.IPAddressStr, limit int) *indexes {
	return &indexes{limit: limit, names: slices.Sorted(maps.Keys(addresses)), addresses: addresses, has: map[string]bool{}, shown: map[string]bool{}}
}

// set notes whether a claim has its address.
func (x *indexes) set(claim string, has bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if has {
		x.has[claim] = true
	} else {
		delete(x.has, claim)
	}
}

// change returns the difference to the status that was written last, as a merge patch of indexes, and how many addresses are in use. An entry that is removed is nil.
func (x *indexes) change() (patch map[string]*ipamv1.IPAddressStr, used int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	patch, now := map[string]*ipamv1.IPAddressStr{}, map[string]bool{}
	for _, name := range x.names {
		if len(now) == x.limit {
			break
		}
		if x.has[name] {
			now[name] = true
		}
	}
	for name := range now {
		if !x.shown[name] {
			patch[name] = new(x.addresses[name])
		}
	}
	for name := range x.shown {
		if !now[name] {
			patch[name] = nil
		}
	}
	x.shown = now
	return patch, len(x.has)
}
