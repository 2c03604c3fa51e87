// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package space

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

func TestAGenerationIsReadOnce(t *testing.T) {
	layouts := NewLayouts(ipamv1.RandomAllocation)
	pool := func(uid types.UID, generation int64) *ipamv1.IPPool {
		return &ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: uid, Generation: generation}}
	}
	var wait sync.WaitGroup
	seen := make([]*allocate.Layout, 8)
	for i := range seen {
		wait.Go(func() { seen[i] = layouts.Of(pool("a", 2)) })
	}
	wait.Wait()
	for _, layout := range seen {
		assert.Same(t, seen[0], layout)
	}
	assert.NotSame(t, seen[0], layouts.Of(pool("a", 1)), "a handler that is behind")
	assert.Same(t, seen[0], layouts.Of(pool("a", 2)))
	third := layouts.Of(pool("a", 3))
	assert.NotSame(t, seen[0], third)
	assert.Same(t, third, layouts.Of(pool("a", 3)))
	other := layouts.Of(pool("b", 1))
	assert.NotSame(t, third, other, "another pool of the name")
	assert.Same(t, other, layouts.Of(pool("b", 1)))
	layouts.Drop(types.NamespacedName{Namespace: "ns", Name: "p"})
	assert.NotSame(t, other, layouts.Of(pool("b", 1)))
	unnumbered := layouts.Of(pool("", 0))
	assert.NotSame(t, unnumbered, layouts.Of(pool("", 0)), "an object that no API server has numbered")
}
