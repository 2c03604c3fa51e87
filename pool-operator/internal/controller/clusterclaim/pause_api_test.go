// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

const pausedPatch = `{"metadata":{"annotations":{"hive.openshift.io/reconcile-pause":"true"}}}`

// Admission refuses the pause to a subject; where its policies are not installed, and when an administrator pauses the cluster, the claim still says who has rights.
func TestASubjectWhoPausesTheClusterDoesNotKeepRights(t *testing.T) {
	s := newSuite(t)
	s.pool("p")
	cd := s.cluster("p")
	s.start()
	alice, bob := rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "alice"}, rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "bob"}
	claim := s.claim("c", "p", func(c *hivev1.ClusterClaim) { c.Spec.Subjects = []rbacv1.Subject{alice, bob} })
	s.waitFor("c", hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)
	user := s.as("alice")
	require.True(t, s.eventually(func() bool { return user.Patch(t.Context(), cd.DeepCopy(), mergePatchOf(pausedPatch)) == nil }), "the API server learns of rights in a moment")

	require.NoError(t, s.client.Patch(t.Context(), claim, mergePatchOf(`{"spec":{"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"bob"}]}}`)))
	binding := &rbacv1.RoleBinding{}
	key := client.ObjectKey{Namespace: cd.Namespace, Name: hivev1.ClaimOwnerRoleName}
	require.True(t, s.eventually(func() bool {
		return s.client.Get(t.Context(), key, binding) == nil && slices.Equal(binding.Subjects, []rbacv1.Subject{bob})
	}), "the RoleBinding keeps a subject that left: %v", binding.Subjects)
	require.True(t, s.eventually(func() bool { return !s.may("alice", cd.Namespace, "get", "secrets", "admin-kubeconfig") }))
	require.True(t, s.may("bob", cd.Namespace, "get", "secrets", "admin-kubeconfig"))

	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
	require.NoError(t, s.client.Patch(t.Context(), claim, mergePatchOf(`{"spec":{"subjects":null}}`)))
	s.gone(binding)
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(cd), cd))
	require.Equal(t, "true", cd.Annotations[hivev1.AnnotationReconcilePause], "the cluster itself is left alone")
}

// A claim that is deleted by force takes its subjects' rights with it, also when a subject paused the cluster.
func TestAPausedClusterLosesTheRightsOfAClaimThatIsGone(t *testing.T) {
	s := newSuite(t)
	s.pool("p")
	cd := s.cluster("p")
	s.start()
	claim := s.claim("c", "p")
	s.waitFor("c", hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)
	user := s.as("user-of-c")
	require.True(t, s.eventually(func() bool { return user.Patch(t.Context(), cd.DeepCopy(), mergePatchOf(pausedPatch)) == nil }), "the API server learns of rights in a moment")
	// A claim whose deletion has begun loses its rights before: force means that it goes in one step.
	require.NoError(t, s.client.Patch(t.Context(), claim, mergePatchOf(`{"metadata":{"annotations":{"hive.openshift.io/reconcile-pause":"true"}}}`)))
	require.NoError(t, s.client.Delete(t.Context(), claim))
	require.NoError(t, s.client.Patch(t.Context(), claim, mergePatchOf(`{"metadata":{"finalizers":null}}`)))
	s.gone(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: cd.Namespace, Name: hivev1.ClaimOwnerRoleName}})
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(cd), cd))
	require.True(t, cd.DeletionTimestamp.IsZero())
}
