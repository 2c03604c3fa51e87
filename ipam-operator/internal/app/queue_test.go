// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// TestClaimsOfBothKindsStandInOneQueue lets claims of both kinds wait for the only address of a pool, and gives it back again and again. Claims that were created
// within one second are in the order of their names.
func TestClaimsOfBothKindsStandInOneQueue(t *testing.T) {
	w := newTestEnv(t)
	w.installContract()
	w.operator(nil)
	w.pool("p", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.10")} })
	holder := client.Object(w.claim("a-0", "p"))
	w.address("a-0")
	var waiting []client.Object
	for i := range 6 {
		name := fmt.Sprintf("q-%d", i)
		if i%2 == 0 {
			waiting = append(waiting, w.addressClaim(name, "p", nil))
		} else {
			waiting = append(waiting, w.claim(name, "p"))
		}
		w.eventually(name+" is not told its position", func() bool {
			return strings.HasSuffix(w.waitMessage(waiting[i]), fmt.Sprintf("position %d in the queue", i+1))
		})
	}
	for _, next := range waiting {
		w.delete(holder)
		served := map[string]bool{}
		w.eventually("no claim gets the address", func() bool {
			served = map[string]bool{}
			for name := range w.held() {
				served[name] = name != holder.GetName()
			}
			delete(served, holder.GetName())
			return len(served) > 0
		})
		require.Equal(t, map[string]bool{next.GetName(): true}, served)
		holder = next
	}
	w.delete(holder)
	w.eventually("addresses leaked", func() bool { return len(w.list("IPAddress")) == 0 && len(w.held()) == 0 })
}

// waitMessage is what the condition Ready of a claim says.
func (w *testEnv) waitMessage(claim client.Object) string {
	w.t.Helper()
	kind := "IPClaim"
	if _, ok := claim.(*unstructured.Unstructured); ok {
		kind = "IPAddressClaim"
	}
	for _, got := range w.list(kind) {
		conditions, _, _ := unstructured.NestedSlice(got.Object, "status", "conditions")
		if got.GetName() == claim.GetName() && len(conditions) > 0 {
			message, _, _ := unstructured.NestedString(conditions[0].(map[string]any), "message")
			return message
		}
	}
	return ""
}

// TestPositionsFollowTheQueue lets claims of both kinds wait, serves one after the other and reads their positions. The claims are told a position once each time that
// the queue has moved.
func TestPositionsFollowTheQueue(t *testing.T) {
	const waiters = 4
	w := newTestEnv(t)
	w.installContract()
	counted := countWrites()
	w.operator(counted.count)
	w.pool("p", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.10")} })
	holder := w.claim("a-0", "p")
	w.address("a-0")
	var waiting []client.Object
	for i := range waiters {
		name := fmt.Sprintf("q-%d", i)
		if i == 0 {
			waiting = append(waiting, w.claim(name, "p"))
		} else {
			waiting = append(waiting, w.addressClaim(name, "p", nil))
		}
		w.eventually(name+" is not told its position", func() bool {
			return strings.HasSuffix(w.waitMessage(waiting[i]), fmt.Sprintf("position %d in the queue", i+1))
		})
	}
	before := counted.of("/ipaddressclaims/")
	w.delete(holder)
	w.address("q-0")
	for i := 1; i < waiters; i++ {
		w.eventually("the position is not updated", func() bool {
			return strings.HasSuffix(w.waitMessage(waiting[i]), fmt.Sprintf("position %d in the queue", i))
		})
	}
	assert.LessOrEqual(t, counted.of("/ipaddressclaims/")-before, 2*(waiters-1), "a claim is written for a position once, or twice where another claim was served in between")
}
