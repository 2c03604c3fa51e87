// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// TestAPassTriesSoManyAddressesAndNoMore has an API server where another claim has got every address first.
func TestAPassTriesSoManyAddressesAndNoMore(t *testing.T) {
	tries := 0
	s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.9.9"), faults: interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if address, ok := obj.(*ipamv1.IPAddress); ok {
				tries++
				other := (*shell)(nil).address(address.Name, string(address.Spec.Address), "other")
				if err := c.Create(ctx, other); err != nil {
					return err
				}
			}
			return c.Create(ctx, obj, opts...)
		},
	}})
	s.claim("c")
	_, err := s.reconcile("c")
	require.ErrorContains(t, err, "100 addresses in a row were taken")
	assert.Equal(t, maxTries, tries)
}
