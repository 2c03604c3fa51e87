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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-io/muster/e2e/checkout"
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

// An alert wakes somebody: it says what is wrong in a sentence, how bad it is, and where to read on.
func TestEveryAlertHasARunbook(t *testing.T) {
	each(t, func(t *testing.T, dir string, objects []*unstructured.Unstructured) {
		found := rules(t, objects)
		if strings.HasPrefix(dir, "deploy/overlays/production") {
			assert.NotEmpty(t, found, "production has alerts")
		}
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
	for _, dir := range directories(t) {
		objects := mustRender(t, dir)
		for _, rule := range rules(t, objects) {
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

// Every metric that an alert or a dashboard asks for is one that an operator has: its name stands in the operator's source.
func TestAlertsAndDashboardsAskForMetricsThatExist(t *testing.T) {
	own := regexp.MustCompile(`\b((?:pool|ipam|discovery)_operator_[a-z0-9_]+|agent_service_[a-z0-9_]+)`)
	source := operatorSources(t)
	each(t, func(t *testing.T, _ string, objects []*unstructured.Unstructured) {
		var texts []string
		for _, rule := range rules(t, objects) {
			for _, group := range rule.Spec.Groups {
				for _, alert := range group.Rules {
					texts = append(texts, alert.Expr)
				}
			}
		}
		texts = append(texts, dashboards(t, objects)...)
		for _, text := range texts {
			for _, metric := range own.FindAllString(text, -1) {
				base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(metric, "")
				assert.True(t, strings.Contains(source, `"`+base+`"`) || strings.Contains(source, `"`+metric+`"`), "no operator has the metric %s", metric)
			}
		}
	})
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

// Every metric of an operator that is deployed in production has a place on a dashboard.
func TestEveryMetricIsOnADashboard(t *testing.T) {
	declared := regexp.MustCompile(`"((?:pool|ipam|discovery)_operator_[a-z0-9_]+|agent_service_[a-z0-9_]+)"`)
	all := ""
	for _, object := range mustRender(t, "deploy/overlays/production") {
		for _, dashboard := range dashboards(t, []*unstructured.Unstructured{object}) {
			all += dashboard
		}
	}
	for _, match := range declared.FindAllStringSubmatch(operatorSources(t), -1) {
		assert.Contains(t, all, match[1])
	}
}
