// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// TestAnObjectWithTheNameOfAnotherAddressStopsNoClaim has an IPAddress that was made by hand with the name of the first address of a pool, and another address in it.
func TestAnObjectWithTheNameOfAnotherAddressStopsNoClaim(t *testing.T) {
	w := newTestEnv(t)
	w.installContract()
	w.operator(nil)
	w.pool("p", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.1", "10.0.0.3")} })
	mistaken := &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "p-10-0-0-1"},
		Spec:       ipamv1.IPAddressSpec{Address: "10.0.0.2", Pool: ipamv1.ObjectReference{Name: "p"}, Claim: ipamv1.ObjectReference{Name: "reserved"}},
	}
	require.NoError(t, w.user.Create(t.Context(), mistaken))
	w.claim("a", "p")
	assert.EqualValues(t, "10.0.0.3", w.address("a").Spec.Address, "the one address whose name and number are free")
	w.claim("b", "p")
	w.refused("b", "Exhausted IP Pools")
	asking := w.newClaim("asks", "p")
	asking.Annotations = map[string]string{ipamv1.RequestedAddressAnnotation: "10.0.0.1"}
	require.NoError(t, w.user.Create(t.Context(), asking))
	w.refused("asks", "Requested IP not available")

	w.delete(mistaken)
	assert.Contains(t, []ipamv1.IPAddressStr{"10.0.0.1", "10.0.0.2"}, w.address("b").Spec.Address)
	w.settled()
}
