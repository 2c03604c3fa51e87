// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// TestRestoredAddressesStayWithTheirClaims saves claims of both kinds and their addresses as "kubectl get -o yaml" and backup tools do, removes them, and
// creates them again without status and owners.
func TestRestoredAddressesStayWithTheirClaims(t *testing.T) {
	for name, restore := range map[string]func(w *testEnv, start func() func(), claims, addresses func()){
		"addresses before claims": func(w *testEnv, start func() func(), claims, addresses func()) {
			start()
			addresses()
			witness(w, "zzz")
			claims()
		},
		"claims before addresses, operator stopped": func(_ *testEnv, start func() func(), claims, addresses func()) {
			claims()
			addresses()
			start()
		},
		"claims before addresses, operator running": func(w *testEnv, start func() func(), claims, addresses func()) {
			start()
			claims()
			for _, claim := range []string{"a", "b"} {
				w.address(claim)
			}
			addresses()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, before := claimsOfBothKinds(t)
			claims := w.save("IPClaim", "IPAddressClaim")
			addresses := w.save("IPAddress", "contract.IPAddress")
			start := func() func() { return w.operator(nil) }
			restore(w, start, func() { w.restore(claims) }, func() { w.restore(addresses) })
			w.eventually("the claims do not have their addresses", func() bool { return maps.Equal(before, w.held()) })
			w.settled()
			for claim := range before {
				if claim != "a" && claim != "b" {
					continue
				}
				address := w.address(claim)
				assert.Equal(t, []string{ipamv1.IPAddressFinalizer}, address.Finalizers)
				require.Len(t, address.OwnerReferences, 2)
				assert.Equal(t, w.getClaim(claim).UID, address.OwnerReferences[1].UID)
				assert.Equal(t, w.getPool("p").UID, address.OwnerReferences[0].UID)
			}
			for _, claim := range []string{"a", "b"} {
				w.delete(w.getClaim(claim))
				w.delete(w.contractObject("IPAddressClaim", "capi-"+claim))
			}
			w.eventually("addresses leaked", func() bool {
				ofPool := func(a unstructured.Unstructured) bool { return strings.HasPrefix(a.GetName(), "p-") }
				return !slices.ContainsFunc(w.list("contract.IPAddress"), ofPool) && !slices.ContainsFunc(w.list("IPAddress"), ofPool)
			})
		})
	}
}

// claimsOfBothKinds have addresses that chance chose, and no operator that runs any more.
func claimsOfBothKinds(t *testing.T) (w *testEnv, before map[string]string) {
	t.Helper()
	w = newTestEnv(t)
	w.installContract()
	stop := w.operator(nil)
	w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{span("10.0.0.1", "10.0.200.254")}
		s.AllocationStrategy = ipamv1.RandomAllocation
	})
	for _, claim := range []string{"a", "b"} {
		w.claim(claim, "p")
		w.addressClaim("capi-"+claim, "p", nil)
	}
	before = w.holdings()
	stop()
	return w, before
}

// holdings waits until every claim has its address, and returns them by claim.
func (w *testEnv) holdings() map[string]string {
	w.t.Helper()
	w.eventually("a claim has no address", func() bool { return len(w.held()) == 4 })
	return w.held()
}

// held are the addresses that claims say they have, by claim. A witness is left out.
func (w *testEnv) held() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	for _, claim := range w.list("IPClaim") {
		if name, ok, _ := unstructured.NestedString(claim.Object, "status", "address", "name"); ok && claim.GetName() != "zzz" {
			out[claim.GetName()] = name
		}
	}
	for _, claim := range w.list("IPAddressClaim") {
		if name, ok, _ := unstructured.NestedString(claim.Object, "status", "addressRef", "name"); ok && claim.GetName() != "zzz" {
			out[claim.GetName()] = name
		}
	}
	return out
}

// TestRawManifestsAreRestored saves pools, claims and addresses with owner references and finalizers, as "kubectl get -o yaml" does, and creates them again. The garbage collector
// deletes addresses whose owners have other UIDs; a claim keeps its address nevertheless.
func TestRawManifestsAreRestored(t *testing.T) {
	for name, restore := range map[string]func(w *testEnv, start, pools, claims, addresses func()){
		"claims before addresses, operator stopped": func(_ *testEnv, start, pools, claims, addresses func()) {
			pools()
			claims()
			addresses()
			start()
		},
		"addresses before claims, operator stopped": func(w *testEnv, start, pools, claims, addresses func()) {
			pools()
			addresses()
			collected(w)
			claims()
			start()
		},
		"addresses before claims, operator running": func(w *testEnv, start, pools, claims, addresses func()) {
			start()
			pools()
			addresses()
			collected(w)
			witness(w, "zzz")
			claims()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, before := claimsOfBothKinds(t)
			addresses := w.raw("IPAddress", "contract.IPAddress")
			claims := w.raw("IPClaim", "IPAddressClaim")
			pools := w.raw("IPPool")
			var stop func()
			start := func() { stop = w.operator(nil) }
			restore(w, start, func() { w.restore(pools) }, func() { w.restore(claims) }, func() { w.restore(addresses) })
			w.eventually("the claims do not have their addresses", func() bool { return maps.Equal(before, w.held()) })
			w.settled()
			for _, claim := range []string{"a", "b"} {
				assert.Equal(t, w.getClaim(claim).UID, w.address(claim).OwnerReferences[1].UID)
				assert.Equal(t, w.getPool("p").UID, w.address(claim).OwnerReferences[0].UID)
			}
			stop()
			givesBackWhatWasRestored(w, before)
		})
	}
}

