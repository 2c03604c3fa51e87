// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-io/muster/apis/controlplanetest"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
)

// machines makes a MachinePool of the cluster, as its ClusterPool does.
func (s *shell) machines(change ...func(*hivev1.MachinePool)) *hivev1.MachinePool {
	s.Helper()
	pool := &hivev1.MachinePool{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.key.Namespace, Name: s.key.Name + "-worker", Labels: map[string]string{hivev1.LabelClusterPoolName: "dev"}, Finalizers: []string{hivev1.FinalizerMachinePool},
		},
		Spec: hivev1.MachinePoolSpec{
			ClusterDeploymentRef: hivev1.LocalObjectReference{Name: s.key.Name}, Name: "worker", Replicas: new(int64(1)),
			Platform: hivev1.MachinePoolPlatform{AgentBareMetal: &hivev1.AgentBareMetalMachinePool{}},
		},
	}
	for _, one := range change {
		one(pool)
	}
	require.NoError(s, s.client.Create(s.Context(), pool))
	return pool
}

// takesNodes is an installed cluster of a ClusterPool that takes nodes.
func takesNodes(t *testing.T) *shell {
	t.Helper()
	s := newShell(t)
	s.run()
	s.edit(func(c *hivev1.ClusterDeployment) {
		c.Spec.Platform.Hosted.Nodes = &hivev1.HostedNodes{}
		c.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{Namespace: "pools", PoolName: "dev"}
	})
	return s
}

func TestAClusterWaitsForTheMachinesOfItsPool(t *testing.T) {
	s := takesNodes(t)
	pool := s.machines()
	s.run()
	require.Equal(t, hivev1.PowerStateWaitingForNodes, s.cluster().Status.PowerState)
	s.nodesReady(pool)
	s.run()
	assert.Equal(t, hivev1.PowerStateRunning, s.cluster().Status.PowerState)
}

func TestAClusterWaitsForNoOtherMachines(t *testing.T) {
	for name, change := range map[string]func(*hivev1.MachinePool){
		"of a user":                 func(p *hivev1.MachinePool) { p.Labels = nil },
		"of another cluster":        func(p *hivev1.MachinePool) { p.Spec.ClusterDeploymentRef.Name = "other" },
		"of another platform":       func(p *hivev1.MachinePool) { p.Spec.Platform.AgentBareMetal = nil },
		"that are bound at a claim": func(p *hivev1.MachinePool) { p.Spec.Platform.AgentBareMetal.BindAt = hivev1.BindAtClaim },
	} {
		t.Run(name, func(t *testing.T) {
			s := takesNodes(t)
			s.machines(change)
			s.run()
			assert.Equal(t, hivev1.PowerStateRunning, s.cluster().Status.PowerState)
		})
	}
}

func TestAClaimedClusterWaitsForMachinesThatAreBoundAtTheClaim(t *testing.T) {
	s := takesNodes(t)
	s.machines(func(p *hivev1.MachinePool) { p.Spec.Platform.AgentBareMetal.BindAt = hivev1.BindAtClaim })
	s.edit(func(c *hivev1.ClusterDeployment) { c.Spec.ClusterPoolRef.ClaimName = "mine" })
	s.run()
	assert.Equal(t, hivev1.PowerStateWaitingForNodes, s.cluster().Status.PowerState)
}

func TestMachinesGoBeforeTheirCluster(t *testing.T) {
	s := takesNodes(t)
	pool := s.machines()
	require.NoError(t, s.client.Delete(t.Context(), s.cluster()))
	s.run()
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(pool), pool))
	assert.NotNil(t, pool.DeletionTimestamp)
	require.False(t, s.gone(), "its machines are not released")
	pool.Finalizers = nil
	require.NoError(t, s.client.Update(t.Context(), pool))
	s.run()
	assert.True(t, s.gone())
	assert.True(t, apierrors.IsNotFound(s.client.Get(t.Context(), client.ObjectKeyFromObject(pool), pool)))
}

// machinesOfPool makes the cluster one of a ClusterPool that takes nodes.
func machinesOfPool(c *hivev1.ClusterDeployment) {
	c.Spec.Platform.Hosted.Nodes = &hivev1.HostedNodes{}
	c.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{Namespace: "pools", PoolName: "dev"}
}

// TestACrashAtAnyWriteReleasesAllMachines has the operator die at each write of a cluster with two MachinePools, of which one binds machines at the claim. Its objects are those of a real
// API server, and so is its own API.
func TestACrashAtAnyWriteReleasesAllMachines(t *testing.T) {
	admin := newAdmin(t, controlplanetest.Start(t))
	kubeconfig, err := os.ReadFile(controlplanetest.Kubeconfig(t))
	require.NoError(t, err)
	lifeOfMachines(t, func(t *testing.T) *shell {
		t.Helper()
		cluster := createCluster(t, admin, machinesOfPool)
		s := &shell{T: t, writes: &writes{}, key: client.ObjectKeyFromObject(cluster), uid: cluster.UID}
		s.client = interceptor.NewClient(admin, s.writes.intercept())
		s.begin().backend.Kubeconfig = kubeconfig
		return s
	})
}

