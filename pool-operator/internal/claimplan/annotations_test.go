// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package claimplan

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

func TestAClaimTellsOfAnAnnotationThatIsNoBoolean(t *testing.T) {
	pool := &hivev1.ClusterPool{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "p"}}
	claim := &hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "c", UID: "uid", CreationTimestamp: metav1.NewTime(noon), Annotations: map[string]string{hivev1.AnnotationReconcilePause: "yes"},
	}}
	claim.Spec.ClusterPoolName = "p"
	const note = `; annotation hive.openshift.io/reconcile-pause is "yes", which is no boolean and counts as false; write "true" or "false"`
	message := func(d Decision) string {
		require.NotNil(t, d.Status)
		claim.Status = *d.Status
		return hivev1.FindCondition(d.Status.Conditions, hivev1.ClusterClaimPending).Message
	}
	waiting := message(Plan(noon, Snapshot{Claim: claim, Pool: pool, Claims: []Waiter{WaiterOf(claim)}}))
	require.Equal(t, noClusters+": the pool creates one"+note, waiting)

	claim.Spec.Namespace, claim.Finalizers = "p-bbbbb", []string{hivev1.FinalizerClusterClaim}
	own := Cluster{Namespace: "p-bbbbb", Name: "p-bbbbb", Installed: true, ClaimName: "c", ClaimUID: "uid", ClaimedAt: noon, Metadata: &hivev1.ClusterMetadata{}}
	own.Pool.Namespace, own.Pool.Name = "team", "p"
	require.Equal(t, "Cluster claimed"+note, message(Plan(noon, Snapshot{Claim: claim, Pool: pool, Own: &own})))

	gone := Plan(noon, Snapshot{Claim: claim, Pool: pool, Verified: true})
	require.Equal(t, "Cluster claimed"+note, message(gone), "it is said once")

	claim.Annotations[hivev1.AnnotationReconcilePause] = "False"
	require.Equal(t, "Cluster claimed", message(Plan(noon, Snapshot{Claim: claim, Pool: pool, Own: &own})))
}
