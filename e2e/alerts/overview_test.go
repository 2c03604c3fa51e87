// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package alerts_test

import (
	"encoding/json"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/e2e/render"
)

// reported are series, one value a minute, by operator and by metric with labels, which both replicas report.
var reported = map[string]map[string]string{
	"discovery-operator": {
		"up": "1+0x60",
		`discovery_operator_machines{discovery_namespace="team",discovery_name="rack",situation="node"}`:            "40+0x60",
		`discovery_operator_machines{discovery_namespace="team",discovery_name="rack",situation="host"}`:            "30+0x60",
		`discovery_operator_machines{discovery_namespace="team",discovery_name="shelf",situation="node"}`:           "2+0x60",
		`discovery_operator_machines{discovery_namespace="team",discovery_name="shelf",situation="host"}`:           "1+0x60",
		`discovery_operator_managed_hosts{state="available",reason="Available"}`:                                    "20+0x60",
		`discovery_operator_managed_hosts{state="available",reason="PoweredOff"}`:                                   "5+0x60",
		`discovery_operator_poll_last_success_timestamp_seconds{ironic="http://i",kind="full"}`:                     "1790+0x60",
		`ALERTS{alertname="DiscoveryMachinesRefused",severity="warning",alertstate="firing",discovery_name="rack"}`: "1+0x60",
	},
	"agent-service": {
		"up": "1+0x60", `agent_service_hosts{state="known"}`: "7+0x60", `agent_service_hosts{state="disconnected"}`: "2+0x60", `agent_service_hosts{state="error"}`: "0+0x60",
		"agent_service_hosts_connected": "7+0x60", `agent_service_hosts_waiting{situation="joining"}`: "3+0x60",
	},
	"ipam-operator": {
		"up": "1+0x60", `ipam_addresses{ippool_namespace="team",ippool_name="p",state="free"}`: "10+0x60", `ipam_addresses{ippool_namespace="team",ippool_name="p",state="total"}`: "14+0x60",
		`ipam_addresses{ippool_namespace="team",ippool_name="q",state="free"}`: "5+0x60", `ipam_addresses{ippool_namespace="team",ippool_name="q",state="used"}`: "4+0x60",
		`ipam_claims_waiting{reason="PoolExhausted"}`: "3+0x60",
	},
	"pool-operator": {
		"up": "1+0x60",
		`pool_operator_pool_clusters{clusterpool_namespace="team",clusterpool_name="p",state="ready"}`:           "4+0x60",
		`pool_operator_pool_clusters{clusterpool_namespace="team",clusterpool_name="q",state="ready"}`:           "1+0x60",
		`pool_operator_pool_clusters{clusterpool_namespace="team",clusterpool_name="p",state="claimed"}`:         "6+0x60",
		`pool_operator_pool_clusters{clusterpool_namespace="team",clusterpool_name="p",state="deleting"}`:        "2+0x60",
		`pool_operator_pool_size{clusterpool_namespace="team",clusterpool_name="p"}`:                             "5+0x60",
		`pool_operator_pool_pending_claims{clusterpool_namespace="team",clusterpool_name="p"}`:                   "2+0x60",
		`pool_operator_claims_waiting{clusterpool_namespace="team",clusterpool_name="p",waiting_for="Resuming"}`: "2+0x60",
		`pool_operator_claim_oldest_waiting_age_seconds{clusterpool_namespace="team",clusterpool_name="p"}`:      "90+0x60",
		`pool_operator_claim_wait_seconds_bucket{le="1"}`:                                                        "0+60x60",
		`pool_operator_claim_wait_seconds_bucket{le="+Inf"}`:                                                     "0+60x60",
		`pool_operator_hosted_ready_seconds_bucket{after="resume",le="1"}`:                                       "0+60x60",
		`pool_operator_hosted_ready_seconds_bucket{after="resume",le="+Inf"}`:                                    "0+60x60",
		`controller_runtime_reconcile_errors_total{controller="clusterclaim"}`:                                   "0+30x60",
	},
}

