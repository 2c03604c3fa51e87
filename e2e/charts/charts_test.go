// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/apis/controlplanetest"
	"github.com/muster-io/muster/e2e/chart"
	"github.com/muster-io/muster/e2e/render"
)

const version = "v0.1.0"

func each(t *testing.T, check func(t *testing.T, operator, dir string)) {
	for _, operator := range chart.Operators() {
		t.Run(operator, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, chart.Write(dir, operator, version))
			check(t, operator, filepath.Join(dir, operator))
		})
	}
}

// install renders a chart as "helm template --namespace platform" does, with values over its own.
func install(t *testing.T, dir string, values map[string]any) ([]*unstructured.Unstructured, error) {
	t.Helper()
	loaded, err := loader.Load(dir)
	require.NoError(t, err)
	all, err := chartutil.ToRenderValues(loaded, values, chartutil.ReleaseOptions{Name: "muster", Namespace: "platform", IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(loaded, all)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for name, content := range files {
		if !strings.HasSuffix(name, ".yaml") || strings.TrimSpace(content) == "" {
			continue
		}
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(content), &object.Object), "%s:\n%s", name, content)
		objects = append(objects, object)
	}
	return objects, nil
}

func must(t *testing.T, dir string, values map[string]any) []*unstructured.Unstructured {
	t.Helper()
	objects, err := install(t, dir, values)
	require.NoError(t, err)
	return objects
}

// generated are the names of ConfigMaps that kustomize makes, with a hash of their content.
var generated = regexp.MustCompile(`(agent-service(?:-[a-z]+)*)-[a-z0-9]{10}\b`)

// TestAChartWithItsOwnValuesIsTheOverlay but for the checksum by which pods notice a change of values.
func TestAChartWithItsOwnValuesIsTheOverlay(t *testing.T) {
	each(t, func(t *testing.T, operator, dir string) {
		for _, token := range []bool{false, true} {
			overlay := render.Overlay{
				Namespace: "platform", Resources: []string{"overlays/production/" + operator},
				Components: []string{"components/existing-namespace", "components/openshift/" + operator, "components/monitoring/" + operator, "components/monitoring/overview"},
			}
			if token {
				overlay.Components = append(overlay.Components, "components/metrics-token/"+operator)
			}
			want, err := overlay.Render()
			require.NoError(t, err)
			got := byName(t, must(t, dir, map[string]any{
				"openshift": map[string]any{"enabled": true}, "monitoring": map[string]any{"enabled": true, "overview": true, "token": token},
			}))
			names := map[string]bool{}
			for _, object := range want {
				name := generated.ReplaceAllString(object.GetKind()+"/"+object.GetName(), "$1")
				names[name] = true
				content, err := yaml.Marshal(object.Object)
				require.NoError(t, err)
				assert.Equal(t, generated.ReplaceAllString(string(content), "$1"), got[name], name)
			}
			for name := range got {
				assert.True(t, names[name], "%s is not in the overlay", name)
			}
		}
	})
}

func byName(t *testing.T, objects []*unstructured.Unstructured) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, object := range objects {
		unstructured.RemoveNestedField(object.Object, "spec", "template", "metadata", "annotations", "checksum/values")
		content, err := yaml.Marshal(object.Object)
		require.NoError(t, err)
		out[object.GetKind()+"/"+object.GetName()] = string(content)
	}
	return out
}

func TestHelmFindsNothingWrong(t *testing.T) {
	each(t, func(t *testing.T, _, dir string) {
		for _, message := range lint.AllWithKubeVersion(dir, nil, "platform", nil).Messages {
			assert.Less(t, message.Severity, support.WarningSev, message.Error())
		}
	})
}

func TestAWordThatIsNoValueIsRefused(t *testing.T) {
	each(t, func(t *testing.T, _, dir string) {
		for name, values := range map[string]map[string]any{
			"replica":  {"replica": 1},
			"replicas": {"replicas": "two"},
			"tags":     {"image": map[string]any{"tags": "v1"}},
			"logLevel": {"logLevel": "loud"},
		} {
			_, err := install(t, dir, values)
			require.ErrorContains(t, err, "values don't meet the specifications of the schema", name)
		}
	})
}

