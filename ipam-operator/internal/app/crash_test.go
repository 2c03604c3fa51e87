// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// TestADeathAtAnyWriteHeals lets the operator die at its n-th write, for every n, with the write lost or only its answer,
// and starts it again: everybody has one address, nothing is left over.
func TestADeathAtAnyWriteHeals(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the operator many times")
	}
	for _, lost := range []bool{false, true} {
		// Serving two claims and giving one back takes about ten writes.
		for n := 1; n <= 14; n++ {
			t.Run(fmt.Sprintf("write %d, answer lost %v", n, lost), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.pool("p", func(s *ipamv1.IPPoolSpec) {
					s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.11")}
					s.AllocationStrategy = ipamv1.RandomAllocation
				})
				writes := &writes{dieAt: n, lost: lost, dead: make(chan struct{})}
				stop := w.operator(writes.count)
				first := w.claim("a", "p")
				w.claim("b", "p")
				alive := true
				for deadline := time.Now().Add(3 * time.Second); alive && time.Now().Before(deadline); {
					if got := w.getClaim("a"); got != nil && got.Status.Address != nil && got.DeletionTimestamp.IsZero() {
						w.delete(first)
					}
					select {
					case <-writes.dead:
						alive = false
					case <-time.After(20 * time.Millisecond):
					}
				}
				stop()
				w.operator(nil)
				if got := w.getClaim("a"); got != nil && got.DeletionTimestamp.IsZero() {
					w.address("a")
					w.delete(first)
				}
				w.gone(first)
				w.address("b")
				w.claim("c", "p")
				w.address("c")
				w.settled()
				list := &ipamv1.IPAddressList{}
				require.NoError(t, w.user.List(t.Context(), list, client.InNamespace(w.namespace)))
				require.Len(t, list.Items, 2)
				w.eventually("the pool does not follow", func() bool {
					pool := w.getPool("p")
					return pool.Status.Used != nil && *pool.Status.Used == 2
				})
			})
		}
	}
}
