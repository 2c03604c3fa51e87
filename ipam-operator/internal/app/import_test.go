// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/controlplanetest"
	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// inClusterCRDs are the kinds of the in-cluster provider as users have them.
func inClusterCRDs(t *testing.T) fs.FS {
	t.Helper()
	dir := filepath.Join("..", "..", "..", "..", "shared", "crds", "incluster")
	if _, err := os.Stat(dir); err != nil {
		require.Empty(t, os.Getenv("CI"), "the CRDs of the in-cluster provider are not there")
		t.Skip("the CRDs of the in-cluster provider are not there: ", dir)
	}
	return os.DirFS(dir)
}

func (w *contractSite) inCluster(kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	w.t.Helper()
	pool := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	pool.SetGroupVersionKind(schema.GroupVersionKind{Group: "ipam.cluster.x-k8s.io", Version: "v1alpha2", Kind: kind})
	pool.SetNamespace(namespace)
	pool.SetName(name)
	require.NoError(w.t, w.user.Create(w.t.Context(), pool))
	return pool
}

// handedOut makes an address that a pool of the in-cluster provider has handed out, with its claim.
func (w *contractSite) handedOut(kind, pool, claim, ip string) *unstructured.Unstructured {
	w.t.Helper()
	ref := map[string]any{"apiGroup": "ipam.cluster.x-k8s.io", "kind": kind, "name": pool}
	c := w.contractObject("IPAddressClaim", claim)
	c.Object["spec"] = map[string]any{"poolRef": ref}
	require.NoError(w.t, w.user.Create(w.t.Context(), c))
	address := w.contractObject("IPAddress", claim)
	address.Object["spec"] = map[string]any{"claimRef": map[string]any{"name": claim}, "poolRef": ref, "address": ip, "prefix": int64(24), "gateway": "10.0.0.1"}
	require.NoError(w.t, w.user.Create(w.t.Context(), address))
	return address
}

func (w *contractSite) importInCluster(arguments ...string) string {
	w.t.Helper()
	var out, problems strings.Builder
	arguments = append([]string{"in-cluster", "--kubeconfig", controlplanetest.Kubeconfig(w.t), "--namespace", w.namespace}, arguments...)
	require.Zero(w.t, Import(w.t.Context(), arguments, &out, &problems), problems.String())
	return out.String()
}

// TestPoolsOfTheInClusterProviderAreImported goes over: what is in use stays taken, new claims get what is free, and the old pool hands out nothing more.
func TestPoolsOfTheInClusterProviderAreImported(t *testing.T) {
	w := newTestEnv(t)
	w.installContract()
	controlplanetest.Start(t, controlplanetest.WithCRDs(inClusterCRDs(t)))
	w.operator(nil)
	pool := w.inCluster("InClusterIPPool", w.namespace, "lan", map[string]any{
		"addresses": []any{"10.0.0.1-10.0.0.5"}, "prefix": int64(24), "gateway": "10.0.0.1", "excludedAddresses": []any{"10.0.0.5"},
	})
	global := w.namespace + "-global"
	w.inCluster("GlobalInClusterIPPool", "", global, map[string]any{"addresses": []any{"10.9.0.0/24"}, "prefix": int64(24)})
	old := w.handedOut("InClusterIPPool", "lan", "old", "10.0.0.2")
	w.handedOut("GlobalInClusterIPPool", global, "of-global", "10.9.0.1")

	assert.Contains(t, w.importInCluster("--dry-run"), "would: IPAddress "+w.namespace+"/lan-10-0-0-2: reserves 10.0.0.2 for IPAddressClaim "+w.namespace+"/old")
	require.Nil(t, w.getPool("lan"), "a dry run writes nothing")
	w.importInCluster("--global-into", w.namespace)
	w.addressClaim("new", "lan", nil)
	got, _, _ := unstructured.NestedString(w.contractAddress("new").Object, "spec", "address")
	assert.Equal(t, "10.0.0.3", got, "10.0.0.1 is the gateway and 10.0.0.2 in use")
	w.claim("from-global", global)
	assert.Equal(t, "10.9.0.2", string(w.address("from-global").Spec.Address))
	require.NoError(t, w.user.Get(t.Context(), client.ObjectKeyFromObject(pool), pool))
	excluded, _, _ := unstructured.NestedStringSlice(pool.Object, "spec", "excludedAddresses")
	assert.Equal(t, []string{"10.0.0.5", "10.0.0.1", "10.0.0.3-10.0.0.4"}, excluded)
	before := old.DeepCopy()
	require.NoError(t, w.user.Get(t.Context(), client.ObjectKeyFromObject(old), old))
	assert.Equal(t, before.Object, old.Object, "the address of a machine was touched")

	assert.Empty(t, w.importInCluster("--global-into", w.namespace), "there is nothing left to do")
	w.delete(old)
	assert.Equal(t, "IPAddress "+w.namespace+"/lan-10-0-0-2: is not in use any more\n", strings.ReplaceAll(w.importInCluster(), "InClusterIPPool "+w.namespace+"/lan: excludes every address that is not in use\n", ""))
	w.untilUsed("lan", 1)
	w.addressClaim("next", "lan", nil)
	got, _, _ = unstructured.NestedString(w.contractAddress("next").Object, "spec", "address")
	assert.Equal(t, "10.0.0.2", got)
	w.settled()
}

