// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package alerts_test evaluates the alerts of deploy/components/monitoring with Prometheus: over the series of two replicas as a ServiceMonitor
// labels them, and over two real replicas that a real Prometheus scrapes.
package alerts_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/e2e/render"
)

// operators have a directory below deploy/components/monitoring each.
var operators = []string{"agent-service", "discovery-operator", "ipam-operator", "pool-operator"}

// firing says which series make an alert fire, once, with which labels.
type firing struct {
	operator string
	// series are values, one a minute, by metric and labels, which both replicas report.
	series map[string]string
	// after is when the alert has to fire.
	after string
	// labels are those of the alert, which say which object it is about, beside its name and severity.
	labels map[string]string
}

var (
	pool   = map[string]string{"clusterpool_namespace": "team", "clusterpool_name": "p"}
	ippool = map[string]string{"ippool_namespace": "team", "ippool_name": "p"}
)

func failing(operator string) firing {
	return firing{operator, map[string]string{`controller_runtime_reconcile_errors_total{controller="c"}`: "0+60x60"}, "40m", map[string]string{"controller": "c"}}
}

func down(operator string) firing {
	return firing{operator, map[string]string{"up": "0+0x60"}, "10m", nil}
}

// cases has every alert.
var cases = map[string]firing{
	"AgentServiceDown":    down("agent-service"),
	"AgentServiceFailing": failing("agent-service"),
	"AgentStoreAway":      {"agent-service", map[string]string{"agent_service_store_away": "1+0x60"}, "10m", nil},
	"AgentHostsSilent": {"agent-service", map[string]string{
		`agent_service_hosts{state="disconnected"}`: "20+0x60", `agent_service_hosts{state="known"}`: "30+0x60",
	}, "30m", nil},
	"AgentHostsFailed":         {"agent-service", map[string]string{`agent_service_hosts{state="error"}`: "1+0x90"}, "80m", nil},
	"AgentInstallationsLate":   {"agent-service", map[string]string{`agent_service_hosts_waiting_oldest_age_seconds{situation="installing"}`: "0+60x90", `agent_service_hosts_waiting_oldest_age_seconds{situation="joining"}`: "0+0x90"}, "80m", nil},
	"AgentNodesMissing":        {"agent-service", map[string]string{`agent_service_hosts_waiting_oldest_age_seconds{situation="joining"}`: "0+60x90"}, "40m", nil},
	"AgentHostsNotFreed":       {"agent-service", map[string]string{`agent_service_hosts_waiting_oldest_age_seconds{situation="releasing"}`: "0+60x90"}, "50m", nil},
	"AgentImagesDown":          {"agent-service", map[string]string{`up{job="agent-service-images-metrics"}`: "1+0x10 0+0x50"}, "20m", nil},
	"AgentImagesFailing":       {"agent-service", map[string]string{"agent_service_image_failures_total": "0+60x60"}, "30m", nil},
	"DiscoveryOperatorDown":    down("discovery-operator"),
	"DiscoveryOperatorFailing": failing("discovery-operator"),
	"DiscoveryIronicSilent": {"discovery-operator", map[string]string{
		`discovery_operator_poll_last_success_timestamp_seconds{ironic="http://i",kind="full"}`: "0+0x90",
		`discovery_operator_poll_interval_seconds{ironic="http://i",kind="full"}`:               "60+0x90",
		// One that is read once a day is not late after an hour.
		`discovery_operator_poll_last_success_timestamp_seconds{ironic="http://daily",kind="full"}`: "0+0x90",
		`discovery_operator_poll_interval_seconds{ironic="http://daily",kind="full"}`:               "86400+0x90",
	}, "60m", map[string]string{"ironic": "http://i", "kind": "full"}},
	"DiscoveryMachinesRefused": {"discovery-operator", map[string]string{
		`discovery_operator_machines{discovery_namespace="team",discovery_name="rack",situation="refused"}`: "2+0x90",
	}, "80m", map[string]string{"discovery_namespace": "team", "discovery_name": "rack"}},
	"IPAMOperatorDown":    down("ipam-operator"),
	"IPAMOperatorFailing": failing("ipam-operator"),
	"IPAMPoolExhausted": {"ipam-operator", map[string]string{
		`ipam_addresses{ippool_namespace="team",ippool_name="p",state="free"}`: "0+0x60", `ipam_addresses{ippool_namespace="team",ippool_name="q",state="free"}`: "5+0x60",
	}, "30m", ippool},
	"IPAMClaimsWaiting":      {"ipam-operator", map[string]string{`ipam_claims_waiting{reason="PoolExhausted"}`: "3+0x60"}, "50m", map[string]string{"reason": "PoolExhausted"}},
	"IPAMNetworkDataWaiting": {"ipam-operator", map[string]string{`ipam_network_data_waiting{reason="NoPool"}`: "3+0x60"}, "50m", map[string]string{"reason": "NoPool"}},
	"IPAMInventoryFailing": {"ipam-operator", map[string]string{
		`ipam_inventory_requests_total{operation="list",result="error"}`: "0+1x60", `ipam_inventory_requests_total{operation="list",result="success"}`: "7+0x60",
	}, "40m", map[string]string{"operation": "list"}},
	"PoolOperatorDown":    down("pool-operator"),
	"PoolOperatorFailing": failing("pool-operator"),
	"PoolClustersBroken": {"pool-operator", map[string]string{
		`pool_operator_pool_clusters{clusterpool_namespace="team",clusterpool_name="p",state="broken"}`: "1+0x60",
	}, "30m", pool},
	"PoolProvisioningFailing": {"pool-operator", map[string]string{
		`pool_operator_pool_consecutive_failures{clusterpool_namespace="team",clusterpool_name="p"}`: "3+0x60",
	}, "30m", pool},
	"PoolClaimsWaiting": {"pool-operator", map[string]string{
		`pool_operator_claim_oldest_waiting_age_seconds{clusterpool_namespace="team",clusterpool_name="p"}`: "2000+60x60",
	}, "30m", pool},
	"PoolOperationsStuck": {"pool-operator", map[string]string{
		`pool_operator_pool_operations{clusterpool_namespace="team",clusterpool_name="p"}`: "1+0x90",
	}, "60m", pool},
}