// shown are the values of each panel of the overview after half an hour, by the labels that its legend has.
var shown = map[string]map[string]float64{
	"From machine to claim/A":                               {"{}": 42},
	"From machine to claim/B":                               {"{}": 31},
	"From machine to claim/C":                               {"{}": 9},
	"From machine to claim/D":                               {"{}": 5},
	"From machine to claim/E":                               {"{}": 6},
	"From machine to claim/F":                               {"{}": 2},
	"Machines by situation/A":                               {`{situation="node"}`: 42, `{situation="host"}`: 31},
	"Machines with an agent/A":                              {"{}": 9},
	"Machines with an agent/B":                              {"{}": 7},
	"Age of the last good reading of Ironic/A":              {`{ironic="http://i",kind="full"}`: 10},
	"Managed hosts by state/A":                              {`{state="available"}`: 25},
	"Hosts with an agent by state/A":                        {`{state="known"}`: 7, `{state="disconnected"}`: 2},
	"Addresses/A":                                           {`{state="free"}`: 15, `{state="used"}`: 4},
	"Clusters of pools by state/A":                          {`{state="ready"}`: 5, `{state="claimed"}`: 6, `{state="deleting"}`: 2},
	"Clusters of pools by state/B":                          {"{}": 5},
	"Hosts that clusters wait for, and that are released/A": {`{situation="joining"}`: 3},
	"Time until a hosted cluster answers/A":                 {`{after="resume"}`: 0.99},
	"Waiting claims of clusters by what they wait for/A":    {`{waiting_for="Resuming"}`: 2},
	"Age of the oldest waiting claim/A":                     {`{clusterpool_name="p",clusterpool_namespace="team"}`: 90},
	"Time from claim to cluster/A":                          {"{}": 0.5},
	"Time from claim to cluster/B":                          {"{}": 0.99},
	"Waiting claims of addresses by reason/A":               {`{reason="PoolExhausted"}`: 3},
	"Replicas that answer/A": {
		`{job="agent-service-metrics"}`: 2, `{job="discovery-operator-metrics"}`: 2, `{job="ipam-operator-metrics"}`: 2, `{job="pool-operator-metrics"}`: 2,
	},
	"Failed passes/A":    {`{job="pool-operator-metrics",controller="clusterclaim"}`: 1},
	"Alerts that fire/A": {`{alertname="DiscoveryMachinesRefused",severity="warning"}`: 1},
}

// panel is a panel of a dashboard of Grafana.
type panel struct {
	Title   string `json:"title"`
	Type    string `json:"type"`
	Targets []struct {
		RefID string `json:"refId"`
		Expr  string `json:"expr"`
	} `json:"targets"`
}

// overview returns the panels of the dashboard of all operators.
func overview(t *testing.T) []panel {
	t.Helper()
	objects, err := render.Directory("deploy/components/monitoring/overview")
	require.NoError(t, err)
	require.Len(t, objects, 1)
	text, _, err := unstructured.NestedString(objects[0].Object, "data", "dashboard.json")
	require.NoError(t, err)
	board := struct {
		Panels []panel `json:"panels"`
	}{}
	require.NoError(t, json.Unmarshal([]byte(text), &board))
	return board.Panels
}

// The overview counts each thing once where two replicas of every operator report it, and none of its panels is empty.
func TestTheOverviewCountsEachThingOnce(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	needtest.Part(t, err == nil, "promtool is not installed: install the package prometheus of Debian")
	var input []map[string]string
	for _, operator := range operators {
		for _, name := range slices.Sorted(maps.Keys(reported[operator])) {
			pods := []string{"a", "b"}
			if strings.HasPrefix(name, "ALERTS{") { // of Prometheus, not of the pods
				pods = pods[:1]
			}
			for _, pod := range pods {
				input = append(input, map[string]string{"series": replica(name, operator, pod), "values": reported[operator][name]})
			}
		}
	}
	var expressions []map[string]any
	known := map[string]bool{}
	for _, p := range overview(t) {
		for _, target := range p.Targets {
			name := p.Title + "/" + target.RefID
			want := shown[name]
			if !assert.NotEmpty(t, want, "%s has no case", name) {
				continue
			}
			known[name] = true
			var samples []map[string]any
			for _, labels := range slices.Sorted(maps.Keys(want)) {
				samples = append(samples, map[string]any{"labels": labels, "value": want[labels]})
			}
			assert.NotContains(t, strings.ReplaceAll(target.Expr, "${datasource}", ""), "$", "%s asks for a variable that the test does not set", name)
			expressions = append(expressions, map[string]any{"expr": target.Expr, "eval_time": "30m", "exp_samples": samples})
		}
	}
	assert.Len(t, known, len(shown), "a case belongs to no panel")
	dir := t.TempDir()
	file := write(t, dir, "tests.yaml", map[string]any{"evaluation_interval": "1m", "tests": []map[string]any{{
		"interval": "1m", "input_series": input, "promql_expr_test": expressions,
	}}})
	out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
