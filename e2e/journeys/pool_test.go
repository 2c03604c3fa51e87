// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package journeys_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// A pool that is deleted takes its unclaimed clusters with it, and stays for claimed ones.
func TestDeletingAPoolKeepsClaimedClusters(t *testing.T) {
	w := newTestEnv(t)
	pool := w.hostedPool("ending", 1, 0)
	w.create(pool)
	claim := w.claim("mine", pool.Name, user("alice"))
	namespace := w.untilUsable(claim)

	require.NoError(t, w.admin.Delete(t.Context(), pool))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		clusters := w.clusters(c, pool.Name)
		require.Len(c, clusters, 1)
		assert.Equal(c, namespace, clusters[0].Name)
		assert.Equal(c, []string{namespace}, w.clusterNamespaces(c))
		w.refresh(c, pool)
		requireCondition(c, pool.Status.Conditions, hivev1.ClusterPoolDeletionPossible, corev1.ConditionFalse, hivev1.ReasonClusterDeploymentsPendingCleanup)
	}, patience, interval)
	_, err := w.enter(w.as("alice"), namespace).Discovery().ServerVersion()
	require.NoError(t, err, "a claimed cluster goes on")

	require.NoError(t, w.admin.Delete(t.Context(), claim))
	w.untilGone(pool, patience)
	w.untilGone(claim, moment)
	assert.Empty(t, w.clusters(t, ""))
}

// An inventory gives clusters their names, and bounds the pool.
func TestAnInventoryNamesClustersAndBoundsThePool(t *testing.T) {
	w := newTestEnv(t)
	pool := w.hostedPool("named", 3, 0)
	pool.Spec.Inventory = &hivev1.ClusterPoolInventory{ClusterDeployments: []hivev1.InventoryClusterDeployment{{Name: "amber"}, {Name: "birch"}}}
	w.create(pool)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		w.refresh(c, pool)
		assert.Equal(c, int32(2), pool.Status.Standby)
		message := requireCondition(c, pool.Status.Conditions, hivev1.ClusterPoolCapacityAvailable, corev1.ConditionFalse, hivev1.ReasonInventoryExhausted)
		assert.NotEmpty(c, message)
	}, patience, interval)
	var names []string
	for _, cluster := range w.clusters(t, pool.Name) {
		names = append(names, cluster.Spec.ClusterName)
		assert.Equal(t, cluster.Namespace, pool.Status.ClusterNameUsage[cluster.Spec.ClusterName])
		assert.Contains(t, cluster.Name, cluster.Spec.ClusterName+"-")
	}
	assert.ElementsMatch(t, []string{"amber", "birch"}, names)
}

// A ClusterRole with a label gives the operator the rights on install objects of another group.
func TestALabelAuthorizesAnInstallerOfAnotherGroup(t *testing.T) {
	w := newTestEnv(t)
	allowed := func(c *assert.CollectT, verb string) bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:muster-pool-operator:pool-operator", Groups: []string{"system:serviceaccounts", "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "blue-abcde", Verb: verb, Group: "install.example.com", Resource: "exampleinstalls"},
		}}
		require.NoError(c, w.admin.Create(t.Context(), review))
		return review.Status.Allowed
	}
	verbs := []string{"create", "get", "list", "watch"}
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.False(c, allowed(c, "create")) }, patience, interval)
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "example-installs", Labels: map[string]string{"muster.io/aggregate-to-pool-operator": "true"}},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"install.example.com"}, Resources: []string{"exampleinstalls"}, Verbs: verbs}},
	}
	w.create(role)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		for _, verb := range verbs {
			assert.True(c, allowed(c, verb), verb)
		}
		assert.False(c, allowed(c, "delete"))
	}, patience, interval)
	require.NoError(t, w.admin.Delete(t.Context(), role))
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.False(c, allowed(c, "create")) }, patience, interval)
}

// A user who writes an impossible spec gets a sentence that says so, at once.
func TestBadInputIsRefusedWithASentence(t *testing.T) {
	w := newTestEnv(t)
	for name, test := range map[string]struct {
		change func(pool *hivev1.ClusterPool)
		says   string
	}{
		"negative size":         {func(p *hivev1.ClusterPool) { p.Spec.Size = -1 }, "size must not be negative; write 0"},
		"negative runningCount": {func(p *hivev1.ClusterPool) { p.Spec.RunningCount = -1 }, "runningCount must not be negative; write 0"},
		"no platform":           {func(p *hivev1.ClusterPool) { p.Spec.Platform = hivev1.Platform{} }, "set exactly one platform"},
		"name taken twice": {func(p *hivev1.ClusterPool) {
			p.Spec.Inventory = &hivev1.ClusterPoolInventory{ClusterDeployments: []hivev1.InventoryClusterDeployment{{Name: "a"}, {Name: "a"}}}
		}, "Duplicate value"},
		"no name": {func(p *hivev1.ClusterPool) {
			p.Spec.Inventory = &hivev1.ClusterPoolInventory{ClusterDeployments: []hivev1.InventoryClusterDeployment{{Name: ""}}}
		}, "name"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := w.hostedPool("bad", 1, 0)
			test.change(pool)
			err := w.admin.Create(t.Context(), pool)
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			assert.Contains(t, err.Error(), test.says)
		})
	}
	t.Run("a claim that chooses its cluster", func(t *testing.T) {
		claim := &hivev1.ClusterClaim{Spec: hivev1.ClusterClaimSpec{ClusterPoolName: "any", Namespace: "kube-system"}}
		claim.Namespace, claim.Name = w.namespace, "greedy"
		err := w.admin.Create(t.Context(), claim)
		require.True(t, apierrors.IsForbidden(err) || apierrors.IsInvalid(err), "%v", err)
		assert.Contains(t, err.Error(), "it is where the operator writes which cluster the claim got")
	})
}

// A missing dependency is named, does not block other pools, and counts from the moment it exists.
func TestAMissingImageSetIsNamedAndNoticed(t *testing.T) {
	w := newTestEnv(t)
	late := "late-" + w.namespace
	pool := w.hostedPool("waiting", 1, 0)
	pool.Spec.ImageSetRef.Name = late
	w.create(pool)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		w.refresh(c, pool)
		message := requireCondition(c, pool.Status.Conditions, hivev1.ClusterPoolMissingDependencies, corev1.ConditionTrue, hivev1.ReasonMissing)
		assert.Contains(c, message, late)
	}, moment, interval)
	assert.Empty(t, w.clusters(t, pool.Name))

	w.imageSet(late)
	t.Cleanup(func() {
		set := &hivev1.ClusterImageSet{}
		set.Name = late
		_ = w.admin.Delete(w.ctx, set)
	})
	w.untilClusters(pool, 1) // at once
	w.untilFilled(pool)
	require.NoError(t, client.IgnoreNotFound(w.admin.Delete(t.Context(), pool)))
	w.untilGone(pool, patience)
}
