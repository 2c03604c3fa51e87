// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/claimplan"
	"github.com/muster-io/muster/pool-operator/internal/membership"
)

// Any user may write a ClusterDeployment that names a stranger's pool. No claim gets it.
func TestAForgedClusterIsNotHandedOut(t *testing.T) {
	s := newSuite(t)
	s.pool("p")
	forged := s.clusterIn(s.clusterNamespace("p", nil), "p")
	ofAnother := s.clusterIn(s.clusterNamespace("p", membership.Labels(types.NamespacedName{Namespace: s.namespace, Name: "q"})), "p")
	s.start()
	s.claim("a", "p")
	s.waitFor("a", hivev1.ClusterClaimPending, hivev1.ReasonNoClusters)
	real := s.cluster("p")
	inside := s.clusterIn(real.Namespace, "p", func(cd *hivev1.ClusterDeployment) { cd.Name = "second" })
	claim := s.waitFor("a", hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)
	require.Equal(t, real.Namespace, claim.Spec.Namespace)
	s.claim("b", "p")
	s.waitFor("b", hivev1.ClusterClaimPending, hivev1.ReasonNoClusters)
	for _, cd := range []*hivev1.ClusterDeployment{forged, ofAnother, inside} {
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(cd), cd))
		require.Empty(t, cd.Spec.ClusterPoolRef.ClaimName, "no claim is recorded")
	}
	patch := client.MergeFrom(&corev1.Namespace{})
	labelled := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: membership.Labels(types.NamespacedName{Namespace: s.namespace, Name: "p"})}}
	labelled.Name = forged.Namespace
	require.NoError(t, s.client.Patch(t.Context(), labelled, patch))
	claim = s.waitFor("b", hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)
	require.Equal(t, forged.Namespace, claim.Spec.Namespace, "an administrator who labels its namespace gives it to the pool")
}

// A ClusterDeployment that records a claim which does not exist is deleted as that claim's cluster only if it is one of the pool.
func TestAForgedRecordOfAClaimIsLeftAlone(t *testing.T) {
	s := newSuite(t)
	s.pool("p")
	recorded := func(cd *hivev1.ClusterDeployment) {
		cd.Spec.ClusterPoolRef.ClaimName, cd.Spec.ClusterPoolRef.ClaimUID = "gone", "uid-of-gone"
	}
	forged := s.clusterIn(s.clusterNamespace("p", nil), "p", recorded)
	real := s.cluster("p", recorded)
	r := s.start()
	s.missesItsClaim(real, hivev1.ReasonClaimDeleted)
	r.clock.advance(claimplan.OrphanGrace + time.Second)
	for _, cd := range []*hivev1.ClusterDeployment{real, forged} {
		// A real timer would have rung. A pass that came by itself may have deleted it already.
		require.NoError(t, client.IgnoreNotFound(s.client.Patch(t.Context(), cd, mergePatchOf(`{"metadata":{"annotations":{"hive.openshift.io/powerstate-pause":"true"}}}`))))
	}
	require.True(t, s.eventually(func() bool {
		return apierrors.IsNotFound(s.client.Get(t.Context(), client.ObjectKeyFromObject(real), &hivev1.ClusterDeployment{}))
	}), "a cluster of the pool whose claim is gone is given up")
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(forged), forged))
	require.Nil(t, hivev1.FindCondition(forged.Status.Conditions, hivev1.ClusterDeploymentClaimMissing), "no condition is written about it")
	require.True(t, forged.DeletionTimestamp.IsZero())
}