func TestValuesChangeWhatTeamsChange(t *testing.T) {
	each(t, func(t *testing.T, operator, dir string) {
		objects := must(t, dir, map[string]any{
			"replicas": 3, "image": map[string]any{"registry": "registry.example.com/mirror", "tag": "v9"}, "logLevel": "debug", "extraArgs": []any{"--x=1"},
			"nodeSelector": map[string]any{"infra": "true"}, "networkPolicy": map[string]any{"enabled": false}, "podDisruptionBudget": map[string]any{"enabled": false},
			"resources": map[string]any{"limits": map[string]any{"memory": "2Gi"}}, "priorityClassName": "high", "imagePullSecrets": []any{map[string]any{"name": "pull"}},
			"tolerations": []any{map[string]any{"key": "infra", "operator": "Exists"}},
		})
		for _, object := range objects {
			assert.NotContains(t, []string{"NetworkPolicy", "PodDisruptionBudget", "ServiceMonitor", "PrometheusRule"}, object.GetKind())
		}
		text := byName(t, objects)["Deployment/"+operator]
		for _, want := range []string{
			"replicas: 3\n", "image: registry.example.com/mirror/" + operator + ":v9\n", "- --log-level=debug\n", "- --x=1\n", "infra: \"true\"\n", "memory: 2Gi\n",
			"priorityClassName: high\n", "- name: pull\n", "key: infra\n",
		} {
			assert.Contains(t, text, want)
		}
	})
}

// Every pod that asks an API server may do so at the ports that a value states, and at those that it reaches anyway.
func TestAPIServersMayListenAtOtherPorts(t *testing.T) {
	each(t, func(t *testing.T, operator, dir string) {
		open := map[string][]int32{}
		for _, object := range must(t, dir, map[string]any{"networkPolicy": map[string]any{"apiServerPorts": []any{16443, 8443}}}) {
			if object.GetKind() != "NetworkPolicy" {
				continue
			}
			policy := &networkingv1.NetworkPolicy{}
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, policy))
			for _, rule := range policy.Spec.Egress {
				for _, port := range rule.Ports {
					assert.NotNil(t, port.Protocol)
					open[policy.Name] = append(open[policy.Name], port.Port.IntVal)
				}
			}
		}
		assert.Subset(t, open[operator], []int32{443, 6443, 16443, 8443})
		if operator == "agent-service" {
			assert.Subset(t, open["agent-service-images"], []int32{443, 6443, 16443, 8443})
			assert.Equal(t, []int32{5432}, open["agent-service-database"])
		}
		for _, wrong := range []any{"https", 0, 70000} {
			_, err := install(t, dir, map[string]any{"networkPolicy": map[string]any{"apiServerPorts": []any{wrong}}})
			require.ErrorContains(t, err, "values don't meet the specifications of the schema")
		}
	})
}

func TestVariablesAreAddedToThoseThatThereAre(t *testing.T) {
	collector := map[string]any{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "https://collector.example.com:4317"}
	headers := map[string]any{"name": "OTEL_EXPORTER_OTLP_HEADERS", "valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": "collector", "key": "headers"}}}
	each(t, func(t *testing.T, _, dir string) {
		before, after := variables(t, must(t, dir, nil)), variables(t, must(t, dir, map[string]any{"extraEnv": []any{collector, headers}}))
		require.NotEmpty(t, after)
		require.Len(t, after, len(before))
		for deployment, those := range after {
			assert.Equal(t, append(before[deployment], collector, headers), those, deployment)
		}
	})
}

// variables are those of the only container of each Deployment.
func variables(t *testing.T, objects []*unstructured.Unstructured) map[string][]any {
	t.Helper()
	found := map[string][]any{}
	for _, object := range objects {
		if object.GetKind() == "Deployment" {
			containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
			require.NoError(t, err)
			require.Len(t, containers, 1)
			container, _ := containers[0].(map[string]any)
			found[object.GetName()], _ = container["env"].([]any)
		}
	}
	return found
}

func TestHostedClustersAreExposedByAValue(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chart.Write(dir, "pool-operator", version))
	objects := byName(t, must(t, filepath.Join(dir, "pool-operator"), map[string]any{"hosted": map[string]any{
		"expose": "Gateway", "gateway": "gateways/hosted", "address": "https://{clusterName}.{baseDomain}:443", "image": "mirror/control-plane:v1",
	}}))
	with, err := render.Overlay{Resources: []string{"overlays/production/pool-operator"}, Components: []string{"components/hosted-gateway"}}.Render()
	require.NoError(t, err)
	for _, object := range with {
		if object.GetKind() != "Namespace" {
			assert.Contains(t, objects, object.GetKind()+"/"+object.GetName(), "rights to write routes are there, too")
		}
	}
	deployment := objects["Deployment/pool-operator"]
	for _, want := range []string{"- --hosted-expose=Gateway\n", "- --hosted-gateway=gateways/hosted\n", "- --hosted-address=https://{clusterName}.{baseDomain}:443\n", "value: mirror/control-plane:v1\n"} {
		assert.Contains(t, deployment, want)
	}
}

