// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/controlplanetest"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// TestEverythingThatHoldsWakes changes each thing that a hold reads alone: what it held up goes on, a claim that waits for an address and an address whose claim
// is gone.
func TestEverythingThatHoldsWakes(t *testing.T) {
	w := newWorld(t)
	controlplanetest.Start(t, controlplanetest.WithCRDs(fstest.MapFS{"cluster.yaml": {Data: []byte(clusterCRD)}}))
	w.operator(nil)
	w.cluster("stopped", true)
	patch := func(obj client.Object, text string) {
		require.NoError(t, w.user.Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(text))))
	}
	paused := map[string]string{ipamv1.PausedAnnotation: ""}
	stopped := map[string]string{ipamv1.ClusterNameLabel: "stopped"}
	for name, test := range map[string]struct {
		pool, held      metav1.ObjectMeta // metadata of the pool, and of the claim or address
		clusterName     string
		cluster         string // a Cluster to make, paused
		goOn            func(pool *ipamv1.IPPool, held client.Object)
		onlyAllocations bool // what holds does not hold releases
		unused          bool // the pool has no address
	}{
		"pool-annotation": {
			pool: metav1.ObjectMeta{Annotations: paused},
			goOn: func(pool *ipamv1.IPPool, _ client.Object) { patch(pool, `{"metadata":{"annotations":null}}`) },
		},
		"pool-label": {
			pool: metav1.ObjectMeta{Labels: stopped},
			goOn: func(pool *ipamv1.IPPool, _ client.Object) { patch(pool, `{"metadata":{"labels":null}}`) },
		},
		"pool-label-move": {
			pool:            metav1.ObjectMeta{Labels: map[string]string{"clusterctl.cluster.x-k8s.io/move": ""}},
			held:            metav1.ObjectMeta{Labels: map[string]string{ipamv1.ClusterNameLabel: "elsewhere"}},
			goOn:            func(pool *ipamv1.IPPool, _ client.Object) { patch(pool, `{"metadata":{"labels":null}}`) },
			onlyAllocations: true,
		},
		"pool-clustername": {
			clusterName: "stopped", onlyAllocations: true, unused: true,
			goOn: func(pool *ipamv1.IPPool, _ client.Object) {
				patch(pool, `{"metadata":{"labels":null},"spec":{"clusterName":null}}`)
			},
		},
		"own-annotation": {
			held: metav1.ObjectMeta{Annotations: paused},
			goOn: func(_ *ipamv1.IPPool, held client.Object) { patch(held, `{"metadata":{"annotations":null}}`) },
		},
		"own-label": {
			held: metav1.ObjectMeta{Labels: stopped},
			goOn: func(_ *ipamv1.IPPool, held client.Object) { patch(held, `{"metadata":{"labels":null}}`) },
		},
		"cluster-of-the-own-label": {
			cluster: "a", held: metav1.ObjectMeta{Labels: map[string]string{ipamv1.ClusterNameLabel: "a"}},
			goOn: func(*ipamv1.IPPool, client.Object) {},
		},
		"cluster-of-the-label-of-the-pool": {
			cluster: "b", pool: metav1.ObjectMeta{Labels: map[string]string{ipamv1.ClusterNameLabel: "b"}},
			goOn: func(*ipamv1.IPPool, client.Object) {},
		},
		"cluster-of-the-pool": {cluster: "d", clusterName: "d", goOn: func(*ipamv1.IPPool, client.Object) {}},
		"cluster-that-appears": {
			clusterName: "late", onlyAllocations: true,
			goOn: func(*ipamv1.IPPool, client.Object) { w.cluster("late", false) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool := &ipamv1.IPPool{ObjectMeta: *test.pool.DeepCopy()}
			pool.Namespace, pool.Name = w.namespace, name
			pool.Spec = ipamv1.IPPoolSpec{NamePrefix: name, Pools: []ipamv1.Pool{span("10.0.0.10", "10.0.0.20")}, Prefix: 24}
			if test.clusterName != "" {
				pool.Spec.ClusterName = new(test.clusterName)
			}
			goOn := test.goOn
			if test.cluster != "" {
				cluster := w.cluster(test.cluster, true)
				goOn = func(*ipamv1.IPPool, client.Object) { w.pause(cluster, false) }
			}
			require.NoError(t, w.user.Create(t.Context(), pool))
			claim := w.newClaim("claim-"+name, name)
			claim.Labels, claim.Annotations = test.held.Labels, test.held.Annotations
			require.NoError(t, w.user.Create(t.Context(), claim))
			orphan := &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "none"}}
			if !test.unused {
				orphan = w.orphan("10.0.0.19", pool, test.held)
			}
			w.witness("witness-" + name)
			require.Nil(t, w.getClaim(claim.Name).Status.Address, "nothing holds the claim")
			if !test.onlyAllocations {
				require.NoError(t, w.user.Get(t.Context(), client.ObjectKeyFromObject(orphan), orphan))
				require.Zero(t, orphan.DeletionTimestamp, "nothing holds the address")
			}
			goOn(pool, claim)
			if test.cluster == "" && len(test.held.Labels)+len(test.held.Annotations) > 0 && !test.onlyAllocations {
				goOn(pool, orphan)
			}
			w.address(claim.Name)
			w.gone(orphan)
		})
	}
}

// orphan makes an IPAddress whose claim is gone.
func (w *world) orphan(ip string, pool *ipamv1.IPPool, meta metav1.ObjectMeta) *ipamv1.IPAddress {
	w.t.Helper()
	address := &ipamv1.IPAddress{ObjectMeta: *meta.DeepCopy()}
	address.Namespace, address.Name = w.namespace, pool.Name+"-"+ip[len("10.0.0."):]+"-gone"
	address.Finalizers = []string{ipamv1.IPAddressFinalizer}
	address.OwnerReferences = []metav1.OwnerReference{{APIVersion: ipamv1.GroupVersion.String(), Kind: ipamv1.IPPoolKind, Name: pool.Name, UID: pool.UID}}
	address.Spec = ipamv1.IPAddressSpec{
		Address: ipamv1.IPAddressStr(ip), Pool: ipamv1.ObjectReference{Name: pool.Name}, Claim: ipamv1.ObjectReference{Name: "gone-" + pool.Name},
	}
	require.NoError(w.t, w.user.Create(w.t.Context(), address))
	return address
}

// witness waits until the operator has seen what was there before it: a claim is served and an address without a claim is given back.
func (w *world) witness(name string) {
	w.t.Helper()
	pool := w.pool(name, func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.20")} })
	w.claim(name, name)
	w.address(name)
	w.gone(w.orphan("10.0.0.18", pool, metav1.ObjectMeta{}))
}
