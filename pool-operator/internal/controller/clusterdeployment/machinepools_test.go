// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
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
	pool.Status.FirstReadyTime = &metav1.Time{Time: s.clock.now}
	require.NoError(t, s.client.Update(t.Context(), pool))
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
