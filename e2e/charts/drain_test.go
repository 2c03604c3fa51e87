// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/action"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/controlplanetest"
	"github.com/muster-io/muster/e2e/chart"
)

// A budget that keeps the only replica would keep its node from being drained for ever.
func TestTheNodeOfASingleReplicaIsDrained(t *testing.T) {
	h := helmFor(t, controlplanetest.Start(t), controlplanetest.Kubeconfig(t))
	for _, operator := range chart.Operators() {
		h.installWith(operator, map[string]any{"replicas": 1})
		t.Cleanup(func() { // the other tests of the package have the same cluster
			_, err := action.NewUninstall(h.cfg).Run(operator)
			assert.NoError(t, err)
		})
		pods := &corev1.PodList{}
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			require.NoError(c, h.List(t.Context(), pods, client.InNamespace(platform), client.MatchingLabels{
				"app.kubernetes.io/name": operator, "app.kubernetes.io/component": "operator",
			}))
			assert.Len(c, pods.Items, 1)
		}, patience, 100*time.Millisecond)
		pod := &pods.Items[0]
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		require.NoError(t, h.Status().Update(t.Context(), pod))
		budget := &policyv1.PodDisruptionBudget{}
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			require.NoError(c, h.Get(t.Context(), client.ObjectKey{Namespace: platform, Name: operator}, budget))
			assert.EqualValues(c, 1, budget.Status.CurrentHealthy)
		}, patience, 100*time.Millisecond)
		assert.NoError(t, h.SubResource("eviction").Create(t.Context(), pod, &policyv1.Eviction{}), operator)
	}
}
