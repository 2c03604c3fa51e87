// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstall_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/render"
)

// additions are the components that add objects to an operator, beside those of its overlay for production.
var additions = map[string][]string{
	"pool-operator":      {"hosted-gateway"},
	"ipam-operator":      {"inventory", "network-data"},
	"discovery-operator": {"autoscale-to-hosts", "manage-hosts"},
	"agent-service":      {"agent-service-console", "agent-service-console-sign-in", "agent-service-secrets-by-namespace"},
}

// elsewhere are components with objects that are not in the list, and why.
var elsewhere = map[string]string{
	"agent-service-images": "part of the overlay",
	"discovery-admission":  "part of the overlay",
	"mutating-admission":   "API servers before 1.36 do not serve its kinds",
	"monitoring/overview":  "the dashboard of all operators",
}

// What components of a user's kustomization added goes with the operator. An alert that the operator is down would be there for ever, and rights for an account
// that anybody may make who administers the namespace.
func TestWhatComponentsAddedGoesWithTheOperator(t *testing.T) {
	c, config := empty(t)
	monitoring(t, config)
	for operator, components := range additions {
		overlay := render.Overlay{Namespace: "muster-" + operator, Resources: []string{"overlays/production/" + operator}}
		for _, component := range append(components, "monitoring/"+operator, "metrics-token/"+operator, "openshift/"+operator) {
			overlay.Components = append(overlay.Components, "components/"+component)
		}
		objects, err := overlay.Render()
		require.NoError(t, err)
		require.NoError(t, render.Apply(t.Context(), config, objects))
		_, err = c.run(t, operator)
		require.NoError(t, err)
		for _, o := range objects {
			if o.GetKind() == "Namespace" {
				continue
			}
			err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o)
			require.NoError(t, client.IgnoreNotFound(err))
			assert.True(t, apierrors.IsNotFound(err) || o.GetDeletionTimestamp() != nil, "%s %s/%s is left", o.GetKind(), o.GetNamespace(), o.GetName())
		}
	}
}

// Every component that adds objects is tried above.
func TestEveryComponentIsRemoved(t *testing.T) {
	root, err := checkout.Path("deploy", "components")
	require.NoError(t, err)
	known := map[string]bool{}
	for operator, components := range additions {
		for _, component := range append(components, "monitoring/"+operator, "metrics-token/"+operator, "openshift/"+operator) {
			known[component] = true
		}
	}
	for _, pattern := range []string{"*/kustomization.yaml", "*/*/kustomization.yaml"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			component, err := filepath.Rel(root, filepath.Dir(file))
			require.NoError(t, err)
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			var kustomization struct{ Resources, ConfigMapGenerator []any }
			require.NoError(t, yaml.Unmarshal(text, &kustomization))
			if len(kustomization.Resources)+len(kustomization.ConfigMapGenerator) > 0 {
				assert.NotEqual(t, known[component], elsewhere[component] != "", component)
			}
		}
	}
}

// monitoring serves the kinds of the Prometheus Operator that monitoring needs.
func monitoring(t *testing.T, config *rest.Config) {
	t.Helper()
	const group = "monitoring.coreos.com"
	require.NoError(t, render.Apply(t.Context(), config, []*unstructured.Unstructured{
		definition(group, "v1", "servicemonitors", "ServiceMonitor"), definition(group, "v1", "prometheusrules", "PrometheusRule"),
	}))
}

// definition is one of a namespaced kind of others, without a schema.
func definition(group, version, plural, kind string) *unstructured.Unstructured {
	o := object("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
	o.SetName(plural + "." + group)
	o.Object["spec"] = map[string]any{
		"group": group, "scope": "Namespaced", "names": map[string]any{"plural": plural, "kind": kind},
		"versions": []any{map[string]any{"name": version, "served": true, "storage": true, "schema": map[string]any{
			"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
		}}},
	}
	return o
}
