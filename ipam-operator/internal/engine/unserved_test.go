// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-io/muster/apis/faultinject"
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

// TestAClaimStaysWhileAddressesAreNotServed has an API server that answers 404 to one request about addresses, as for an address that is gone: what was left of it would stay.
func TestAClaimStaysWhileAddressesAreNotServed(t *testing.T) {
	for _, unserved := range []string{"delete", "patch"} {
		t.Run(unserved, func(t *testing.T) {
			away := ""
			answer := func(verb string, obj client.Object) error {
				if _, is := obj.(*ipamv1.IPAddress); !is || away != verb {
					return nil
				}
				return faultinject.NotServed(schema.GroupResource{Group: ipamv1.GroupVersion.Group, Resource: "ipaddresses"})
			}
			s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.9"), faults: interceptor.Funcs{
				Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
					if err := answer("delete", obj); err != nil {
						return err
					}
					return c.Delete(ctx, obj, opts...)
				},
				Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
					if err := answer("patch", obj); err != nil {
						return err
					}
					return c.Patch(ctx, obj, patch, opts...)
				},
			}})
			claim := s.claim("c")
			_, err := s.reconcile("c")
			require.NoError(t, err)
			require.Len(t, s.addresses(), 1)
			require.NoError(t, s.client.Delete(t.Context(), claim))
			away = unserved
			_, err = s.reconcile("c")
			require.Error(t, err)
			assert.NotEmpty(t, s.get("c").Finalizers)
			away = ""
			_, err = s.reconcile("c")
			require.NoError(t, err)
			assert.Empty(t, s.addresses())
		})
	}
}
