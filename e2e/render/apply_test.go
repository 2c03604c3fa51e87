// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"context"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-io/muster/e2e/environment/environmenttest"
	"github.com/muster-io/muster/e2e/render"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// An API server takes everything that can be applied: each overlay whole, and each operator alone with its own custom resources.
func TestAnAPIServerTakesIt(t *testing.T) {
	for _, operator := range operators(t) {
		t.Run(operator, func(t *testing.T) {
			t.Parallel()
			_, config := environmenttest.ControlPlane(t)
			require.NoError(t, render.Apply(t.Context(), config, definitions(t, operator)))
			for _, dir := range overlays(t, "deploy/overlays/*/"+operator) {
				t.Run(dir, func(t *testing.T) {
					objects := mustRender(t, dir)
					t.Cleanup(func() { remove(t, config, objects) })
					takes(t, config, objects)
				})
			}
		})
	}
	for _, dir := range overlays(t, "deploy/overlays/*") {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			_, config := environmenttest.ControlPlane(t)
			takes(t, config, mustRender(t, dir))
			if dir == "deploy/overlays/local" {
				require.NoError(t, render.Apply(t.Context(), config, mustRender(t, "deploy/samples")))
			}
		})
	}
}

// overlays returns the directories that can be applied and match a pattern.
func overlays(t *testing.T, pattern string) []string {
	t.Helper()
	found := slices.DeleteFunc(directories(t), func(dir string) bool {
		matches, err := path.Match(pattern, dir)
		require.NoError(t, err)
		return !matches
	})
	require.NotEmpty(t, found)
	return found
}

func takes(t *testing.T, config *rest.Config, objects []*unstructured.Unstructured) {
	t.Helper()
	require.NoError(t, render.Apply(t.Context(), config, objects))
	require.NoError(t, render.Apply(t.Context(), config, objects), "applying it again is fine")
}

// remove deletes the objects of an overlay, the last one first, and returns when they are gone: the next overlay finds nothing but the kinds.
func remove(t *testing.T, config *rest.Config, objects []*unstructured.Unstructured) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	for _, object := range slices.Backward(objects) {
		require.NoError(t, client.IgnoreNotFound(c.Delete(ctx, object)))
	}
	left := slices.Clone(objects)
	require.Eventually(t, func() bool {
		left = slices.DeleteFunc(left, func(object *unstructured.Unstructured) bool {
			return apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(object), object.DeepCopy()))
		})
		return len(left) == 0
	}, time.Minute, 100*time.Millisecond, "objects of the overlay are still there")
}

// definitions are the custom resource definitions that an operator needs, in the order in which its page applies them.
func definitions(t *testing.T, operator string) []*unstructured.Unstructured {
	t.Helper()
	shared := map[string]string{"pool-operator": "clusters", "agent-service": "clusters", "discovery-operator": "hosts"}
	var objects []*unstructured.Unstructured
	if set := shared[operator]; set != "" {
		objects = mustRender(t, "deploy/crds/"+set)
	}
	return append(objects, mustRender(t, "deploy/crds/"+operator)...)
}

// All operators share a namespace that a user names, with monitoring: names do not collide, and no address, alert or policy expects another namespace.
func TestAllOperatorsInstallIntoOneForeignNamespace(t *testing.T) {
	objects := rendered(t, render.Overlay{
		Namespace: "platform",
		Resources: []string{"overlays/production"},
		Components: []string{
			"components/existing-namespace", "components/monitoring/pool-operator", "components/monitoring/ipam-operator",
			"components/monitoring/discovery-operator", "components/monitoring/agent-service", "components/monitoring/overview",
		},
	})
	for _, object := range objects {
		assert.NotEqual(t, "Namespace", object.GetKind())
		if namespace := object.GetNamespace(); namespace != "" {
			assert.Equal(t, "platform", namespace, "%s %s", object.GetKind(), object.GetName())
		}
		raw, err := object.MarshalJSON()
		require.NoError(t, err)
		for _, operator := range operators(t) {
			text := strings.ReplaceAll(string(raw), `\"uid\": \"muster-`+operator+`\"`, "") // a dashboard's id
			assert.NotContains(t, text, "muster-"+operator, "%s %s names the operator's own namespace", object.GetKind(), object.GetName())
		}
	}
	_, config := environmenttest.ControlPlane(t)
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "platform"}}}
	objects = append(append(monitoringKinds(), namespace), objects...)
	require.NoError(t, render.Apply(t.Context(), config, objects))
}

// monitoringKinds stand in for the kinds of the Prometheus Operator, which the monitoring components need and nothing else does.
func monitoringKinds() []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for plural, kind := range map[string]string{"servicemonitors": "ServiceMonitor", "prometheusrules": "PrometheusRule"} {
		out = append(out, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": plural + ".monitoring.coreos.com"},
			"spec": map[string]any{
				"group": "monitoring.coreos.com", "scope": "Namespaced",
				"names": map[string]any{"plural": plural, "kind": kind},
				"versions": []any{map[string]any{
					"name": "v1", "served": true, "storage": true,
					"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
				}},
			},
		}})
	}
	return out
}