// givesBackWhatWasRestored requires that a claim that was created again after a restore gets another address, and that deleted claims leave none.
func givesBackWhatWasRestored(w *testEnv, before map[string]string) {
	w.t.Helper()
	w.force(w.getClaim("a"))
	w.claim("a", "p")
	w.operator(nil)
	w.eventually("an ordinary claim takes an address over from one that was deleted", func() bool {
		held := w.held()
		return held["a"] != "" && held["a"] != before["a"]
	})
	for _, claim := range []string{"a", "b"} {
		w.delete(w.getClaim(claim))
		w.delete(w.contractObject("IPAddressClaim", "capi-"+claim))
	}
	ofPool := func(a unstructured.Unstructured) bool { return strings.HasPrefix(a.GetName(), "p-") }
	w.eventually("addresses leaked", func() bool {
		return !slices.ContainsFunc(w.list("contract.IPAddress"), ofPool) && !slices.ContainsFunc(w.list("IPAddress"), ofPool)
	})
}

// collected waits until the garbage collector has deleted all addresses; their finalizers keep them.
func collected(w *testEnv) {
	w.t.Helper()
	w.eventually("the garbage collector does not delete addresses whose owners are gone", func() bool {
		addresses := w.list("IPAddress")
		require.NotEmpty(w.t, addresses)
		return !slices.ContainsFunc(addresses, func(a unstructured.Unstructured) bool { return a.GetDeletionTimestamp() == nil })
	})
}

// raw removes all objects of kinds and returns them as they were.
func (w *testEnv) raw(kinds ...string) []unstructured.Unstructured {
	w.t.Helper()
	var out []unstructured.Unstructured
	for _, kind := range kinds {
		for _, obj := range w.list(kind) {
			saved := obj.DeepCopy()
			saved.SetResourceVersion("") // the API server creates no object with one
			out = append(out, *saved)
		}
	}
	for i := len(out) - 1; i >= 0; i-- {
		w.force(out[i].DeepCopy())
		w.gone(out[i].DeepCopy())
	}
	return out
}

func (w *testEnv) list(kind string) []unstructured.Unstructured {
	w.t.Helper()
	list := &unstructured.UnstructuredList{}
	switch kind {
	case "IPPool", "IPClaim", "IPAddress":
		list.SetGroupVersionKind(ipamv1.GroupVersion.WithKind(kind))
	case "Metal3DataClaim", "Metal3Data":
		list.SetGroupVersionKind(infrav1.GroupVersion.WithKind(kind))
	case "contract.IPAddress":
		list.SetGroupVersionKind(w.contractObject("IPAddress", "any").GroupVersionKind())
	default:
		list.SetGroupVersionKind(w.contractObject(kind, "any").GroupVersionKind())
	}
	require.NoError(w.t, w.user.List(w.t.Context(), list, client.InNamespace(w.namespace)))
	return list.Items
}

// save removes all objects of kinds and returns them as a backup has them.
func (w *testEnv) save(kinds ...string) []unstructured.Unstructured {
	w.t.Helper()
	var out []unstructured.Unstructured
	for _, kind := range kinds {
		for _, obj := range w.list(kind) {
			saved := obj.DeepCopy()
			for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "ownerReferences"} {
				unstructured.RemoveNestedField(saved.Object, "metadata", field)
			}
			unstructured.RemoveNestedField(saved.Object, "status")
			out = append(out, *saved)
			require.NoError(w.t, w.user.Patch(w.t.Context(), &obj, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
			require.NoError(w.t, client.IgnoreNotFound(w.user.Delete(w.t.Context(), &obj)))
			w.gone(&obj)
		}
	}
	return out
}

func (w *testEnv) restore(objects []unstructured.Unstructured) {
	w.t.Helper()
	for i := range objects {
		err := w.user.Create(w.t.Context(), objects[i].DeepCopy())
		if !apierrors.IsAlreadyExists(err) { // the operator may have made the address of the contract from its lock
			require.NoError(w.t, err)
		}
	}
}
