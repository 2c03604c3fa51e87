// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metal3dataclaim

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// indexes is what this process is about to take: claims that are served at the same time try different indexes at once. It is a
// hint; the name of the Metal3Data decides.
type indexes struct {
	mu     sync.Mutex
	trying map[types.NamespacedName]map[int]types.NamespacedName
}

func newIndexes() *indexes {
	return &indexes{trying: map[types.NamespacedName]map[int]types.NamespacedName{}}
}

// lowest is the lowest index of a template that is neither taken nor tried by another claim. It is tried from now on.
func (i *indexes) lowest(template, claim types.NamespacedName, taken map[int]bool) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	trying := i.trying[template]
	if trying == nil {
		trying = map[int]types.NamespacedName{}
		i.trying[template] = trying
	}
	for index, by := range trying {
		if taken[index] || by == claim {
			delete(trying, index)
		}
	}
	index := 0
	for ; taken[index] || trying[index] != (types.NamespacedName{}); index++ {
		continue
	}
	trying[index] = claim
	return index
}

// forget ends what a claim tries.
func (i *indexes) forget(claim types.NamespacedName) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for template, trying := range i.trying {
		for index, by := range trying {
			if by == claim {
				delete(trying, index)
			}
		}
		if len(trying) == 0 {
			delete(i.trying, template)
		}
	}
}
