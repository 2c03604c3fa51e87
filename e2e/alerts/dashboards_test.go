// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package alerts_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/e2e/render"
)

// process are series that every operator has, of its libraries: NAME stands for a controller.
var process = map[string]string{
	`controller_runtime_reconcile_total{controller="NAME",result="success"}`: "0+60x60",
	`controller_runtime_reconcile_errors_total{controller="NAME"}`:           "0+1x60",
	`workqueue_depth{name="NAME",controller="NAME",priority=""}`:             "1+0x60",
	"process_resident_memory_bytes":                                          "1e8+0x60",
	"process_cpu_seconds_total":                                              "0+6x60",
}

// further are series of the operators beside those of the overview, with the labels that each metric is declared with.
var further = map[string]map[string]string{
	"agent-service": {
		"agent_service_polls_held": "5+0x60", "agent_service_polls_total": "0+60x60", "agent_service_registrations_total": "0+6x60",
		"agent_service_heartbeats_saved_total": "0+60x60", "agent_service_refusals_total": "0+1x60", "agent_service_timeouts_total": "0+1x60",
		"agent_service_image_failures_total": "0+1x60", "agent_service_image_requests_total": "0+6x60", "agent_service_image_renders_total": "0+1x60",
		"agent_service_sql_statements_total": "0+60x60", "agent_service_store_away": "0+0x60",
		`agent_service_client_requests_total{verb="GET",resource="agents",code="200"}`:     "0+60x60",
		`agent_service_hosts_waiting_oldest_age_seconds{situation="joining"}`:              "90+0x60",
		`controller_runtime_reconcile_total{controller="infraenv",result="requeue_after"}`: "0+6x60",
	},
	"discovery-operator": {
		`discovery_operator_machines_by_reason{discovery_namespace="team",discovery_name="rack",reason="MaxHosts"}`: "1+0x60",
		"discovery_operator_hosts_created_total": "0+1x60", "discovery_operator_hosts_handed_over_total": "0+1x60", "discovery_operator_machines_refused_total": "0+1x60",
		"discovery_operator_nodes_deleted_total": "0+1x60", `discovery_operator_scalings_total{direction="up"}`: "0+1x60",
		`discovery_operator_polls_total{kind="full",result="success"}`:                              "0+1x60",
		`discovery_operator_poll_duration_seconds_bucket{kind="full",le="1"}`:                       "0+1x60",
		`discovery_operator_poll_duration_seconds_bucket{kind="full",le="+Inf"}`:                    "0+1x60",
		`discovery_operator_poll_interval_seconds{ironic="http://i",kind="full"}`:                   "60+0x60",
		`discovery_operator_ironic_requests_total{operation="list",code="200"}`:                     "0+1x60",
		`discovery_operator_ironic_request_duration_seconds_bucket{operation="list",le="1"}`:        "0+1x60",
		`discovery_operator_ironic_request_duration_seconds_bucket{operation="list",le="+Inf"}`:     "0+1x60",
		`discovery_operator_client_requests_total{verb="GET",resource="baremetalhosts",code="200"}`: "0+1x60",
	},
	"ipam-operator": {
		`ipam_allocation_duration_seconds_bucket{le="1"}`: "0+1x60", `ipam_allocation_duration_seconds_bucket{le="+Inf"}`: "0+1x60",
		`ipam_rendering_duration_seconds_bucket{le="1"}`: "0+1x60", `ipam_rendering_duration_seconds_bucket{le="+Inf"}`: "0+1x60",
		`ipam_allocations_total{why="Lowest"}`: "0+1x60", `ipam_releases_total{why="ClaimDeleted"}`: "0+1x60", `ipam_conflicts_total{kind="IPPool"}`: "0+1x60",
		"ipam_network_data_rendered": "3+0x60", `ipam_network_data_waiting{reason="NoPool"}`: "1+0x60",
		`ipam_operator_client_requests_total{verb="GET",resource="ippools",code="200"}`: "0+1x60",
		`ipam_inventory_requests_total{operation="list",result="success"}`:              "0+1x60",
	},
	"pool-operator": {
		`pool_operator_pool_consecutive_failures{clusterpool_namespace="team",clusterpool_name="p"}`: "1+0x60",
		`pool_operator_pool_operations{clusterpool_namespace="team",clusterpool_name="p"}`:           "1+0x60",
		`pool_operator_pool_actions_total{action="CreateCluster",why="BelowSize",outcome="success"}`: "0+1x60",
		`pool_operator_claim_actions_total{action="BindClaim",why="OldestReady"}`:                    "0+1x60",
		`pool_operator_hosted_actions_total{action="Start",why="Wanted",outcome="success"}`:          "0+1x60",
		"pool_operator_claim_conflicts_total":                                                        "0+1x60",
		`pool_operator_client_requests_total{verb="GET",resource="clusterpools",code="200"}`:         "0+1x60",
	},
}

