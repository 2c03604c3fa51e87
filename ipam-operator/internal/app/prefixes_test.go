// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

func (w *testEnv) prefixClaim(name, pool string, length int) *ipamv1.IPClaim {
	w.t.Helper()
	claim := w.newClaim(name, pool)
	claim.Spec.PrefixLength = length
	require.NoError(w.t, w.user.Create(w.t.Context(), claim))
	return claim
}

func TestAPoolHandsOutPrefixes(t *testing.T) {
	w := newTestEnv(t)
	w.operator(nil)
	w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{{Subnet: cidr("10.0.0.0/28"), AllocationPrefixLength: 29}, span("10.0.0.100", "10.0.0.109")}
	})
	claim := w.prefixClaim("a", "p", 29)
	address := w.address("a")
	assert.Equal(t, "10.0.0.0", string(address.Spec.Address))
	assert.Equal(t, "p-10-0-0-0", address.Name)
	assert.Equal(t, 29, address.Spec.PrefixLength)
	assert.Equal(t, 29, w.getClaim("a").Status.Prefix)
	w.prefixClaim("b", "p", 29)
	assert.Equal(t, "10.0.0.8", string(w.address("b").Spec.Address))
	w.claim("single", "p")
	assert.Equal(t, "10.0.0.100", string(w.address("single").Spec.Address))
	w.prefixClaim("waits", "p", 29)
	w.refused("waits", "Exhausted IP Pools")
	w.prefixClaim("never", "p", 30)
	w.refused("never", "No prefixes of this length")
	w.untilUsed("p", 3)
	assert.Equal(t, int64(12), *w.getPool("p").Status.Total)
	assert.Equal(t, int64(9), *w.getPool("p").Status.Free)
	err := w.user.Patch(t.Context(), claim.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"prefixLength":30}}`)))
	require.ErrorContains(t, err, "prefixLength cannot be modified; create another claim")

	w.delete(claim)
	assert.Equal(t, "10.0.0.0", string(w.address("waits").Spec.Address))
	w.settled()
}

// TestPrefixesAndAddressesNeverOverlap lets two replicas without leader election serve claims of both forms at once.
func TestPrefixesAndAddressesNeverOverlap(t *testing.T) {
	w := newTestEnv(t)
	w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{{Subnet: cidr("10.0.0.0/25"), AllocationPrefixLength: 29}, span("10.0.0.1", "10.0.0.254"), {Subnet: cidr("10.0.1.0/25"), AllocationPrefixLength: 28}}
		s.AllocationStrategy = ipamv1.RandomAllocation
	})
	for range 2 {
		w.operator(nil)
	}
	const each = 20
	var group sync.WaitGroup
	for i := range each {
		for _, length := range []int{0, 28, 29} {
			group.Go(func() { w.prefixClaim(fmt.Sprintf("c%d-%d", length, i), "p", length) })
		}
	}
	group.Wait()
	w.eventually("the free addresses are not given", func() bool {
		list := &ipamv1.IPAddressList{}
		require.NoError(t, w.user.List(t.Context(), list, client.InNamespace(w.namespace)))
		var taken []netip.Prefix
		for i := range list.Items {
			addr := netip.MustParseAddr(string(list.Items[i].Spec.Address))
			prefix := netip.PrefixFrom(addr, 32)
			if length := list.Items[i].Spec.PrefixLength; length != 0 {
				prefix = netip.PrefixFrom(addr, length)
			}
			for _, other := range taken {
				require.False(t, prefix.Overlaps(other), "%s and %s", prefix, other)
			}
			taken = append(taken, prefix)
		}
		return len(taken) == each+8+16
	})
	w.settled()
}

// TestClaimsOfTheContractGetPrefixes lets IPAddressClaims and IPClaims share the prefixes of a pool.
func TestClaimsOfTheContractGetPrefixes(t *testing.T) {
	w := newTestEnv(t)
	w.installContract()
	w.installAdmission()
	w.operator(nil)
	w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{{Subnet: cidr("10.0.0.0/28"), AllocationPrefixLength: 29}}
	})
	asks := func(length string) map[string]string { return map[string]string{ipamv1.PrefixLengthAnnotation: length} }
	first := w.addressClaim("first", "p", asks("29"))
	spec := w.contractAddress("first").Object["spec"].(map[string]any)
	assert.Equal(t, "10.0.0.0", spec["address"])
	assert.EqualValues(t, 29, spec["prefix"])
	assert.NotContains(t, spec, "gateway", "a prefix has none")
	w.prefixClaim("second", "p", 29)
	assert.Equal(t, "10.0.0.8", string(w.address("second").Spec.Address))
	w.addressClaim("waits", "p", asks("29"))
	w.eventually("the claim is not told", func() bool { return w.contractReason("waits") == ipamv1.ReasonPoolExhausted })
	w.delete(first)
	address, _, _ := unstructured.NestedString(w.contractAddress("waits").Object, "spec", "address")
	assert.Equal(t, "10.0.0.0", address)

	w.addressClaim("never", "p", asks("30"))
	w.eventually("the claim is not refused", func() bool { return w.contractReason("never") == ipamv1.ReasonAllocationFailed })
	bad := w.contractObject("IPAddressClaim", "bad")
	bad.SetAnnotations(asks("half"))
	bad.Object["spec"] = contractPool("p")
	w.eventually("the length is not refused", func() bool { // the policy is in force for a kind some time after the kind is served
		err := w.user.Create(t.Context(), bad.DeepCopy(), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "half is not a length: write the bits of a prefix such as 28")
	})
	w.settled()
}
