// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metal3dataclaim

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"
)

func TestClaimsThatAreServedTogetherTryDifferentIndexes(t *testing.T) {
	name := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: name} }
	i := newIndexes()
	none := map[int]bool{}
	assert.Equal(t, 0, i.lowest(name("t"), name("a"), none))
	assert.Equal(t, 1, i.lowest(name("t"), name("b"), none))
	assert.Equal(t, 0, i.lowest(name("other"), name("b"), none), "every template has indexes of its own")
	assert.Equal(t, 0, i.lowest(name("t"), name("a"), none), "a claim tries its own again")
	assert.Equal(t, 2, i.lowest(name("t"), name("a"), map[int]bool{0: true}), "unless it is taken: then the lowest that no claim tries")
	assert.Equal(t, 0, i.lowest(name("t"), name("c"), none), "a released index is free again")
	i.forget(name("b"))
	assert.Equal(t, 1, i.lowest(name("t"), name("d"), none))
	for _, claim := range []string{"a", "c", "d"} {
		i.forget(name(claim))
	}
	assert.Empty(t, i.trying, "claims that are gone are dropped")
}
