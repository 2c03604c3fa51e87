// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package incluster

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

func source(change func(*Spec)) Source {
	s := Source{Kind: poolKind, Namespace: "ns", Name: "p", Spec: Spec{Addresses: []string{"10.0.0.2-10.0.0.254"}, Prefix: 24, Gateway: "10.0.0.1"}}
	change(&s.Spec)
	return s
}

func TestPool(t *testing.T) {
	for name, test := range map[string]struct {
		given        func(*Spec)
		first        []string // what the pool hands out first
		total        int64
		says, prefix string
	}{
		"a range":                          {given: func(*Spec) {}, first: []string{"10.0.0.2", "10.0.0.3"}, total: 253},
		"a network without its two ends":   {given: func(s *Spec) { s.Addresses = []string{"10.0.0.0/24"} }, first: []string{"10.0.0.2"}, total: 253},
		"a network with its two ends":      {given: func(s *Spec) { s.Addresses, s.AllocateReservedIPAddresses = []string{"10.0.0.0/24"}, true }, first: []string{"10.0.0.0", "10.0.0.2"}, total: 255},
		"the lowest first, however listed": {given: func(s *Spec) { s.Addresses = []string{"10.0.0.9", "10.0.0.4"} }, first: []string{"10.0.0.4", "10.0.0.9"}, total: 2},
		"IPv6 without the first address": {
			given: func(s *Spec) { s.Addresses, s.Prefix, s.Gateway = []string{"fd00::/120"}, 120, "fd00::1" }, first: []string{"fd00::2"}, total: 254,
		},
		"excluded addresses": {given: func(s *Spec) { s.ExcludedAddresses = []string{"10.0.0.2", "10.0.0.4-10.0.0.254"} }, first: []string{"10.0.0.3"}, total: 1},
		"a prefix of 0":      {given: func(s *Spec) { s.Prefix = 0 }, says: "has the prefix 0: write the length of its network prefix into it first"},
		"a range of two networks": {
			given: func(s *Spec) { s.Addresses = []string{"10.0.0.250-10.0.1.9"} }, says: "10.0.0.250-10.0.1.9 is not in one network of the prefix 24",
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool, err := Pool(source(test.given), "ns")
			if test.says != "" {
				require.ErrorContains(t, err, test.says)
				return
			}
			require.NoError(t, err)
			layout := allocate.Parse(&pool.Spec, ipamv1.RandomAllocation)
			free := allocate.NewFree(layout)
			for _, want := range test.first {
				require.True(t, free.Choosable(netip.MustParseAddr(want)), want)
				decision := allocate.Plan(allocate.Snapshot{Claim: allocate.Claim{Name: "c"}, Pool: allocate.Pool{Found: true, Finalized: true, Free: free}})
				require.IsType(t, allocate.Create{}, decision.Action)
				assert.Equal(t, want, decision.Action.(allocate.Create).IP.String())
				free.Take(netip.MustParseAddr(want))
			}
			assert.Equal(t, test.total, layout.Total())
		})
	}
}

func TestClosedLeavesWhatIsUsed(t *testing.T) {
	used := []Used{{IP: netip.MustParseAddr("10.0.0.5"), Claim: types.NamespacedName{Namespace: "ns", Name: "c"}}}
	closed := Closed(source(func(s *Spec) { s.ExcludedAddresses = []string{"10.0.0.100-10.0.0.254"} }), used)
	assert.Equal(t, []string{"10.0.0.100-10.0.0.254", "10.0.0.2-10.0.0.4", "10.0.0.6-10.0.0.99"}, closed)
	assert.Equal(t, closed, Closed(source(func(s *Spec) { s.ExcludedAddresses = closed }), used), "a closed pool stays as it is")
}
