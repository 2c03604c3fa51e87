// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

func TestAClaimIsBornWithItsFinalizer(t *testing.T) {
	w := newTestEnv(t)
	w.installMutation()
	assert.Equal(t, []string{ipamv1.IPClaimFinalizer}, w.claim("plain", "none").Finalizers)
	foreign := w.newClaim("foreign", "none")
	foreign.Spec.Pool.Kind = "InClusterIPPool"
	require.NoError(t, w.user.Create(t.Context(), foreign))
	assert.Empty(t, foreign.Finalizers, "a claim that is not served is not kept")
	assert.Equal(t, []string{ipamv1.IPClaimFinalizer}, w.choosing("choosing", "none").Finalizers)
	had := w.newClaim("had", "none")
	had.Finalizers = []string{ipamv1.IPClaimFinalizer, "example.com/other"}
	require.NoError(t, w.user.Create(t.Context(), had))
	assert.Equal(t, []string{ipamv1.IPClaimFinalizer, "example.com/other"}, had.Finalizers)
}

func TestAnAddressInUseIsNotEditedOutOfItsPool(t *testing.T) {
	w := newTestEnv(t)
	w.installAdmission()
	w.operator(nil)
	pool := w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{span("10.0.0.9", "10.0.0.12"), span("fd00::9", "fd00::1:0")}
	})
	for _, ip := range []string{"10.0.0.10", "fd00::ff"} {
		claim := w.newClaim("c-"+string(ip[0]), "p")
		claim.Annotations = map[string]string{"ipAddress": ip}
		require.NoError(t, w.user.Create(t.Context(), claim))
	}
	w.eventually("the pool does not show its addresses", func() bool { return len(w.getPool("p").Status.Allocations) == 2 })
	for says, patch := range map[string]string{
		"10.0.0.10 is in use but out of bounds of the pools given": `{"spec":{"pools":[{"start":"10.0.0.11","end":"10.0.0.99"},{"start":"fd00::9","end":"fd00::1:0"}]}}`,
		"fd00::ff is in use but out of bounds of the pools given":  `{"spec":{"pools":[{"start":"10.0.0.9","end":"10.0.0.99"},{"start":"fd00::9","end":"fd00::f0"}]}}`,
		"is in use but out of bounds":                              `{"spec":{"pools":null}}`,
		"fd00::ff is in use but out of":                            `{"spec":{"pools":[{"start":"10.0.0.9","end":"10.0.0.12"},{"start":"fd00::9","end":"fd00::f0","subnet":"fd00::/64"}]}}`,
		"10.0.0.10 is in use but out of":                           `{"spec":{"pools":[{"start":"10.0.0.11","end":"10.0.0.12","subnet":"10.0.0.0/24"},{"start":"fd00::9","end":"fd00::1:0"}]}}`,
		"10.0.0.10 for claim new is in use by another claim":       `{"spec":{"preAllocations":{"new":"10.0.0.10"}}}`,
		"fd00:0::ff for claim new is in use by another claim":      `{"spec":{"preAllocations":{"new":"fd00:0::ff"}}}`,
	} {
		err := w.user.Patch(t.Context(), pool.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
		require.ErrorContains(t, err, says)
	}
	for _, patch := range []string{
		`{"spec":{"pools":[{"subnet":"10.0.0.0/24"},{"start":"fd00::a"}]}}`,
		`{"spec":{"pools":[{"start":"10.0.0.10","end":"10.0.0.10"},{"subnet":"fd00::/64"}]}}`,
		`{"metadata":{"labels":{"a":"b"}}}`,
		`{"spec":{"preAllocations":{"c-1":"10.0.0.10"}}}`,
	} {
		require.NoError(t, w.user.Patch(t.Context(), pool.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))), patch)
	}
}

