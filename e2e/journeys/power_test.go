// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package journeys_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// setPower changes the power of a claimed cluster, as one of the claim's subjects.
func (w *testEnv) setPower(as client.Client, namespace string, power hivev1.PowerState) {
	w.t.Helper()
	cluster := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: namespace}}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"powerState":"`+string(power)+`"}}`))
	require.NoError(w.t, as.Patch(w.ctx, cluster, patch))
}

func (w *testEnv) untilPower(namespace string, power hivev1.PowerState) {
	w.t.Helper()
	cluster := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: namespace}}
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		w.refresh(c, cluster)
		assert.Equal(c, power, cluster.Status.PowerState, "%+v", cluster.Status.Conditions)
	}, patience, interval, "cluster %s does not become %s", namespace, power)
}

// A sleeping cluster that is claimed wakes up; its owner puts it to sleep and wakes it, and nothing is lost.
func TestAClusterSleepsAndWakesWithItsData(t *testing.T) {
	w := newTestEnv(t)
	pool := w.hostedPool("sleepy", 1, 0)
	w.create(pool)
	w.untilFilled(pool)
	w.untilPower(w.clusters(t, pool.Name)[0].Name, hivev1.PowerStateHibernating)
	w.update(pool, func() { pool.Spec.Size = 0 })
	// Scaling down would take the only cluster; a claim in the same moment keeps it or makes another one: both are right.
	claim := w.claim("mine", pool.Name, user("alice"))
	namespace := w.untilUsable(claim)
	alice := w.as("alice")

	inside := w.enter(alice, namespace)
	_, err := inside.CoreV1().ConfigMaps("default").Create(t.Context(), note("kept"), metav1.CreateOptions{})
	require.NoError(t, err)

	w.setPower(alice, namespace, hivev1.PowerStateHibernating)
	w.untilPower(namespace, hivev1.PowerStateHibernating)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		w.refresh(c, claim)
		requireCondition(c, claim.Status.Conditions, hivev1.ClusterClaimRunning, corev1.ConditionFalse, hivev1.ReasonHibernating)
	}, moment, interval)
	_, err = w.enter(alice, namespace).Discovery().ServerVersion()
	require.Error(t, err, "a sleeping cluster does not answer")

	w.setPower(alice, namespace, hivev1.PowerStateRunning)
	w.untilPower(namespace, hivev1.PowerStateRunning)
	w.untilUsable(claim)
	kept, err := w.enter(alice, namespace).CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "world", kept.Data["hello"])
}

// An administrator of a pool changes how many of its clusters run.
func TestRunningCountMovesClustersBetweenSleepAndWork(t *testing.T) {
	w := newTestEnv(t)
	pool := w.hostedPool("mixed", 2, 0)
	w.create(pool)
	w.untilFilled(pool)
	w.update(pool, func() { pool.Spec.RunningCount = 1 })
	w.untilFilled(pool)
	clusters := w.clusters(t, pool.Name)
	w.untilPower(clusters[0].Name, hivev1.PowerStateRunning)
	w.untilPower(clusters[1].Name, hivev1.PowerStateHibernating)
	w.update(pool, func() { pool.Spec.RunningCount = 0 })
	w.untilFilled(pool)
}
