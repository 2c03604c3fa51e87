// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

func cidr(text string) *ipamv1.IPSubnetStr { return new(ipamv1.IPSubnetStr(text)) }

func addr(text string) *ipamv1.IPAddressStr { return new(ipamv1.IPAddressStr(text)) }

// TestTheSchemaRefusesWhatItCan asks the API server, with a dry run, what it says to pools that cannot work.
func TestTheSchemaRefusesWhatItCan(t *testing.T) {
	w := newTestEnv(t)
	for name, test := range map[string]struct {
		change func(*ipamv1.IPPoolSpec)
		says   string // empty: accepted
	}{
		"everything at once": {func(s *ipamv1.IPPoolSpec) {
			s.Pools = []ipamv1.Pool{span("10.0.0.1", "10.0.0.9"), {Start: addr("fd00::1"), End: addr("fd00::a"), Subnet: cidr("fd00::/64"), Prefix: 64, Gateway: addr("fd00::")}}
			s.ExcludedAddresses = []ipamv1.AddressSpan{"10.0.0.3", "10.0.0.4/31", "10.0.0.6-10.0.0.7", "fd00::2-fd00::3"}
			s.PreAllocations = map[string]ipamv1.IPAddressStr{"a": "10.0.0.1"}
		}, ""},
		"an address without the host part of its network": {func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{{Subnet: cidr("192.168.0.10/24")}} }, ""},
		"an IPv4 start after its end":                     {func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.9")} }, "start must not be greater than end"},
		"two families":                                    {func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.10", "fd00::1")} }, "same family"},
		"an empty entry":                                  {func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{{Prefix: 24}} }, "pool entry must specify at least one of start, end, or subnet"},
		"a start outside of the subnet": {func(s *ipamv1.IPPoolSpec) {
			s.Pools = []ipamv1.Pool{{Start: addr("10.0.1.1"), Subnet: cidr("10.0.0.0/24")}}
		}, "start must lie inside of subnet"},
		"an end outside of the subnet": {func(s *ipamv1.IPPoolSpec) {
			s.Pools = []ipamv1.Pool{{Start: addr("10.0.0.1"), End: addr("10.0.1.1"), Subnet: cidr("10.0.0.0/24")}}
		}, "end must lie inside of subnet"},
		"a prefix that IPv4 does not have": {func(s *ipamv1.IPPoolSpec) {
			s.Pools = []ipamv1.Pool{{Start: addr("10.0.0.1"), End: addr("10.0.0.2"), Prefix: 64}}
		}, "at most 32"},
		"a gateway of the other family": {func(s *ipamv1.IPPoolSpec) {
			s.Pools = []ipamv1.Pool{{Subnet: cidr("10.0.0.0/24"), Gateway: addr("fd00::1")}}
		}, "gateway must be of the family"},
		"no address at all":               {func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.300", "10.0.1.1")} }, "should match"},
		"an exclusion that means nothing": {func(s *ipamv1.IPPoolSpec) { s.ExcludedAddresses = []ipamv1.AddressSpan{"10.0.0.1-"} }, "excludedAddresses"},
		"an exclusion of half an address": {func(s *ipamv1.IPPoolSpec) { s.ExcludedAddresses = []ipamv1.AddressSpan{"10.0.0"} }, "write an address"},
		"random without an end": {func(s *ipamv1.IPPoolSpec) {
			s.AllocationStrategy = ipamv1.RandomAllocation
			s.Pools = []ipamv1.Pool{{Start: addr("10.0.0.1")}}
		}, "needs an end or a subnet"},
		"namespaces by a selector": {func(s *ipamv1.IPPoolSpec) {
			s.AllowedNamespaces = &ipamv1.AllowedNamespaces{From: ipamv1.FromSelector, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}}
			s.MaxAddressesPerNamespace = 5
		}, ""},
		"a selector that is not asked for": {func(s *ipamv1.IPPoolSpec) {
			s.AllowedNamespaces = &ipamv1.AllowedNamespaces{From: ipamv1.FromAll, Selector: &metav1.LabelSelector{}}
		}, "selector goes with from: Selector, and from: Selector needs a selector"},
		"Selector without a selector": {func(s *ipamv1.IPPoolSpec) {
			s.AllowedNamespaces = &ipamv1.AllowedNamespaces{From: ipamv1.FromSelector}
		}, "from: Selector needs a selector"},
		"prefixes of a length": {func(s *ipamv1.IPPoolSpec) {
			s.Pools = []ipamv1.Pool{{Subnet: cidr("fd00::/48"), AllocationPrefixLength: 64}, {Subnet: cidr("10.0.0.0/20"), AllocationPrefixLength: 28}}
		}, ""},
		"prefixes without a subnet": {func(s *ipamv1.IPPoolSpec) {
			s.Pools = []ipamv1.Pool{{Start: addr("10.0.0.0"), End: addr("10.0.0.255"), AllocationPrefixLength: 28}}
		}, "needs a subnet of at most that prefix length"},
		"prefixes that are greater than their subnet": {func(s *ipamv1.IPPoolSpec) {
			s.Pools = []ipamv1.Pool{{Subnet: cidr("10.0.0.0/29"), AllocationPrefixLength: 28}}
		}, "needs a subnet of at most that prefix length"},
		"prefixes that IPv4 does not have": {func(s *ipamv1.IPPoolSpec) {
			s.Pools = []ipamv1.Pool{{Subnet: cidr("10.0.0.0/29"), AllocationPrefixLength: 64}}
		}, "needs a subnet of at most that prefix length"},
		"no choice of namespaces":              {func(s *ipamv1.IPPoolSpec) { s.AllowedNamespaces = &ipamv1.AllowedNamespaces{From: "Some"} }, "Same"},
		"a negative quota":                     {func(s *ipamv1.IPPoolSpec) { s.MaxAddressesPerNamespace = -1 }, "maxAddressesPerNamespace"},
		"no name prefix":                       {func(s *ipamv1.IPPoolSpec) { s.NamePrefix = "" }, "namePrefix"},
		"a prefix that makes no name":          {func(s *ipamv1.IPPoolSpec) { s.NamePrefix = "Pool_1" }, "namePrefix"},
		"a prefix that ends with dash is fine": {func(s *ipamv1.IPPoolSpec) { s.NamePrefix = "pool-" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pool := &ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "p"}, Spec: ipamv1.IPPoolSpec{NamePrefix: "p"}}
			test.change(&pool.Spec)
			err := w.user.Create(t.Context(), pool, client.DryRunAll)
			if test.says == "" {
				require.NoError(t, err)
				assert.NotEmpty(t, pool.Spec.AllocationStrategy, "the strategy has a default")
				return
			}
			require.ErrorContains(t, err, test.says)
		})
	}
}