// lifeOfMachines repeats the life of a cluster with machines until the operator died before and after each of its writes.
func lifeOfMachines(t *testing.T, begin func(*testing.T) *shell) {
	t.Helper()
	undisturbed := begin(t)
	undisturbed.lifeWithMachines()
	total := len(undisturbed.writes.log)
	require.Equal(t, 2, count(undisturbed.writes.log, "delete"), "each MachinePool is deleted once: %v", undisturbed.writes.log)
	for n := 1; n <= total; n++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d of %d, after it: %t", n, total, after), func(t *testing.T) {
				s := begin(t)
				s.writes.failAt, s.writes.after = n, after
				s.lifeWithMachines()
			})
		}
	}
}

func count(log []string, what string) int {
	n := 0
	for _, one := range log {
		if one == what {
			n++
		}
	}
	return n
}

// lifeWithMachines installs the cluster, lets its machines become nodes, claims it, lets those of the claim become nodes, and deletes it.
func (s *shell) lifeWithMachines() {
	s.Helper()
	worker := s.machines()
	gpu := s.machines(func(p *hivev1.MachinePool) {
		p.Name, p.Spec.Name = s.key.Name+"-gpu", "gpu"
		p.Spec.Platform.AgentBareMetal.BindAt = hivev1.BindAtClaim
	})
	s.run()
	require.Equal(s, hivev1.PowerStateWaitingForNodes, s.cluster().Status.PowerState, "machines of creation are missing: %+v", s.cluster().Status.Conditions)
	s.nodesReady(worker)
	s.run()
	require.Equal(s, hivev1.PowerStateRunning, s.cluster().Status.PowerState, "those of the claim are not waited for")
	require.True(s, new(poolview.ClusterOf(s.cluster())).WaitsForClaim, "the status says that it is from before the claim")
	s.edit(func(c *hivev1.ClusterDeployment) { c.Spec.ClusterPoolRef.ClaimName = "mine" })
	s.run()
	require.Equal(s, hivev1.PowerStateWaitingForNodes, s.cluster().Status.PowerState, "machines of the claim are missing")
	s.nodesReady(gpu)
	s.run()
	require.Equal(s, hivev1.PowerStateRunning, s.cluster().Status.PowerState)
	require.False(s, new(poolview.ClusterOf(s.cluster())).WaitsForClaim)

	s.delete()
	for _, pool := range []*hivev1.MachinePool{worker, gpu} {
		s.run()
		require.False(s, s.gone(), "machines are not released")
		require.True(s, s.backend.Has(s.ref()), "their nodes are deleted through its API")
		s.release(pool)
	}
	s.run()
	require.True(s, s.gone())
	require.False(s, s.backend.Has(s.ref()))
}

// nodesReady says that the machines of the MachinePool are Ready nodes, as its controller does.
func (s *shell) nodesReady(pool *hivev1.MachinePool) {
	s.Helper()
	require.NoError(s, s.client.Get(s.Context(), client.ObjectKeyFromObject(pool), pool))
	pool.Status.FirstReadyTime = &metav1.Time{Time: s.clock.now}
	require.NoError(s, s.client.Status().Update(s.Context(), pool))
}

// release lets a MachinePool that is being deleted go, as its controller does when its machines are free.
func (s *shell) release(pool *hivev1.MachinePool) {
	s.Helper()
	require.NoError(s, s.client.Get(s.Context(), client.ObjectKeyFromObject(pool), pool))
	require.NotNil(s, pool.DeletionTimestamp, "MachinePool %s is deleted with its cluster", pool.Name)
	pool.Finalizers = nil
	require.NoError(s, s.client.Update(s.Context(), pool))
}

// An administrator of a cluster may delete anything inside it. Without what joining needs no machine joins any more, and none that is removed loses its Node.
func TestWhatNodesJoinWithIsMadeAgainInsideTheCluster(t *testing.T) {
	admin := newAdmin(t, controlplanetest.Start(t)) // its API server stands for that of the hosted cluster, too
	kubeconfig, err := os.ReadFile(controlplanetest.Kubeconfig(t))
	require.NoError(t, err)
	cluster := createCluster(t, admin, func(c *hivev1.ClusterDeployment) { c.Spec.Platform.Hosted.Nodes = &hivev1.HostedNodes{} })
	s := &shell{T: t, writes: &writes{}, key: client.ObjectKeyFromObject(cluster), uid: cluster.UID}
	s.client = interceptor.NewClient(admin, s.writes.intercept())
	s.begin().backend.Kubeconfig = kubeconfig
	s.run()
	s.writes.log = nil
	s.run()
	require.Empty(t, s.writes.log, "nothing is missing")

	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "muster:node-manager"}}
	require.NoError(t, admin.Delete(t.Context(), binding))
	s.run()
	require.NoError(t, admin.Get(t.Context(), client.ObjectKeyFromObject(binding), binding))
}
