// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package journeys_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/addresstest"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/e2e/environment"
	"github.com/muster-io/muster/e2e/fleet"
)

// idleRack is a pool whose clusters get machines when they are claimed, and machines that are idle until then.
type idleRack struct {
	*testEnv
	pool     *hivev1.ClusterPool
	machines *fleet.Fleet
	agents   []agentv1.Agent
}

func newIdleRack(t *testing.T, machines int) *idleRack {
	t.Helper()
	if nodes || foreign {
		t.Skip("hosted clusters that run as pods take no nodes")
	}
	needtest.Part(t, addresstest.Reachable() != "", "this machine has no address but loopback: nodes could not reach a cluster on it")
	needLiveImage(t)
	r := &idleRack{testEnv: newTestEnv(t)}
	r.pullSecret()
	env := r.infraEnv("idle", func(s *agentv1.InfraEnvSpec) {
		s.AgentApproval = &agentv1.AgentApproval{AutoApprove: true}
		s.OnRelease = &agentv1.ReleasePolicy{Wipe: agentv1.WipeInstalledDisk}
		s.AllowedClusters = &agentv1.AllowedClusters{Namespaces: &agentv1.ClusterNamespaces{From: agentv1.FromSelector, Selector: &metav1.LabelSelector{
			MatchLabels: map[string]string{hivev1.LabelNamespaceClusterPoolName: "idle", hivev1.LabelNamespaceClusterPoolNamespace: r.namespace},
		}}}
	})
	r.machines = r.boot(r.image(env), "idle", machines, "--resident")
	r.agents = r.untilAgents(env, machines)
	set := &hivev1.ClusterImageSet{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}, Spec: hivev1.ClusterImageSetSpec{ReleaseImage: "muster.local/control-plane:" + environment.SystemVersion}}
	r.create(set)
	r.pool = r.hostedPool("idle", 1, 1)
	r.pool.Spec.ImageSetRef.Name = set.Name
	r.pool.Spec.Platform.Hosted.Nodes = &hivev1.HostedNodes{}
	r.pool.Spec.MachinePools = []hivev1.ClusterPoolMachinePool{{
		Name: "worker", Replicas: int64(machines), Platform: hivev1.MachinePoolPlatform{AgentBareMetal: &hivev1.AgentBareMetalMachinePool{BindAt: hivev1.BindAtClaim}},
	}}
	r.create(r.pool)
	t.Cleanup(func() { // machines of a cluster keep their InfraEnv
		ctx := context.WithoutCancel(r.ctx)
		assert.NoError(t, client.IgnoreNotFound(r.admin.Delete(ctx, r.pool)))
		assert.NoError(t, r.admin.Delete(ctx, set))
		assert.NoError(t, r.admin.DeleteAllOf(ctx, &agentv1.Agent{}, client.InNamespace(r.namespace)))
	})
	return r
}

// machinePools are those of the pool's clusters, by the name of the cluster.
func (r *idleRack) machinePools(c require.TestingT) map[string]hivev1.MachinePool {
	list := &hivev1.MachinePoolList{}
	require.NoError(c, r.admin.List(r.ctx, list, client.MatchingLabels{hivev1.LabelClusterPoolNamespace: r.namespace}))
	found := map[string]hivev1.MachinePool{}
	for _, pool := range list.Items {
		require.NotContains(c, found, pool.Namespace, "a cluster has two MachinePools")
		found[pool.Namespace] = pool
	}
	return found
}

// untilIdle waits until no machine is any cluster's, and each is free.
func (r *idleRack) untilIdle() {
	r.t.Helper()
	require.EventuallyWithT(r.t, func(c *assert.CollectT) {
		for i := range r.agents {
			agent := &r.agents[i]
			r.refresh(c, agent)
			require.Nil(c, agent.Spec.ClusterDeploymentName, agent.Name)
			require.Empty(c, agent.Labels[agentv1.MachinePoolLabel], agent.Name)
			require.Equal(c, "known-unbound", agent.Status.DebugInfo.State, agent.Status.DebugInfo.StateInfo)
		}
	}, patience, interval, "machines are not free")
}