// TestAdmissionAndTheOperatorAgreeOnWhatIsInUse edits the ranges of a pool at random and asks both whether an address in use stays inside.
func TestAdmissionAndTheOperatorAgreeOnWhatIsInUse(t *testing.T) {
	w := newTestEnv(t)
	w.installAdmission()
	random := rand.New(rand.NewPCG(7, 11))
	used := map[string]ipamv1.IPAddressStr{"four": "10.0.0.20", "six": "fd00::20", "kept": "10.0.0.200"}
	whole := []ipamv1.Pool{{Start: addr("10.0.0.1"), End: addr("10.0.0.250")}, {Start: addr("fd00::1"), End: addr("fd00::ff")}}
	pool := w.pool("p", func(s *ipamv1.IPPoolSpec) { s.Pools = whole })
	pool.Status.Allocations = used
	require.NoError(t, w.user.Status().Update(t.Context(), pool))
	refused := 0
	for range 60 {
		edited := pool.DeepCopy()
		at := func(format string) *ipamv1.IPAddressStr { return addr(fmt.Sprintf(format, 10+random.IntN(20))) }
		four, six := ipamv1.Pool{}, ipamv1.Pool{}
		shape := random.IntN(4)
		if shape != 1 {
			four.Start, six.Start = at("10.0.0.%d"), at("fd00::%d")
		}
		if shape != 2 {
			four.End, six.End = addr(fmt.Sprintf("10.0.0.%d", 30+random.IntN(190))), addr(fmt.Sprintf("fd00::%d", 30+random.IntN(60)))
		}
		if shape != 3 {
			four.Subnet, six.Subnet = cidr(fmt.Sprintf("10.0.0.%d/24", 10+random.IntN(20))), cidr(fmt.Sprintf("fd00::%d/64", 10+random.IntN(20)))
		}
		edited.Spec.Pools = []ipamv1.Pool{four, six}
		if random.IntN(2) == 0 {
			edited.Spec.PreAllocations = map[string]ipamv1.IPAddressStr{"kept": "10.0.0.200"}
		}
		layout := allocate.Parse(&edited.Spec, ipamv1.SequentialAllocation)
		inside := true
		for _, ip := range used {
			inside = inside && layout.InBounds(netip.MustParseAddr(string(ip)))
		}
		err := w.user.Update(t.Context(), edited, client.DryRunAll)
		if err != nil && !strings.Contains(err.Error(), "is in use but out of bounds") {
			continue // refused for something else
		}
		assert.Equal(t, inside, err == nil, "%v %v", edited.Spec, err)
		if err != nil {
			refused++
		}
	}
	assert.NotZero(t, refused)
}

func TestAMalformedRequestForAnAddressIsRefused(t *testing.T) {
	w := newTestEnv(t)
	w.installContract()
	old := w.newClaim("old", "none")
	old.Annotations = map[string]string{"ipAddress": "ten"}
	require.NoError(t, w.user.Create(t.Context(), old))
	w.installAdmission()
	claims := func(text string) []client.Object {
		ours := w.newClaim("c", "none")
		theirs := w.contractObject("IPAddressClaim", "c")
		theirs.Object["spec"] = contractPool("none")
		choosing := w.newClaim("c", "")
		choosing.Spec.PoolSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "a"}}
		out := []client.Object{ours, theirs, choosing}
		for _, claim := range out {
			claim.SetAnnotations(map[string]string{"ipAddress": text})
		}
		return out
	}
	w.eventually("the policy is not in force", func() bool { return w.user.Create(t.Context(), claims("ten")[0], client.DryRunAll) != nil })
	for _, claim := range claims("10.0.0.300") {
		w.eventually("a malformed address is not refused", func() bool {
			err := w.user.Create(t.Context(), claim.DeepCopyObject().(client.Object), client.DryRunAll)
			return err != nil && strings.Contains(err.Error(), "10.0.0.300 is not a valid IP address: write one such as")
		})
	}
	for _, claim := range claims("fd00::0a") {
		require.NoError(t, w.user.Create(t.Context(), claim, client.DryRunAll))
	}
	require.NoError(t, w.user.Patch(t.Context(), old, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))))
}

