// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"encoding/json"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/environment/environmenttest"
	"github.com/muster-io/muster/e2e/render"
)

// prometheusRule is what is read here of monitoring.coreos.com/v1 PrometheusRule.
type prometheusRule struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []struct {
				Alert       string            `json:"alert"`
				Expr        string            `json:"expr"`
				For         string            `json:"for"`
				Labels      map[string]string `json:"labels"`
				Annotations map[string]string `json:"annotations"`
			} `json:"rules"`
		} `json:"groups"`
	} `json:"spec"`
}

func rules(t *testing.T, objects []*unstructured.Unstructured) []prometheusRule {
	t.Helper()
	var out []prometheusRule
	for _, object := range objects {
		if object.GetKind() != "PrometheusRule" {
			continue
		}
		raw, err := json.Marshal(object.Object)
		require.NoError(t, err)
		var rule prometheusRule
		require.NoError(t, json.Unmarshal(raw, &rule))
		out = append(out, rule)
	}
	return out
}

// An alert notifies the administrator: it says what is wrong in a sentence, how bad it is, and where to read on.
func TestEveryAlertHasARunbook(t *testing.T) {
	for _, operator := range operators(t) {
		found := rules(t, monitored(t, operator))
		assert.NotEmpty(t, found, "%s has alerts", operator)
		for _, rule := range found {
			for _, group := range rule.Spec.Groups {
				for _, alert := range group.Rules {
					require.NotEmpty(t, alert.Alert)
					assert.NotEmpty(t, alert.For, alert.Alert)
					assert.Contains(t, []string{"warning", "critical"}, alert.Labels["severity"], alert.Alert)
					assert.NotEmpty(t, alert.Annotations["summary"], alert.Alert)
					assert.NotEmpty(t, alert.Annotations["description"], alert.Alert)
					checkRunbook(t, alert.Alert, alert.Annotations["runbook_url"])
				}
			}
		}
	}
}

// monitored is what a user gets who adds monitoring to an operator's production overlay.
func monitored(t *testing.T, operator string) []*unstructured.Unstructured {
	t.Helper()
	return rendered(t, render.Overlay{
		Namespace: "muster-" + operator,
		Resources: []string{"overlays/production/" + operator}, Components: []string{"components/monitoring/" + operator},
	})
}

// A plain cluster has no kinds of the Prometheus Operator: a manifest with one fails to apply, and GitOps tools then apply nothing at all.
func TestOverlaysNeedNoPrometheusOperator(t *testing.T) {
	each(t, func(t *testing.T, _ string, objects []*unstructured.Unstructured) {
		for _, object := range objects {
			assert.NotEqual(t, "monitoring.coreos.com", object.GroupVersionKind().Group, "%s %s", object.GetKind(), object.GetName())
		}
	})
}

func checkRunbook(t *testing.T, alert, url string) {
	t.Helper()
	require.Contains(t, url, "/docs/runbooks/", alert)
	file, err := checkout.Path("docs", "runbooks", path.Base(url))
	require.NoError(t, err)
	text, err := os.ReadFile(file)
	require.NoError(t, err, alert)
	assert.Contains(t, string(text), "# "+alert+"\n", "the runbook's title is the alert's name")
	for _, heading := range []string{"## What it means", "## What to look at", "## What to do"} {
		assert.Contains(t, string(text), heading, alert)
	}
}

// No runbook outlives its alert.
func TestEveryRunbookHasAnAlert(t *testing.T) {
	dir, err := checkout.Path("docs", "runbooks")
	require.NoError(t, err)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	alerts := map[string]bool{}
	for _, operator := range operators(t) {
		for _, rule := range rules(t, monitored(t, operator)) {
			for _, group := range rule.Spec.Groups {
				for _, alert := range group.Rules {
					alerts[alert.Alert] = true
				}
			}
		}
	}
	for _, entry := range entries {
		name := strings.TrimSuffix(entry.Name(), ".md")
		assert.True(t, name == "README" || alerts[name], "docs/runbooks/%s belongs to no alert", entry.Name())
	}
}

