// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package journeys_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// addressClaim claims an address. For a few seconds after the kinds were installed the API server's admission does not know them yet.
func (w *testEnv) addressClaim(name, pool string, change ...func(*ipamv1.IPClaim)) *ipamv1.IPClaim {
	w.t.Helper()
	claim := &ipamv1.IPClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       ipamv1.IPClaimSpec{Pool: ipamv1.ObjectReference{Name: pool}},
	}
	for _, c := range change {
		c(claim)
	}
	require.Eventually(w.t, func() bool {
		err := w.admin.Create(w.ctx, claim)
		if apierrors.IsServiceUnavailable(err) {
			return false
		}
		require.NoError(w.t, err)
		return true
	}, moment, interval, "claim %s is not taken", name)
	return claim
}

// addressPool creates a pool.
func (w *testEnv) addressPool(name string, change func(*ipamv1.IPPoolSpec)) *ipamv1.IPPool {
	w.t.Helper()
	pool := &ipamv1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       ipamv1.IPPoolSpec{NamePrefix: name, Prefix: 24, Gateway: new(ipamv1.IPAddressStr("192.0.2.1"))},
	}
	change(&pool.Spec)
	w.create(pool)
	return pool
}

func addressSpan(first, last string) ipamv1.Pool {
	return ipamv1.Pool{Start: new(ipamv1.IPAddressStr(first)), End: new(ipamv1.IPAddressStr(last))}
}

// giveBack deletes claims, then their pool, and waits until all are gone.
func (w *testEnv) giveBack(pool *ipamv1.IPPool, claims ...*ipamv1.IPClaim) {
	w.t.Helper()
	for _, claim := range claims {
		require.NoError(w.t, w.admin.Delete(w.ctx, claim))
	}
	for _, claim := range claims {
		w.untilGone(claim, moment)
	}
	require.NoError(w.t, w.admin.Delete(w.ctx, pool))
	w.untilGone(pool, moment)
}

// untilAddressed waits until the claim has an address and returns it.
func (w *testEnv) untilAddressed(claim *ipamv1.IPClaim) string {
	w.t.Helper()
	address := &ipamv1.IPAddress{}
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		w.refresh(c, claim)
		require.NotNil(c, claim.Status.Address, "%+v", claim.Status)
		require.NoError(c, w.admin.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: claim.Status.Address.Name}, address))
	}, moment, interval, "claim %s gets no address", claim.Name)
	assert.Equal(w.t, claim.Name, address.Spec.Claim.Name)
	return string(address.Spec.Address)
}

// A machine's claim gets an address of its own; one that comes too late says why it waits, and gets what another gives back.
func TestAnAddressIsGivenOnceAndGivenBack(t *testing.T) {
	w := newTestEnv(t)
	pool := w.addressPool("rack", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{addressSpan("192.0.2.10", "192.0.2.11")} })
	var claims []*ipamv1.IPClaim
	seen := map[string]bool{}
	for n := range 2 {
		claim := w.addressClaim(fmt.Sprintf("machine-%d", n), pool.Name)
		claims = append(claims, claim)
		seen[w.untilAddressed(claim)] = true
	}
	assert.Equal(t, map[string]bool{"192.0.2.10": true, "192.0.2.11": true}, seen)

	late := w.addressClaim("machine-late", pool.Name)
	w.untilRefused(late, "Exhausted IP Pools")
	released := w.untilAddressed(claims[0])
	require.NoError(t, w.admin.Delete(t.Context(), claims[0]))
	assert.Equal(t, released, w.untilAddressed(late))

	w.giveBack(pool, claims[1], late)
}

// An administrator has a few addresses here and there, of both families, with a network of their own each; machines get all of them and no other.
func TestRangesMayBeSparse(t *testing.T) {
	w := newTestEnv(t)
	pool := w.addressPool("sparse", func(s *ipamv1.IPPoolSpec) {
		s.AllocationStrategy = ipamv1.SequentialAllocation
		s.DNSServers = []ipamv1.IPAddressStr{"192.0.2.2"}
		s.ExcludedAddresses = []ipamv1.AddressSpan{"192.0.2.21"}
		s.Pools = []ipamv1.Pool{
			addressSpan("192.0.2.10", "192.0.2.10"), addressSpan("192.0.2.20", "192.0.2.22"),
			{
				Subnet: new(ipamv1.IPSubnetStr("2001:db8::/126")), Prefix: 64, Gateway: new(ipamv1.IPAddressStr("2001:db8::1")),
				DNSServers: []ipamv1.IPAddressStr{"2001:db8::2"},
			},
		}
	})
	var claims []*ipamv1.IPClaim
	for i, want := range []struct {
		ip, gateway, dns string
		prefix           int
	}{
		{"192.0.2.10", "192.0.2.1", "192.0.2.2", 24},
		{"192.0.2.20", "192.0.2.1", "192.0.2.2", 24},
		{"192.0.2.22", "192.0.2.1", "192.0.2.2", 24},
		{"2001:db8::2", "2001:db8::1", "2001:db8::2", 64},
		{"2001:db8::3", "2001:db8::1", "2001:db8::2", 64},
	} {
		claim := w.addressClaim(fmt.Sprintf("machine-%d", i), pool.Name)
		assert.Equal(t, want.ip, w.untilAddressed(claim))
		address := &ipamv1.IPAddress{}
		require.NoError(t, w.admin.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: claim.Status.Address.Name}, address))
		assert.Equal(t, want.prefix, address.Spec.Prefix)
		assert.Equal(t, want.gateway, string(*address.Spec.Gateway))
		assert.Equal(t, []ipamv1.IPAddressStr{ipamv1.IPAddressStr(want.dns)}, address.Spec.DNSServers)
		claims = append(claims, claim)
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		w.refresh(c, pool)
		assert.True(c, meta.IsStatusConditionTrue(pool.Status.Conditions, ipamv1.ExhaustedCondition), "%+v", pool.Status)
		assert.Len(c, pool.Status.Allocations, 5)
	}, moment, interval)
	w.giveBack(pool, claims...)
}

