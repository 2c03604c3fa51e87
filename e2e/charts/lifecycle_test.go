// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/action"
	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/release"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/e2e/chart"
	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/environment"
	"github.com/muster-io/muster/e2e/environment/environmenttest"
	"github.com/muster-io/muster/e2e/leftovers"
)

const (
	platform = "platform"
	// later is the version of an upgrade.
	later = "v0.2.0"
	// patience is for the garbage collector, on a machine that runs other tests.
	patience = time.Minute
)

// helm is Helm for a namespace of a cluster.
type helm struct {
	*testing.T
	client.Client
	config     *rest.Config
	cfg        *action.Configuration
	kubeconfig string
}

// newHelm returns one for a cluster that has neither a chart nor a kind of ours.
func newHelm(t *testing.T) helm {
	t.Helper()
	plane, config := environmenttest.ControlPlane(t)
	return helmFor(t, config, plane.Kubeconfig())
}

func helmFor(t *testing.T, config *rest.Config, kubeconfig string) helm {
	t.Helper()
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig, flags.Namespace = &kubeconfig, new(platform)
	cfg := &action.Configuration{}
	require.NoError(t, cfg.Init(flags, platform, "secret", t.Logf))
	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	return helm{t, c, config, cfg, kubeconfig}
}

// install installs the chart of an operator with a value.
func (h helm) install(operator string) { h.installWith(operator, map[string]any{"logLevel": "debug"}) }

func (h helm) installWith(operator string, values map[string]any) {
	h.Helper()
	dir := h.TempDir()
	require.NoError(h, chart.Write(dir, operator, version))
	loaded, err := loader.Load(filepath.Join(dir, operator))
	require.NoError(h, err)
	install := action.NewInstall(h.cfg)
	install.ReleaseName, install.Namespace, install.CreateNamespace = operator, platform, true
	installed, err := install.RunWithContext(h.Context(), loaded, values)
	require.NoError(h, err)
	assert.Equal(h, release.StatusDeployed, installed.Info.Status)
}

func (h helm) upgrade(operator string) {
	h.Helper()
	dir := h.TempDir()
	require.NoError(h, chart.Write(dir, operator, later))
	loaded, err := loader.Load(filepath.Join(dir, operator))
	require.NoError(h, err)
	upgrade := action.NewUpgrade(h.cfg)
	// A value that is new in the later chart.
	loaded.Values["added"], loaded.Schema = map[string]any{"enabled": false}, nil
	loaded.Templates = append(loaded.Templates, &helmchart.File{Name: "templates/added.yaml", Data: []byte("{{- if .Values.added.enabled }}\n{{- end }}\n")})
	upgrade.Namespace, upgrade.ResetThenReuseValues = platform, true
	upgraded, err := upgrade.RunWithContext(h.Context(), operator, loaded, map[string]any{"replicas": 3})
	require.NoError(h, err)
	assert.Equal(h, 2, upgraded.Version)
}

// deployment is that of an operator.
func (h helm) deployment(operator string) *unstructured.Unstructured {
	h.Helper()
	d := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment"}}
	require.NoError(h, h.Get(h.Context(), client.ObjectKey{Namespace: platform, Name: operator}, d))
	return d
}

// kinds are the UIDs of the custom resource definitions, by name.
func (h helm) kinds() map[string]types.UID {
	h.Helper()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinitionList"})
	require.NoError(h, h.List(h.Context(), list))
	out := map[string]types.UID{}
	for i := range list.Items {
		out[list.Items[i].Name] = list.Items[i].UID
	}
	return out
}

