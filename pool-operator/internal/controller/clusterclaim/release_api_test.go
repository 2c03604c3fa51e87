// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/claimplan"
)

// gone waits until the object does not exist any more.
func (s *suite) gone(obj client.Object) {
	s.t.Helper()
	require.True(s.t, s.eventually(func() bool {
		return apierrors.IsNotFound(s.client.Get(s.t.Context(), client.ObjectKeyFromObject(obj), obj))
	}), "%T %s stays", obj, obj.GetName())
}

func TestAReleasedClusterIsDeletedWithTwoWrites(t *testing.T) {
	s := newSuite(t)
	s.pool("p")
	cd := s.cluster("p")
	r := s.start()
	claim := s.claim("c", "p", func(c *hivev1.ClusterClaim) { c.Spec.Subjects = nil })
	s.waitFor("c", hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)
	require.NoError(t, s.client.Delete(t.Context(), claim))
	s.gone(claim)
	s.gone(cd)
	counts := r.writes()
	t.Logf("writes of a life without subjects: %v", counts)
	require.Equal(t, 1, counts["DELETE clusterdeployments"])
	require.Equal(t, 2, counts["PATCH clusterclaims"], "assigned, released")
}

func TestAPoolWithABudgetDeletesWhatIsReleased(t *testing.T) {
	s := newSuite(t)
	s.pool("p", func(p *hivev1.ClusterPool) { p.Spec.MaxConcurrent = new(int32(1)) })
	cd := s.cluster("p")
	s.start()
	claim := s.claim("c", "p")
	s.waitFor("c", hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)
	require.NoError(t, s.client.Delete(t.Context(), claim))
	s.waitFor("c", hivev1.ClusterClaimRunning, hivev1.ReasonClusterDeleting)
	require.True(t, s.eventually(func() bool {
		return s.client.Get(t.Context(), client.ObjectKeyFromObject(cd), cd) == nil && cd.Annotations[hivev1.AnnotationRemoveFromPool] == "true"
	}))
	require.True(t, cd.DeletionTimestamp.IsZero(), "the pool deletes it")
	s.gone(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: cd.Namespace, Name: hivev1.ClaimOwnerRoleName}})
	require.NoError(t, s.client.Delete(t.Context(), cd))
	s.gone(claim)
}

func TestAProtectedClusterKeepsItsClaim(t *testing.T) {
	s := newSuite(t)
	s.pool("p")
	cd := s.cluster("p", func(cd *hivev1.ClusterDeployment) {
		cd.Annotations = map[string]string{hivev1.AnnotationProtectedDelete: "true"}
	})
	s.start()
	claim := s.claim("c", "p")
	s.waitFor("c", hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)
	require.NoError(t, s.client.Delete(t.Context(), claim))
	claim = s.waitFor("c", hivev1.ClusterClaimRunning, hivev1.ReasonClusterDeleting)
	require.Contains(t, hivev1.FindCondition(claim.Status.Conditions, hivev1.ClusterClaimRunning).Message, "protected")
	require.NoError(t, s.client.Patch(t.Context(), cd, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":null}}`))))
	s.gone(cd)
	s.gone(claim)
}

func TestADeletedClusterIsReportedAndTheClaimGetsNoOther(t *testing.T) {
	s := newSuite(t)
	s.pool("p")
	s.cluster("p")
	s.start()
	s.claim("c", "p")
	claim := s.waitFor("c", hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)
	s.cluster("p")
	require.NoError(t, s.client.Delete(t.Context(), &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Spec.Namespace, Name: claim.Spec.Namespace}}))
	after := s.waitFor("c", hivev1.ClusterClaimRunning, hivev1.ReasonClusterDeleted)
	require.Equal(t, claim.Spec.Namespace, after.Spec.Namespace)
	require.Zero(t, s.requirePairs())
	require.NoError(t, s.client.Delete(t.Context(), after))
	s.gone(after)
}

func TestAClusterWhoseClaimIsGoneIsReleased(t *testing.T) {
	s := newSuite(t)
	s.pool("p")
	orphan := s.cluster("p")
	recreated := s.cluster("p")
	for cd, name := range map[*hivev1.ClusterDeployment]string{orphan: "never-was", recreated: "again"} {
		patch := fmt.Appendf(nil, `{"spec":{"clusterPoolRef":{"claimName":%q,"claimUID":"gone"}}}`, name)
		require.NoError(t, s.client.Patch(t.Context(), cd, client.RawPatch(types.MergePatchType, patch)))
	}
	s.claim("again", "p")
	r := s.start()
	s.waitFor("again", hivev1.ClusterClaimPending, hivev1.ReasonNoClusters)
	for _, cd := range []*hivev1.ClusterDeployment{orphan, recreated} {
		s.missesItsClaim(cd, hivev1.ReasonClaimDeleted)
	}
	r.clock.advance(claimplan.OrphanGrace + time.Second)
	for _, cd := range []*hivev1.ClusterDeployment{orphan, recreated} {
		// A real timer would have fired. The deletion of the other one may have woken the operator before.
		wake := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, hivev1.AnnotationPowerStatePause)
		require.NoError(t, client.IgnoreNotFound(s.client.Patch(t.Context(), cd, client.RawPatch(types.MergePatchType, wake))))
		s.gone(cd)
	}
}

