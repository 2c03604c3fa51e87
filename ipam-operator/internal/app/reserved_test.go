// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// givenBefore makes a claim and its address as another manager left them that handed out any address of a subnet.
func givenBefore(w *testEnv, pool *ipamv1.IPPool, claimName, ip string) {
	w.t.Helper()
	claim := w.newClaim(claimName, pool.Name)
	claim.Finalizers = []string{ipamv1.IPClaimFinalizer}
	require.NoError(w.t, w.user.Create(w.t.Context(), claim))
	address := &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: pool.Spec.NamePrefix + "-" + claimName, Finalizers: []string{ipamv1.IPAddressFinalizer},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: ipamv1.GroupVersion.String(), Kind: "IPPool", Name: pool.Name, UID: pool.UID, Controller: new(true)},
				{APIVersion: ipamv1.GroupVersion.String(), Kind: "IPClaim", Name: claim.Name, UID: claim.UID},
			},
		},
		Spec: ipamv1.IPAddressSpec{
			Address: ipamv1.IPAddressStr(ip), Prefix: 29, Gateway: pool.Spec.Gateway,
			Pool:  ipamv1.ObjectReference{Name: pool.Name, Namespace: w.namespace},
			Claim: ipamv1.ObjectReference{Name: claim.Name, Namespace: w.namespace},
		},
	}
	require.NoError(w.t, w.user.Create(w.t.Context(), address))
	claim.Status.Address = &ipamv1.ObjectReference{Name: address.Name, Namespace: w.namespace}
	require.NoError(w.t, w.user.Status().Update(w.t.Context(), claim))
}

// TestAddressesThatNoClaimGetsAnyMoreStayWithTheirClaims starts on claims that have the gateway, the network address and the broadcast address of a subnet. They keep
// them; given back, no claim gets them again.
func TestAddressesThatNoClaimGetsAnyMoreStayWithTheirClaims(t *testing.T) {
	w := newTestEnv(t)
	w.installContract()
	pool := w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{{Subnet: new(ipamv1.IPSubnetStr("10.0.0.0/29"))}}
		s.Prefix, s.Gateway = 29, new(ipamv1.IPAddressStr("10.0.0.1"))
	})
	given := map[string]string{"network": "10.0.0.0", "gateway": "10.0.0.1", "broadcast": "10.0.0.7"}
	for claim, ip := range given {
		givenBefore(w, pool, claim, ip)
	}
	before := slices.Concat(w.list("IPClaim"), w.list("IPAddress"))
	w.operator(nil)
	w.untilUsed("p", 3)
	for _, name := range []string{"c1", "c2", "c3", "c4", "c5"} {
		w.claim(name, "p")
		w.address(name)
	}
	w.claim("one-too-many", "p")
	w.refused("one-too-many", "Exhausted IP Pools")
	for i := range before {
		after := before[i].DeepCopy()
		require.NoError(t, w.user.Get(t.Context(), client.ObjectKeyFromObject(after), after))
		assert.Equal(t, before[i].Object, after.Object, "%s %s was touched", after.GetKind(), after.GetName())
	}

	for claim := range given {
		w.delete(w.getClaim(claim))
	}
	w.untilUsed("p", 5)
	witness(w, "zzz")
	w.refused("one-too-many", "Exhausted IP Pools")
	var ips []string
	for _, address := range w.list("IPAddress") {
		ip, _, _ := unstructured.NestedString(address.Object, "spec", "address")
		ips = append(ips, ip)
	}
	for _, ip := range given {
		assert.NotContains(t, ips, ip)
	}
}

// TestADeletedPoolWaitsForNoCoolDown deletes pools before and after the claims of their addresses.
func TestADeletedPoolWaitsForNoCoolDown(t *testing.T) {
	for name, poolFirst := range map[string]bool{"the pool first": true, "while an address cools down": false} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv(t)
			w.installContract()
			w.operator(nil)
			pool := w.pool("p", func(s *ipamv1.IPPoolSpec) {
				s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.20")}
				s.AddressReuseGracePeriodSeconds = 3600
			})
			claim, contract := w.claim("a", "p"), w.addressClaim("b", "p", nil)
			address := w.address("a")
			w.contractAddress("b")
			if poolFirst {
				w.delete(pool)
			}
			w.delete(claim)
			w.delete(contract)
			if !poolFirst {
				w.eventually("the address does not cool down", func() bool {
					err := w.user.Get(t.Context(), client.ObjectKeyFromObject(address), address)
					require.NoError(t, err, "the address did not cool down")
					return !address.DeletionTimestamp.IsZero()
				})
				w.delete(pool)
			}
			w.gone(claim)
			w.gone(contract)
			w.gone(address)
			w.gone(pool)
			assert.Empty(t, w.list("IPAddress"))
		})
	}
}
