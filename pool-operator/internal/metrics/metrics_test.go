// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/metrics"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

func TestPoolsAreReadAtScrapeTime(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, hivev1.AddToScheme(scheme))
	pool := testobj.Pool("p", testobj.Size(5))
	pool.Status = hivev1.ClusterPoolStatus{
		Installing: 1, Standby: 2, Ready: 3, Broken: 4, Claimed: 5, Deleting: 6, PendingClaims: 7,
		Operations:   []hivev1.ClusterPoolOperation{{Namespace: "p-a"}},
		Provisioning: &hivev1.ClusterPoolProvisioning{ConsecutiveFailures: 8},
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pool).WithStatusSubresource(pool).Build()
	collector := metrics.NewPools(c)
	require.NoError(t, testutil.CollectAndCompare(collector, strings.NewReader(`
# HELP pool_operator_pool_clusters ClusterDeployments of a ClusterPool by state: installing, standby, ready and broken are unclaimed.
# TYPE pool_operator_pool_clusters gauge
pool_operator_pool_clusters{clusterpool_name="p",clusterpool_namespace="pools",state="broken"} 4
pool_operator_pool_clusters{clusterpool_name="p",clusterpool_namespace="pools",state="claimed"} 5
pool_operator_pool_clusters{clusterpool_name="p",clusterpool_namespace="pools",state="deleting"} 6
pool_operator_pool_clusters{clusterpool_name="p",clusterpool_namespace="pools",state="installing"} 1
pool_operator_pool_clusters{clusterpool_name="p",clusterpool_namespace="pools",state="ready"} 3
pool_operator_pool_clusters{clusterpool_name="p",clusterpool_namespace="pools",state="standby"} 2
# HELP pool_operator_pool_consecutive_failures Clusters of a ClusterPool that broke since one was last installed.
# TYPE pool_operator_pool_consecutive_failures gauge
pool_operator_pool_consecutive_failures{clusterpool_name="p",clusterpool_namespace="pools"} 8
# HELP pool_operator_pool_operations Creations and deletions of a ClusterPool that were decided and whose effect has not been seen yet.
# TYPE pool_operator_pool_operations gauge
pool_operator_pool_operations{clusterpool_name="p",clusterpool_namespace="pools"} 1
# HELP pool_operator_pool_pending_claims ClusterClaims of a ClusterPool that wait for a cluster.
# TYPE pool_operator_pool_pending_claims gauge
pool_operator_pool_pending_claims{clusterpool_name="p",clusterpool_namespace="pools"} 7
# HELP pool_operator_pool_size Unclaimed clusters that a ClusterPool asks for.
# TYPE pool_operator_pool_size gauge
pool_operator_pool_size{clusterpool_name="p",clusterpool_namespace="pools"} 5
`)))
	require.NoError(t, c.Delete(t.Context(), pool))
	require.Zero(t, testutil.CollectAndCount(collector), "a pool that is gone has no series")
}

func TestActionsAreCountedByWhy(t *testing.T) {
	actions := metrics.NewPoolActions()
	actions.Action("CreateCluster", poolplan.WhyBelowTarget, false)
	actions.Action("CreateCluster", poolplan.WhyBelowTarget, true)
	actions.Action("CreateCluster", poolplan.WhyBelowTarget, true)
	require.NoError(t, testutil.CollectAndCompare(actions, strings.NewReader(`
# HELP pool_operator_pool_actions_total Actions for ClusterPools, by what was done, what it was for, and whether it succeeded (success or failure).
# TYPE pool_operator_pool_actions_total counter
pool_operator_pool_actions_total{action="CreateCluster",outcome="failure",why="BelowTarget"} 2
pool_operator_pool_actions_total{action="CreateCluster",outcome="success",why="BelowTarget"} 1
`)))
}
