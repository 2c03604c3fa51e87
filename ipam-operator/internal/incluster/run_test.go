// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package incluster

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

func object(version, kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	obj.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	obj.SetNamespace(namespace)
	obj.SetName(name)
	return obj
}

func poolObject(kind, namespace, addresses string) *unstructured.Unstructured {
	return object("v1alpha2", kind, namespace, "shared", map[string]any{"addresses": []any{addresses}, "prefix": int64(24)})
}

// usedObject is an address that a pool named shared has handed out.
func usedObject(kind, namespace, claim, ip string) *unstructured.Unstructured {
	return object("v1beta2", "IPAddress", namespace, claim, map[string]any{
		"address": ip, "claimRef": map[string]any{"name": claim}, "poolRef": map[string]any{"apiGroup": group, "kind": kind, "name": "shared"},
	})
}

func newClient(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	return newClientOf(t, map[string][]string{"v1alpha2": {poolKind, globalPoolKind}, "v1beta2": {"IPAddress"}}, objects...)
}

// newClientOf is a client of an API server that serves kinds of the contract by version, and no others.
func newClientOf(t *testing.T, versions map[string][]string, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, ipamv1.AddToScheme(scheme))
	var served []schema.GroupVersion
	for version := range versions {
		served = append(served, schema.GroupVersion{Group: group, Version: version})
	}
	mapper := meta.NewDefaultRESTMapper(served)
	for version, kinds := range versions {
		for _, kind := range kinds {
			gvk := schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
			scheme.AddKnownTypeWithName(gvk, &unstructured.Unstructured{})
			mapper.Add(gvk, meta.RESTScopeNamespace)
			gvk.Kind += "List"
			scheme.AddKnownTypeWithName(gvk, &unstructured.UnstructuredList{})
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			gvk := list.GetObjectKind().GroupVersionKind()
			if gvk.Group == group && !slices.Contains(versions[gvk.Version], strings.TrimSuffix(gvk.Kind, "List")) {
				return &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
			}
			return c.List(ctx, list, opts...)
		},
	}).Build()
}

func has(ctx context.Context, c client.Client, obj client.Object, name string) bool {
	return c.Get(ctx, types.NamespacedName{Namespace: "infra", Name: name}, obj) == nil
}

// TestTwoPoolsOfOneNameAreNotOne has a pool of the namespace that global pools become IPPools of, and a global one of its name. What machines have of the one stays taken.
func TestTwoPoolsOfOneNameAreNotOne(t *testing.T) {
	for name, options := range map[string][]Import{
		"at once":                            {{GlobalInto: "infra"}, {GlobalInto: "infra"}},
		"the global one later":               {{}, {GlobalInto: "infra", Namespace: "other"}},
		"the one of the namespace was moved": {{Namespace: "infra"}, {GlobalInto: "infra", Namespace: "other"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t,
				poolObject(poolKind, "infra", "10.0.0.0/24"), usedObject(poolKind, "infra", "a", "10.0.0.5"),
				poolObject(globalPoolKind, "", "10.9.0.0/24"), usedObject(globalPoolKind, "infra", "b", "10.9.0.5"))
			var err error
			for _, run := range options {
				run.Client, run.Out = c, &strings.Builder{}
				err = run.Run(t.Context())
			}
			require.ErrorContains(t, err, "GlobalInClusterIPPool shared cannot be imported: IPPool infra/shared is that of InClusterIPPool infra/shared")
			assert.True(t, has(t.Context(), c, &ipamv1.IPAddress{}, "shared-10-0-0-5"), "an address in use is free")
			assert.False(t, has(t.Context(), c, &ipamv1.IPAddress{}, "shared-10-9-0-5"))
			global := poolObject(globalPoolKind, "", "")
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(global), global))
			excluded, _, _ := unstructured.NestedStringSlice(global.Object, "spec", "excludedAddresses")
			assert.Empty(t, excluded, "the pool that was not imported hands out nothing")
		})
	}
}

// TestPoolsThatAreLeftOutAreNamed has pools that the import does not read: it must not say that there are none.
func TestPoolsThatAreLeftOutAreNamed(t *testing.T) {
	out := &strings.Builder{}
	run := Import{Client: newClient(t), Out: out}
	require.NoError(t, run.Run(t.Context()))
	assert.Equal(t, "there are no pools of the in-cluster provider to import\n", out.String())

	out.Reset()
	run.Client = newClient(t, poolObject(globalPoolKind, "", "10.9.0.0/24"))
	require.NoError(t, run.Run(t.Context()))
	assert.Equal(t, "GlobalInClusterIPPool shared: is left out; name the namespace of its IPPool with --global-into\n", out.String())

	run.Client = newClientOf(t, map[string][]string{"v1alpha1": {poolKind}, "v1beta2": {"IPAddress"}})
	require.EqualError(t, run.Run(t.Context()), "InClusterIPPool is served in v1alpha1 and not in v1alpha2: bring the in-cluster provider to a version that serves v1alpha2")
}

// TestAPoolWhoseAddressesCannotBeReadIsNotImported has an API server that does not serve addresses, in whatever version: none of them can be reserved.
func TestAPoolWhoseAddressesCannotBeReadIsNotImported(t *testing.T) {
	c := newClientOf(t, map[string][]string{"v1alpha2": {poolKind}}, poolObject(poolKind, "infra", "10.0.0.0/24"))
	run := Import{Client: c, Out: &strings.Builder{}}
	require.ErrorContains(t, run.Run(t.Context()), "listing the addresses of InClusterIPPool infra/shared")
	pool := &ipamv1.IPPool{}
	require.NoError(t, c.Get(t.Context(), types.NamespacedName{Namespace: "infra", Name: "shared"}, pool))
	assert.Contains(t, pool.Annotations, ipamv1.PausedAnnotation, "the pool hands out addresses that are in use")
}

// TestAnAddressThatBothHandedOutIsNamed has an in-cluster provider that went on handing out addresses.
func TestAnAddressThatBothHandedOutIsNamed(t *testing.T) {
	c := newClient(t, poolObject(poolKind, "infra", "10.0.0.0/24"), usedObject(poolKind, "infra", "a", "10.0.0.5"))
	run := Import{Client: c, LeaveOpen: true, Out: &strings.Builder{}}
	require.NoError(t, run.Run(t.Context()))
	given := &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: "shared-10-0-0-6", Finalizers: []string{ipamv1.IPAddressFinalizer}},
		Spec:       ipamv1.IPAddressSpec{Address: "10.0.0.6", Pool: ipamv1.ObjectReference{Name: "shared"}, Claim: ipamv1.ObjectReference{Name: "c"}},
	}
	require.NoError(t, c.Create(t.Context(), given))
	require.NoError(t, c.Create(t.Context(), usedObject(poolKind, "infra", "b", "10.0.0.6")))
	require.EqualError(t, run.Run(t.Context()),
		"10.0.0.6 is in use twice: by IPAddressClaim infra/b, and by IPClaim infra/c of IPPool infra/shared; replace one of the two machines")
}
