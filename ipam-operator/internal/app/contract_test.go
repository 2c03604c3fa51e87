// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/controlplanetest"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/controller/ipaddressclaim"
)

func (w *contractSite) installContract() {
	w.t.Helper()
	controlplanetest.Start(w.t, controlplanetest.WithAddressClaims())
}

func (w *contractSite) contractObject(kind, name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetGroupVersionKind(schema.GroupVersionKind{Group: ipaddressclaim.Group, Version: "v1beta2", Kind: kind})
	obj.SetNamespace(w.namespace)
	obj.SetName(name)
	return obj
}

// contractPool is the spec of a claim of a pool.
func contractPool(name string) map[string]any {
	return map[string]any{"poolRef": map[string]any{"apiGroup": "ipam.metal3.io", "kind": "IPPool", "name": name}}
}

func (w *contractSite) addressClaim(name, pool string, annotations map[string]string) *unstructured.Unstructured {
	w.t.Helper()
	claim := w.contractObject("IPAddressClaim", name)
	claim.SetAnnotations(annotations)
	claim.Object["spec"] = contractPool(pool)
	require.NoError(w.t, w.user.Create(w.t.Context(), claim))
	return claim
}

func (w *contractSite) contractAddress(claim string) *unstructured.Unstructured {
	w.t.Helper()
	address := &unstructured.Unstructured{}
	w.eventually(claim+" has no address", func() bool {
		got := w.contractObject("IPAddressClaim", claim)
		require.NoError(w.t, w.user.Get(w.t.Context(), client.ObjectKeyFromObject(got), got))
		name, _, _ := unstructured.NestedString(got.Object, "status", "addressRef", "name")
		address = w.contractObject("IPAddress", name)
		return name != "" && w.user.Get(w.t.Context(), client.ObjectKeyFromObject(address), address) == nil
	})
	return address
}

func (w *contractSite) contractReason(claim string) string {
	w.t.Helper()
	got := w.contractObject("IPAddressClaim", claim)
	require.NoError(w.t, w.user.Get(w.t.Context(), client.ObjectKeyFromObject(got), got))
	conditions, _, _ := unstructured.NestedSlice(got.Object, "status", "conditions")
	if len(conditions) == 0 {
		return ""
	}
	return conditions[0].(map[string]any)["reason"].(string)
}

func ipOf(address *unstructured.Unstructured) string {
	ip, _, _ := unstructured.NestedString(address.Object, "spec", "address")
	return ip
}

// TestAForeignAddressOfTheNameIsAvoided has an address of another provider that has the name which a claim's own address would get.
func TestAForeignAddressOfTheNameIsAvoided(t *testing.T) {
	w := newTestEnv(t)
	w.installContract()
	foreign := w.contractObject("IPAddress", "p-10-0-0-10")
	foreign.Object["spec"] = map[string]any{
		"address": "192.0.2.1", "prefix": int64(24), "claimRef": map[string]any{"name": "theirs"},
		"poolRef": map[string]any{"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "theirs"},
	}
	require.NoError(t, w.user.Create(t.Context(), foreign))
	w.operator(nil)
	w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.11")}
		s.AllocationStrategy = ipamv1.SequentialAllocation
	})
	w.addressClaim("a", "p", nil)
	assert.Equal(t, "10.0.0.11", ipOf(w.contractAddress("a")))
	w.addressClaim("b", "p", nil)
	w.eventually("the pool is not exhausted for the second claim", func() bool { return w.contractReason("b") == ipamv1.ReasonPoolExhausted })
	w.delete(foreign)
	assert.Equal(t, "10.0.0.10", ipOf(w.contractAddress("b")))
	w.settled()
}

