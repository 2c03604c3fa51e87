// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/metrics"
)

func TestCounters(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := metrics.New(registry)
	m.Created()
	m.Created()
	m.Refused()
	m.HandedOver()
	m.NodeDeleted()
	m.Poll("ignored", "news", time.Second, nil)
	m.Poll("ignored", "full", time.Second, errors.New("down"))
	m.Request("list_nodes", 200, time.Millisecond)
	m.Scaled(true)
	m.Scaled(false)
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP discovery_operator_hosts_created_total Hosts that discovery created.
# TYPE discovery_operator_hosts_created_total counter
discovery_operator_hosts_created_total 2
# HELP discovery_operator_hosts_handed_over_total Hosts that were handed over to the operator that manages hosts.
# TYPE discovery_operator_hosts_handed_over_total counter
discovery_operator_hosts_handed_over_total 1
# HELP discovery_operator_machines_refused_total Machines that discovery refused, each counted when it was first refused for a reason.
# TYPE discovery_operator_machines_refused_total counter
discovery_operator_machines_refused_total 1
# HELP discovery_operator_nodes_deleted_total Nodes that were deleted in Ironic with their host.
# TYPE discovery_operator_nodes_deleted_total counter
discovery_operator_nodes_deleted_total 1
# HELP discovery_operator_polls_total Readings of Ironic, by kind (news, full) and result (success, error).
# TYPE discovery_operator_polls_total counter
discovery_operator_polls_total{kind="full",result="error"} 1
discovery_operator_polls_total{kind="news",result="success"} 1
# HELP discovery_operator_ironic_requests_total Requests to Ironic, by operation and HTTP status (0: no reply).
# TYPE discovery_operator_ironic_requests_total counter
discovery_operator_ironic_requests_total{code="200",operation="list_nodes"} 1
# HELP discovery_operator_scalings_total Times that a MachineDeployment or MachineSet was scaled to the number of its hosts, by direction (up, down).
# TYPE discovery_operator_scalings_total counter
discovery_operator_scalings_total{direction="down"} 1
discovery_operator_scalings_total{direction="up"} 1
`), "discovery_operator_hosts_created_total", "discovery_operator_hosts_handed_over_total", "discovery_operator_machines_refused_total",
		"discovery_operator_nodes_deleted_total", "discovery_operator_polls_total", "discovery_operator_ironic_requests_total",
		"discovery_operator_scalings_total"))
	for _, name := range []string{
		"discovery_operator_poll_duration_seconds", "discovery_operator_ironic_request_duration_seconds",
	} {
		n, err := testutil.GatherAndCount(registry, name)
		require.NoError(t, err)
		assert.Positive(t, n, name)
	}
}

func TestGaugesComeFromTheStatusesThatAreThere(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, metal3v1.AddToScheme(scheme))
	d := &metal3v1.BareMetalHostDiscovery{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "rack"}}
	d.Status.Counts = metal3v1.DiscoveryCounts{Nodes: 29, Read: 26, Known: 9, Hosts: 8, Lost: 1, Waiting: 4, Refused: 2, Ignored: 5, NotSelected: 6}
	d.Status.Reasons = []metal3v1.ReasonCount{{Reason: metal3v1.WaitingForRate, Count: 3}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(d).Build()
	collector := metrics.NewCollector(c)
	require.NoError(t, testutil.CollectAndCompare(collector, strings.NewReader(`
# HELP discovery_operator_machines Machines by situation: node, read, known, host, lost, waiting, refused, ignored, not-selected.
# TYPE discovery_operator_machines gauge
discovery_operator_machines{discovery_name="rack",discovery_namespace="ns",situation="host"} 8
discovery_operator_machines{discovery_name="rack",discovery_namespace="ns",situation="ignored"} 5
discovery_operator_machines{discovery_name="rack",discovery_namespace="ns",situation="known"} 9
discovery_operator_machines{discovery_name="rack",discovery_namespace="ns",situation="lost"} 1
discovery_operator_machines{discovery_name="rack",discovery_namespace="ns",situation="node"} 29
discovery_operator_machines{discovery_name="rack",discovery_namespace="ns",situation="not-selected"} 6
discovery_operator_machines{discovery_name="rack",discovery_namespace="ns",situation="read"} 26
discovery_operator_machines{discovery_name="rack",discovery_namespace="ns",situation="refused"} 2
discovery_operator_machines{discovery_name="rack",discovery_namespace="ns",situation="waiting"} 4
# HELP discovery_operator_machines_by_reason Machines that wait or are refused, by reason.
# TYPE discovery_operator_machines_by_reason gauge
discovery_operator_machines_by_reason{discovery_name="rack",discovery_namespace="ns",reason="WaitingForRate"} 3
`)))
	require.NoError(t, c.Delete(t.Context(), d))
	assert.Zero(t, testutil.CollectAndCount(collector))
}
