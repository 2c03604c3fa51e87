// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/controlplanetest"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/operator"
	"github.com/muster-io/muster/apis/tracingtest"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

// The operator runs as users run it. The claim takes a hosted cluster that hibernates, so that controllers of claims and of clusters work for it.
func TestFromClaimToKubeconfigIsOneTrace(t *testing.T) {
	collector := tracingtest.Start(t)
	scheme, err := NewScheme()
	require.NoError(t, err)
	api, err := client.New(controlplanetest.Start(t), client.Options{Scheme: scheme})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, Options{
			Settings:    operator.Settings{Kubeconfig: controlplanetest.Kubeconfig(t), MetricsBindAddress: "0", HealthProbeBindAddress: "0", LogLevel: "error"},
			PoolWorkers: 1, PoolWriters: 1,
			HostedRuntime: runtimeProcess, HostedDataDir: t.TempDir(), HostedListenAddress: "127.0.0.1",
		})
	}()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "traces-"}}
	require.NoError(t, api.Create(ctx, namespace))
	pool := testobj.Pool("pool", testobj.In(namespace.Name), testobj.Size(1), testobj.ImageSet("traces"))
	for _, object := range []client.Object{testobj.ClusterImageSet("traces"), pool} {
		require.NoError(t, api.Create(ctx, object))
	}
	poll := func(object client.Object, done func() bool) {
		t.Helper()
		require.NoError(t, wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 3*time.Minute, true, func(ctx context.Context) (bool, error) {
			return api.Get(ctx, client.ObjectKeyFromObject(object), object) == nil && done(), nil
		}), "%+v", object)
	}
	poll(pool, func() bool { return pool.Status.Ready == 1 || pool.Status.Standby == 1 })
	claim := testobj.Claim("claim", "pool", testobj.ClaimIn(namespace.Name))
	require.NoError(t, api.Create(ctx, claim))
	poll(claim, func() bool { return hivev1.IsConditionTrue(claim.Status.Conditions, hivev1.ClusterClaimRunning) })

	id := strings.ReplaceAll(string(claim.UID), "-", "")
	for _, controller := range []string{"clusterclaim", "clusterdeployment-hosted"} {
		span := collector.Wait(t, func(s tracingtest.Span) bool { return s.Trace == id && s.Name == controller })
		assert.Equal(t, "pool-operator", span.Service)
	}
	assert.Empty(t, collector.Spans(func(s tracingtest.Span) bool { return s.Trace == id && s.Name == "clusterpool" }), "passes of the pool are for all claims")
	collector.Wait(t, func(s tracingtest.Span) bool { return s.Name == "clusterpool" })
}
