// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// notServed answers requests for objects of a type as an API server does that does not serve their kind.
func notServed[T client.Object](c client.WithWatch) client.WithWatch {
	answer := func(obj client.Object) error {
		if _, is := obj.(T); is {
			return faultinject.NotServed(schema.GroupResource{Group: ipamv1.GroupVersion.Group})
		}
		return nil
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return cmp.Or(answer(obj), c.Get(ctx, key, obj, opts...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := answer(obj); err != nil {
				return err
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	})
}

// withoutAddresses is a cache that shows no address yet.
func withoutAddresses(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, is := obj.(*ipamv1.IPAddress); is {
				return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, is := list.(*ipamv1.IPAddressList); is {
				return nil
			}
			return c.List(ctx, list, opts...)
		},
	})
}

// TestAClaimGetsNoSecondAddressWhileAddressesAreNotServed has a claim whose address the cache does not show yet, and whose pool has it no more.
func TestAClaimGetsNoSecondAddressWhileAddressesAreNotServed(t *testing.T) {
	s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.9")})
	s.claim("c", func(c *ipamv1.IPClaim) {
		c.Status.Address = &ipamv1.ObjectReference{Name: "p-10-0-0-50", Namespace: "ns"}
	})
	s.create(s.address("p-10-0-0-50", "10.0.0.50", "c"))
	s.reconciler.Client, s.reconciler.Live = withoutAddresses(s.client), notServed[*ipamv1.IPAddress](s.client)
	_, err := s.reconcile("c")
	require.Error(t, err)
	assert.Equal(t, map[string]string{"p-10-0-0-50": "c"}, s.addresses())

	s.reconciler.Live = s.client
	_, err = s.reconcile("c")
	require.NoError(t, err)
	s.shows("p-10-0-0-50", "")
	assert.Equal(t, map[string]string{"p-10-0-0-50": "c"}, s.addresses())
}

// TestAKeptAddressIsKeptWhileAddressesAreNotServed has a claim that is made again after it gave back its address.
func TestAKeptAddressIsKeptWhileAddressesAreNotServed(t *testing.T) {
	address := (*shell)(nil).address("p-10-0-0-5", "10.0.0.5", "c")
	address.OwnerReferences[0].UID, address.DeletionTimestamp = "uid-of-another-life", new(metav1.NewTime(epoch.Add(-time.Minute)))
	s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.9"), sticky: &metav1.Duration{Duration: time.Hour}, objects: []client.Object{address}})
	s.index.Observe(recordOf(address))
	s.claim("c")
	s.reconciler.Live = notServed[*ipamv1.IPAddress](s.client)
	_, err := s.reconcile("c")
	require.Error(t, err)
	assert.Equal(t, map[string]string{"p-10-0-0-5": "c"}, s.addresses())

	s.reconciler.Live = s.client
	_, err = s.reconcile("c")
	require.NoError(t, err)
	s.shows("p-10-0-0-5", "")
}

// TestAnAddressThatMayBeThereStaysTakenWhileAddressesAreNotServed loses the answer to the creation of an address.
func TestAnAddressThatMayBeThereStaysTakenWhileAddressesAreNotServed(t *testing.T) {
	s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.9"), faults: onAddress(1, true, errLost)})
	s.claim("c")
	s.reconciler.Live = notServed[*ipamv1.IPAddress](s.client)
	_, err := s.reconcile("c")
	require.Error(t, err)
	counts, _ := s.index.Counts(key("p"))
	assert.EqualValues(t, 1, counts.Used, "no other claim gets it")
	s.reconciler.Live = s.client
	_, err = s.reconcile("c")
	require.NoError(t, err)
	s.shows("p-10-0-0-1", "")
}

// TestAClaimKeepsNoFinalizerThatCouldNotBeRemoved has an API server that does not serve claims when the finalizer of one is to be removed: no event would start another pass.
func TestAClaimKeepsNoFinalizerThatCouldNotBeRemoved(t *testing.T) {
	s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.9")})
	claim := s.claim("c")
	_, err := s.reconcile("c")
	require.NoError(t, err)
	require.NoError(t, s.client.Delete(t.Context(), claim))
	now := s.reconciler.Client
	s.reconciler.Client = notServed[*ipamv1.IPClaim](s.client)
	_, err = s.reconcile("c")
	require.Error(t, err)
	s.reconciler.Client = now
	_, err = s.reconcile("c")
	require.NoError(t, err)
	assert.True(t, apierrors.IsNotFound(s.client.Get(t.Context(), key("c"), claim)))
}
