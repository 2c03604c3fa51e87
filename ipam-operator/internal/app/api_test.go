// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

func TestAClaimGetsAnAddressAndGivesItBack(t *testing.T) {
	w := newTestEnv(t)
	w.operator(nil)
	w.pool("sparse", func(s *ipamv1.IPPoolSpec) {
		s.AllocationStrategy = ipamv1.SequentialAllocation
		s.DNSServers = []ipamv1.IPAddressStr{"8.8.8.8"}
		s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.10"), span("10.0.0.20", "10.0.0.21"), {
			Subnet: new(ipamv1.IPSubnetStr("fd00::/64")), Prefix: 64, Gateway: new(ipamv1.IPAddressStr("fd00::1")),
		}}
	})
	claim := w.claim("a", "sparse")
	address := w.address("a")
	assert.Equal(t, "sparse-10-0-0-10", address.Name)
	assert.Equal(t, ipamv1.IPAddressStr("10.0.0.10"), address.Spec.Address)
	assert.Equal(t, 24, address.Spec.Prefix)
	assert.Equal(t, ipamv1.IPAddressStr("10.0.255.254"), *address.Spec.Gateway)
	assert.Equal(t, []ipamv1.IPAddressStr{"8.8.8.8"}, address.Spec.DNSServers)
	assert.Equal(t, map[string]string{"for": "a"}, address.Labels)
	assert.Equal(t, []string{ipamv1.IPAddressFinalizer}, address.Finalizers)
	require.Len(t, address.OwnerReferences, 2)
	assert.Equal(t, "IPPool", address.OwnerReferences[0].Kind)
	assert.Equal(t, metav1.OwnerReference{APIVersion: "ipam.metal3.io/v1alpha1", Kind: "IPClaim", Name: "a", UID: claim.UID}, address.OwnerReferences[1])

	for i, want := range []string{"10.0.0.20", "10.0.0.21", "fd00::2", "fd00::3"} {
		name := fmt.Sprintf("b%d", i)
		w.claim(name, "sparse")
		assert.Equal(t, want, string(w.address(name).Spec.Address))
	}
	w.eventually("the status of the pool does not follow", func() bool {
		pool := w.getPool("sparse")
		return pool.Status.Used != nil && *pool.Status.Used == 5 && pool.Status.Allocations["b2"] == "fd00::2" &&
			meta.IsStatusConditionTrue(pool.Status.Conditions, "Ready") && meta.IsStatusConditionFalse(pool.Status.Conditions, "Exhausted")
	})
	w.eventually("the claim has no finalizer", func() bool { return len(w.getClaim("a").Finalizers) == 1 })
	w.delete(claim)
	w.gone(claim)
	w.gone(address)
	w.untilUsed("sparse", 4)
	w.claim("c", "sparse")
	assert.Equal(t, "10.0.0.10", string(w.address("c").Spec.Address))
	w.settled()
}

func TestErrorsStandOnTheClaimAndBlockNoOtherClaim(t *testing.T) {
	w := newTestEnv(t)
	w.operator(nil)
	pool := w.pool("small", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{{Start: new(ipamv1.IPAddressStr("10.0.0.10")), End: new(ipamv1.IPAddressStr("10.0.0.12")), Subnet: new(ipamv1.IPSubnetStr("10.0.0.0/24"))}}
		s.PreAllocations = map[string]ipamv1.IPAddressStr{"fixed": "10.0.0.200", "outside": "10.9.9.9"}
	})
	requested := func(name, ip string) *ipamv1.IPClaim {
		claim := w.newClaim(name, "small")
		claim.Annotations = map[string]string{"ipAddress": ip}
		require.NoError(t, w.user.Create(t.Context(), claim))
		return claim
	}
	w.claim("fixed", "small")
	assert.Equal(t, "10.0.0.200", string(w.address("fixed").Spec.Address))
	requested("requested", "10.0.0.12")
	assert.Equal(t, "10.0.0.12", string(w.address("requested").Spec.Address))
	w.claim("outside", "small")
	w.refused("outside", "Pre-allocated IP out of bounds")
	requested("nonsense", "10.0.0.300")
	w.refused("nonsense", `Invalid ipAddress annotation "10.0.0.300": not a valid IP address`)
	requested("taken", "10.0.0.12")
	w.refused("taken", "Requested IP not available")
	first, second := w.claim("one", "small"), w.claim("two", "small")
	w.address("one")
	w.address("two")
	w.claim("three", "small")
	w.refused("three", "Exhausted IP Pools")
	w.eventually("the pool does not say that it is exhausted", func() bool {
		return meta.IsStatusConditionTrue(w.getPool("small").Status.Conditions, "Exhausted")
	})
	got := w.getClaim("three")
	assert.Equal(t, "PoolExhausted", meta.FindStatusCondition(got.Status.Conditions, "Ready").Reason)

	w.delete(first)
	assert.NotEmpty(t, w.address("three").Spec.Address, "an address given back wakes the claim that waits")
	assert.Nil(t, w.getClaim("three").Status.ErrorMessage)
	w.claim("four", "small")
	w.refused("four", "Exhausted IP Pools")
	before := pool.DeepCopy()
	pool.Spec.Pools = append(pool.Spec.Pools, span("10.0.1.1", "10.0.1.1"))
	require.NoError(t, w.user.Patch(t.Context(), pool, client.MergeFrom(before)))
	assert.Equal(t, "10.0.1.1", string(w.address("four").Spec.Address), "a pool that grows wakes the claim that waits")
	w.delete(w.getClaim("requested"))
	assert.Equal(t, "10.0.0.12", string(w.address("taken").Spec.Address), "the requested address wakes the claim that asks for it")
	w.delete(second)
	w.gone(second)
	w.settled()
}

