// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/discovery-operator/internal/scaleplan"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	require.NoError(t, u.UnmarshalJSON(data))
	return u
}

func TestSelectorOf(t *testing.T) {
	for name, c := range map[string]struct {
		selector string
		matches  []labels.Set
		others   []labels.Set
		fails    string
	}{
		"none takes every host": {selector: "{}", matches: []labels.Set{nil, {"a": "b"}}},
		"labels":                {selector: "{matchLabels: {a: b}}", matches: []labels.Set{{"a": "b", "c": "d"}}, others: []labels.Set{nil, {"a": "c"}}},
		"operators as Kubernetes writes them": {
			selector: "{matchExpressions: [{key: a, operator: In, values: [b, c]}, {key: x, operator: DoesNotExist}]}",
			matches:  []labels.Set{{"a": "c"}}, others: []labels.Set{{"a": "d"}, {"a": "b", "x": ""}},
		},
		"operators in small letters": {
			selector: "{matchExpressions: [{key: a, operator: notin, values: [b]}, {key: x, operator: exists}]}",
			matches:  []labels.Set{{"x": "1"}}, others: []labels.Set{{"x": "1", "a": "b"}, nil},
		},
		"an operator that does not exist": {selector: "{matchExpressions: [{key: a, operator: Like, values: [b]}]}", fails: "matchExpressions"},
		"a label that cannot be":          {selector: "{matchLabels: {a: 'b c'}}", fails: "matchLabels"},
	} {
		t.Run(name, func(t *testing.T) {
			selector, err := selectorOf(object(t, "{apiVersion: x/v1, kind: Metal3MachineTemplate, spec: {template: {spec: {hostSelector: "+c.selector+"}}}}"))
			if c.fails != "" {
				require.ErrorContains(t, err, c.fails)
				return
			}
			require.NoError(t, err)
			for _, set := range c.matches {
				assert.True(t, selector.Matches(set), set)
			}
			for _, set := range c.others {
				assert.False(t, selector.Matches(set), set)
			}
		})
	}
}

func TestOrderOf(t *testing.T) {
	for text, want := range map[string]scaleplan.Order{
		"{}":                                scaleplan.Failing,
		"{status: {nodeRef: {name: node}}}": scaleplan.Healthy,
		"{status: {nodeRef: {name: node}, conditions: [{type: NodeHealthy, status: Unknown}]}}":                       scaleplan.Healthy,
		"{status: {nodeRef: {name: node}, conditions: [{type: NodeHealthy, status: 'False'}]}}":                       scaleplan.Failing,
		"{status: {nodeRef: {name: node}, conditions: [{type: HealthCheckSucceeded, status: 'False'}]}}":              scaleplan.Failing,
		"{status: {nodeRef: {name: node}, conditions: [{type: Ready, status: 'False'}]}}":                             scaleplan.Healthy,
		"{status: {nodeRef: {name: node}, failureReason: x}}":                                                         scaleplan.Failing,
		"{metadata: {annotations: {cluster.x-k8s.io/delete-machine: ''}}, status: {nodeRef: {name: node}}}":           scaleplan.Marked,
		"{metadata: {deletionTimestamp: '2026-01-01T00:00:00Z', annotations: {cluster.x-k8s.io/delete-machine: ''}}}": scaleplan.Going,
	} {
		machine := object(t, "{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine}")
		for key, value := range object(t, "{apiVersion: x/v1, kind: X, "+text[1:]).Object {
			if key != "apiVersion" && key != "kind" {
				machine.Object[key] = value
			}
		}
		slimmed := Slim(machine).(*unstructured.Unstructured)
		assert.Equal(t, want, orderOf(slimmed, true), text)
	}
	assert.Equal(t, scaleplan.Healthy,
		orderOf(object(t, "{apiVersion: x/v1, kind: Machine, status: {nodeRef: {name: node}, failureReason: x}}"), false), "newer versions do not look at it")
}

// The cached part of an object changes only with fields that decisions read.
func TestSlim(t *testing.T) {
	machine := func(version, label, status string) *unstructured.Unstructured {
		return Slim(object(t, `
apiVersion: cluster.x-k8s.io/v1beta1
kind: Machine
metadata: {namespace: ns, name: m, uid: u, resourceVersion: "`+version+`", labels: {a: `+label+`}, annotations: {b: `+label+`}}
spec: {bootstrap: {dataSecretName: s}, infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: Metal3Machine, name: x, namespace: ns}}
status: {phase: Running, nodeRef: {name: node}, conditions: [{type: NodeHealthy, status: "`+status+`", lastTransitionTime: "`+version+`"}, {type: Ready, status: "True"}]}
`)).(*unstructured.Unstructured)
	}
	before := machine("1", "x", "True")
	assert.NotContains(t, before.Object["spec"], "bootstrap")
	assert.Equal(t, "x", metal3MachineOf(before))
	assert.Equal(t, "1", before.GetResourceVersion(), "a write names it")
	assert.False(t, changed(event.UpdateEvent{ObjectOld: before, ObjectNew: machine("2", "y", "True")}))
	assert.True(t, changed(event.UpdateEvent{ObjectOld: before, ObjectNew: machine("2", "x", "False")}))
	secret := object(t, "{apiVersion: v1, kind: Secret, data: {a: Yg==}}")
	assert.Same(t, secret, Slim(secret), "other objects are none of its business")
}
