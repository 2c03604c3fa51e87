// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/controller/clusterpool"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

// restart is another process that begins with the objects as they are.
func (s *shell) restart() {
	s.r = clusterpool.New(clusterpool.Deps{
		Client: s.client, Metadata: s.client, Live: s.client, Progress: unknownProgress{}, Recorder: events.NewFakeRecorder(100), Clock: s.clock, Meter: noMeter{}, Writers: 1,
	})
}

// brokenPool is a pool whose breaker is open for an hour, with what its clusters are made of.
func brokenPool(t *testing.T) (*shell, *corev1.Secret) {
	t.Helper()
	pool := testobj.Pool("p", testobj.Size(1), testobj.PullSecret("pull"))
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	pool.Status.Provisioning = &hivev1.ClusterPoolProvisioning{
		ConsecutiveFailures: 8, LastFailureReason: "ImagePullFailed", LastFailureTime: new(metav1.NewTime(start.Add(-time.Minute))),
		NextAttemptTime: new(metav1.NewTime(start.Add(time.Hour))), SpecHash: poolplan.Recipe(pool.Spec),
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: testobj.Namespace, Name: "pull"}, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)}}
	s := newShell(t, interceptor.Funcs{}, pool, testobj.ClusterImageSet(testobj.ImageSetName), secret)
	require.NoError(t, s.passes("p", 6))
	require.Empty(t, s.clusters(), "the breaker is open")
	require.NotEmpty(t, s.pool("p").Status.Provisioning.SourcesHash)
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))
	return s, secret
}

func TestARepairWhileNoOperatorRunsIsTriedAtOnce(t *testing.T) {
	for name, repair := range map[string]func(*shell, *corev1.Secret) error{
		"the pull secret": func(s *shell, secret *corev1.Secret) error {
			secret.Data[corev1.DockerConfigJsonKey] = []byte(`{"auths":{"registry.example.com":{}}}`)
			return s.client.Update(s.t.Context(), secret)
		},
		"the image set": func(s *shell, _ *corev1.Secret) error {
			set := &hivev1.ClusterImageSet{}
			if err := s.client.Get(s.t.Context(), client.ObjectKey{Name: testobj.ImageSetName}, set); err != nil {
				return err
			}
			set.Spec.ReleaseImage = "registry.example.com/release:mended"
			return s.client.Update(s.t.Context(), set)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, secret := brokenPool(t)
			require.NoError(t, repair(s, secret))
			s.restart()
			require.NoError(t, s.passes("p", 6))
			require.Len(t, s.clusters(), 1)
			require.Nil(t, s.pool("p").Status.Provisioning)
		})
	}
}

func TestARestartAloneIsNoRepair(t *testing.T) {
	s, secret := brokenPool(t)
	before := s.pool("p").Status.Provisioning.SourcesHash
	secret.Annotations = map[string]string{"other-client": "was here"}
	require.NoError(t, s.client.Update(t.Context(), secret))
	require.NoError(t, s.passes("p", 6))
	require.Empty(t, s.clusters(), "a Secret that is annotated has not changed")
	require.NotEqual(t, before, s.pool("p").Status.Provisioning.SourcesHash, "the next process compares with the Secret as it is")
	s.restart()
	require.NoError(t, s.passes("p", 6))
	require.Empty(t, s.clusters())
}
