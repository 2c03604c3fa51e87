// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// owned makes a pool and a claim of these UIDs the owners of an address.
func owned(a *ipamv1.IPAddress, pool, claim types.UID) *ipamv1.IPAddress {
	a.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "ipam.metal3.io/v1alpha1", Kind: "IPPool", Name: "p", UID: pool},
		{APIVersion: "ipam.metal3.io/v1alpha1", Kind: "IPClaim", Name: a.Spec.Claim.Name, UID: claim},
	}
	return a
}

// TestAddressesOfAnotherLife has an address that names the claim c, with owners that are there or not.
func TestAddressesOfAnotherLife(t *testing.T) {
	for name, test := range map[string]struct {
		pool, claim types.UID
		deleted     bool
		bound       string
		want        string // of the claim
	}{
		"restored with owners of another life": {pool: "uid-p-before", claim: "uid-c-before", want: "p-10-0-0-7"},
		"and deleted by the garbage collector": {pool: "uid-p-before", claim: "uid-c-before", deleted: true, want: "p-10-0-0-7"},
		"deleted when the claim has another":   {pool: "uid-p-before", claim: "uid-c-before", deleted: true, bound: "p-10-0-0-2", want: "p-10-0-0-2"},
		"restored when the claim has another":  {pool: "uid-p-before", claim: "uid-c-before", bound: "p-10-0-0-2", want: "p-10-0-0-7"},
		"a claim that was created again":       {pool: "uid-p", claim: "uid-c-before", want: "p-10-0-0-1"},
		"a pool that was created again":        {pool: "uid-p-before", claim: "uid-c", want: "p-10-0-0-7"},
		"owners that are there":                {pool: "uid-p", claim: "uid-c", want: "p-10-0-0-7"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.9")})
			claim := s.claim("c")
			if test.bound != "" {
				s.create(owned(s.address(test.bound, "10.0.0.2", "c"), "uid-p", "uid-c"))
				claim.Status.Address = &ipamv1.ObjectReference{Name: test.bound, Namespace: "ns"}
				require.NoError(t, s.client.Status().Update(t.Context(), claim))
			}
			address := owned(s.address("p-10-0-0-7", "10.0.0.7", "c"), test.pool, test.claim)
			s.create(address)
			if test.deleted {
				require.NoError(t, s.client.Delete(t.Context(), address.DeepCopy()))
			}
			_, err := s.reconcile("c")
			require.NoError(t, err)
			require.NotNil(t, s.get("c").Status.Address)
			assert.Equal(t, test.want, s.get("c").Status.Address.Name)
			if test.want != address.Name {
				return
			}
			require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(address), address))
			assert.Equal(t, types.UID("uid-c"), claimOwner(address))
			if test.claim != "uid-c" {
				assert.Equal(t, types.UID("uid-p"), poolOwner(address))
				assert.Len(t, address.OwnerReferences, 2)
			}
			has, err := s.reconciler.Kind.Has(t.Context(), address, true)
			require.NoError(t, err)
			assert.True(t, has)
		})
	}
}

// TestAnAddressOfAnotherLifeWaitsForItsPool is restored with its claim before the pool is.
func TestAnAddressOfAnotherLifeWaitsForItsPool(t *testing.T) {
	s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.9")})
	s.claim("c")
	address := owned(s.address("other-10-0-0-7", "10.0.0.7", "c"), "uid-other-before", "uid-c-before")
	address.Spec.Pool.Name, address.OwnerReferences[0].Name = "other", "other"
	has, err := s.reconciler.Kind.Has(t.Context(), address, false)
	require.NoError(t, err)
	assert.True(t, has)
}
