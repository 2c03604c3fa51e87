// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/controlplanetest"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// clusterCRD is as much of the kind Cluster as this operator looks at.
const clusterCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: clusters.cluster.x-k8s.io
spec:
  group: cluster.x-k8s.io
  names: {kind: Cluster, listKind: ClusterList, plural: clusters, singular: cluster}
  scope: Namespaced
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

func (w *testEnv) cluster(name string, paused bool, metadata ...metav1.ObjectMeta) *unstructured.Unstructured {
	w.t.Helper()
	cluster := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"paused": paused}}}
	for _, m := range metadata {
		cluster.SetAnnotations(m.Annotations)
	}
	cluster.SetGroupVersionKind(schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta1", Kind: "Cluster"})
	cluster.SetNamespace(w.namespace)
	cluster.SetName(name)
	require.NoError(w.t, w.user.Create(w.t.Context(), cluster))
	return cluster
}

func (w *testEnv) pause(cluster *unstructured.Unstructured, paused bool) {
	w.t.Helper()
	before := cluster.DeepCopy()
	require.NoError(w.t, unstructured.SetNestedField(cluster.Object, paused, "spec", "paused"))
	require.NoError(w.t, w.user.Patch(w.t.Context(), cluster, client.MergeFrom(before)))
}

// TestClusters goes through the life of a Cluster: Cluster API is installed while the operator runs, the Cluster appears
// paused, goes on, is paused again.
func TestClusters(t *testing.T) {
	w := newTestEnv(t)
	w.operator(nil)
	w.pool("free", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.20")} })
	w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.20")}
		s.ClusterName = new("c")
	})
	w.claim("alone", "free")
	w.address("alone")
	first := w.claim("a", "p")
	w.eventually("the claim is not told that its Cluster is missing", func() bool {
		got := w.getClaim("a")
		return len(got.Status.Conditions) == 1 && got.Status.Conditions[0].Reason == ipamv1.ReasonClusterNotFound
	})

	controlplanetest.Start(t, controlplanetest.WithCRDs(fstest.MapFS{"cluster.yaml": {Data: []byte(clusterCRD)}}))
	cluster := w.cluster("c", true)
	w.eventually("the pool does not belong to the Cluster", func() bool {
		pool := w.getPool("p")
		return len(pool.OwnerReferences) == 1 && pool.OwnerReferences[0].UID == cluster.GetUID() &&
			pool.Labels["cluster.x-k8s.io/cluster-name"] == "c" && pool.Labels["cluster.x-k8s.io/provider"] == "ipam-metal3"
	})
	assert.Nil(t, w.getClaim("a").Status.Address, "a paused Cluster gets nothing")
	w.pause(cluster, false)
	address := w.address("a")

	w.eventually("the claim has no finalizer", func() bool { return len(w.getClaim("a").Finalizers) == 1 })
	w.pause(cluster, true)
	labelled := w.follower("c")
	w.delete(first)
	w.claim("witness", "free")
	w.address("witness")
	assert.Nil(t, w.getClaim(labelled).Status.Address)
	require.NoError(t, w.user.Get(t.Context(), client.ObjectKeyFromObject(address), address))
	assert.Zero(t, address.DeletionTimestamp, "no address is released while the Cluster is paused")
	w.pause(cluster, false)
	w.gone(first)
	w.gone(address)
	w.address(labelled)
	w.settled()
}

// follower makes a claim that follows a paused Cluster by its label. The watch of Clusters may be behind that of claims: those that come before the pause is
// seen get their address, and another one is made.
func (w *testEnv) follower(cluster string) string {
	w.t.Helper()
	for i := 0; ; i++ {
		claim := w.newClaim(fmt.Sprintf("follower-%d", i), "free")
		claim.Labels[ipamv1.ClusterNameLabel] = cluster
		require.NoError(w.t, w.user.Create(w.t.Context(), claim))
		for _, name := range []string{"first", "second"} {
			name = fmt.Sprintf("%s-beside-%d", name, i)
			w.claim(name, "free")
			w.address(name)
			w.delete(w.getClaim(name))
		}
		if w.getClaim(claim.Name).Status.Address == nil {
			return claim.Name
		}
	}
}

func TestAPausedPoolOrClaimGetsNothing(t *testing.T) {
	w := newTestEnv(t)
	w.operator(nil)
	w.pool("p", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.20")} })
	claim := w.newClaim("paused", "p")
	claim.Annotations = map[string]string{ipamv1.PausedAnnotation: ""}
	require.NoError(t, w.user.Create(t.Context(), claim))
	w.claim("witness", "p")
	w.address("witness")
	assert.Nil(t, w.getClaim("paused").Status.Address)
	before := w.getClaim("paused")
	after := before.DeepCopy()
	after.Annotations = nil
	require.NoError(t, w.user.Patch(t.Context(), after, client.MergeFrom(before)))
	w.address("paused")

	pool := w.getPool("p")
	stopped := pool.DeepCopy()
	stopped.Annotations = map[string]string{ipamv1.PausedAnnotation: "true"}
	require.NoError(t, w.user.Patch(t.Context(), stopped, client.MergeFrom(pool)))
	other := w.pool("other", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.1.0.10", "10.1.0.20")} })
	w.eventually("the other pool is not seen", func() bool { return len(w.getPool(other.Name).Finalizers) == 1 })
	w.claim("later", "p")
	w.claim("second-witness", "other")
	w.address("second-witness")
	assert.Nil(t, w.getClaim("later").Status.Address)
	going := stopped.DeepCopy()
	going.Annotations = nil
	require.NoError(t, w.user.Patch(t.Context(), going, client.MergeFrom(stopped)))
	w.address("later")
}
