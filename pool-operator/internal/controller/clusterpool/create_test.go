// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
)

func TestBothCopiesGoIntoOneSecretIfTheyFit(t *testing.T) {
	secrets := func(pull, template []byte) ([]*corev1.Secret, *hivev1.ClusterDeployment) {
		p := &pass{pool: &hivev1.ClusterPool{}, sources: sources{pull: pull, template: template}}
		a := poolplan.CreateCluster{Namespace: "p-abcde", ClusterName: "blue"}
		cd := newClusterDeployment(p.pool, a)
		objects, err := p.secrets(a, cd)
		require.NoError(t, err)
		var out []*corev1.Secret
		for _, object := range objects {
			out = append(out, object.(*corev1.Secret))
		}
		return out, cd
	}
	template := []byte("apiVersion: v1")

	both, cd := secrets([]byte("{}"), template)
	require.Len(t, both, 1)
	require.Equal(t, both[0].Name, cd.Spec.PullSecretRef.Name)
	require.Equal(t, both[0].Name, cd.Spec.Provisioning.InstallConfigSecretRef.Name)
	require.Contains(t, both[0].Data, corev1.DockerConfigJsonKey)
	require.Contains(t, string(both[0].Data[hivev1.SecretKeyInstallConfig]), "name: blue")

	large, cd := secrets(bytes.Repeat([]byte(" "), corev1.MaxSecretSize-10), template)
	require.Len(t, large, 2)
	require.Equal(t, large[0].Name, cd.Spec.PullSecretRef.Name)
	require.Equal(t, large[1].Name, cd.Spec.Provisioning.InstallConfigSecretRef.Name)
	require.Equal(t, corev1.SecretTypeOpaque, large[1].Type)

	one, cd := secrets(nil, template)
	require.Len(t, one, 1)
	require.Nil(t, cd.Spec.PullSecretRef)
	none, cd := secrets(nil, nil)
	require.Empty(t, none)
	require.Nil(t, cd.Spec.Provisioning.InstallConfigSecretRef)
}

func TestAClusterHasTheMachinePoolsOfItsPool(t *testing.T) {
	pool := &hivev1.ClusterPool{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "dev"}}
	agents := &hivev1.AgentBareMetalMachinePool{AgentSelector: metav1.LabelSelector{MatchLabels: map[string]string{"rack": "a"}}}
	elsewhere := &hivev1.AgentBareMetalMachinePool{AgentNamespace: "other", BindAt: hivev1.BindAtClaim}
	taints := []corev1.Taint{{Key: "tier", Value: "web", Effect: corev1.TaintEffectNoSchedule}}
	pool.Spec.MachinePools = []hivev1.ClusterPoolMachinePool{
		{Name: "worker", Replicas: 2, MaxReplicas: new(int64(4)), Labels: map[string]string{"tier": "web"}, Taints: taints, Platform: hivev1.MachinePoolPlatform{AgentBareMetal: agents}},
		{Name: "gpu", Replicas: 1, Platform: hivev1.MachinePoolPlatform{AgentBareMetal: elsewhere}},
	}
	objects, err := (&pass{pool: pool}).contents(poolplan.CreateCluster{Namespace: "dev-abcde", ClusterName: "dev-abcde"})
	require.NoError(t, err)
	require.Len(t, objects, 3)
	require.IsType(t, &hivev1.ClusterDeployment{}, objects[2], "it comes last")
	worker, gpu := objects[0].(*hivev1.MachinePool), objects[1].(*hivev1.MachinePool)
	require.Equal(t, "dev-abcde-worker", worker.Name)
	require.Equal(t, "dev-abcde", worker.Spec.ClusterDeploymentRef.Name)
	require.Equal(t, int64(2), *worker.Spec.Replicas)
	require.Equal(t, int64(4), *worker.Spec.MaxReplicas)
	require.Nil(t, gpu.Spec.MaxReplicas)
	require.Equal(t, "metal", worker.Spec.Platform.AgentBareMetal.AgentNamespace, "machines are in the namespace of the pool")
	require.Empty(t, agents.AgentNamespace, "the pool stays as it is")
	require.Equal(t, taints, worker.Spec.Taints)
	require.Equal(t, elsewhere, gpu.Spec.Platform.AgentBareMetal)
	pool.Spec.SkipMachinePools = true
	objects, err = (&pass{pool: pool}).contents(poolplan.CreateCluster{Namespace: "dev-abcde", ClusterName: "dev-abcde"})
	require.NoError(t, err)
	require.Len(t, objects, 1)
}

func TestAPoolThatChangesAllTheTimeReportsItsCountsLessOften(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	p := &poolMemory{}
	intervals := []int{}
	for range 6 {
		p.reported(noon)
		p.written = noon
		intervals = append(intervals, int(p.countsInterval(1)))
	}
	require.Equal(t, []int{1, 2, 4, 8, 8, 8}, intervals)
	p.reported(noon.Add(quietPool + 1))
	require.Equal(t, 1, int(p.countsInterval(1)), "after a pause it reports at once again")
}

func TestClaimsThatCameBeforeARestartAreNotForgotten(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	claims := []poolplan.Claim{{UID: "a", Created: noon.Add(-time.Minute)}, {UID: "b", Created: noon.Add(-2 * time.Hour)}}
	p := newMemory().of(types.NamespacedName{Name: "p"}, "uid")
	for range 2 {
		p.recallArrivals(claims, &hivev1.RunningCountRecommendation{ClaimsPerHour: 13}, noon)
	}
	require.Equal(t, 13, p.countArrivals(claims, noon), "twelve that are gone, and one that is there")
	require.Equal(t, 8, p.countArrivals(claims, noon.Add(30*time.Minute)), "they leave the window one after the other")
	require.Zero(t, p.countArrivals(claims, noon.Add(2*time.Hour)))

	fresh := newMemory().of(types.NamespacedName{Name: "p"}, "uid")
	fresh.recallArrivals(claims, nil, noon)
	require.Equal(t, 1, fresh.countArrivals(claims, noon))
}