type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type group struct {
	Name  string `json:"name"`
	Rules []rule `json:"rules"`
}

// rules returns the groups of an operator's PrometheusRule.
func rules(t *testing.T, operator string) []group {
	t.Helper()
	objects, err := render.Directory("deploy/components/monitoring/" + operator)
	require.NoError(t, err)
	for _, o := range objects {
		if o.GetKind() != "PrometheusRule" {
			continue
		}
		spec := struct {
			Groups []group `json:"groups"`
		}{}
		content, _, err := unstructured.NestedMap(o.Object, "spec")
		require.NoError(t, err)
		text, err := yaml.Marshal(content)
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(text, &spec))
		return spec.Groups
	}
	t.Fatalf("%s has no PrometheusRule", operator)
	return nil
}

func write(t *testing.T, dir, name string, content any) string {
	t.Helper()
	text, err := yaml.Marshal(content)
	require.NoError(t, err)
	file := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(file, text, 0o600))
	return file
}

// replica adds the labels that a ServiceMonitor gives the series of a pod. They include the namespace of the operator, and the job where the series names none.
func replica(series, operator, pod string) string {
	name, labels, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
	added := fmt.Sprintf(`namespace=%q,pod=%q,instance=%q`, "muster-"+operator, operator+"-"+pod, pod+":8443")
	if !strings.HasPrefix(labels, "job=") {
		added = fmt.Sprintf("job=%q,", operator+"-metrics") + added
	}
	return name + "{" + strings.Join(slices.DeleteFunc([]string{labels, added}, func(s string) bool { return s == "" }), ",") + "}"
}