// The UID that a cluster recorded of a claim that is gone may be lost: Hive's controllers drop it. A claim of the same name that does not name the cluster is another one.
func TestAClusterOfAClaimThatIsGoneIsReleasedAlsoWithoutItsUID(t *testing.T) {
	s := newSuite(t)
	s.pool("p")
	cd := s.cluster("p")
	require.NoError(t, s.client.Patch(t.Context(), cd, mergePatchOf(`{"spec":{"clusterPoolRef":{"claimName":"again"}}}`)))
	s.claim("again", "p")
	r := s.start()
	s.waitFor("again", hivev1.ClusterClaimPending, hivev1.ReasonNoClusters)
	s.missesItsClaim(cd, hivev1.ReasonClaimDeleted)
	r.clock.advance(claimplan.OrphanGrace + time.Second)
	s.annotate(cd, hivev1.AnnotationPowerStatePause, "true") // a real timer would have fired
	s.gone(cd)
}

// missesItsClaim waits until the cluster says that its claim does not exist; an empty reason waits until it says so no more.
func (s *suite) missesItsClaim(cd *hivev1.ClusterDeployment, reason string) {
	s.t.Helper()
	require.True(s.t, s.eventually(func() bool {
		require.NoError(s.t, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(cd), cd))
		c := hivev1.FindCondition(cd.Status.Conditions, hivev1.ClusterDeploymentClaimMissing)
		return c == nil && reason == "" || c != nil && c.Reason == reason
	}), "the cluster does not say %q", reason)
}

func (s *suite) annotate(o client.Object, key, value string) {
	s.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value)
	require.NoError(s.t, s.client.Patch(s.t.Context(), o, client.RawPatch(types.MergePatchType, patch)))
}

func TestAClaimThatIsDeletedByForceDoesNotTakeItsClusterAtOnce(t *testing.T) {
	s := newSuite(t)
	s.pool("p")
	cd := s.cluster("p")
	s.start()
	s.claim("c", "p")
	claim := s.waitFor("c", hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)
	s.annotate(cd, hivev1.AnnotationReconcilePause, "True") // so that the claim cannot be released as it should be
	require.NoError(t, s.client.Delete(t.Context(), claim))
	require.True(t, s.eventually(func() bool {
		_ = s.client.Patch(t.Context(), claim, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		return apierrors.IsNotFound(s.client.Get(t.Context(), client.ObjectKeyFromObject(claim), &hivev1.ClusterClaim{}))
	}))
	s.annotate(cd, hivev1.AnnotationReconcilePause, "false")
	s.missesItsClaim(cd, hivev1.ReasonClaimDeleted)
	require.True(t, cd.DeletionTimestamp.IsZero())
}

// TestARestoredClusterWaitsForItsClaim restores the cluster first, and its claim later.
func TestARestoredClusterWaitsForItsClaim(t *testing.T) {
	s := newSuite(t)
	s.pool("p")
	cd := s.cluster("p", func(cd *hivev1.ClusterDeployment) {
		cd.Labels = map[string]string{hivev1.LabelDisableCreationCheck: "true"}
		cd.Spec.ClusterPoolRef.ClaimName, cd.Spec.ClusterPoolRef.ClaimedTimestamp = "c", new(metav1.Now())
		cd.Spec.PowerState = hivev1.PowerStateRunning
	})
	r := s.start()
	s.missesItsClaim(cd, hivev1.ReasonClaimNotRestored)
	r.clock.advance(1000 * time.Hour)
	s.annotate(cd, hivev1.AnnotationPowerStatePause, "true")
	claim := s.claim("c", "p")
	restored := fmt.Appendf(nil, `{"metadata":{"finalizers":[%q]},"spec":{"namespace":%q}}`, hivev1.FinalizerClusterClaim, cd.Namespace)
	require.NoError(t, s.client.Patch(t.Context(), claim, client.RawPatch(types.MergePatchType, restored)))
	s.waitFor("c", hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)
	s.missesItsClaim(cd, "")
	require.Equal(t, 1, s.requirePairs())
}

// TestARestoredPairStaysTogether does what docs/spec/clusterclaim.md says about backups.
func TestARestoredPairStaysTogether(t *testing.T) {
	s := newSuite(t)
	s.pool("p")
	other := s.cluster("p")
	cd := s.cluster("p", func(cd *hivev1.ClusterDeployment) {
		cd.Labels = map[string]string{hivev1.LabelDisableCreationCheck: "true"}
		cd.Spec.ClusterPoolRef.ClaimName, cd.Spec.ClusterPoolRef.ClaimedTimestamp = "c", new(metav1.Now())
		cd.Spec.PowerState = hivev1.PowerStateRunning
	})
	claim := s.claim("c", "p")
	restored := fmt.Appendf(nil, `{"metadata":{"finalizers":[%q]},"spec":{"namespace":%q}}`, hivev1.FinalizerClusterClaim, cd.Namespace)
	require.NoError(t, s.client.Patch(t.Context(), claim, client.RawPatch(types.MergePatchType, restored)))
	s.start()
	claim = s.waitFor("c", hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)
	require.Equal(t, cd.Namespace, claim.Spec.Namespace)
	require.True(t, s.eventually(func() bool {
		return s.client.Get(t.Context(), client.ObjectKeyFromObject(cd), cd) == nil && cd.Spec.ClusterPoolRef.ClaimUID == claim.UID
	}))
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(other), other))
	require.Empty(t, other.Spec.ClusterPoolRef.ClaimName)
	require.Equal(t, 1, s.requirePairs())
}

