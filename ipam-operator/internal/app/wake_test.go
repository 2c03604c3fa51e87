// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/controlplanetest"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// hold is one thing that holds up what belongs to a pool, and what ends it.
type hold struct {
	pool, held  metav1.ObjectMeta // metadata of the pool, and of the claims and addresses
	clusterName string            // of the pool
	claimsFor   string            // the Cluster that an IPAddressClaim states in its spec
	cluster     *metav1.ObjectMeta
	// goOn ends the hold by a change of the pool, onHeld by one of each of the objects, onCluster by one of the Cluster.
	goOn      func(pool *ipamv1.IPPool)
	onHeld    string
	onCluster func(cluster *unstructured.Unstructured)
	// onlyAllocations says that releases are not held, onlyIPClaims that IPAddressClaims stay held, as their label names a Cluster that is missing.
	onlyAllocations, onlyIPClaims, onlyContract bool
	// unused says that the pool must have no address.
	unused bool
}

// holds are all things that a hold reads, each alone: of pool, claim and address the pause annotation, the mark of a mover, the label of the Cluster and that of a
// mover; of the Cluster that it is there, its spec and its annotations.
func (w *testEnv) holds() map[string]hold {
	paused, marked := map[string]string{ipamv1.PausedAnnotation: ""}, map[string]string{ipamv1.DeleteForMoveAnnotation: ""}
	of := func(cluster string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Labels: map[string]string{ipamv1.ClusterNameLabel: cluster}}
	}
	patch := func(text string) func(*ipamv1.IPPool) { return func(pool *ipamv1.IPPool) { w.merge(pool, text) } }
	goesOn := func(cluster *unstructured.Unstructured) { w.pause(cluster, false) }
	noAnnotations := func(cluster *unstructured.Unstructured) { w.merge(cluster, `{"metadata":{"annotations":null}}`) }
	return map[string]hold{
		"pool-annotation": {pool: metav1.ObjectMeta{Annotations: paused}, goOn: patch(`{"metadata":{"annotations":null}}`)},
		"pool-mark":       {pool: metav1.ObjectMeta{Annotations: marked}, goOn: patch(`{"metadata":{"annotations":null}}`)},
		"pool-label":      {pool: of("stopped"), goOn: patch(`{"metadata":{"labels":null}}`)},
		"pool-label-move": {
			pool: metav1.ObjectMeta{Labels: map[string]string{"clusterctl.cluster.x-k8s.io/move": ""}}, held: of("elsewhere"),
			goOn: patch(`{"metadata":{"labels":null}}`), onlyAllocations: true, onlyIPClaims: true,
		},
		"pool-clustername": {
			clusterName: "stopped", onlyAllocations: true, unused: true, goOn: patch(`{"metadata":{"labels":null},"spec":{"clusterName":null}}`),
		},
		"own-annotation":                   {held: metav1.ObjectMeta{Annotations: paused}, onHeld: `{"metadata":{"annotations":null}}`},
		"own-mark":                         {held: metav1.ObjectMeta{Annotations: marked}, onHeld: `{"metadata":{"annotations":null}}`},
		"own-label":                        {held: of("stopped"), onHeld: `{"metadata":{"labels":null}}`},
		"own-clustername":                  {claimsFor: "stopped", onHeld: `{"spec":{"clusterName":null}}`, onlyContract: true},
		"cluster-of-the-own-label":         {cluster: &metav1.ObjectMeta{}, held: of("cluster-of-the-own-label"), onCluster: goesOn},
		"cluster-of-the-own-spec":          {cluster: &metav1.ObjectMeta{}, claimsFor: "cluster-of-the-own-spec", onCluster: goesOn, onlyContract: true},
		"cluster-of-the-label-of-the-pool": {cluster: &metav1.ObjectMeta{}, pool: of("cluster-of-the-label-of-the-pool"), onCluster: goesOn},
		"cluster-of-the-pool":              {cluster: &metav1.ObjectMeta{}, clusterName: "cluster-of-the-pool", onCluster: goesOn},
		"cluster-annotation":               {cluster: &metav1.ObjectMeta{Annotations: paused}, pool: of("cluster-annotation"), onCluster: noAnnotations},
		"cluster-mark":                     {cluster: &metav1.ObjectMeta{Annotations: marked}, pool: of("cluster-mark"), onCluster: noAnnotations},
		"cluster-that-runs-ends-a-mark": {
			cluster: &metav1.ObjectMeta{}, onCluster: goesOn,
			pool: metav1.ObjectMeta{Annotations: marked, Labels: map[string]string{ipamv1.ClusterNameLabel: "cluster-that-runs-ends-a-mark"}},
		},
		"cluster-that-goes-away": {
			cluster: &metav1.ObjectMeta{}, pool: of("cluster-that-goes-away"), onCluster: func(cluster *unstructured.Unstructured) { w.delete(cluster) },
		},
		"cluster-that-appears": {
			clusterName: "late", onlyAllocations: true, goOn: func(*ipamv1.IPPool) { w.cluster("late", false) },
		},
		"cluster-that-appears-for-a-claim": {
			claimsFor: "later", onlyAllocations: true, onlyContract: true, goOn: func(*ipamv1.IPPool) { w.cluster("later", false) },
		},
	}
}

