// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/environment"
	"github.com/muster-io/muster/e2e/environment/environmenttest"
	"github.com/muster-io/muster/e2e/render"
)

// production renders the overlay of an operator that a release has for production.
func (f former) production(t *testing.T, operator string) []*unstructured.Unstructured {
	t.Helper()
	root, err := checkout.Root()
	require.NoError(t, err)
	overlay, err := filepath.Rel(root, filepath.Join(f.dir, "deploy", "overlays", "production", operator))
	require.NoError(t, err)
	objects, err := render.Directory(overlay)
	require.NoError(t, err)
	return objects
}

// An apply leaves what has another name now. Kubernetes refuses to evict a pod with two PodDisruptionBudgets, so that its node is not drained. What docs/operations.md
// has administrators delete is all of it.
func TestWhatHasAnotherNameNowIsDeleted(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	plane, config := environmenttest.ControlPlane(t)
	c, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	require.NoError(t, err)
	f := buildFormer(t, filepath.Join("testdata", "v0.1"))
	require.NoError(t, render.Apply(t.Context(), config, []*unstructured.Unstructured{monitoringKind("servicemonitors", "ServiceMonitor"), monitoringKind("prometheusrules", "PrometheusRule")}))
	var gone []*unstructured.Unstructured
	operators := []string{"pool-operator", "ipam-operator", "discovery-operator", "agent-service"}
	for _, operator := range operators {
		overlay := render.Overlay{Namespace: "muster-" + operator, Resources: []string{"overlays/production/" + operator}, Components: []string{"components/monitoring/" + operator}}
		if operator == "ipam-operator" {
			overlay.Components = append(overlay.Components, "components/mutating-admission") // v0.1 had it in the overlay, under the same name
		}
		now, err := overlay.Render()
		require.NoError(t, err)
		before := f.production(t, operator)
		require.NoError(t, render.Apply(t.Context(), config, before))
		require.NoError(t, render.Apply(t.Context(), config, now))
		there := map[string]bool{}
		for _, o := range now {
			there[o.GetKind()+"/"+o.GetName()] = true
		}
		for _, o := range before {
			if !there[o.GetKind()+"/"+o.GetName()] && o.GetKind() != "ConfigMap" { // names of generated ones have a hash of what is in them
				gone = append(gone, o)
			}
		}
	}
	require.NotEmpty(t, gone)
	kept := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "muster-agent-service", Name: "database"}} // of a database beside the service
	kept.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"cnpg.io/cluster": "database"}}
	require.NoError(t, c.Create(t.Context(), kept))

	kubectl, err := environment.Kubectl(t.Context())
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", `kubectl() { "$KUBECTL" "$@"; }`+"\n"+documented(t, "for operator in"))
	cmd.Env = append(cmd.Environ(), "KUBECTL="+kubectl, "KUBECONFIG="+plane.Kubeconfig())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, o := range gone {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o)
		assert.True(t, apierrors.IsNotFound(err), "%s %s/%s is left", o.GetKind(), o.GetNamespace(), o.GetName())
	}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(kept), kept), "what users have stays")
	require.NoError(t, c.Delete(t.Context(), kept))
	for _, operator := range operators {
		budgets := &policyv1.PodDisruptionBudgetList{}
		require.NoError(t, c.List(t.Context(), budgets, client.InNamespace("muster-"+operator)))
		selected := map[string]string{}
		for i := range budgets.Items {
			component := budgets.Items[i].Spec.Selector.MatchLabels["app.kubernetes.io/component"]
			assert.Empty(t, selected[component], "%s: a second budget of the same pods", budgets.Items[i].Name)
			selected[component] = budgets.Items[i].Name
		}
		assert.Equal(t, operator, selected["operator"])
	}
}

// documented is the block of docs/operations.md that begins so.
func documented(t *testing.T, first string) string {
	t.Helper()
	page, err := checkout.Path("docs", "operations.md")
	require.NoError(t, err)
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	plain := strings.ReplaceAll(string(text), "\n   ", "\n") // blocks of lists are indented
	_, rest, found := strings.Cut(plain, "```sh\n"+first)
	require.True(t, found, "no block begins with %q", first)
	block, _, found := strings.Cut(rest, "\n```")
	require.True(t, found)
	return first + block
}

// monitoringKind is one of the Prometheus Operator, without a schema.
func monitoringKind(plural, kind string) *unstructured.Unstructured {
	const group = "monitoring.coreos.com"
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": map[string]any{
		"group": group, "scope": "Namespaced", "names": map[string]any{"plural": plural, "kind": kind},
		"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
			"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
		}}},
	}}}
	o.SetName(plural + "." + group)
	return o
}