// A request that was stored before the policy was in force may be longer than a status can quote.
func TestAClaimSaysThatALongRequestIsNoAddress(t *testing.T) {
	w := newTestEnv(t)
	w.operator(nil)
	w.pool("p", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.12")} })
	claim := w.newClaim("long", "p")
	claim.Annotations = map[string]string{"ipAddress": strings.Repeat("é", 40000)}
	require.NoError(t, w.user.Create(t.Context(), claim))
	w.waits(claim, ipamv1.ReasonAllocationFailed)
	w.refused("long", `Invalid ipAddress annotation "`+strings.Repeat("é", 32)+`…": not a valid IP address`)
}

func TestPoolsThatCannotWorkAreRefused(t *testing.T) {
	w := newTestEnv(t)
	w.installAdmission()
	both := []ipamv1.Pool{span("10.0.0.9", "10.0.0.12"), span("fd00::9", "fd00::a0"), {Subnet: cidr("10.1.0.0/24")}, {Start: addr("fd01::9")}}
	for name, test := range map[string]struct {
		pools    []ipamv1.Pool
		reserved map[string]ipamv1.IPAddressStr
		gateway  *ipamv1.IPAddressStr
		says     string
	}{
		"ranges of both families": {pools: both},
		"preallocations inside of ranges and subnets": {pools: both, reserved: map[string]ipamv1.IPAddressStr{
			"a": "10.0.0.9", "b": "10.0.0.12", "c": "fd00::0a", "d": "fd00:0::9", "e": "10.1.0.0", "f": "fd01:1::",
		}},
		"no ranges at all":               {},
		"an IPv6 range of one":           {pools: []ipamv1.Pool{span("fd00::1", "fd00:0::0001")}},
		"an IPv6 start after its end":    {pools: []ipamv1.Pool{span("fd00::10", "fd00::f")}, says: "start fd00::10 must not be greater than end fd00::f"},
		"also where the text is shorter": {pools: []ipamv1.Pool{span("fd00:1::", "fd00::ffff")}, says: "must not be greater than end"},
		"a preallocation between ranges": {
			pools: both, reserved: map[string]ipamv1.IPAddressStr{"a": "10.0.0.13"}, says: "10.0.0.13 for claim a is out of bounds of the pools given",
		},
		"an IPv6 preallocation outside": {
			pools: both, reserved: map[string]ipamv1.IPAddressStr{"ok": "fd00::9", "a": "fd00::8"}, says: "fd00::8 for claim a is out of bounds of the pools given",
		},
		"a preallocation of a pool without ranges": {reserved: map[string]ipamv1.IPAddressStr{"a": "10.0.0.1"}, says: "is out of bounds of the pools given"},
		"a gateway of the other family at the pool": {
			pools: both, gateway: addr("fd00::1"), says: "gateway fd00::1 is not of the family of 10.0.0.9, IPv4 or IPv6",
		},
		"a gateway for each family": {
			pools: []ipamv1.Pool{span("10.0.0.9", "10.0.0.12"), {Start: addr("fd00::9"), Gateway: addr("fd00::1")}}, gateway: addr("10.0.0.1"),
		},
		"one address for two claims in two spellings": {
			pools: both, reserved: map[string]ipamv1.IPAddressStr{"a": "fd00::000a", "b": "fd00:0:0::a"}, says: "is already pre-allocated to another claim",
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool := &ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "p"}}
			pool.Spec = ipamv1.IPPoolSpec{NamePrefix: "p", Pools: test.pools, PreAllocations: test.reserved, Gateway: test.gateway}
			err := w.user.Create(t.Context(), pool, client.DryRunAll)
			if test.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.says)
		})
	}
}

func TestAPoolOfOldIsRefusedOnlyForWhatChanges(t *testing.T) {
	w := newTestEnv(t)
	w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{span("10.0.0.1", "10.0.0.9"), span("fd00::9", "fd00::1")}
		s.PreAllocations = map[string]ipamv1.IPAddressStr{"in": "10.0.0.1", "a": "192.168.0.1", "b": "192.168.0.1"}
	})
	w.installAdmission()
	for patch, says := range map[string]string{
		`{"metadata":{"labels":{"a":"b"},"finalizers":["example.com/a"]}}`:                                "",
		`{"metadata":{"finalizers":null},"spec":{"prefix":23}}`:                                           "",
		`{"spec":{"preAllocations":{"more":"10.0.0.2"}}}`:                                                 "",
		`{"spec":{"pools":[{"start":"10.0.0.1","end":"10.0.0.99"},{"start":"fd00::9","end":"fd00::1"}]}}`: "",
		`{"spec":{"pools":[{"start":"10.0.0.1","end":"10.0.0.9"},{"start":"fd00::9","end":"fd00::2"}]}}`:  "must not be greater than end",
		`{"spec":{"pools":[{"start":"10.0.0.2","end":"10.0.0.9"},{"start":"fd00::9","end":"fd00::1"}]}}`:  "10.0.0.1 for claim in is out of bounds",
		`{"spec":{"preAllocations":{"a":"192.168.0.2"}}}`:                                                 "192.168.0.2 for claim a is out of bounds",
		`{"spec":{"preAllocations":{"more":"10.0.0.1"}}}`:                                                 "is already pre-allocated to another claim",
	} {
		err := w.user.Patch(t.Context(), w.getPool("p"), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
		if says == "" {
			require.NoError(t, err, patch)
		} else {
			require.ErrorContains(t, err, says, patch)
		}
	}
}