// TestEverythingThatHoldsWakes changes each thing that a hold reads alone: what it held up goes on, claims of both kinds that wait for an address and addresses of both
// whose claim is gone.
func TestEverythingThatHoldsWakes(t *testing.T) {
	w := newTestEnv(t)
	w.installContract()
	controlplanetest.Start(t, controlplanetest.WithCRDs(fstest.MapFS{"cluster.yaml": {Data: []byte(clusterCRD)}}))
	w.operator(nil)
	w.cluster("stopped", true)
	for name, test := range w.holds() {
		t.Run(name, func(t *testing.T) { w.holdsAndWakes(name, test) })
	}
}

// heldObjects wait for the end of a hold.
type heldObjects struct {
	claim    *ipamv1.IPClaim
	contract *unstructured.Unstructured
	orphans  []client.Object
}

func (h heldObjects) all() (out []client.Object) {
	if h.claim != nil {
		out = append(out, h.claim)
	}
	if h.contract != nil {
		out = append(out, h.contract)
	}
	return append(out, h.orphans...)
}

func (w *testEnv) holdsAndWakes(name string, test hold) {
	w.t.Helper()
	pool := &ipamv1.IPPool{ObjectMeta: *test.pool.DeepCopy()}
	pool.Namespace, pool.Name = w.namespace, name
	pool.Spec = ipamv1.IPPoolSpec{NamePrefix: name, Pools: []ipamv1.Pool{span("10.0.0.10", "10.0.0.20")}, Prefix: 24}
	if test.clusterName != "" {
		pool.Spec.ClusterName = new(test.clusterName)
	}
	var cluster *unstructured.Unstructured
	if test.cluster != nil {
		cluster = w.cluster(name, len(test.cluster.Annotations) == 0, *test.cluster)
	}
	require.NoError(w.t, w.user.Create(w.t.Context(), pool))
	held := w.makeHeld(pool, test)
	witness(w, "witness-"+name)
	w.isHeld(held)

	for _, obj := range held.all() {
		if test.onHeld != "" {
			w.merge(obj, test.onHeld)
		}
	}
	if test.onCluster != nil {
		test.onCluster(cluster)
	}
	if test.goOn != nil {
		test.goOn(pool)
	}
	if held.claim != nil {
		w.address(held.claim.Name)
	}
	if held.contract != nil {
		w.contractAddress(held.contract.GetName())
	}
	for _, orphan := range held.orphans {
		w.gone(orphan)
	}
}