// TestAClaimThatIsDeletedInTheForegroundGoes has the garbage collector keep the claim until its address is gone, whose finalizer is the operator's. The pool was deleted in the foreground before, and is
// no owner of the address any more.
func TestAClaimThatIsDeletedInTheForegroundGoes(t *testing.T) {
	w := newTestEnv(t)
	w.installContract()
	w.operator(nil)
	w.pool("p", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.11")} })
	claim := w.addressClaim("a", "p", nil)
	address := w.contractAddress("a")
	before := address.DeepCopy()
	address.SetOwnerReferences(address.GetOwnerReferences()[:1])
	require.NoError(t, w.user.Patch(t.Context(), address, client.MergeFrom(before)))
	require.NoError(t, w.user.Delete(t.Context(), claim, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	w.eventually("the claim is still there", func() bool {
		return apierrors.IsNotFound(w.user.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
	})
	w.settled()
}

func TestOneLockSpansBothKindsOfClaims(t *testing.T) {
	w := newTestEnv(t)
	w.installContract()
	w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.11")}
		s.AllocationStrategy = ipamv1.SequentialAllocation
	})
	// Addresses that were made before there was a lock for both kinds are kept.
	old := w.contractObject("IPAddress", "p-10-0-0-10")
	oldClaim := w.addressClaim("old", "p", nil)
	old.Object["spec"] = map[string]any{
		"address": "10.0.0.10", "prefix": int64(24), "claimRef": map[string]any{"name": "old"},
		"poolRef": map[string]any{"apiGroup": "ipam.metal3.io", "kind": "IPPool", "name": "p"},
	}
	require.NoError(t, w.user.Create(t.Context(), old))
	w.operator(nil)

	w.claim("same-name", "p")
	assert.Equal(t, "10.0.0.11", string(w.address("same-name").Spec.Address))
	assert.Equal(t, "10.0.0.10", ipOf(w.contractAddress("old")))
	w.addressClaim("same-name", "p", nil)
	w.eventually("the claim is not refused", func() bool { return w.contractReason("same-name") == ipamv1.ReasonPoolExhausted })
	foreign := w.contractObject("IPAddressClaim", "foreign")
	foreign.Object["spec"] = map[string]any{"poolRef": map[string]any{"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"}}
	require.NoError(t, w.user.Create(t.Context(), foreign))

	w.delete(w.getClaim("same-name"))
	address := w.contractAddress("same-name")
	assert.Equal(t, "10.0.0.11", ipOf(address), "an address given back by a claim of one kind wakes one of the other kind")
	assert.Equal(t, "p-10-0-0-11", address.GetName())
	assert.Equal(t, []string{ipamv1.ContractAddressFinalizer}, address.GetFinalizers())
	owners := address.GetOwnerReferences()
	require.Len(t, owners, 2)
	assert.True(t, *owners[0].Controller && *owners[0].BlockOwnerDeletion && !*owners[1].Controller && *owners[1].BlockOwnerDeletion)
	assert.Equal(t, []string{"IPAddressClaim", "IPPool"}, []string{owners[0].Kind, owners[1].Kind})
	assert.Empty(t, w.contractReason("foreign"))

	w.claim("late", "p")
	w.refused("late", "Exhausted IP Pools")
	w.delete(oldClaim)
	w.gone(oldClaim)
	w.gone(old)
	assert.Equal(t, "10.0.0.10", string(w.address("late").Spec.Address))
	w.settled()
}

// TestAddressesOfAFormerManagerOutliveTheirPool has a claim with an address that was made before there were locks, and a pool that is being deleted, or is gone, when the operator starts.
// The address may have been deleted by hand: its finalizer keeps it.
func TestAddressesOfAFormerManagerOutliveTheirPool(t *testing.T) {
	for name, given := range map[string]struct{ poolIsThere, poolIsDeleted, addressIsDeleted bool }{
		"the pool is being deleted":                         {true, true, false},
		"the pool is being deleted with its addresses":      {true, true, true},
		"the pool is gone":                                  {false, true, false},
		"the pool is gone and the address is being deleted": {false, true, true},
		"the address is being deleted":                      {true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			isThere := given.poolIsThere
			w := newTestEnv(t)
			w.installContract()
			pool := w.pool("p", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.11")} })
			if isThere {
				w.change(pool, func() { pool.Finalizers = []string{ipamv1.IPPoolFinalizer} })
			}
			claim := w.addressClaim("old", "p", nil)
			w.change(claim, func() { claim.SetFinalizers([]string{ipamv1.ContractClaimFinalizer}) })
			address := w.contractObject("IPAddress", "p-10-0-0-10")
			address.SetOwnerReferences([]metav1.OwnerReference{
				{APIVersion: ipamv1.GroupVersion.String(), Kind: "IPPool", Name: "p", UID: pool.UID},
				{APIVersion: claim.GetAPIVersion(), Kind: "IPAddressClaim", Name: "old", UID: claim.GetUID()},
			})
			address.SetFinalizers([]string{ipamv1.ContractAddressFinalizer})
			address.Object["spec"] = map[string]any{
				"address": "10.0.0.10", "prefix": int64(24), "claimRef": map[string]any{"name": "old"},
				"poolRef": map[string]any{"apiGroup": "ipam.metal3.io", "kind": "IPPool", "name": "p"},
			}
			require.NoError(t, w.user.Create(t.Context(), address))
			before := claim.DeepCopy()
			claim.Object["status"] = map[string]any{"addressRef": map[string]any{"name": "p-10-0-0-10"}}
			require.NoError(t, w.user.Status().Patch(t.Context(), claim, client.MergeFrom(before)))
			if given.poolIsDeleted {
				w.delete(pool)
			}
			if given.addressIsDeleted {
				w.delete(address)
			}

			w.operator(nil)
			w.pool("q", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.1.10", "10.0.1.11")} })
			witness := w.addressClaim("witness", "q", nil)
			w.contractAddress("witness")
			lock := &ipamv1.IPAddress{}
			if isThere {
				w.eventually("there is no lock", func() bool { return w.user.Get(t.Context(), client.ObjectKeyFromObject(address), lock) == nil })
				require.True(t, w.get(pool))
			}
			require.True(t, w.get(claim))
			ref, _, _ := unstructured.NestedString(claim.Object, "status", "addressRef", "name")
			assert.Equal(t, "p-10-0-0-10", ref)
			assert.True(t, w.get(address), "the address of a machine is given to others")

			w.delete(claim)
			w.delete(witness)
			w.delete(pool)
			for _, obj := range []client.Object{claim, address, pool} {
				w.gone(obj)
			}
			w.settled()
		})
	}
}

// TestTheContractHasTheRulesOfPools reserves an address for a claim of Cluster API, lets another ask for one, and lets an address cool down.
func TestTheContractHasTheRulesOfPools(t *testing.T) {
	w := newTestEnv(t)
	w.installContract()
	w.operator(nil)
	pool := w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.12")}
		s.PreAllocations = map[string]ipamv1.IPAddressStr{"reserved": "10.0.0.12"}
		s.AddressReuseGracePeriodSeconds = 3600
	})
	asking := map[string]string{ipamv1.RequestedAddressAnnotation: "10.0.0.11"}
	asks := w.addressClaim("asks", "p", asking)
	address := w.contractAddress("asks")
	assert.Equal(t, "10.0.0.11", ipOf(address))
	w.addressClaim("late", "p", asking)
	w.eventually("the claim is not refused", func() bool { return w.contractReason("late") == ipamv1.ReasonAllocationFailed })
	w.addressClaim("reserved", "p", nil)
	assert.Equal(t, "10.0.0.12", ipOf(w.contractAddress("reserved")))

	w.delete(asks)
	w.gone(asks)
	w.gone(address)
	lock := &ipamv1.IPAddress{}
	require.NoError(t, w.user.Get(t.Context(), client.ObjectKeyFromObject(address), lock), "the address is taken until it has cooled down")
	require.NotZero(t, lock.DeletionTimestamp)
	coolsDown(w, pool, lock)
	assert.Equal(t, "10.0.0.11", ipOf(w.contractAddress("late")))
	w.settled()
}

// TestAClaimOfTheContractThatVanishesLeavesNothing takes claims away by force while no operator runs, and makes one of them anew.
func TestAClaimOfTheContractThatVanishesLeavesNothing(t *testing.T) {
	w := newTestEnv(t)
	w.installContract()
	stop := w.operator(nil)
	w.pool("p", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.11")} })
	gone, again := w.addressClaim("gone", "p", nil), w.addressClaim("again", "p", nil)
	address, lock := w.contractAddress("gone"), &ipamv1.IPAddress{}
	require.NoError(t, w.user.Get(t.Context(), client.ObjectKeyFromObject(address), lock))
	w.contractAddress("again")
	stop()
	w.force(gone)
	w.force(again)
	w.addressClaim("again", "p", nil)
	w.operator(nil)
	w.gone(address)
	w.gone(lock)
	w.contractAddress("again")
	w.settled()
}

// TestAddressesWithoutAClaimOfTheContractAreReleased brings addresses without locks: of a claim that is not there, and of one that has another address.
func TestAddressesWithoutAClaimOfTheContractAreReleased(t *testing.T) {
	w := newTestEnv(t)
	w.installContract()
	w.operator(nil)
	pool := w.pool("p", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.20")} })
	w.addressClaim("a", "p", nil)
	had := w.contractAddress("a")
	bring := func(ip, claim string, finalizers ...string) *unstructured.Unstructured {
		address := w.contractObject("IPAddress", "stray-"+ip)
		address.SetFinalizers(finalizers)
		address.Object["spec"] = contractPool("p")
		if claim == "missing" { // the garbage collector leaves the pool; without it, the address would be a restored one
			address.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "ipam.metal3.io/v1alpha1", Kind: "IPPool", Name: "p", UID: pool.UID}})
		}
		require.NoError(t, unstructured.SetNestedField(address.Object, ip, "spec", "address"))
		require.NoError(t, unstructured.SetNestedField(address.Object, claim, "spec", "claimRef", "name"))
		require.NoError(t, w.user.Create(t.Context(), address))
		return address
	}
	byHand := bring("10.0.0.18", "missing")
	w.gone(bring("10.0.0.19", "missing", ipamv1.ContractAddressFinalizer))
	w.gone(bring("10.0.0.20", "a", ipamv1.ContractAddressFinalizer))
	require.NoError(t, w.user.Get(t.Context(), client.ObjectKeyFromObject(byHand), byHand), "an address that a user has made stays")
	assert.Equal(t, had.GetUID(), w.contractAddress("a").GetUID())
	w.delete(byHand)
	w.settled()
}