// unit is a test in the form of promtool: what fires in a situation that two replicas report.
func unit(alert string, severity string, f firing) map[string]any {
	var input []map[string]string
	for _, name := range slices.Sorted(maps.Keys(f.series)) {
		for _, pod := range []string{"a", "b"} {
			input = append(input, map[string]string{"series": replica(name, f.operator, pod), "values": f.series[name]})
		}
	}
	labels := []string{fmt.Sprintf("__name__=%q", "ALERTS"), fmt.Sprintf("alertname=%q", alert), fmt.Sprintf("alertstate=%q", "firing"), fmt.Sprintf("severity=%q", severity)}
	for name, value := range f.labels {
		labels = append(labels, fmt.Sprintf("%s=%q", name, value))
	}
	return map[string]any{
		"interval": "1m", "name": alert, "input_series": input,
		"promql_expr_test": []map[string]any{{
			"expr": fmt.Sprintf(`ALERTS{alertname=%q,alertstate="firing"}`, alert), "eval_time": f.after,
			"exp_samples": []map[string]any{{"labels": "{" + strings.Join(labels, ",") + "}", "value": 1}},
		}},
	}
}

// Two replicas that report the same state make one alert, which names its object.
func TestOneAlertFiresForTwoReplicas(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	needtest.Part(t, err == nil, "promtool is not installed: install the package prometheus of Debian")
	tested := map[string]bool{}
	for _, operator := range operators {
		t.Run(operator, func(t *testing.T) {
			dir := t.TempDir()
			groups := rules(t, operator)
			write(t, dir, "rules.yaml", map[string]any{"groups": groups})
			var units []map[string]any
			for _, g := range groups {
				for _, r := range g.Rules {
					f, known := cases[r.Alert]
					if !assert.True(t, known, "%s has no case", r.Alert) {
						continue
					}
					tested[r.Alert] = true
					units = append(units, unit(r.Alert, r.Labels["severity"], f))
					namesItsObject(t, r, f)
				}
			}
			file := write(t, dir, "tests.yaml", map[string]any{"rule_files": []string{"rules.yaml"}, "evaluation_interval": "1m", "tests": units})
			out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput()
			require.NoError(t, err, "%s", out)
		})
	}
	assert.Len(t, tested, len(cases), "a case belongs to no alert")
}

var label = regexp.MustCompile(`\$labels\.([a-z_]+)`)

// namesItsObject holds that the sentences of an alert use labels that it has.
func namesItsObject(t *testing.T, r rule, f firing) {
	t.Helper()
	for _, sentence := range r.Annotations {
		for _, used := range label.FindAllStringSubmatch(sentence, -1) {
			assert.Contains(t, f.labels, used[1], "%s: %s", r.Alert, sentence)
		}
	}
}

// One replica of two is enough: the alert that an operator is down stays silent.
func TestOneReplicaThatAnswersIsEnough(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	needtest.Part(t, err == nil, "promtool is not installed: install the package prometheus of Debian")
	for _, operator := range operators {
		dir := t.TempDir()
		write(t, dir, "rules.yaml", map[string]any{"groups": rules(t, operator)})
		file := write(t, dir, "tests.yaml", map[string]any{"rule_files": []string{"rules.yaml"}, "evaluation_interval": "1m", "tests": []map[string]any{{
			"interval": "1m",
			"input_series": []map[string]string{
				{"series": replica("up", operator, "a"), "values": "1+0x60"}, {"series": replica("up", operator, "b"), "values": "0+0x60"},
			},
			"promql_expr_test": []map[string]any{{"expr": "ALERTS", "eval_time": "50m"}},
		}}})
		out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput()
		require.NoError(t, err, "%s: %s", operator, out)
	}
}

