// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// TestClaimsOfPoolsThatAreNotServedStopNoNamespace has claims of both kinds name a pool of another provider, with and without a finalizer of this operator, and deletes
// their namespace.
func TestClaimsOfPoolsThatAreNotServedStopNoNamespace(t *testing.T) {
	w := newTestEnv(t)
	w.installContract()
	w.operator(nil)
	foreign := func(name string, finalizers ...string) *ipamv1.IPClaim {
		claim := w.newClaim(name, "theirs")
		claim.Spec.Pool.Kind, claim.Spec.Pool.APIVersion, claim.Finalizers = "InClusterIPPool", "ipam.cluster.x-k8s.io/v1alpha2", finalizers
		require.NoError(t, w.user.Create(t.Context(), claim))
		return claim
	}
	plain, kept := foreign("plain"), foreign("kept", ipamv1.IPClaimFinalizer)
	contract := w.contractObject("IPAddressClaim", "kept")
	contract.SetFinalizers([]string{ipamv1.ContractClaimFinalizer})
	contract.Object["spec"] = map[string]any{"poolRef": map[string]any{"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "theirs"}}
	require.NoError(t, w.user.Create(t.Context(), contract))
	for _, obj := range []client.Object{kept, contract} {
		w.eventually("the finalizer of a claim that is not served stays", func() bool {
			require.NoError(t, w.user.Get(t.Context(), client.ObjectKeyFromObject(obj), obj))
			return len(obj.GetFinalizers()) == 0
		})
	}
	w.eventually("there is no event about it", func() bool { return w.hasEvent("kept", ipamv1.ReasonNotServed) })
	witness(w, "zzz")
	left := w.getClaim(plain.Name)
	assert.Empty(t, left.Finalizers)
	assert.Equal(t, ipamv1.IPClaimStatus{ObservedGeneration: -1}, left.Status, "it is as the API server made it")

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	w.delete(namespace)
	w.gone(namespace)
}

// TestAddressesOfTheContractHaveAPrefixAndAGatewayOfTheirFamily has a pool without a prefix, stored with the gateway of the other family.
func TestAddressesOfTheContractHaveAPrefixAndAGatewayOfTheirFamily(t *testing.T) {
	w := newTestEnv(t)
	w.installContract()
	w.operator(nil)
	pool := w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools, s.Prefix, s.Gateway = []ipamv1.Pool{span("fd00::10", "fd00::20")}, 0, addr("10.0.255.254")
	})
	w.addressClaim("a", "p", nil)
	w.eventually("the claim is not refused", func() bool { return w.contractReason("a") == ipamv1.ReasonAllocationFailed })
	w.merge(pool, `{"spec":{"prefix":64}}`)
	spec := w.contractAddress("a").Object["spec"].(map[string]any)
	assert.EqualValues(t, 64, spec["prefix"])
	assert.NotContains(t, spec, "gateway")
	w.settled()
}
