// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/apis/controlplanetest"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// Pools of other providers are asked by IPAddressClaims of Cluster API's contract.
func TestANodeHasTheAddressOfAPoolOfAnotherProvider(t *testing.T) {
	controlplanetest.Start(t, controlplanetest.WithAddressClaims())
	c := newCluster(t, withSystem(t))
	m, agent := c.waits(func(s *agentv1.InfraEnvSpec) {
		s.NodeAddresses = []agentv1.NodeAddressPool{{APIGroup: "ipam.cluster.x-k8s.io", Kind: "InClusterIPPool", Name: "theirs"}}
	})
	kind := schema.GroupVersionKind{Group: "ipam.cluster.x-k8s.io", Version: "v1beta2", Kind: "IPAddressClaim"}
	var claim *unstructured.Unstructured
	require.Eventually(t, func() bool {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		require.NoError(t, c.user.List(t.Context(), list, client.InNamespace(c.namespace)))
		if len(list.Items) == 1 {
			claim = &list.Items[0]
		}
		return claim != nil
	}, kubePatience, 50*time.Millisecond, "there is no claim")
	pool := map[string]any{"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "theirs"}
	named, _, err := unstructured.NestedMap(claim.Object, "spec", "poolRef")
	require.NoError(t, err)
	assert.Equal(t, pool, named)
	assert.True(t, metav1.IsControlledBy(claim, agent))
	claim.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "False", "reason": "PoolExhausted", "message": "no address is free"}}}
	require.NoError(t, c.user.Status().Update(t.Context(), claim))
	c.missing(agent, "InClusterIPPool theirs: no address is free")

	address := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"address": "10.99.2.1", "prefix": int64(8), "gateway": "10.0.0.1", "poolRef": pool, "claimRef": map[string]any{"name": claim.GetName()},
	}}}
	address.SetGroupVersionKind(kind.GroupVersion().WithKind("IPAddress"))
	address.SetNamespace(c.namespace)
	address.SetName("theirs-1")
	c.create(address)
	require.NoError(t, c.user.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
	claim.Object["status"] = map[string]any{"addressRef": map[string]any{"name": "theirs-1"}}
	require.NoError(t, c.user.Status().Update(t.Context(), claim))
	c.until(agent, "the machine is installed", func() bool { return agent.Status.DebugInfo.State == "added-to-existing-cluster" })
	assert.Equal(t, "10.99.2.1", m.installed.join(t).NodeIPs[0].String())
}

// Each second write is done and its answer is lost: no machine has two claims, and none is left behind.
func TestLostAnswersMakeNoSecondClaim(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t))
	bootstrappers(c)
	m := c.boot(c.infraEnv("rack", fromPool("rack-a")), 1, 0)
	agent := c.agent(m)
	deployment, _ := c.takesNodes()
	c.lossy.Store(true)
	c.bound(agent, deployment)
	claim := c.ipClaim(agent)
	c.missing(agent, "it waits for its addresses of IPPool rack-a")
	var claims ipamv1.IPClaimList
	require.NoError(t, c.user.List(t.Context(), &claims, client.InNamespace(c.namespace)))
	assert.Len(t, claims.Items, 1)
	change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = nil })
	c.gone(claim)
	c.until(agent, "it is free", func() bool { return agent.Status.DebugInfo.State == "known-unbound" })
	c.lossy.Store(false)
	require.NoError(t, c.user.List(t.Context(), &claims, client.InNamespace(c.namespace)))
	assert.Empty(t, claims.Items)
}
