// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ippool

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

// neighbours are the pools of each namespace and what they hand out. It is safe for concurrent use.
type neighbours struct {
	mu    sync.Mutex
	pools map[string]map[string]*allocate.Layout // by namespace and name
	// known is what overlaps was asked before, until a pool of the namespace changes.
	known map[string]map[string]overlap
}

// overlap is a pool that would hand out addresses of another one.
type overlap struct{ pool, addresses string }

func newNeighbours() *neighbours {
	return &neighbours{pools: map[string]map[string]*allocate.Layout{}, known: map[string]map[string]overlap{}}
}

// set takes the layout of a pool over; nil means that the pool is gone. It returns the pools that overlapped it before, or do so now.
func (n *neighbours) set(name types.NamespacedName, layout *allocate.Layout) []types.NamespacedName {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.pools[name.Namespace]
	if all == nil {
		all = map[string]*allocate.Layout{}
		n.pools[name.Namespace] = all
	}
	before := all[name.Name]
	if before == layout {
		return nil
	}
	delete(n.known, name.Namespace)
	var out []types.NamespacedName
	for other, theirs := range all {
		if other != name.Name && (overlaps(before, theirs) || overlaps(layout, theirs)) {
			out = append(out, types.NamespacedName{Namespace: name.Namespace, Name: other})
		}
	}
	if layout != nil {
		all[name.Name] = layout
		return out
	}
	delete(all, name.Name)
	if len(all) == 0 {
		delete(n.pools, name.Namespace)
	}
	return out
}

func overlaps(a, b *allocate.Layout) bool {
	if a == nil || b == nil {
		return false
	}
	_, ok := allocate.Overlap(a, b)
	return ok
}

// of is the first pool by name that would hand out addresses of a pool, too; the zero value means none.
func (n *neighbours) of(name types.NamespacedName) overlap {
	n.mu.Lock()
	defer n.mu.Unlock()
	if found, ok := n.known[name.Namespace][name.Name]; ok {
		return found
	}
	found, all := overlap{}, n.pools[name.Namespace]
	if ours := all[name.Name]; ours != nil {
		for _, other := range slices.Sorted(maps.Keys(all)) {
			if other == name.Name {
				continue
			}
			if addresses, ok := allocate.Overlap(ours, all[other]); ok {
				found = overlap{other, addresses.String()}
				break
			}
		}
	}
	if n.known[name.Namespace] == nil {
		n.known[name.Namespace] = map[string]overlap{}
	}
	n.known[name.Namespace][name.Name] = found
	return found
}

// message says what overlaps.
func (o overlap) message() string {
	return fmt.Sprintf("IPPool %s hands out %s, too: give both pools one namePrefix, or ranges that do not overlap", o.pool, o.addresses)
}
