// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

func TestFiftyClaimsAtOnceCostThreeWritesEach(t *testing.T) {
	s := newSuite(t)
	const n = 50
	s.pool("p")
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() { s.cluster("p") })
	}
	wg.Wait()
	r := s.start()
	names := claimNames(n)
	started := time.Now()
	for _, name := range names {
		wg.Go(func() { s.claim(name, "p") })
	}
	wg.Wait()
	for _, name := range names {
		claim := s.waitFor(name, hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)
		require.Equal(t, hivev1.ReasonRunning, hivev1.FindCondition(claim.Status.Conditions, hivev1.ClusterClaimRunning).Reason)
	}
	t.Logf("%d claims were served %s after the first was created", n, time.Since(started).Round(time.Millisecond))
	require.Equal(t, n, s.requirePairs())
	counts := r.writes()
	t.Logf("writes: %v", counts)
	writes := counts["PATCH clusterclaims"] + counts["PATCH clusterdeployments"] + counts["PATCH clusterclaims/status"]
	t.Logf("%.2f writes per claim, RBAC apart", float64(writes)/n)
	require.LessOrEqual(t, writes, 3*n+n/10, "lost races aside, a claim costs three writes")
	require.LessOrEqual(t, counts["POST roles"]+counts["POST rolebindings"]+counts["PATCH roles"]+counts["PATCH rolebindings"], 2*n+n/5)
}

func TestTwoReplicasRaceForFewerClustersThanClaims(t *testing.T) {
	s := newSuite(t)
	s.pool("p")
	s.start()
	s.start()
	names := claimNames(30)
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() { s.claim(name, "p") })
		if i%3 != 0 {
			wg.Go(func() { s.cluster("p") })
		}
	}
	wg.Wait()
	require.True(t, s.eventually(func() bool { return s.requirePairs() == 20 }))
	waiting := 0
	for _, name := range names {
		var claim *hivev1.ClusterClaim
		require.True(t, s.eventually(func() bool { // a claim that lost its race names the cluster of another one for a moment
			claim = s.get(name)
			pending := hivev1.FindCondition(claim.Status.Conditions, hivev1.ClusterClaimPending)
			switch {
			case pending == nil:
				return false
			case claim.Spec.Namespace == "":
				return pending.Reason == hivev1.ReasonNoClusters || pending.Reason == hivev1.ReasonAssignmentConflict
			default:
				return pending.Reason == hivev1.ReasonClusterClaimed
			}
		}))
		if claim.Spec.Namespace == "" {
			waiting++
			require.Empty(t, claim.Finalizers, "a waiting claim can be deleted at once")
		}
	}
	require.Equal(t, 10, waiting)
}

func TestClaimsAreServedInTheOrderInWhichTheyCame(t *testing.T) {
	s := newSuite(t)
	s.pool("p")
	s.start()
	names := claimNames(6)
	for _, name := range names {
		s.claim(name, "p")
		s.waitFor(name, hivev1.ClusterClaimPending, hivev1.ReasonNoClusters)
	}
	for i, name := range names {
		s.cluster("p")
		s.waitFor(name, hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)
		for _, later := range names[i+1:] {
			require.Empty(t, s.get(later).Spec.Namespace)
		}
	}
}

func TestAClaimForAPoolThatDoesNotExistIsServedOnceItDoes(t *testing.T) {
	s := newSuite(t)
	s.start()
	s.claim("early", "later")
	claim := s.waitFor("early", hivev1.ClusterClaimPending, hivev1.ReasonPoolNotFound)
	require.Equal(t, hivev1.WaitPoolNotFound, claim.Status.WaitingFor)
	require.Contains(t, hivev1.FindCondition(claim.Status.Conditions, hivev1.ClusterClaimPending).Message, "There is no ClusterPool later")
	s.cluster("later")
	s.pool("later")
	s.waitFor("early", hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)
}