func TestImmutableFields(t *testing.T) {
	w := newTestEnv(t)
	pool := w.pool("p", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.1", "10.0.0.9")} })
	claim := w.claim("c", "p")
	address := &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "p-10-0-0-1"},
		Spec:       ipamv1.IPAddressSpec{Address: "10.0.0.1", Claim: ipamv1.ObjectReference{Name: "c"}, Pool: ipamv1.ObjectReference{Name: "p"}},
	}
	require.NoError(t, w.user.Create(t.Context(), address))
	for says, change := range map[string]struct {
		obj   client.Object
		patch string
	}{
		"namePrefix cannot be modified":                        {pool, `{"spec":{"namePrefix":"q"}}`},
		"allocationStrategy cannot be modified after creation": {pool, `{"spec":{"allocationStrategy":"random"}}`},
		"pool cannot be modified; create another claim":        {claim, `{"spec":{"pool":{"name":"q"}}}`},
		"pool cannot be modified":                              {address, `{"spec":{"pool":{"name":"q"}}}`},
		"claim cannot be modified":                             {address, `{"spec":{"claim":{"name":"q"}}}`},
		"address cannot be modified":                           {address, `{"spec":{"address":"10.0.0.2"}}`},
	} {
		err := w.user.Patch(t.Context(), change.obj.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(change.patch)))
		require.ErrorContains(t, err, says)
	}
	unnamed := w.newClaim("d", "")
	require.ErrorContains(t, w.user.Create(t.Context(), unnamed), "pool.name must name an IPPool")
}

func TestTheClusterOfAPoolStaysWhileAddressesAreInUse(t *testing.T) {
	w := newTestEnv(t)
	pool := w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{span("10.0.0.1", "10.0.0.9")}
		s.ClusterName = new("a")
	})
	set := func(patch string) error {
		return w.user.Patch(t.Context(), pool.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	require.NoError(t, set(`{"spec":{"clusterName":"b"}}`))
	pool = w.getPool("p")
	pool.Status.Used = new(int64(1))
	require.NoError(t, w.user.Status().Update(t.Context(), pool))
	for _, patch := range []string{`{"spec":{"clusterName":"c"}}`, `{"spec":{"clusterName":null}}`} {
		require.ErrorContains(t, set(patch), "clusterName cannot be modified while addresses of the pool are in use; delete their claims first")
	}
	require.NoError(t, set(`{"spec":{"prefix":25}}`))
	other := w.pool("other", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.1", "10.0.0.9")} })
	other.Status.Used = new(int64(1))
	require.NoError(t, w.user.Status().Update(t.Context(), other))
	require.NoError(t, w.user.Patch(t.Context(), other, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"clusterName":"a"}}`))))
}

// TestAnOldObjectIsRefusedOnlyForWhatChanges stores a pool that no rule would let in, and then changes other parts of it.
func TestAnOldObjectIsRefusedOnlyForWhatChanges(t *testing.T) {
	w := newTestEnv(t)
	pool := w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{span("10.0.0.1", "10.0.0.9")}
		s.PreAllocations = map[string]ipamv1.IPAddressStr{"a": "192.168.0.1", "b": "192.168.0.1"}
	})
	w.operator(nil)
	w.eventually("the pool has no finalizer or does not say what is wrong", func() bool {
		got := w.getPool("p")
		return len(got.Finalizers) == 1 && len(got.Status.Conditions) == 2
	})
	got := w.getPool("p")
	text, err := json.Marshal(got.Status.Conditions)
	require.NoError(t, err)
	assert.Contains(t, string(text), "192.168.0.1 is out of bounds of the pools given")
	w.claim("c", "p")
	w.address("c")
	w.delete(w.getClaim("c"))
	w.delete(pool)
	w.gone(pool)
}