// TestTLSIsThatOfTheComponent: the chart and the component agree on how service and images serve TLS.
func TestTLSIsThatOfTheComponent(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chart.Write(dir, "agent-service", version))
	got := byName(t, must(t, filepath.Join(dir, "agent-service"), map[string]any{"tls": map[string]any{"enabled": true}}))
	want, err := render.Overlay{
		Namespace: "platform", Resources: []string{"overlays/production/agent-service"}, Components: []string{"components/existing-namespace", "components/agent-service-tls"},
	}.Render()
	require.NoError(t, err)
	for _, object := range want {
		name := generated.ReplaceAllString(object.GetKind()+"/"+object.GetName(), "$1")
		if slices.Contains([]string{"Deployment", "Service", "ConfigMap"}, object.GetKind()) {
			content, err := yaml.Marshal(object.Object)
			require.NoError(t, err)
			assert.Equal(t, sorted(generated.ReplaceAllString(string(content), "$1")), sorted(got[name]), name)
		}
	}
}

// TestTheConsoleIsThatOfTheComponents: what the components read from ConfigMaps stands in flags.
func TestTheConsoleIsThatOfTheComponents(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, chart.Write(dir, "agent-service", version))
	got := byName(t, must(t, filepath.Join(dir, "agent-service"), map[string]any{
		"console": map[string]any{"enabled": true, "url": "https://muster.example.com", "clientID": "muster", "secretName": "agent-service-console"},
	}))
	want, err := render.Overlay{
		Namespace: "platform", Resources: []string{"overlays/production/agent-service"},
		Components: []string{"components/existing-namespace", "components/agent-service-console", "components/agent-service-console-sign-in"},
	}.Render()
	require.NoError(t, err)
	values := strings.NewReplacer("$(CONSOLE_URL)", "https://muster.example.com", "$(CONSOLE_CLIENT_ID)", "muster")
	for _, object := range want {
		if object.GetKind() != "Deployment" {
			continue
		}
		content, err := yaml.Marshal(object.Object)
		require.NoError(t, err)
		lines := sorted(generated.ReplaceAllString(values.Replace(string(content)), "$1"))
		lines = slices.DeleteFunc(lines, func(line string) bool {
			return strings.Contains(line, "name: agent-service-console") && !strings.Contains(line, "secretName")
		})
		assert.ElementsMatch(t, without(lines, "- configMapRef:"), without(sorted(got["Deployment/"+object.GetName()]), "- configMapRef:"), object.GetName())
	}
}

// without leaves out lines that begin with a text.
func without(lines []string, text string) []string {
	return slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), text) })
}

// sorted compares objects whatever the order of their flags and volumes.
func sorted(text string) []string {
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return lines
}

// TestAnAPIServerTakesIt with the kinds that the chart brings.
func TestAnAPIServerTakesIt(t *testing.T) {
	config := controlplanetest.Start(t)
	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "platform"}}}
	require.NoError(t, client.IgnoreAlreadyExists(c.Create(t.Context(), namespace)))
	each(t, func(t *testing.T, _, dir string) {
		for _, object := range must(t, dir, nil) {
			require.NoError(t, c.Create(t.Context(), object, client.DryRunAll), "%s %s", object.GetKind(), object.GetName())
		}
		loaded, err := loader.Load(dir)
		require.NoError(t, err)
		assert.NotEmpty(t, definitions(loaded))
		for _, name := range definitions(loaded) {
			definition := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}}
			require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: name}, definition), "a kind that exists")
		}
	})
}

func definitions(of *helmchart.Chart) []string {
	var names []string
	for _, object := range of.CRDObjects() {
		names = append(names, strings.TrimSuffix(filepath.Base(object.Filename), ".yaml"))
	}
	slices.Sort(names)
	return names
}

func TestAnOperatorWithoutAChartIsNamed(t *testing.T) {
	err := chart.Write(t.TempDir(), "other", version)
	require.EqualError(t, err, fmt.Sprintf("there is no chart of %q: write one of %s", "other", strings.Join(chart.Operators(), ", ")))
}