// board is a dashboard of Grafana.
type board struct {
	UID           string `json:"uid"`
	Title         string `json:"title"`
	SchemaVersion int    `json:"schemaVersion"`
	Templating    struct {
		List []struct {
			Name  string          `json:"name"`
			Type  string          `json:"type"`
			Query json.RawMessage `json:"query"`
		} `json:"list"`
	} `json:"templating"`
	Panels []placed `json:"panels"`
}

// placed is a panel at its place: the width of a dashboard is 24.
type placed struct {
	ID         int    `json:"id"`
	Type       string `json:"type"`
	Title      string `json:"title"`
	Datasource struct {
		UID string `json:"uid"`
	} `json:"datasource"`
	Grid    struct{ X, Y, W, H int } `json:"gridPos"`
	Targets []target                 `json:"targets"`
}

type target struct {
	RefID  string `json:"refId"`
	Expr   string `json:"expr"`
	Legend string `json:"legendFormat"`
}

// boards are the dashboards of the operators and of all, by the directory below deploy/components/monitoring.
func boards(t *testing.T) map[string]board {
	t.Helper()
	found := map[string]board{}
	for name, text := range texts(t) {
		var b board
		require.NoError(t, json.Unmarshal(text, &b))
		found[name] = b
	}
	return found
}

// texts are the dashboards as Grafana gets them.
func texts(t *testing.T) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	for _, component := range append(slices.Clone(operators), "overview") {
		objects, err := render.Directory("deploy/components/monitoring/" + component)
		require.NoError(t, err)
		for _, object := range objects {
			if object.GetLabels()["grafana_dashboard"] != "" {
				found[component] = textOf(t, object)
			}
		}
		require.Contains(t, found, component)
	}
	return found
}

func textOf(t *testing.T, object *unstructured.Unstructured) []byte {
	t.Helper()
	var config corev1.ConfigMap
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &config))
	require.Len(t, config.Data, 1)
	for _, text := range config.Data {
		return []byte(text)
	}
	return nil
}

// Grafana imports a dashboard whose schema it knows: panels have ids and places of their own, and take the data of the variable that a user sets.
func TestDashboardsAreWellFormed(t *testing.T) {
	uids := map[string]string{}
	for name, b := range boards(t) {
		assert.Empty(t, uids[b.UID], "%s has the uid of another dashboard", name)
		uids[b.UID] = name
		assert.NotEmpty(t, b.UID, name)
		assert.LessOrEqual(t, len(b.UID), 40, name)
		assert.NotEmpty(t, b.Title, name)
		assert.GreaterOrEqual(t, b.SchemaVersion, 36, "%s: older schemas have data sources without a uid", name)
		variables := map[string]string{}
		for _, v := range b.Templating.List {
			variables[v.Name] = v.Type
			assert.NotEmpty(t, v.Query, "%s: %s", name, v.Name)
		}
		assert.Equal(t, "datasource", variables["datasource"], name)
		ids, cells := map[int]bool{}, map[[2]int]string{}
		for _, p := range b.Panels {
			what := fmt.Sprintf("%s: panel %d %q", name, p.ID, p.Title)
			assert.False(t, ids[p.ID], "%s has the id of another panel", what)
			ids[p.ID] = true
			assert.Positive(t, p.ID, what)
			assert.NotEmpty(t, p.Title, what)
			requirePlace(t, what, p, cells)
			if p.Type != "row" {
				requireData(t, what, p, variables)
			}
		}
	}
}