// TestAClaimOfTheContractGetsItsAddressAgain takes address and lock away by force while no operator runs.
func TestAClaimOfTheContractGetsItsAddressAgain(t *testing.T) {
	w := newTestEnv(t)
	w.installContract()
	stop := w.operator(nil)
	w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.250")}
		s.AllocationStrategy = ipamv1.RandomAllocation
	})
	w.addressClaim("a", "p", nil)
	address := w.contractAddress("a")
	stop()
	w.force(address)
	w.force(&ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: address.GetName()}})
	w.operator(nil)
	again := w.contractAddress("a")
	assert.Equal(t, ipOf(address), ipOf(again))
	assert.NotEqual(t, address.GetUID(), again.GetUID())
	w.settled()
}

func TestAClaimOfTheContractWaitsForItsCluster(t *testing.T) {
	w := newTestEnv(t)
	w.operator(nil)
	w.pool("p", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.20")} })
	w.installContract()
	controlplanetest.Start(t, controlplanetest.WithCRDs(fstest.MapFS{"cluster.yaml": {Data: []byte(clusterCRD)}}))
	claim := w.contractObject("IPAddressClaim", "a")
	claim.Object["spec"] = map[string]any{"clusterName": "c", "poolRef": map[string]any{"apiGroup": "ipam.metal3.io", "kind": "IPPool", "name": "p"}}
	require.NoError(t, w.user.Create(t.Context(), claim))
	w.addressClaim("witness", "p", nil)
	w.contractAddress("witness")
	assert.Empty(t, w.contractReason("a"), "the claim waits while the Cluster is missing")
	cluster := w.cluster("c", true)
	w.addressClaim("witness-2", "p", nil)
	w.contractAddress("witness-2")
	assert.Empty(t, w.contractReason("a"), "the claim waits while the Cluster is paused")
	w.pause(cluster, false)
	w.contractAddress("a")
	require.NoError(t, w.user.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
	assert.Equal(t, []string{ipamv1.ContractClaimFinalizer}, claim.GetFinalizers())
	w.delete(claim)
	w.gone(claim)
	w.settled()
}
