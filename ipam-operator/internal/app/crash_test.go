// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/faultinject"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// claimKind is a kind of claim whose controller dies.
type claimKind struct {
	create func(w *testEnv, name string) client.Object
	bound  func(claim client.Object) bool
}

// TestADeathAtAnyWriteHeals lets the operator die after each of its writes, and starts it again: each claim has one address, nothing is
// left over.
func TestADeathAtAnyWriteHeals(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]claimKind{
		"IPClaim": {
			create: func(w *testEnv, name string) client.Object { return w.claim(name, "p") },
			bound:  func(claim client.Object) bool { return claim.(*ipamv1.IPClaim).Status.Address != nil },
		},
		"IPAddressClaim": {
			create: func(w *testEnv, name string) client.Object { return w.addressClaim(name, "p", nil) },
			bound: func(claim client.Object) bool {
				address, _, _ := unstructured.NestedString(claim.(*unstructured.Unstructured).Object, "status", "addressRef", "name")
				return address != ""
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			diesAtEveryWrite(t, func(t *testing.T, writes writes) {
				w := newTestEnv(t)
				w.installContract()
				w.heals(kind, writes)
			})
		})
	}
}

// diesAtEveryWrite has an operator live a life that ends after its first write, then after its second, until it ends by itself.
func diesAtEveryWrite(t *testing.T, live func(*testing.T, writes)) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts the operator many times")
	}
	faultinject.CrashAfterEveryCall(t, func(t *testing.T, i *faultinject.Injector) { live(t, writes{i}) })
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
