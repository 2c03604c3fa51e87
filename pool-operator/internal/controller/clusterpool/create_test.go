// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
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
