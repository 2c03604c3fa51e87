// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// claimKind is a kind of claim whose controller dies.
type claimKind struct {
	// writes is more than it takes to serve two claims and give one back.
	writes int
	create func(w *testEnv, name string) client.Object
	bound  func(claim client.Object) bool
}

// TestADeathAtAnyWriteHeals lets the operator die at its n-th write, for every n, with the write lost or only its answer,
// and starts it again: each claim has one address, nothing is left over.
func TestADeathAtAnyWriteHeals(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the operator many times")
	}
	for name, kind := range map[string]claimKind{
		"IPClaim": {
			writes: 14,
			create: func(w *testEnv, name string) client.Object { return w.claim(name, "p") },
			bound:  func(claim client.Object) bool { return claim.(*ipamv1.IPClaim).Status.Address != nil },
		},
		"IPAddressClaim": {
			writes: 20,
			create: func(w *testEnv, name string) client.Object { return w.addressClaim(name, "p", nil) },
			bound: func(claim client.Object) bool {
				address, _, _ := unstructured.NestedString(claim.(*unstructured.Unstructured).Object, "status", "addressRef", "name")
				return address != ""
			},
		},
	} {
		for _, lost := range []bool{false, true} {
			for n := 1; n <= kind.writes; n++ {
				t.Run(fmt.Sprintf("%s, write %d, answer lost %v", name, n, lost), func(t *testing.T) {
					t.Parallel()
					w := newTestEnv(t)
					w.installContract()
					w.heals(kind, crashAt(n, lost))
				})
			}
		}
	}
}

// heals has an operator die, and another one put everything right.
func (w *testEnv) heals(kind claimKind, writes writes) {
	w.t.Helper()
	w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.11")}
		s.AllocationStrategy = ipamv1.RandomAllocation
	})
	stop := w.operator(writes.count)
	first, second := kind.create(w, "a"), kind.create(w, "b")
	stays := func(claim client.Object) bool {
		return w.user.Get(w.t.Context(), client.ObjectKeyFromObject(claim), claim) == nil && claim.GetDeletionTimestamp().IsZero()
	}
	served := func(claim client.Object) bool { return stays(claim) && kind.bound(claim) }
	alive := true
	for deadline := time.Now().Add(3 * time.Second); alive && time.Now().Before(deadline); {
		if served(first) {
			w.delete(first)
		}
		select {
		case <-writes.Dead():
			alive = false
		case <-time.After(20 * time.Millisecond):
		}
	}
	stop()
	w.operator(nil)
	if stays(first) {
		w.eventually("the first claim has no address", func() bool { return served(first) })
		w.delete(first)
	}
	w.gone(first)
	w.eventually("the second claim has no address", func() bool { return served(second) })
	third := kind.create(w, "c")
	w.eventually("the third claim has no address", func() bool { return served(third) })
	w.settled()
	list := &ipamv1.IPAddressList{}
	require.NoError(w.t, w.user.List(w.t.Context(), list, client.InNamespace(w.namespace)))
	require.Len(w.t, list.Items, 2)
	w.untilUsed("p", 2)
}
