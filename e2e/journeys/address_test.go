// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package journeys_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

func (w *world) addressClaim(name, pool string) *ipamv1.IPClaim {
	w.t.Helper()
	claim := &ipamv1.IPClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       ipamv1.IPClaimSpec{Pool: ipamv1.ObjectReference{Name: pool}},
	}
	w.create(claim)
	return claim
}

// untilAddressed waits until the claim has an address and returns it.
func (w *world) untilAddressed(claim *ipamv1.IPClaim) string {
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

// A machine's claim gets an address that nobody else has; one that comes too late says why it waits, and gets what another gives back.
func TestAnAddressIsGivenOnceAndGivenBack(t *testing.T) {
	w := newWorld(t)
	pool := &ipamv1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "rack"},
		Spec: ipamv1.IPPoolSpec{
			NamePrefix: "rack",
			Pools:      []ipamv1.Pool{{Start: new(ipamv1.IPAddressStr("192.0.2.10")), End: new(ipamv1.IPAddressStr("192.0.2.11"))}},
			Prefix:     24, Gateway: new(ipamv1.IPAddressStr("192.0.2.1")),
		},
	}
	w.create(pool)
	var claims []*ipamv1.IPClaim
	seen := map[string]bool{}
	for n := range 2 {
		claim := w.addressClaim(fmt.Sprintf("machine-%d", n), pool.Name)
		claims = append(claims, claim)
		seen[w.untilAddressed(claim)] = true
	}
	assert.Equal(t, map[string]bool{"192.0.2.10": true, "192.0.2.11": true}, seen)

	late := w.addressClaim("machine-late", pool.Name)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		w.refresh(c, late)
		require.NotNil(c, late.Status.ErrorMessage)
		assert.NotEmpty(c, *late.Status.ErrorMessage)
	}, moment, interval)
	released := w.untilAddressed(claims[0])
	require.NoError(t, w.admin.Delete(t.Context(), claims[0]))
	assert.Equal(t, released, w.untilAddressed(late))

	for _, claim := range []*ipamv1.IPClaim{claims[1], late} {
		require.NoError(t, w.admin.Delete(t.Context(), claim))
		w.untilGone(claim, moment)
	}
	require.NoError(t, w.admin.Delete(t.Context(), pool))
	w.untilGone(pool, moment)
}
