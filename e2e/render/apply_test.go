// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-io/muster/e2e/environment"
	"github.com/muster-io/muster/e2e/render"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// An API server takes everything that can be applied: each overlay whole, and each operator alone with its own custom resources.
func TestAnAPIServerTakesIt(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	for _, dir := range directories(t) {
		if !strings.HasPrefix(dir, "deploy/overlays/") {
			continue
		}
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			plane, err := environment.StartControlPlane(t.Context(), filepath.Join(t.TempDir(), "plane"), "--unsafe-no-fsync")
			require.NoError(t, err)
			t.Cleanup(plane.Close)
			config, err := environment.Read(plane.Kubeconfig())
			require.NoError(t, err)

			objects := monitoringKinds()
			if strings.Count(dir, "/") == 3 { // an operator alone
				objects = append(objects, mustRender(t, "deploy/crds/"+filepath.Base(dir))...)
			}
			objects = append(objects, mustRender(t, dir)...)
			require.NoError(t, render.Apply(t.Context(), config, objects))
			require.NoError(t, render.Apply(t.Context(), config, objects), "applying it again is fine")
			if dir == "deploy/overlays/local" {
				require.NoError(t, render.Apply(t.Context(), config, mustRender(t, "deploy/samples")))
			}
		})
	}
}

// monitoringKinds stand in for the kinds of a monitoring system that production has.
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
