// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// label gives an object to the instance of a filter.
func (w *testEnv) label(obj client.Object, filter string) {
	w.t.Helper()
	patch := `{"metadata":{"labels":{"` + ipamv1.WatchFilterLabel + `":"` + filter + `"}}}`
	require.NoError(w.t, w.user.Patch(w.t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// Two instances serve one namespace side by side. Each touches its own objects only, and neither gives out what the other has given.
func TestAnInstanceServesOnlyWhatItsFilterSelects(t *testing.T) {
	w := newTestEnv(t)
	for _, filter := range []string{"blue", "green"} {
		options := testOptions(w.namespace)
		options.WatchFilter = filter
		w.operatorWith(options, nil)
	}
	twoAddresses := func(s *ipamv1.IPPoolSpec) {
		s.NamePrefix, s.AllocationStrategy = "shared", ipamv1.SequentialAllocation
		s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.11")}
	}
	nobodys := w.pool("nobodys", twoAddresses)
	w.label(w.pool("p-blue", twoAddresses), "blue")
	w.label(w.pool("p-green", twoAddresses), "green")
	plain := w.claim("plain", "p-blue")
	seen := map[ipamv1.IPAddressStr]bool{}
	for _, filter := range []string{"blue", "green"} {
		w.label(w.claim(filter, "p-"+filter), filter)
		seen[w.address(filter).Spec.Address] = true
	}
	assert.Equal(t, map[ipamv1.IPAddressStr]bool{"10.0.0.10": true, "10.0.0.11": true}, seen)

	left := w.getClaim(plain.Name)
	assert.Empty(t, left.Finalizers)
	assert.Equal(t, ipamv1.IPClaimStatus{ObservedGeneration: -1}, left.Status, "it is as the API server made it: no instance tells it anything")
	pool := w.getPool(nobodys.Name)
	assert.Empty(t, pool.Finalizers)
	assert.Equal(t, ipamv1.IPPoolStatus{ObservedGeneration: -1}, pool.Status)

	w.label(plain, "blue")
	w.refused("plain", "Exhausted IP Pools")
	green := w.getClaim("green")
	w.delete(green)
	w.gone(green)
	assert.Contains(t, seen, w.address("plain").Spec.Address)
	w.settled()
}
