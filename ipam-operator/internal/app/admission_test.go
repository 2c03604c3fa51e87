// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

func TestAClaimIsBornWithItsFinalizer(t *testing.T) {
	w := newWorld(t)
	w.installAdmission()
	assert.Equal(t, []string{ipamv1.IPClaimFinalizer}, w.claim("plain", "none").Finalizers)
	had := w.newClaim("had", "none")
	had.Finalizers = []string{ipamv1.IPClaimFinalizer, "example.com/other"}
	require.NoError(t, w.user.Create(t.Context(), had))
	assert.Equal(t, []string{ipamv1.IPClaimFinalizer, "example.com/other"}, had.Finalizers)
}

func TestAnAddressInUseIsNotEditedOutOfItsPool(t *testing.T) {
	w := newWorld(t)
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
	} {
		err := w.user.Patch(t.Context(), pool.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
		require.ErrorContains(t, err, says)
	}
	for _, patch := range []string{
		`{"spec":{"pools":[{"subnet":"10.0.0.0/24"},{"start":"fd00::a"}]}}`,
		`{"spec":{"pools":[{"start":"10.0.0.10","end":"10.0.0.10"},{"subnet":"fd00::/64"}]}}`,
		`{"metadata":{"labels":{"a":"b"}}}`,
	} {
		require.NoError(t, w.user.Patch(t.Context(), pool.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))), patch)
	}
}