// kept is what stays when all releases are gone: the kinds, what Kubernetes keeps for them, and the namespace.
func kept(name string) bool {
	for _, prefix := range []string{"customresourcedefinitions.", "apiservices.", "namespaces " + platform} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// Helm installs all operators into one namespace, upgrades them with the values that they have, and removes them. Kinds stay, with their objects.
func TestHelmInstallsUpgradesAndRemoves(t *testing.T) {
	h := newHelm(t)
	before, err := leftovers.List(t.Context(), h.config)
	require.NoError(t, err)
	for _, operator := range chart.Operators() {
		h.install(operator)
	}
	kinds := h.kinds()
	assert.Contains(t, kinds, "clusterpools.hive.openshift.io")
	pool := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "ipam.metal3.io/v1alpha1", "kind": "IPPool", "metadata": map[string]any{"namespace": platform, "name": "rack"},
		"spec": map[string]any{"namePrefix": "rack", "prefix": int64(24), "pools": []any{map[string]any{"start": "192.0.2.10", "end": "192.0.2.20"}}},
	}}
	require.NoError(t, h.Create(t.Context(), pool))
	for _, operator := range chart.Operators() {
		first := h.deployment(operator)
		h.upgrade(operator)
		d := h.deployment(operator)
		assert.Equal(t, first.GetUID(), d.GetUID(), "it is changed, not made anew")
		replicas, _, err := unstructured.NestedInt64(d.Object, "spec", "replicas")
		require.NoError(t, err)
		assert.EqualValues(t, 3, replicas)
		containers, _, err := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "containers")
		require.NoError(t, err)
		container := containers[0].(map[string]any)
		assert.Equal(t, "ghcr.io/muster-io/"+operator+":"+later, container["image"])
		assert.Contains(t, container["args"], "--log-level=debug", "values of the installation are kept")
	}
	for _, operator := range chart.Operators() {
		_, err := action.NewUninstall(h.cfg).Run(operator)
		require.NoError(t, err)
	}
	assert.Equal(t, kinds, h.kinds(), "kinds stay")
	require.NoError(t, h.Get(t.Context(), client.ObjectKeyFromObject(pool), pool), "objects stay")
	require.NoError(t, h.Delete(t.Context(), pool))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		now, err := leftovers.List(t.Context(), h.config)
		require.NoError(c, err)
		var left []string
		for _, name := range leftovers.Of(before, now) {
			if !kept(name) {
				left = append(left, name)
			}
		}
		assert.Empty(c, left)
	}, patience, 500*time.Millisecond)
}

// hack/uninstall removes what Helm installed, and names the release, which Helm goes on to list. Without it the operator can be installed again.
func TestAReleaseOfAnOperatorThatIsGoneEnds(t *testing.T) {
	h := newHelm(t)
	h.install("agent-service")
	script, err := checkout.Path("hack", "uninstall")
	require.NoError(t, err)
	kubectl, err := environment.Kubectl(t.Context())
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), script, "agent-service")
	cmd.Env = append(cmd.Environ(), "KUBECTL="+kubectl, "KUBECONFIG="+h.kubeconfig)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "helm uninstall agent-service --namespace "+platform)
	configs := &metav1.PartialObjectMetadataList{}
	configs.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMapList"})
	require.NoError(t, h.List(t.Context(), configs, client.InNamespace(platform), client.HasLabels{"app.kubernetes.io/part-of"}))
	assert.Empty(t, configs.Items)

	_, err = action.NewUninstall(h.cfg).Run("agent-service")
	require.NoError(t, err)
	h.install("agent-service")
}

// The command of docs/helm.md changes all kinds of a chart, and takes fields over that Helm wrote when it installed those of the former version.
func TestKindsAreUpgradedThatHelmInstalled(t *testing.T) {
	h := newHelm(t)
	h.install("ipam-operator")
	const former = "of the former version"
	description := []string{"schema", "openAPIV3Schema", "description"}
	get := func(name string) (definition *unstructured.Unstructured, versions []any) {
		definition = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}}
		require.NoError(t, h.Get(t.Context(), client.ObjectKey{Name: name}, definition))
		versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
		require.NoError(t, err)
		return definition, versions
	}
	kinds := h.kinds()
	require.Greater(t, len(kinds), 1)
	for name := range kinds {
		definition, versions := get(name)
		require.NoError(t, unstructured.SetNestedField(versions[0].(map[string]any), former, description...))
		require.NoError(t, unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"))
		require.NoError(t, h.Update(t.Context(), definition, client.FieldOwner(definition.GetManagedFields()[0].Manager)))
	}

	page, err := checkout.Path("docs", "helm.md")
	require.NoError(t, err)
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	_, command, found := strings.Cut(string(text), "helm show crds")
	require.True(t, found)
	_, command, found = strings.Cut(command, "kubectl ")
	require.True(t, found)
	command, _, found = strings.Cut(command, " -f -")
	require.True(t, found)
	dir := t.TempDir()
	require.NoError(t, chart.Write(dir, "ipam-operator", later))
	shown, err := action.NewShowWithConfig(action.ShowCRDs, h.cfg).Run(filepath.Join(dir, "ipam-operator"))
	require.NoError(t, err)
	kubectl, err := environment.Kubectl(t.Context())
	require.NoError(t, err)
	apply := exec.CommandContext(t.Context(), kubectl, append(strings.Fields(command), "-f", "-")...)
	apply.Env, apply.Stdin = append(apply.Environ(), "KUBECONFIG="+h.kubeconfig), strings.NewReader(shown)
	out, err := apply.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for name := range kinds {
		_, versions := get(name)
		now, _, err := unstructured.NestedString(versions[0].(map[string]any), description...)
		require.NoError(t, err)
		assert.NotEqual(t, former, now, name)
	}
}