func TestALifetimeEndsWithTheClaim(t *testing.T) {
	s := newSuite(t)
	s.pool("p", func(p *hivev1.ClusterPool) {
		p.Spec.ClaimLifetime = &hivev1.ClusterPoolClaimLifetime{Default: &metav1.Duration{Duration: 2 * time.Hour}, Maximum: &metav1.Duration{Duration: 3 * time.Hour}}
	})
	s.cluster("p")
	s.cluster("p")
	r := s.start()
	s.claim("default", "p")
	s.claim("long", "p", func(c *hivev1.ClusterClaim) { c.Spec.Lifetime = &metav1.Duration{Duration: 100 * time.Hour} })
	s.claim("waiting", "p", func(c *hivev1.ClusterClaim) { c.Spec.Lifetime = &metav1.Duration{Duration: time.Minute} })
	short := s.waitFor("default", hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)
	long := s.waitFor("long", hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)
	require.Equal(t, 2*time.Hour, short.Status.Lifetime.Duration)
	require.Equal(t, 3*time.Hour, long.Status.Lifetime.Duration)
	s.waitFor("waiting", hivev1.ClusterClaimPending, hivev1.ReasonNoClusters)

	touch := func(name string, n int) {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"test":"%d"}}}`, n)
		require.NoError(t, s.client.Patch(t.Context(), s.get(name), client.RawPatch(types.MergePatchType, patch)))
	}
	r.clock.advance(2*time.Hour + time.Minute)
	for i, name := range []string{"default", "long", "waiting"} {
		touch(name, i) // a real timer would have rung
	}
	s.gone(short)
	require.True(t, s.get("long").DeletionTimestamp.IsZero())
	require.True(t, s.get("waiting").DeletionTimestamp.IsZero(), "a claim that waits does not expire")
}

func TestQueueTimeoutTakesAClaimOutOfTheQueueAndBack(t *testing.T) {
	s := newSuite(t)
	s.pool("p")
	s.start()
	claim := s.claim("c", "p", func(c *hivev1.ClusterClaim) { c.Spec.QueueTimeout = &metav1.Duration{Duration: time.Hour} })
	limit := func(timeout time.Duration) {
		patch := fmt.Appendf(nil, `{"spec":{"queueTimeout":%q}}`, timeout)
		require.NoError(t, s.client.Patch(t.Context(), claim, client.RawPatch(types.MergePatchType, patch)))
	}
	s.waitFor("c", hivev1.ClusterClaimPending, hivev1.ReasonNoClusters)
	limit(time.Since(claim.CreationTimestamp.Time).Round(time.Second) + 2*time.Second)
	require.Zero(t, s.waitFor("c", hivev1.ClusterClaimPending, hivev1.ReasonQueueTimedOut).Status.QueuePosition)
	s.cluster("p")
	s.claim("next", "p")
	s.waitFor("next", hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)
	limit(time.Hour)
	s.waitFor("c", hivev1.ClusterClaimPending, hivev1.ReasonNoClusters)
	s.cluster("p")
	s.waitFor("c", hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)
}