// Pods of images may be gone altogether, with the series of their scrapes. One of two that answers is enough.
func TestPodsOfImagesAreDownWhenNoneAnswers(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	needtest.Part(t, err == nil, "promtool is not installed: install the package prometheus of Debian")
	const up = `up{job="agent-service-images-metrics"}`
	firing := []map[string]any{{"labels": `{__name__="ALERTS",alertname="AgentImagesDown",alertstate="firing",severity="critical"}`, "value": 1}}
	dir := t.TempDir()
	write(t, dir, "rules.yaml", map[string]any{"groups": rules(t, "agent-service")})
	var units []map[string]any
	for _, situation := range []struct {
		a, b string
		want []map[string]any
	}{
		{a: "1+0x10 _x50", b: "1+0x20 _x40", want: firing},
		{a: "1+0x60", b: "1+0x20 _x40"},
		{a: "0+0x60", b: "1+0x60"},
		{a: "1+0x20 0+0x40", b: "0+0x20 1+0x40"},
	} {
		units = append(units, map[string]any{
			"interval": "1m",
			"input_series": []map[string]string{
				{"series": replica(up, "agent-service", "a"), "values": situation.a}, {"series": replica(up, "agent-service", "b"), "values": situation.b},
				{"series": replica("up", "agent-service", "c"), "values": "1+0x60"},
			},
			"promql_expr_test": []map[string]any{{"expr": `ALERTS{alertstate="firing"}`, "eval_time": "40m", "exp_samples": situation.want}},
		})
	}
	file := write(t, dir, "tests.yaml", map[string]any{"rule_files": []string{"rules.yaml"}, "evaluation_interval": "1m", "tests": units})
	out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// Replicas that run for a minute of six, in turn, do no work: the operator is down although now and then one answers. Those that were replaced, or restarted once, are not.
func TestReplicasThatEndSoonAfterEachStartAreDown(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	needtest.Part(t, err == nil, "promtool is not installed: install the package prometheus of Debian")
	for _, operator := range operators {
		dir := t.TempDir()
		write(t, dir, "rules.yaml", map[string]any{"groups": rules(t, operator)})
		var units []map[string]any
		for _, situation := range []struct {
			a, b  string
			fires bool
		}{
			{a: strings.Repeat("1 0 0 0 0 0 ", 10), b: strings.Repeat("0 0 0 1 0 0 ", 10), fires: true},
			{a: "1+0x20 _x40", b: "_x20 0 1+0x40"},
			{a: "1+0x35 0 0 0 1+0x20", b: "1+0x37 0 0 0 1+0x20"},
			{a: strings.Repeat("1 0 0 0 0 0 ", 10), b: "1+0x60"},
		} {
			want := []map[string]any{}
			if situation.fires {
				want = append(want, map[string]any{"labels": "{}", "value": 1})
			}
			units = append(units, map[string]any{
				"interval": "1m",
				"input_series": []map[string]string{
					{"series": replica("up", operator, "a"), "values": situation.a}, {"series": replica("up", operator, "b"), "values": situation.b},
				},
				"promql_expr_test": []map[string]any{{"expr": `count(ALERTS{alertname=~".*Down",alertstate="firing"})`, "eval_time": "41m", "exp_samples": want}},
			})
		}
		file := write(t, dir, "tests.yaml", map[string]any{"rule_files": []string{"rules.yaml"}, "evaluation_interval": "1m", "tests": units})
		out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput()
		require.NoError(t, err, "%s: %s", operator, out)
	}
}

// A report that the inventory refuses is repeated with a back-off of up to 1,000 seconds: the alert goes on until one is taken.
func TestAReportThatIsRepeatedSeldomKeepsTheAlert(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	needtest.Part(t, err == nil, "promtool is not installed: install the package prometheus of Debian")
	dir := t.TempDir()
	write(t, dir, "rules.yaml", map[string]any{"groups": rules(t, "ipam-operator")})
	requests := func(result string) string {
		return replica(fmt.Sprintf(`ipam_inventory_requests_total{operation="give",result=%q}`, result), "ipam-operator", "a")
	}
	var tests []map[string]any
	for minute := 40; minute <= 160; minute++ {
		want := []map[string]any{}
		if minute < 111 {
			want = append(want, map[string]any{"labels": "{}", "value": 1})
		}
		tests = append(tests, map[string]any{
			"expr": `count(ALERTS{alertname="IPAMInventoryFailing",alertstate="firing"})`, "eval_time": fmt.Sprintf("%dm", minute), "exp_samples": want,
		})
	}
	file := write(t, dir, "tests.yaml", map[string]any{"rule_files": []string{"rules.yaml"}, "evaluation_interval": "1m", "tests": []map[string]any{{
		"interval": "1m",
		"input_series": []map[string]string{
			{"series": requests("error"), "values": "_ 13 14 15 15 15 16+0x4 17+0x10 18+0x16 19+0x16 20+0x16 21+0x16 22+0x80"},
			{"series": requests("success"), "values": "4+0x110 5+0x60"}, // taken after 111 minutes
		},
		"promql_expr_test": tests,
	}}})
	out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
