// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// A claim that is made again under its name gets its former address, of either kind, although others wait for one; where the pool keeps nothing, they get it.
func TestAClaimMadeAgainGetsItsFormerAddress(t *testing.T) {
	w := newTestEnv(t)
	w.installContract()
	w.operator(nil)
	w.pool("sticky", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.12")}
		s.AllocationStrategy, s.StickyFor = ipamv1.RandomAllocation, &metav1.Duration{Duration: time.Hour}
		s.PreAllocations = map[string]ipamv1.IPAddressStr{"reserved": "10.0.0.12"}
	})
	names := []string{"a", "reserved"}
	before := map[string]ipamv1.IPAddressStr{}
	for _, name := range names {
		w.claim(name, "sticky")
		before[name] = w.address(name).Spec.Address
	}
	contract := w.addressClaim("a", "sticky", nil) // another claim, of the other kind
	contractBefore := ipOf(w.contractAddress("a"))
	w.claim("late", "sticky")
	w.refused("late", "Exhausted IP Pools")

	for _, name := range names {
		claim := w.getClaim(name)
		w.delete(claim)
		w.gone(claim)
	}
	w.delete(contract)
	w.gone(contract)
	w.refused("late", "Exhausted IP Pools")
	for _, name := range names {
		w.claim(name, "sticky")
		assert.Equal(t, before[name], w.address(name).Spec.Address, name)
	}
	w.addressClaim("a", "sticky", nil)
	assert.Equal(t, contractBefore, ipOf(w.contractAddress("a")))
	w.settled()
	w.untilUsed("sticky", 3)

	// An address that is not kept for a claim any more goes to those that wait.
	pool := w.getPool("sticky")
	claim := w.getClaim("a")
	w.delete(claim)
	w.gone(claim)
	pool.Spec.StickyFor = nil
	require.NoError(t, w.user.Patch(t.Context(), pool, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"stickyFor":null}}`))))
	assert.Equal(t, before["a"], w.address("late").Spec.Address)
	w.settled()
}

// A claim of either kind, on another pool than a former one of its name, gets nothing that the pool of that one keeps: the pools may be of other networks.
func TestAClaimMadeAgainOnAnotherPoolGetsAnAddressOfThat(t *testing.T) {
	w := newTestEnv(t)
	w.installContract()
	w.operator(nil)
	cools := func(first, last string) func(*ipamv1.IPPoolSpec) {
		return func(s *ipamv1.IPPoolSpec) {
			s.Pools, s.AddressReuseGracePeriodSeconds = []ipamv1.Pool{span(first, last)}, 3600
		}
	}
	w.pool("one", cools("10.1.0.1", "10.1.0.9"))
	w.pool("two", cools("10.2.0.1", "10.2.0.9"))
	claim := w.claim("c", "one")
	former := w.address("c")
	contract := w.addressClaim("c", "one", nil)
	require.Contains(t, ipOf(w.contractAddress("c")), "10.1.0.")
	for _, obj := range []client.Object{claim, contract} {
		w.delete(obj)
		w.gone(obj)
	}
	w.claim("c", "two")
	assert.Equal(t, "two", w.address("c").Spec.Pool.Name)
	w.addressClaim("c", "two", nil)
	assert.Contains(t, ipOf(w.contractAddress("c")), "10.2.0.")
	require.NoError(t, w.user.Get(t.Context(), client.ObjectKeyFromObject(former), former))
	assert.Equal(t, claim.UID, former.OwnerReferences[1].UID, "it cools down")
	w.untilUsed("one", 2)
	w.settled()
}

// sticky has a pool with many addresses give a claim that is made again within an hour its former one, which chance would not.
func sticky(s *ipamv1.IPPoolSpec) {
	s.Pools = []ipamv1.Pool{span("10.0.0.1", "10.0.250.0")}
	s.AllocationStrategy, s.StickyFor = ipamv1.RandomAllocation, &metav1.Duration{Duration: time.Hour}
}

// A claim of either kind is made, deleted and made again while the watch of addresses shows nothing of it.
func TestAClaimMadeAgainGetsItsFormerAddressBeforeTheWatchShowsIt(t *testing.T) {
	w := newTestEnv(t)
	w.installContract()
	hide, show := w.operatorWithLateAddresses()
	w.pool("sticky", sticky)
	w.claim("first", "sticky") // the pool is served, and the kinds of the contract
	w.address("first")
	w.addressClaim("first", "sticky", nil)
	w.contractAddress("first")
	hide()
	claim := w.claim("a", "sticky")
	before := w.address("a").Spec.Address
	contract := w.addressClaim("a", "sticky", nil)
	contractBefore := ipOf(w.contractAddress("a"))
	for _, obj := range []client.Object{claim, contract} {
		w.delete(obj)
		w.gone(obj)
	}
	w.claim("a", "sticky")
	assert.Equal(t, before, w.address("a").Spec.Address)
	w.addressClaim("a", "sticky", nil)
	assert.Equal(t, contractBefore, ipOf(w.contractAddress("a")))
	show()
	w.settled()
	w.untilUsed("sticky", 4)
}

// The garbage collector may remove the reference to a claim that is gone before the operator sees that it is gone: the pool still owns the address.
func TestAnAddressReturnsWithoutItsReferenceToTheFormerClaim(t *testing.T) {
	w := newTestEnv(t)
	w.pool("p", sticky)
	stop := w.operator(nil)
	claim := w.claim("a", "p")
	address := w.address("a")
	stop()
	require.NoError(t, w.user.Patch(t.Context(), claim, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	w.delete(claim)
	w.gone(claim)
	require.NoError(t, w.user.Get(t.Context(), client.ObjectKeyFromObject(address), address))
	before := address.DeepCopy()
	address.OwnerReferences = slices.DeleteFunc(address.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == claim.UID })
	require.NotEmpty(t, address.OwnerReferences)
	require.NoError(t, w.user.Patch(t.Context(), address, client.MergeFrom(before)))
	w.operator(nil)
	w.eventually("the address is not released", func() bool {
		return w.user.Get(t.Context(), client.ObjectKeyFromObject(address), address) == nil && !address.DeletionTimestamp.IsZero()
	})
	w.claim("a", "p")
	assert.Equal(t, address.Spec.Address, w.address("a").Spec.Address)
	w.settled()
}

// TestADeathWhileAnAddressReturnsHeals lets the operator die after each of the writes by which a claim takes its former address over: the claim gets that address.
func TestADeathWhileAnAddressReturnsHeals(t *testing.T) {
	diesAtEveryWrite(t, func(t *testing.T, writes writes) {
		w := newTestEnv(t)
		w.pool("p", sticky)
		stop := w.operator(nil)
		claim := w.claim("a", "p")
		before := w.address("a").Spec.Address
		w.delete(claim)
		w.gone(claim)
		w.untilUsed("p", 1)
		stop()

		stop = w.operator(writes.count)
		w.claim("a", "p")
		w.eventually("neither death nor address", func() bool {
			select {
			case <-writes.Dead():
				return true
			default:
				got := w.getClaim("a")
				return got.Status.Address != nil && len(got.Finalizers) > 0
			}
		})
		stop()
		w.operator(nil)
		assert.Equal(t, before, w.address("a").Spec.Address)
		w.settled()
	})
}
