// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

// The breaker is open for an hour. A Secret that is repaired is tried long before.
func TestARepairedSecretIsTriedAtOnce(t *testing.T) {
	w := newTestEnv(t)
	secret := testobj.Secret(w.ns, "pull", corev1.DockerConfigJsonKey, `{"auths":{}}`)
	w.create(secret, testobj.Pool("p", testobj.In(w.ns), testobj.Size(1), testobj.PullSecret("pull")))
	pool := w.pool("p")
	before := pool.DeepCopy()
	failed := time.Now().Add(-time.Minute)
	pool.Status.Provisioning = &hivev1.ClusterPoolProvisioning{
		ConsecutiveFailures: 8, LastFailureReason: "ImagePullFailed", LastFailureTime: new(metav1.NewTime(failed)),
		NextAttemptTime: new(metav1.NewTime(failed.Add(time.Hour))), SpecHash: poolplan.Recipe(pool.Spec),
	}
	require.NoError(t, w.client.Status().Patch(t.Context(), pool, client.MergeFrom(before)))
	w.replica()
	w.eventually("the pool says that its breaker is open", func() bool {
		status := w.pool("p").Status
		return status.Provisioning != nil && status.Provisioning.SourcesHash != "" && hivev1.FindCondition(status.Conditions, hivev1.ClusterPoolReady) != nil
	})
	require.Empty(t, w.clusters("p"))
	changed := secret.DeepCopy()
	changed.Data = map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"registry.example.com":{}}}`)}
	require.NoError(t, w.client.Patch(t.Context(), changed, client.MergeFrom(secret)))
	w.eventually("the next cluster is tried", func() bool { return len(w.clusters("p")) == 1 })
	require.Nil(t, w.pool("p").Status.Provisioning)
}