// Two deployments grow and shrink in one pool at the same time: each address is one machine's, and what one gives back the other can have.
func TestDeploymentsShareAPool(t *testing.T) {
	w := newTestEnv(t)
	const each = 5
	pool := w.addressPool("shared", func(s *ipamv1.IPPoolSpec) {
		s.AllocationStrategy = ipamv1.RandomAllocation
		s.Pools = []ipamv1.Pool{addressSpan("192.0.2.10", "192.0.2.19")}
	})
	deploy := func(deployment string, n int) (claims []*ipamv1.IPClaim) {
		for i := range n {
			claims = append(claims, w.addressClaim(fmt.Sprintf("%s-%d", deployment, i), pool.Name, func(c *ipamv1.IPClaim) {
				c.Labels = map[string]string{"deployment": deployment}
			}))
		}
		return claims
	}
	control, workers := deploy("control-plane", each), deploy("workers", each)
	holders := map[string]string{}
	for _, claim := range append(slices.Clone(control), workers...) {
		ip := w.untilAddressed(claim)
		assert.Empty(t, holders[ip], "%s has two holders", ip)
		holders[ip] = claim.Name
	}
	grown := deploy("more-workers", 2)
	var given []string
	for _, claim := range control[:2] {
		given = append(given, w.untilAddressed(claim))
		require.NoError(t, w.admin.Delete(t.Context(), claim))
	}
	assert.ElementsMatch(t, given, []string{w.untilAddressed(grown[0]), w.untilAddressed(grown[1])})
	addresses := &ipamv1.IPAddressList{}
	require.NoError(t, w.admin.List(t.Context(), addresses, client.InNamespace(w.namespace), client.MatchingLabels{"deployment": "workers"}))
	assert.Len(t, addresses.Items, each, "an address carries the labels of its claim")
	w.giveBack(pool, slices.Concat(control[2:], workers, grown)...)
}

// A user who plans ahead knows the addresses before the machines: by name in the pool, or by a request of the claim. They are the same after the claim was
// deleted and made again, and no other claim gets them meanwhile.
func TestAddressesArePredictable(t *testing.T) {
	w := newTestEnv(t)
	pool := w.addressPool("planned", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{{
			Start: new(ipamv1.IPAddressStr("192.0.2.10")), End: new(ipamv1.IPAddressStr("192.0.2.12")), Subnet: new(ipamv1.IPSubnetStr("192.0.2.0/24")),
		}}
		s.PreAllocations = map[string]ipamv1.IPAddressStr{"control-plane-0": "192.0.2.8", "control-plane-1": "192.0.2.11"}
	})
	request := func(c *ipamv1.IPClaim) {
		c.Annotations = map[string]string{ipamv1.RequestedAddressAnnotation: "192.0.2.12"}
	}
	first := w.addressClaim("control-plane-0", pool.Name)
	second := w.addressClaim("requested", pool.Name, request)
	assert.Equal(t, "192.0.2.8", w.untilAddressed(first))
	assert.Equal(t, "192.0.2.12", w.untilAddressed(second))
	other := w.addressClaim("other", pool.Name)
	assert.Equal(t, "192.0.2.10", w.untilAddressed(other), "a preallocated address is reserved, also before its claim exists")
	late := w.addressClaim("late", pool.Name)
	w.untilRefused(late, "Exhausted IP Pools")
	assert.Equal(t, "192.0.2.11", w.untilAddressed(w.addressClaim("control-plane-1", pool.Name)))

	require.NoError(t, w.admin.Delete(t.Context(), first))
	w.untilGone(first, moment)
	first = w.addressClaim("control-plane-0", pool.Name)
	assert.Equal(t, "192.0.2.8", w.untilAddressed(first))

	taken := w.addressClaim("requested-too", pool.Name, request)
	w.untilRefused(taken, "Requested IP not available")
	require.NoError(t, w.admin.Delete(t.Context(), late))
	require.NoError(t, w.admin.Delete(t.Context(), second))
	assert.Equal(t, "192.0.2.12", w.untilAddressed(taken))
	w.giveBack(pool, first, other, taken, w.addressClaimNamed("control-plane-1"))
}

// untilRefused waits until the claim says that it has no address, and why.
func (w *testEnv) untilRefused(claim *ipamv1.IPClaim, message string) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		w.refresh(c, claim)
		require.NotNil(c, claim.Status.ErrorMessage)
		assert.Equal(c, message, *claim.Status.ErrorMessage)
		ready := meta.FindStatusCondition(claim.Status.Conditions, ipamv1.ReadyCondition)
		require.NotNil(c, ready)
		assert.Equal(c, metav1.ConditionFalse, ready.Status)
	}, moment, interval, "claim %s is not refused", claim.Name)
}

func (w *testEnv) addressClaimNamed(name string) *ipamv1.IPClaim {
	return &ipamv1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
}