func TestAPoolWaitsForItsAddresses(t *testing.T) {
	w := newTestEnv(t)
	w.operator(nil)
	pool := w.pool("kept", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.20")} })
	claim := w.claim("a", "kept")
	w.address("a")
	w.delete(pool)
	w.eventually("the pool does not say that it waits", func() bool {
		p := w.getPool("kept")
		ready := meta.FindStatusCondition(p.Status.Conditions, "Ready")
		return ready != nil && ready.Reason == ipamv1.ReasonPoolDeleting
	})
	w.claim("late", "kept")
	w.eventually("the late claim is not told", func() bool {
		ready := meta.FindStatusCondition(w.getClaim("late").Status.Conditions, "Ready")
		return ready != nil && ready.Reason == ipamv1.ReasonPoolNotReady
	})
	w.delete(claim)
	w.gone(pool)
	w.gone(claim)
}

func TestForeignFinalizersKeepTheAddress(t *testing.T) {
	w := newTestEnv(t)
	w.operator(nil)
	w.pool("p", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.20")} })
	claim := w.newClaim("a", "p")
	claim.Finalizers = []string{"metal3data.infrastructure.cluster.x-k8s.io"}
	require.NoError(t, w.user.Create(t.Context(), claim))
	address := w.address("a")
	w.eventually("the claim has no finalizer", func() bool { return len(w.getClaim("a").Finalizers) == 2 })
	w.delete(claim)
	w.claim("b", "p")
	w.address("b")
	require.NoError(t, w.user.Get(t.Context(), client.ObjectKeyFromObject(address), address))
	assert.Zero(t, address.DeletionTimestamp, "another finalizer still keeps the claim")
	got := w.getClaim("a")
	before := got.DeepCopy()
	got.Finalizers = []string{ipamv1.IPClaimFinalizer}
	require.NoError(t, w.user.Patch(t.Context(), got, client.MergeFrom(before)))
	w.gone(claim)
	w.gone(address)
}

func TestAnAddressCoolsDown(t *testing.T) {
	w := newTestEnv(t)
	w.operator(nil)
	pool := w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.10")}
		s.AddressReuseGracePeriodSeconds = 3600
	})
	claim := w.claim("a", "p")
	address := w.address("a")
	w.eventually("the claim has no finalizer", func() bool { return len(w.getClaim("a").Finalizers) == 1 })
	w.delete(claim)
	w.gone(claim)
	w.claim("b", "p")
	w.refused("b", "Exhausted IP Pools")
	require.NoError(t, w.user.Get(t.Context(), client.ObjectKeyFromObject(address), address), "the address is taken until it has cooled down")
	require.NotZero(t, address.DeletionTimestamp)
	coolsDown(w, pool, address)
	assert.Equal(t, "10.0.0.10", string(w.address("b").Spec.Address))
}

// coolsDown lets an address that is cooling down be free in two seconds.
func coolsDown(w *testEnv, pool *ipamv1.IPPool, address *ipamv1.IPAddress) {
	w.t.Helper()
	w.change(pool, func() {
		pool.Spec.AddressReuseGracePeriodSeconds = int64(time.Since(address.DeletionTimestamp.Time)/time.Second) + 2
	})
}

func TestAnAddressDeletedByHandStaysWithItsClaim(t *testing.T) {
	w := newTestEnv(t)
	w.operator(nil)
	w.pool("p", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.20")} })
	claim := w.claim("a", "p")
	address := w.address("a")
	w.delete(address)
	w.claim("b", "p")
	w.address("b")
	require.NoError(t, w.user.Get(t.Context(), client.ObjectKeyFromObject(address), address))
	before := address.DeepCopy()
	address.Finalizers = nil
	require.NoError(t, w.user.Patch(t.Context(), address, client.MergeFrom(before)))
	w.eventually("the claim does not get the same address again", func() bool {
		again := &ipamv1.IPAddress{}
		err := w.user.Get(t.Context(), client.ObjectKeyFromObject(address), again)
		return err == nil && again.UID != address.UID && len(again.OwnerReferences) == 2 && again.OwnerReferences[1].UID == claim.UID
	})
	w.settled()
}

func TestANewOperatorAdoptsWhatIsThereWithoutAWrite(t *testing.T) {
	w := newTestEnv(t)
	stop := w.operator(nil)
	w.pool("p", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.250")} })
	for i := range 20 {
		w.claim(fmt.Sprintf("c%d", i), "p")
	}
	for i := range 20 {
		w.address(fmt.Sprintf("c%d", i))
	}
	w.eventually("not all have the finalizer", func() bool {
		for i := range 20 {
			if len(w.getClaim(fmt.Sprintf("c%d", i)).Finalizers) == 0 {
				return false
			}
		}
		return true
	})
	w.untilUsed("p", 20)
	stop()
	writes := countWrites()
	w.operator(writes.count)
	w.claim("new", "p")
	w.address("new")
	w.untilUsed("p", 21)
	// The new claim: address, status, finalizer; the pool: status.
	assert.LessOrEqual(t, writes.total(), 4, writes.String())
	w.settled()
}
