// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package olderkinds_test

import (
	"encoding/json"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/controlplanetest"
	"github.com/muster-io/muster/apis/olderkinds"
)

// patience is for an API server that is busy with the tests of others.
const patience = time.Minute

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.older.example.com}
spec:
  group: older.example.com
  names: {kind: Thing, plural: things}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer}}}
          status:
            type: object
            properties:
              state: {type: string}
              parts:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, size: {type: integer}}}
`

func thing(t *testing.T, text string) runtime.ApplyConfiguration {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, json.Unmarshal([]byte(text), &object.Object))
	return client.ApplyConfigurationFromUnstructured(object)
}

func TestAnApplyGoesOnWithoutFieldsThatTheDefinitionLacks(t *testing.T) {
	config := controlplanetest.Start(t, controlplanetest.WithCRDs(fstest.MapFS{"things.yaml": {Data: []byte(definition)}}))
	plain, err := client.New(config, client.Options{})
	require.NoError(t, err)
	owner := client.FieldOwner("test")
	const head = `{"apiVersion": "older.example.com/v1", "kind": "Thing", "metadata": {"namespace": "default", "name": "a"}, `
	c := olderkinds.Client(plain, "Thing")
	require.Eventually(t, func() bool {
		return c.Apply(t.Context(), thing(t, head+`"spec": {"size": 1, "colour": "red"}}`), owner) == nil
	}, patience, 50*time.Millisecond)

	status := head + `"status": {"state": "good", "conditions": [{"type": "Ready"}], "parts": [
		{"name": "a.b: c", "size": 1, "colour": "red"}, {"name": "d", "size": 2, "colour": "blue", "weight": 3}]}}`
	require.ErrorContains(t, plain.Status().Apply(t.Context(), thing(t, status), owner), "field not declared in schema")
	other := olderkinds.Client(plain, "Other")
	require.ErrorContains(t, other.Status().Apply(t.Context(), thing(t, status), owner), "field not declared in schema", "of other kinds it is an error")
	require.NoError(t, c.Status().Apply(t.Context(), thing(t, status), owner))

	stored := &unstructured.Unstructured{}
	stored.SetAPIVersion("older.example.com/v1")
	stored.SetKind("Thing")
	require.NoError(t, plain.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "a"}, stored))
	assert.Equal(t, map[string]any{"size": int64(1)}, stored.Object["spec"])
	assert.Equal(t, map[string]any{"state": "good", "parts": []any{
		map[string]any{"name": "a.b: c", "size": int64(1)}, map[string]any{"name": "d", "size": int64(2)},
	}}, stored.Object["status"])

	require.NoError(t, c.SubResource("status").Apply(t.Context(), thing(t, head+`"status": {"state": "bad", "conditions": [{"type": "Ready"}]}}`), owner))
	require.NoError(t, plain.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "a"}, stored))
	assert.Equal(t, map[string]any{"state": "bad"}, stored.Object["status"], "what is not applied any more goes")
}