// Alerts and dashboards ask for metrics that an operator has, and every metric of an operator has a place on a dashboard.
func TestAlertsAndDashboardsAskForTheMetricsThatExist(t *testing.T) {
	declared := declaredMetrics(t)
	require.NotEmpty(t, declared)
	var asked, shown []string
	var objects []*unstructured.Unstructured
	for _, operator := range operators(t) {
		objects = append(objects, monitored(t, operator)...)
	}
	objects = append(objects, mustRender(t, "deploy/components/monitoring/overview")...)
	for _, object := range objects {
		boards := dashboards(t, []*unstructured.Unstructured{object})
		shown = append(shown, boards...)
		asked = append(asked, boards...)
		for _, rule := range rules(t, []*unstructured.Unstructured{object}) {
			for _, group := range rule.Spec.Groups {
				for _, alert := range group.Rules {
					asked = append(asked, alert.Expr)
				}
			}
		}
	}
	own := regexp.MustCompile(`\b(?:(?:pool|ipam|discovery)_operator|ipam|agent_service)_[a-z0-9_]+`)
	for _, metric := range own.FindAllString(strings.Join(asked, "\n"), -1) {
		base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(metric, "")
		assert.True(t, declared[base] || declared[metric], "no operator has the metric %s", metric)
	}
	all := strings.Join(shown, "\n")
	for metric := range declared {
		if !strings.Contains(all, metric) {
			t.Errorf("no dashboard shows %s", metric)
		}
	}
}

// declaredMetrics returns the names of the operators' metrics, as their sources declare them.
func declaredMetrics(t *testing.T) map[string]bool {
	t.Helper()
	source := operatorSources(t)
	found := map[string]bool{}
	for _, pattern := range []string{`requestcount\.New\("([a-z0-9_]+)"`, `NewDesc\(\s*"([a-z0-9_]+)",`, `Opts\{\s*Name:\s*"([a-z0-9_]+)"`} {
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(source, -1) {
			found[match[1]] = true
		}
	}
	for _, match := range regexp.MustCompile(`= counter\("([a-z0-9_]+)"|: +counter\("([a-z0-9_]+)"`).FindAllStringSubmatch(source, -1) {
		found["discovery_operator_"+match[1]+match[2]] = true
	}
	for _, match := range regexp.MustCompile(`Opts\{\s*Namespace:\s*"([a-z0-9_]+)",\s*Name:\s*"([a-z0-9_]+)"`).FindAllStringSubmatch(source, -1) {
		found[match[1]+"_"+match[2]] = true
	}
	return found
}

func dashboards(t *testing.T, objects []*unstructured.Unstructured) []string {
	t.Helper()
	var out []string
	for _, config := range ofKind[corev1.ConfigMap](t, objects, "ConfigMap") {
		if config.Labels["grafana_dashboard"] == "" {
			continue
		}
		for name, text := range config.Data {
			var any map[string]any
			require.NoError(t, json.Unmarshal([]byte(text), &any), name)
			assert.NotEmpty(t, any["panels"], name)
			assert.NotEmpty(t, any["title"], name)
			out = append(out, text)
		}
	}
	return out
}

// A Prometheus that forbids ServiceMonitors to name its files, as in OpenShift, scrapes with the token of an account that may read the metrics, and nothing else.
func TestPrometheusScrapesWithoutAFileOfItsOwn(t *testing.T) {
	objects := monitoringKinds()
	for _, operator := range operators(t) {
		objects = append(objects, rendered(t, render.Overlay{
			Namespace: "muster-" + operator, Resources: []string{"overlays/production/" + operator},
			Components: []string{"components/monitoring/" + operator, "components/metrics-token/" + operator},
		})...)
	}
	_, config := environmenttest.ControlPlane(t)
	require.NoError(t, render.Apply(t.Context(), config, objects))
	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	for _, operator := range operators(t) {
		monitor := &unstructured.Unstructured{}
		monitor.SetGroupVersionKind(schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"})
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "muster-" + operator, Name: operator}, monitor))
		endpoints, _, err := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
		require.NoError(t, err)
		require.Len(t, endpoints, 1)
		endpoint, _ := endpoints[0].(map[string]any)
		assert.NotContains(t, endpoint, "bearerTokenFile")
		name, _, err := unstructured.NestedString(endpoint, "authorization", "credentials", "name")
		require.NoError(t, err)
		key, _, err := unstructured.NestedString(endpoint, "authorization", "credentials", "key")
		require.NoError(t, err)
		secret := &corev1.Secret{}
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			require.NoError(collect, c.Get(t.Context(), client.ObjectKey{Namespace: "muster-" + operator, Name: name}, secret))
			assert.NotEmpty(collect, secret.Data[key])
		}, 2*time.Minute, 100*time.Millisecond)
		scraper, err := client.New(&rest.Config{Host: config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData, CAFile: config.CAFile}, BearerToken: string(secret.Data[key])}, client.Options{})
		require.NoError(t, err)
		for path, allowed := range map[string]bool{"/metrics": true, "/logs": false} {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
			}}
			require.NoError(t, scraper.Create(t.Context(), review))
			assert.Equal(t, allowed, review.Status.Allowed, "%s of %s", path, operator)
		}
	}
}