// requirePlace holds that a panel is inside of the dashboard, and no other panel is where it is.
func requirePlace(t *testing.T, what string, p placed, cells map[[2]int]string) {
	t.Helper()
	g := p.Grid
	require.True(t, g.W > 0 && g.H > 0 && g.X >= 0 && g.Y >= 0 && g.X+g.W <= 24, "%s is at %+v", what, g)
	for x := g.X; x < g.X+g.W; x++ {
		for y := g.Y; y < g.Y+g.H; y++ {
			assert.Empty(t, cells[[2]int{x, y}], "%s covers another panel", what)
			cells[[2]int{x, y}] = what
		}
	}
}

var variable = regexp.MustCompile(`\$\{?([a-zA-Z_]+)`)

// requireData holds that the queries of a panel have names of their own, and use variables that there are.
func requireData(t *testing.T, what string, p placed, variables map[string]string) {
	t.Helper()
	assert.Equal(t, "${datasource}", p.Datasource.UID, what)
	assert.NotEmpty(t, p.Targets, what)
	refs := map[string]bool{}
	for _, q := range p.Targets {
		assert.False(t, refs[q.RefID], "%s has %q twice", what, q.RefID)
		refs[q.RefID] = true
		assert.NotEmpty(t, q.RefID, what)
		assert.NotEmpty(t, q.Expr, what)
		for _, used := range variable.FindAllStringSubmatch(q.Expr, -1) {
			assert.NotEmpty(t, variables[used[1]], "%s: there is no variable $%s", what, used[1])
		}
	}
}

// all are the series of all operators, by operator.
func all() map[string]map[string]string {
	out := map[string]map[string]string{}
	for _, operator := range operators {
		out[operator] = map[string]string{}
		maps.Copy(out[operator], reported[operator])
		maps.Copy(out[operator], further[operator])
		for series, values := range process {
			out[operator][strings.ReplaceAll(series, "NAME", "c")] = values
		}
	}
	return out
}

var (
	selected = regexp.MustCompile(`\$(namespace|pool)\b`)
	legend   = regexp.MustCompile(`\{\{\s*([a-z_]+)\s*\}\}`)
)

// questions are expressions that are 1 where a query has a series, and each label of its legend has a value.
func questions(q target) map[string]string {
	expr := selected.ReplaceAllString(q.Expr, ".*")
	out := map[string]string{"series": "count(" + expr + ") >= bool 1"}
	for _, label := range legend.FindAllStringSubmatch(q.Legend, -1) {
		out["label "+label[1]] = fmt.Sprintf("count((group by (%[1]s) (%[2]s)) unless on (%[1]s) vector(1)) >= bool 1", label[1], expr)
	}
	return out
}

// No panel of a dashboard is empty where two replicas of every operator report all that they have, and no legend is.
func TestNoPanelIsEmpty(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	needtest.Part(t, err == nil, "promtool is not installed: install the package prometheus of Debian")
	var input []map[string]string
	for operator, series := range all() {
		for _, name := range slices.Sorted(maps.Keys(series)) {
			pods := []string{"a", "b"}
			if strings.HasPrefix(name, "ALERTS{") { // of Prometheus, not of the pods
				pods = pods[:1]
			}
			for _, pod := range pods {
				input = append(input, map[string]string{"series": replica(name, operator, pod), "values": series[name]})
			}
		}
	}
	for name, b := range boards(t) {
		t.Run(name, func(t *testing.T) {
			var expressions []map[string]any
			for _, p := range b.Panels {
				for _, q := range p.Targets {
					for _, expr := range questions(q) {
						expressions = append(expressions, map[string]any{"expr": expr, "eval_time": "30m", "exp_samples": []map[string]any{{"labels": "{}", "value": 1}}})
					}
				}
			}
			require.NotEmpty(t, expressions)
			file := write(t, t.TempDir(), "tests.yaml", map[string]any{"evaluation_interval": "1m", "tests": []map[string]any{{
				"interval": "1m", "input_series": input, "promql_expr_test": expressions,
			}}})
			out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput()
			require.NoError(t, err, "%s", out)
		})
	}
}