// Hive's controllers write back what they decoded, and their type of a ClusterDeployment has no claimUID.
func TestAClaimUIDThatAnotherClientDropsIsWrittenAgain(t *testing.T) {
	s := newSuite(t)
	s.pool("p")
	s.start()
	s.cluster("p")
	s.claim("c", "p")
	claim := s.waitFor("c", hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)
	cd := &hivev1.ClusterDeployment{}
	key := types.NamespacedName{Namespace: claim.Spec.Namespace, Name: claim.Spec.Namespace}
	require.NoError(t, s.client.Get(t.Context(), key, cd))
	before := cd.Spec.ClusterPoolRef.ClaimedTimestamp
	cd.Spec.ClusterPoolRef.ClaimUID = ""
	require.NoError(t, s.client.Update(t.Context(), cd))
	require.True(t, s.eventually(func() bool {
		require.NoError(t, s.client.Get(t.Context(), key, cd))
		return cd.Spec.ClusterPoolRef.ClaimUID == claim.UID
	}))
	require.True(t, before.Equal(cd.Spec.ClusterPoolRef.ClaimedTimestamp))
	require.Nil(t, hivev1.FindCondition(cd.Status.Conditions, hivev1.ClusterDeploymentClaimMissing))
	require.Equal(t, hivev1.ReasonClusterClaimed, hivev1.FindCondition(s.get("c").Status.Conditions, hivev1.ClusterClaimPending).Reason)
}

func TestAPresetNamespaceIsRefusedAndNeverObeyed(t *testing.T) {
	s := newSuite(t)
	s.pool("p")
	oldest, reachedFor := s.cluster("p"), s.cluster("p")
	if oldest.CreationTimestamp.Equal(&reachedFor.CreationTimestamp) && oldest.Name > reachedFor.Name {
		oldest, reachedFor = reachedFor, oldest
	}
	preset := &hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "x"}}
	preset.Spec = hivev1.ClusterClaimSpec{ClusterPoolName: "p", Namespace: reachedFor.Namespace}
	err := s.client.Create(t.Context(), preset)
	require.True(t, apierrors.IsInvalid(err) || apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, "leave spec.namespace out")

	s.claim("x", "p", func(c *hivev1.ClusterClaim) { c.Spec.Subjects = nil })
	claim := s.get("x")
	claim.Spec.Namespace = reachedFor.Namespace
	require.NoError(t, s.client.Update(t.Context(), claim), "without the operator's admission policy it can be written")
	s.start()
	claim = s.waitFor("x", hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)
	require.Equal(t, oldest.Namespace, claim.Spec.Namespace)
}

