// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-io/muster/apis/faultinject"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// TestADeletedHostGoesAlsoWhereItsKindWasNotServed has an API server that does not serve hosts when the finalizer of one is removed: no event would start another pass.
func TestADeletedHostGoesAlsoWhereItsKindWasNotServed(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, metal3v1.AddToScheme(scheme))
	require.NoError(t, coordinationv1.AddToScheme(scheme))
	host := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "h", Finalizers: []string{metal3v1.DiscoveryFinalizer}, DeletionTimestamp: new(metav1.Now()),
	}}
	unserved := true
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(host).WithIndex(&coordinationv1.Lease{}, holderIndex, func(client.Object) []string { return nil }).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if unserved {
					return faultinject.NotServed(schema.GroupResource{Group: metal3v1.GroupVersion.Group, Resource: "baremetalhosts"})
				}
				return c.Patch(ctx, obj, patch, opts...)
			},
		}).Build()
	r := New(Deps{Client: c})
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(host), host))
	_, err := r.finish(t.Context(), host.DeepCopy(), false)
	require.Error(t, err)
	unserved = false
	_, err = r.finish(t.Context(), host, false)
	require.NoError(t, err)
}