// untilWaitsForClaim waits until the MachinePool of a cluster says that it has no machines before the claim.
func (r *idleRack) untilWaitsForClaim(cluster string) {
	r.t.Helper()
	require.EventuallyWithT(r.t, func(c *assert.CollectT) {
		pools := r.machinePools(c)
		require.Contains(c, pools, cluster)
		requireCondition(c, pools[cluster].Status.Conditions, hivev1.MachinePoolReady, corev1.ConditionTrue, hivev1.ReasonWaitingForClaim)
		require.Zero(c, pools[cluster].Status.Replicas)
	}, patience, interval, "the MachinePool of cluster %s does not wait", cluster)
}

// untilInstalled waits until all machines are installed in a cluster.
func (r *idleRack) untilInstalled(cluster string) {
	r.t.Helper()
	require.EventuallyWithT(r.t, func(c *assert.CollectT) {
		for i := range r.agents {
			agent := &r.agents[i]
			r.refresh(c, agent)
			require.NotNil(c, agent.Spec.ClusterDeploymentName, agent.Name)
			require.Equal(c, cluster, agent.Spec.ClusterDeploymentName.Namespace)
			require.Equal(c, cluster, agent.Labels[agentv1.MachinePoolNamespaceLabel])
			require.Equal(c, "added-to-existing-cluster", agent.Status.DebugInfo.State, agent.Status.DebugInfo.StateInfo)
		}
	}, patience, interval, "the machines are not installed in cluster %s", cluster)
}

// joins makes the Node of an installed machine, as its kubelet does.
func (r *idleRack) joins(agent *agentv1.Agent) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	kubelet, err := r.machines.Join(ctx, agent.Name)
	require.NoError(r.t, err)
	require.Equal(r.t, agent.Spec.Hostname, kubelet.Node)
}

// The clusters of a pool fill without machines, which stay idle for any of them. A claim binds them: it is not Ready before they are nodes. When it is given back they are
// wiped and free, and serve the next claim.
func TestAClaimBindsIdleMachines(t *testing.T) {
	r := newIdleRack(t, 2)
	r.untilFilled(r.pool)
	first := r.clusters(t, r.pool.Name)
	require.Len(t, first, 1)
	r.untilWaitsForClaim(first[0].Name)
	r.untilIdle()

	for _, name := range []string{"one", "two"} {
		claim := r.claim(name, r.pool.Name, user("alice"))
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			r.refresh(c, claim)
			require.NotEmpty(c, claim.Spec.Namespace)
		}, patience, interval, "claim %s gets no cluster", name)
		cluster := claim.Spec.Namespace
		r.untilInstalled(cluster)
		r.refresh(t, claim)
		assert.False(t, hivev1.IsConditionTrue(claim.Status.Conditions, hivev1.ClusterClaimRunning), "no machine is a node yet")
		for i := range r.agents {
			r.joins(&r.agents[i])
		}
		require.Equal(t, cluster, r.untilUsable(claim))
		listed, err := r.enter(r.as("alice"), cluster).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		assert.Len(t, listed.Items, len(r.agents), "the user of the claim sees the nodes")

		r.untilFilled(r.pool)
		pools := r.machinePools(t)
		require.Len(t, pools, 2, "the claimed cluster and the one that took its place")
		assert.Equal(t, int32(len(r.agents)), pools[cluster].Status.Replicas)
		for other := range pools {
			if other != cluster {
				r.untilWaitsForClaim(other)
			}
		}
		require.NoError(t, r.admin.Delete(t.Context(), claim))
		r.untilGone(&hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: cluster}}, patience)
		r.untilIdle()
		assert.NotContains(t, r.machinePools(t), cluster, "no MachinePool is left of a cluster that is gone")
	}
	require.NoError(t, r.admin.Delete(t.Context(), r.pool))
	r.untilGone(r.pool, patience)
	require.EventuallyWithT(t, func(c *assert.CollectT) { require.Empty(c, r.machinePools(c)) }, patience, interval, "MachinePools are left")
}
