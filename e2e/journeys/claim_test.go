// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package journeys_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/e2e/access"
)

// enter gets into a claimed cluster as one of the claim's subjects.
func (w *testEnv) enter(as client.Client, namespace string) kubernetes.Interface {
	w.t.Helper()
	var kubeconfig []byte
	require.EventuallyWithT(w.t, func(c *assert.CollectT) { // the API server learns of rights a moment after they were written
		var err error
		kubeconfig, err = access.Kubeconfig(w.ctx, as, namespace)
		require.NoError(c, err)
	}, moment, interval)
	config, err := access.Config(kubeconfig, administrator)
	require.NoError(w.t, err)
	inside, err := kubernetes.NewForConfig(config)
	require.NoError(w.t, err)
	return inside
}

func note(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"hello": "world"}}
}

// A user claims a cluster, works in it, and gives it back.
func TestAClaimGetsAWorkingClusterAndThePoolRefills(t *testing.T) {
	w := newTestEnv(t)
	pool := w.hostedPool("ready", 2, 1)
	w.create(pool)
	w.untilFilled(pool)
	oldest := w.clusters(t, pool.Name)[0].Name

	account, accountName := serviceAccount(w.namespace, "builder")
	claim := w.claim("mine", pool.Name, user("alice"), account)
	namespace := w.untilUsable(claim)
	assert.Equal(t, oldest, namespace, "the oldest cluster goes first")

	inside := w.enter(w.as("alice"), namespace)
	version, err := inside.Discovery().ServerVersion()
	require.NoError(t, err)
	assert.Equal(t, "1", version.Major)
	_, err = inside.CoreV1().ConfigMaps("default").Create(t.Context(), note("hello"), metav1.CreateOptions{})
	require.NoError(t, err)
	list, err := w.enter(w.as(accountName), namespace).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err, "every subject of the claim gets in")
	assert.True(t, hasNamed(list.Items, "hello"))

	assert.True(t, apierrors.IsForbidden(w.as("alice").List(t.Context(), &corev1.SecretList{}, client.InNamespace(namespace))), "the credentials, and no other secret")
	_, err = access.Kubeconfig(t.Context(), w.as("bob"), namespace)
	assert.True(t, apierrors.IsForbidden(err), "other users have no access: %v", err)

	w.isConfined(w.as("alice"), namespace)

	w.untilClusters(pool, 3) // the claimed one is replaced
	w.untilFilled(pool)
	assert.Len(t, w.clusters(t, pool.Name), 3)

	require.NoError(t, w.admin.Delete(t.Context(), claim))
	w.untilGone(&hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: namespace}}, patience)
	w.untilGone(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, patience)
	w.untilGone(claim, moment)
	require.Eventually(t, func() bool {
		_, err := inside.Discovery().ServerVersion()
		return err != nil
	}, moment, interval, "the cluster still answers")
	w.untilFilled(pool)
	assert.Len(t, w.clusters(t, pool.Name), 2)
}

// isConfined says what a subject may do in the namespace of the cluster: its power, its labels and annotations, and nothing that leads elsewhere.
func (w *testEnv) isConfined(subject client.Client, namespace string) {
	w.t.Helper()
	patch := func(patch string) error {
		cluster := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: namespace}}
		return subject.Patch(w.ctx, cluster, client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	require.NoError(w.t, patch(`{"metadata":{"annotations":{"note":"mine"},"labels":{"team":"a"}},"spec":{"powerState":"Running"}}`))
	for _, change := range []string{
		`{"spec":{"clusterMetadata":{"adminKubeconfigSecretRef":{"name":"pull-secret"}}}}`, `{"spec":{"platform":{"hosted":null,"none":{}}}}`, `{"spec":{"clusterName":"free"}}`,
		`{"spec":{"hibernateAfter":"1h"}}`, `{"metadata":{"finalizers":null}}`,
		`{"metadata":{"annotations":{"hive.openshift.io/reconcile-pause":"true"}}}`, `{"metadata":{"annotations":{"hive.openshift.io/protected-delete":"true"}}}`,
	} {
		err := patch(change)
		assert.True(w.t, apierrors.IsForbidden(err) || apierrors.IsInvalid(err), "%s: %v", change, err)
	}
	second := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "second"}}
	second.Spec.ClusterName, second.Spec.BaseDomain, second.Spec.Platform = "second", "example.com", hivev1.Platform{Hosted: &hivev1.HostedPlatform{}}
	assert.True(w.t, apierrors.IsForbidden(subject.Create(w.ctx, second)), "no further cluster")
	second.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{Namespace: w.namespace, PoolName: "ready"}
	assert.True(w.t, apierrors.IsForbidden(w.admin.Create(w.ctx, second)), "and only the operator makes one of a pool")
}

func hasNamed(list []corev1.ConfigMap, name string) bool {
	for _, item := range list {
		if item.Name == name {
			return true
		}
	}
	return false
}

// A claim that comes first waits for the first cluster; the second waits for the second.
func TestClaimsAreServedInTheirOrder(t *testing.T) {
	w := newTestEnv(t)
	first := w.claim("a-late-name-first", "soon", user("alice"))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		w.refresh(c, first)
		message := requireCondition(c, first.Status.Conditions, hivev1.ClusterClaimPending, corev1.ConditionTrue, hivev1.ReasonPoolNotFound)
		assert.Contains(c, message, "soon")
	}, moment, interval)

	pool := w.hostedPool("soon", 0, 0)
	pool.Spec.MaxSize = new(int32(1))
	w.create(pool)
	w.untilUsable(first)
	second := w.claim("second", "soon", user("bob"))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		w.refresh(c, second)
		requireCondition(c, second.Status.Conditions, hivev1.ClusterClaimPending, corev1.ConditionTrue, hivev1.ReasonNoClusters)
		assert.Equal(c, hivev1.WaitPoolAtCapacity, second.Status.WaitingFor)
		assert.Equal(c, int32(1), second.Status.QueuePosition)
	}, moment, interval)

	require.NoError(t, w.admin.Delete(t.Context(), first))
	w.untilUsable(second)
	assert.Len(t, w.clusters(t, pool.Name), 1)
}

// A claim that is over gives its cluster back by itself.
func TestAClaimEndsWithItsLifetime(t *testing.T) {
	w := newTestEnv(t)
	pool := w.hostedPool("lending", 1, 1)
	pool.Spec.ClaimLifetime = &hivev1.ClusterPoolClaimLifetime{Maximum: &metav1.Duration{Duration: 25 * time.Second}}
	w.create(pool)
	w.untilFilled(pool)
	claim := &hivev1.ClusterClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "short"},
		Spec:       hivev1.ClusterClaimSpec{ClusterPoolName: pool.Name, Lifetime: &metav1.Duration{Duration: time.Hour}},
	}
	w.create(claim)
	namespace := w.untilUsable(claim)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		w.refresh(c, claim)
		require.NotNil(c, claim.Status.Lifetime)
		assert.Equal(c, 25*time.Second, claim.Status.Lifetime.Duration, "the pool's maximum bounds it")
	}, moment, interval)
	w.untilGone(claim, patience)
	w.untilGone(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, patience)
}