// makeHeld makes what a hold holds.
func (w *testEnv) makeHeld(pool *ipamv1.IPPool, test hold) (held heldObjects) {
	w.t.Helper()
	if !test.onlyContract {
		held.claim = w.newClaim("claim-"+pool.Name, pool.Name)
		held.claim.Labels, held.claim.Annotations = test.held.Labels, test.held.Annotations
		require.NoError(w.t, w.user.Create(w.t.Context(), held.claim))
	}
	if !test.onlyIPClaims {
		held.contract = w.contractObject("IPAddressClaim", "contract-"+pool.Name)
		held.contract.SetLabels(test.held.Labels)
		held.contract.SetAnnotations(test.held.Annotations)
		held.contract.Object["spec"] = contractPool(pool.Name)
		if test.claimsFor != "" {
			require.NoError(w.t, unstructured.SetNestedField(held.contract.Object, test.claimsFor, "spec", "clusterName"))
		}
		require.NoError(w.t, w.user.Create(w.t.Context(), held.contract))
	}
	if !test.unused && !test.onlyContract {
		held.orphans = append(held.orphans, w.orphan("10.0.0.19", pool, test.held, ""), w.orphan("10.0.0.17", pool, test.held, "IPAddressClaim"))
	}
	if test.onlyAllocations { // they go at once, or later
		for _, orphan := range held.orphans {
			w.gone(orphan)
		}
		held.orphans = nil
	}
	return held
}

// isHeld requires that nothing was done for objects.
func (w *testEnv) isHeld(held heldObjects) {
	w.t.Helper()
	if held.claim != nil {
		require.Nil(w.t, w.getClaim(held.claim.Name).Status.Address, "the IPClaim is not held up")
	}
	if held.contract != nil {
		require.NoError(w.t, w.user.Get(w.t.Context(), client.ObjectKeyFromObject(held.contract), held.contract))
		bound, _, _ := unstructured.NestedString(held.contract.Object, "status", "addressRef", "name")
		require.Empty(w.t, bound, "the IPAddressClaim is not held up")
	}
	for _, orphan := range held.orphans {
		require.NoError(w.t, w.user.Get(w.t.Context(), client.ObjectKeyFromObject(orphan), orphan))
		require.Zero(w.t, orphan.GetDeletionTimestamp(), "the address is not held up")
	}
}

// merge applies a merge patch to an object.
func (w *testEnv) merge(obj client.Object, text string) {
	w.t.Helper()
	require.NoError(w.t, w.user.Patch(w.t.Context(), obj.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(text))))
}

// orphan makes an IPAddress whose claim of a kind is gone.
func (w *testEnv) orphan(ip string, pool *ipamv1.IPPool, meta metav1.ObjectMeta, kind string) *ipamv1.IPAddress {
	w.t.Helper()
	address := &ipamv1.IPAddress{ObjectMeta: *meta.DeepCopy()}
	address.Namespace, address.Name = w.namespace, pool.Name+"-"+ip[len("10.0.0."):]+"-gone"
	address.Finalizers = []string{ipamv1.IPAddressFinalizer}
	address.OwnerReferences = []metav1.OwnerReference{{APIVersion: ipamv1.GroupVersion.String(), Kind: ipamv1.IPPoolKind, Name: pool.Name, UID: pool.UID}}
	address.Spec = ipamv1.IPAddressSpec{
		Address: ipamv1.IPAddressStr(ip), Pool: ipamv1.ObjectReference{Name: pool.Name}, Claim: ipamv1.ObjectReference{Kind: kind, Name: "gone-" + pool.Name},
	}
	require.NoError(w.t, w.user.Create(w.t.Context(), address))
	return address
}

// witness waits until the operator has seen what was there before it: a claim is served and an address without a claim is given back.
func witness(w *testEnv, name string) {
	w.t.Helper()
	pool := w.pool(name, func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.20")} })
	w.claim(name, name)
	w.address(name)
	w.addressClaim(name, name, nil)
	w.contractAddress(name)
	w.gone(w.orphan("10.0.0.18", pool, metav1.ObjectMeta{}, ""))
	w.gone(w.orphan("10.0.0.16", pool, metav1.ObjectMeta{}, "IPAddressClaim"))
}
