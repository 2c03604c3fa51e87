// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/claimplan"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

// TestPoolAndClaimsAgree asks both planners the same over random objects: how many claims wait, and whether a claim that comes now is given a cluster. A cluster that a pool counts as on standby or
// ready is what its claims can have.
func TestPoolAndClaimsAgree(t *testing.T) {
	given := 0
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 1))
		pool, cds, claims := randomObjects(random)
		s := snapshot(pool)
		var clusters []claimplan.Cluster
		free := 0
		for _, cd := range cds {
			clusters = append(clusters, claimplan.ClusterOf(cd))
		}
		s.Clusters = clusters
		var waiters []claimplan.Waiter
		for _, c := range claims {
			waiters = append(waiters, claimplan.WaiterOf(c))
		}
		s.Claims = waiters
		status := poolplan.Plan(now, s).Status
		waiting := 0
		for _, c := range claims {
			d := claimplan.Plan(now, claimplan.Snapshot{Claim: c, Pool: pool, Own: ownOf(clusters, c), Clusters: clusters, Claims: waiters})
			if assign, ok := d.Action.(claimplan.AssignCluster); ok && assign.Why != claimplan.WhyRecorded {
				free++
			}
			if d.Status != nil && d.Status.QueuePosition > 0 {
				waiting++
			}
		}
		require.EqualValues(t, status.PendingClaims, waiting, "seed %d: pool and claims count the queue alike", seed)
		available := 0
		for _, c := range clusters {
			one := s
			one.Clusters = []claimplan.Cluster{c}
			one.Pool = pool.DeepCopy()
			one.Pool.Spec.Size, one.Pool.Spec.MaxConcurrent = 1, new(int32(0))
			counts := poolplan.Plan(now, one).Status
			available += int(counts.Standby + counts.Ready)
		}
		require.Equal(t, min(available, waiting), free, "seed %d: a claim is given what the pool counts as installed and free", seed)
		given += free
	}
	require.Greater(t, given, 500, "the objects are such that clusters are given")
}

func ownOf(clusters []claimplan.Cluster, c *hivev1.ClusterClaim) *claimplan.Cluster {
	for i := range clusters {
		if clusters[i].Namespace == c.Spec.Namespace {
			return &clusters[i]
		}
	}
	return nil
}

// randomObjects are a pool, its clusters and its claims, in states in which they were once read differently.
func randomObjects(random *rand.Rand) (*hivev1.ClusterPool, []*hivev1.ClusterDeployment, []*hivev1.ClusterClaim) {
	some := func(n int) bool { return random.IntN(n) == 0 }
	booleans := []string{"true", "True", "1", "t", "false", "yes"}
	annotations := func(keys ...string) map[string]string {
		out := map[string]string{}
		for _, key := range keys {
			if some(6) {
				out[key] = booleans[random.IntN(len(booleans))]
			}
		}
		return out
	}
	pool := testobj.Pool("p", testobj.Size(3), testobj.ResumeTimeout(10*time.Minute), func(p *hivev1.ClusterPool) { p.Spec.InstallTimeout = &metav1.Duration{Duration: 10 * time.Minute} })
	var claims []*hivev1.ClusterClaim
	for i := range random.IntN(5) {
		claim := testobj.Claim(fmt.Sprintf("c%d", i), "p")
		claim.CreationTimestamp = metav1.NewTime(now.Add(-time.Duration(random.IntN(60)) * time.Second))
		claim.Annotations = annotations(hivev1.AnnotationReconcilePause)
		if some(4) {
			claim.Spec.QueueTimeout = &metav1.Duration{Duration: time.Duration(random.IntN(120)) * time.Second}
		}
		if some(6) {
			claim.DeletionTimestamp, claim.Finalizers = new(metav1.NewTime(now)), []string{hivev1.FinalizerClusterClaim}
		}
		claims = append(claims, claim)
	}
	var cds []*hivev1.ClusterDeployment
	for i := range random.IntN(6) {
		cd := randomCluster(random, pool, fmt.Sprintf("p-bbbb%d", i+2))
		cd.Annotations = annotations(hivev1.AnnotationReconcilePause, hivev1.AnnotationProtectedDelete, hivev1.AnnotationRemoveFromPool)
		cd.Annotations[hivev1.AnnotationClusterPoolSpecHash] = poolplan.Version(pool.Spec)
		if len(claims) > 0 && some(3) {
			claim := claims[random.IntN(len(claims))]
			if claim.Spec.Namespace == "" && claim.Annotations[hivev1.AnnotationReconcilePause] == "" {
				bindSomehow(random, claim, cd)
			}
		}
		cds = append(cds, cd)
	}
	return pool, cds, claims
}

// bindSomehow brings claim and cluster together as the operator does, in both halves; or by half, as a user may, without the finalizer.
func bindSomehow(random *rand.Rand, claim *hivev1.ClusterClaim, cd *hivev1.ClusterDeployment) {
	switch random.IntN(3) {
	case 0:
		claim.Spec.Namespace = cd.Namespace
	case 1:
		claim.Spec.Namespace, claim.Finalizers = cd.Namespace, []string{hivev1.FinalizerClusterClaim}
		cd.Spec.ClusterPoolRef.ClaimName, cd.Spec.ClusterPoolRef.ClaimUID = claim.Name, claim.UID
	case 2:
		cd.Spec.ClusterPoolRef.ClaimName, cd.Spec.ClusterPoolRef.ClaimUID = "another", "uid-of-another"
	}
}

func randomCluster(random *rand.Rand, pool *hivev1.ClusterPool, name string) *hivev1.ClusterDeployment {
	ago := func() metav1.Time { return metav1.NewTime(now.Add(-time.Duration(random.IntN(20)) * time.Minute)) }
	cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name, UID: types.UID("uid-of-" + name), CreationTimestamp: ago()}}
	cd.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{Namespace: pool.Namespace, PoolName: pool.Name}
	cd.Spec.Installed = random.IntN(4) > 0
	cd.Spec.PowerState = []hivev1.PowerState{"", hivev1.PowerStateRunning, hivev1.PowerStateHibernating}[random.IntN(3)]
	cd.Status.PowerState = []hivev1.PowerState{"", hivev1.PowerStateRunning, hivev1.PowerStateHibernating, hivev1.PowerStateWaitingForNodes}[random.IntN(4)]
	if random.IntN(2) == 0 {
		cd.Status.Conditions = append(cd.Status.Conditions, hivev1.Condition{
			Type: hivev1.ClusterDeploymentHibernating, Status: corev1.ConditionFalse, Reason: hivev1.ReasonResumingOrRunning, LastTransitionTime: ago(),
		})
	}
	if random.IntN(2) == 0 {
		cd.Status.Conditions = append(cd.Status.Conditions, hivev1.Condition{
			Type: hivev1.ClusterDeploymentReady, Status: []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}[random.IntN(2)], LastTransitionTime: ago(),
		})
	}
	if random.IntN(8) == 0 {
		cd.Status.Conditions = append(cd.Status.Conditions, hivev1.Condition{
			Type: hivev1.ClusterDeploymentProvisionStopped, Status: []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}[random.IntN(2)], LastTransitionTime: ago(),
		})
	}
	if random.IntN(8) == 0 {
		cd.DeletionTimestamp = new(metav1.NewTime(now))
	}
	if random.IntN(8) == 0 {
		cd.Status.Conditions = append(cd.Status.Conditions, hivev1.Condition{
			Type: hivev1.ClusterDeploymentUnreachable, Status: corev1.ConditionTrue, Reason: hivev1.ReasonDataMissing, LastTransitionTime: ago(),
		})
	}
	return cd
}