func TestRightsAreGrantedRestoredAndTakenAway(t *testing.T) {
	s := newSuite(t)
	s.pool("p")
	mine, other := s.cluster("p"), s.cluster("p")
	for _, cd := range []*hivev1.ClusterDeployment{mine, other} {
		for _, name := range []string{"admin-kubeconfig", "admin-password", "another"} {
			require.NoError(t, s.client.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cd.Namespace, Name: name}}))
		}
	}
	s.start()
	s.claim("c", "p")
	claim := s.waitFor("c", hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)
	if claim.Spec.Namespace == other.Namespace {
		mine, other = other, mine
	}

	user := s.as("user-of-c")
	read := func(namespace, name string) error {
		return user.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, &corev1.Secret{})
	}
	require.True(t, s.eventually(func() bool { return read(mine.Namespace, "admin-kubeconfig") == nil }))
	require.NoError(t, read(mine.Namespace, "admin-password"))
	require.True(t, apierrors.IsForbidden(read(mine.Namespace, "another")))
	require.True(t, apierrors.IsForbidden(read(other.Namespace, "admin-kubeconfig")))
	require.True(t, apierrors.IsForbidden(user.List(t.Context(), &corev1.SecretList{}, client.InNamespace(mine.Namespace))))
	sleep := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"powerState":"Hibernating"}}`))
	require.NoError(t, user.Patch(t.Context(), &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: mine.Namespace, Name: mine.Name}}, sleep))
	require.True(t, apierrors.IsForbidden(user.Patch(t.Context(), &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: other.Namespace, Name: other.Name}}, sleep)))
	s.waitFor("c", hivev1.ClusterClaimRunning, hivev1.ReasonHibernating)

	key := types.NamespacedName{Namespace: mine.Namespace, Name: hivev1.ClaimOwnerRoleName}
	role, binding := &rbacv1.Role{}, &rbacv1.RoleBinding{}
	require.NoError(t, s.client.Get(t.Context(), key, role))
	role.Rules = role.Rules[:1]
	require.NoError(t, s.client.Update(t.Context(), role))
	require.True(t, s.eventually(func() bool { return s.client.Get(t.Context(), key, role) == nil && len(role.Rules) == 3 }), "a changed Role is restored")
	require.NoError(t, s.client.Get(t.Context(), key, binding))
	require.NoError(t, s.client.Delete(t.Context(), binding))
	require.True(t, s.eventually(func() bool { return s.client.Get(t.Context(), key, binding) == nil }), "a deleted RoleBinding is restored")

	others := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"subjects":[{"kind":"User","name":"other-user"},{"kind":"Robot","name":"r2"}]}}`))
	require.NoError(t, s.client.Patch(t.Context(), claim, others))
	require.True(t, s.eventually(func() bool { return apierrors.IsForbidden(read(mine.Namespace, "admin-kubeconfig")) }), "a subject that was removed has no rights")
	require.True(t, s.eventually(func() bool {
		return s.as("other-user").Get(t.Context(), types.NamespacedName{Namespace: mine.Namespace, Name: "admin-kubeconfig"}, &corev1.Secret{}) == nil
	}))
	require.True(t, s.eventually(func() bool {
		return hivev1.FindCondition(s.get("c").Status.Conditions, hivev1.ClusterClaimPending).Message ==
			`Cluster claimed; left out of its rights: subjects[1]: kind "Robot" is none of User, Group and ServiceAccount`
	}))

	require.NoError(t, s.client.Delete(t.Context(), s.get("c")))
	require.True(t, s.eventually(func() bool {
		return apierrors.IsNotFound(s.client.Get(t.Context(), client.ObjectKeyFromObject(mine), mine))
	}))
	require.True(t, s.eventually(func() bool {
		return apierrors.IsNotFound(s.client.Get(t.Context(), key, binding))
	}))
	require.Equal(t, mine.UID, role.OwnerReferences[0].UID, "the Role, which grants no rights without its binding, goes with its cluster")
	require.True(t, s.eventually(func() bool {
		return apierrors.IsNotFound(s.client.Get(t.Context(), types.NamespacedName{Namespace: s.namespace, Name: "c"}, &hivev1.ClusterClaim{}))
	}))
}

// as returns a client of another user.
func (s *suite) as(user string) client.Client {
	cfg := rest.CopyConfig(s.config)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user}
	c, err := client.New(cfg, client.Options{Scheme: newScheme(s.t)})
	require.NoError(s.t, err)
	return c
}

// TestALongQueueCostsNothing lets many claims wait and a few clusters appear: only the head of the queue is looked at, and no position is written again at once.
func TestALongQueueCostsNothing(t *testing.T) {
	s := newSuite(t)
	s.pool("p")
	r := s.start()
	const n, served = 100, 5
	names := claimNames(n)
	var wg sync.WaitGroup
	for _, name := range names {
		wg.Go(func() { s.claim(name, "p", func(c *hivev1.ClusterClaim) { c.Spec.Subjects = nil }) })
	}
	wg.Wait()
	for _, name := range names {
		s.waitFor(name, hivev1.ClusterClaimPending, hivev1.ReasonNoClusters)
	}
	before := r.writes()
	t.Logf("writes until %d claims wait: %v", n, before)
	for range served {
		s.cluster("p")
	}
	require.True(t, s.eventually(func() bool { return s.requirePairs() == served }))
	after := r.writes()
	t.Logf("writes after %d were served: %v", served, after)
	require.LessOrEqual(t, after["PATCH clusterclaims"]-before["PATCH clusterclaims"], served+2)
	require.LessOrEqual(t, after["PATCH clusterdeployments"]-before["PATCH clusterdeployments"], 2*served+2, "the cluster may change while it is taken")
	require.LessOrEqual(t, after["PATCH clusterclaims/status"]-before["PATCH clusterclaims/status"], n/2, "places are refreshed at a bounded rate")
}