// TestAnImportChangesNothingOfMachines imports the pool of machines whose network data was rendered from its addresses: every claim, address, Metal3Data and Secret
// stays as it is, byte for byte, and no claim gets an address that one of them has.
func TestAnImportChangesNothingOfMachines(t *testing.T) {
	const machines = 8
	w := newDataTestEnv(t)
	w.installContract()
	controlplanetest.Start(t, controlplanetest.WithCRDs(inClusterCRDs(t)))
	w.inCluster("InClusterIPPool", w.namespace, "lan", map[string]any{"addresses": []any{"10.0.0.2-10.0.0.40"}, "prefix": int64(24), "gateway": "10.0.0.1"})
	w.template("t", func(s *infrav1.Metal3DataTemplateSpec) {
		s.MetaData = &infrav1.MetaData{IPAddressesFromPool: []infrav1.MetaDataFromPool{{Key: "ip", Name: "lan", APIGroup: "ipam.cluster.x-k8s.io", Kind: "InClusterIPPool"}}}
		s.NetworkData = nil
	})
	w.dataOperator(nil)
	var data []*infrav1.Metal3Data
	for i := range machines {
		name := fmt.Sprintf("m-%d", i)
		claim := w.dataClaim(name, "t", w.host(name))
		var address *unstructured.Unstructured
		w.eventually(name+" claims no address", func() bool {
			for _, made := range w.list("IPAddressClaim") {
				if bound, _, _ := unstructured.NestedString(made.Object, "status", "addressRef", "name"); bound == "" {
					address = w.bindInCluster(&made, fmt.Sprintf("10.0.0.%d", 3+2*i))
				}
			}
			return address != nil
		})
		data = append(data, w.rendered(claim))
	}
	before := w.machines(data)
	require.Len(t, before, 4*machines)

	w.importInCluster()
	used := map[string]bool{}
	for _, object := range before {
		if ip, _, _ := unstructured.NestedString(object, "spec", "address"); ip != "" {
			used[ip] = true
		}
	}
	require.Len(t, used, machines)
	for i := range 39 - machines {
		name := fmt.Sprintf("new-%d", i)
		w.addressClaim(name, "lan", nil)
		assert.NotContains(t, used, ipOf(w.contractAddress(name)), "an address of a machine was given again")
	}
	w.addressClaim("one-too-many", "lan", nil)
	w.eventually("the pool has more than it should", func() bool { return w.contractReason("one-too-many") == ipamv1.ReasonPoolExhausted })
	assert.Equal(t, before, w.machines(data))
}

// bindInCluster gives a claim an address, as the in-cluster provider does.
func (w *contractSite) bindInCluster(claim *unstructured.Unstructured, ip string) *unstructured.Unstructured {
	w.t.Helper()
	ref, _, _ := unstructured.NestedMap(claim.Object, "spec", "poolRef")
	address := w.contractObject("IPAddress", claim.GetName())
	address.SetFinalizers([]string{"ipam.cluster.x-k8s.io/ProtectAddress"})
	address.Object["spec"] = map[string]any{"claimRef": map[string]any{"name": claim.GetName()}, "poolRef": ref, "address": ip, "prefix": int64(24), "gateway": "10.0.0.1"}
	require.NoError(w.t, w.user.Create(w.t.Context(), address))
	patch := fmt.Sprintf(`{"status":{"addressRef":{"name":%q}}}`, address.GetName())
	require.NoError(w.t, w.user.Status().Patch(w.t.Context(), claim, client.RawPatch(types.MergePatchType, []byte(patch))))
	return address
}

// machines is everything that machines have of the pool, as the API server stores it.
func (w *contractSite) machines(all []*infrav1.Metal3Data) map[string]map[string]any {
	w.t.Helper()
	out := map[string]map[string]any{}
	get := func(obj *unstructured.Unstructured, name string) {
		obj.SetNamespace(w.namespace)
		obj.SetName(name)
		require.NoError(w.t, w.user.Get(w.t.Context(), client.ObjectKeyFromObject(obj), obj))
		out[obj.GetKind()+" "+name] = obj.Object
	}
	for _, data := range all {
		get(w.contractObject("IPAddressClaim", data.Name+"-lan"), data.Name+"-lan")
		get(w.contractObject("IPAddress", data.Name+"-lan"), data.Name+"-lan")
		for name, kind := range map[string]schema.GroupVersionKind{
			data.Name: infrav1.GroupVersion.WithKind(infrav1.Metal3DataKind), data.Spec.MetaData.Name: corev1.SchemeGroupVersion.WithKind("Secret"),
		} {
			obj := &unstructured.Unstructured{}
			obj.SetGroupVersionKind(kind)
			get(obj, name)
		}
	}
	return out
}

func TestAnImportTakesNoPoolOfAnotherHand(t *testing.T) {
	w := newTestEnv(t)
	w.installContract()
	controlplanetest.Start(t, controlplanetest.WithCRDs(inClusterCRDs(t)))
	w.inCluster("InClusterIPPool", w.namespace, "lan", map[string]any{"addresses": []any{"10.0.0.1-10.0.0.5"}, "prefix": int64(24)})
	w.pool("lan", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.1.0.1", "10.1.0.5")} })
	var out, problems strings.Builder
	code := Import(t.Context(), []string{"in-cluster", "--kubeconfig", controlplanetest.Kubeconfig(t), "--namespace", w.namespace}, &out, &problems)
	assert.Equal(t, 1, code)
	assert.Contains(t, problems.String(), "is there already and was not imported")
	err := w.user.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "lan-10-0-0-2"}, &ipamv1.IPAddress{})
	assert.True(t, apierrors.IsNotFound(err))
}
