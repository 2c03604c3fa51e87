// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// TestTheFinalizerOfAnUnservedClaimIsRemoved has claims that name a pool of another kind and were created with the finalizer of the operator.
func TestTheFinalizerOfAnUnservedClaimIsRemoved(t *testing.T) {
	for name, pool := range map[string]ipamv1.ObjectReference{
		"kind":       {Name: "p", Kind: "InClusterIPPool"},
		"apiversion": {Name: "p", APIVersion: "ipam.cluster.x-k8s.io/v1alpha2", Kind: "IPPool"},
	} {
		for _, deleted := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.9")})
				claim := s.claim("c", func(c *ipamv1.IPClaim) { c.Spec.Pool = pool })
				if deleted {
					require.NoError(t, s.client.Delete(t.Context(), claim))
				}
				_, err := s.reconcile("c")
				require.NoError(t, err)
				assert.Empty(t, s.addresses())
				if deleted {
					err := s.client.Get(t.Context(), key("c"), claim)
					assert.True(t, apierrors.IsNotFound(err), "%v", err)
					return
				}
				assert.Empty(t, s.get("c").Finalizers)
				assert.Equal(t, []string{ipamv1.ReasonNotServed}, s.events.reasons)
				assert.Empty(t, s.get("c").Status.Conditions, "the status belongs to the operator that serves the kind")
			})
		}
	}
}
