// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/muster-io/muster/discovery-operator/internal/scaleplan"
)

// Annotation on a MachineDeployment or MachineSet makes it follow hosts, whatever its value, but for "false".
const Annotation = "metal3.io/autoscale-to-hosts"

// Annotations of Cluster API and its autoscaler.
const (
	pausedAnnotation  = "cluster.x-k8s.io/paused"
	minSizeAnnotation = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size"
	maxSizeAnnotation = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"
)

// kept is what decisions look at in the objects of each kind, besides their identity. The versions v1beta1 and v1beta2 of
// Cluster API have all of it in the same places.
var kept = map[schema.GroupKind][][]string{
	{Group: clusterGroup, Kind: deploymentKind}: {
		{"spec", "replicas"}, {"spec", "paused"}, {"spec", "clusterName"}, {"spec", "template", "spec", "infrastructureRef"},
	},
	{Group: clusterGroup, Kind: setKind}: {
		{"spec", "replicas"}, {"spec", "clusterName"}, {"spec", "template", "spec", "infrastructureRef"},
	},
	{Group: clusterGroup, Kind: machineKind}: {
		{"spec", "infrastructureRef"}, {"status", "nodeRef"}, {"status", "failureReason"}, {"status", "conditions"},
	},
	{Group: clusterGroup, Kind: clusterKind}:         {{"spec", "paused"}},
	{Group: infrastructureGroup, Kind: templateKind}: {{"spec", "template", "spec", "hostSelector"}},
}

// keptAnnotations are those that decisions look at.
var keptAnnotations = []string{Annotation, pausedAnnotation, minSizeAnnotation, maxSizeAnnotation, scaleplan.DeleteMachineAnnotation}

// Slim takes out of the objects of Cluster API what no decision looks at; other objects stay as they are.
func Slim(object any) any {
	switch o := object.(type) {
	case *metav1.PartialObjectMetadata:
		o.Annotations, o.Labels = nil, nil
	case *unstructured.Unstructured:
		paths, ok := kept[o.GroupVersionKind().GroupKind()]
		if !ok {
			return object
		}
		return slim(o, paths)
	}
	return object
}

func slim(o *unstructured.Unstructured, paths [][]string) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: map[string]any{}}
	out.SetGroupVersionKind(o.GroupVersionKind())
	out.SetNamespace(o.GetNamespace())
	out.SetName(o.GetName())
	out.SetUID(o.GetUID())
	out.SetResourceVersion(o.GetResourceVersion())
	out.SetDeletionTimestamp(o.GetDeletionTimestamp())
	out.SetOwnerReferences(o.GetOwnerReferences())
	notes := map[string]string{}
	for _, key := range keptAnnotations {
		if value, ok := o.GetAnnotations()[key]; ok {
			notes[key] = value
		}
	}
	if len(notes) > 0 {
		out.SetAnnotations(notes)
	}
	for _, path := range paths {
		value, found, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
		if !found {
			continue
		}
		if path[len(path)-1] == "conditions" {
			value = slimConditions(value)
		}
		_ = unstructured.SetNestedField(out.Object, value, path...)
	}
	return out
}

// slimConditions keeps the conditions that decide the order of deletion, without their times.
func slimConditions(value any) any {
	all, _ := value.([]any)
	out := []any{}
	for _, c := range all {
		condition, _ := c.(map[string]any)
		switch condition["type"] {
		case "NodeHealthy", "HealthCheckSucceeded":
			out = append(out, map[string]any{"type": condition["type"], "status": condition["status"]})
		}
	}
	return out
}

// follows says whether the user of a set asked for it.
func follows(notes map[string]string) bool {
	value, ok := notes[Annotation]
	return ok && value != "false"
}

// orderOf is when Cluster API deletes a machine whose set shrinks; its MachineSet controller has the same rules for all
// orders of deletion. Only older versions look at a failure; to be safe, it counts where there is a host to lose.
func orderOf(machine *unstructured.Unstructured, hasHost bool) scaleplan.Order {
	if machine.GetDeletionTimestamp() != nil {
		return scaleplan.Going
	}
	if _, ok := machine.GetAnnotations()[scaleplan.DeleteMachineAnnotation]; ok {
		return scaleplan.Marked
	}
	if text(machine, "status", "nodeRef", "name") == "" || hasHost && text(machine, "status", "failureReason") != "" {
		return scaleplan.Failing
	}
	conditions, _, _ := unstructured.NestedSlice(machine.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, _ := c.(map[string]any); condition["status"] == "False" {
			return scaleplan.Failing
		}
	}
	return scaleplan.Healthy
}

// infrastructureOf is the kind and name of what the object's machines, or the machine itself, are made of.
func infrastructureOf(o *unstructured.Unstructured, path ...string) (kind schema.GroupKind, name string) {
	ref, _, _ := unstructured.NestedStringMap(o.Object, append(path, "infrastructureRef")...)
	group := ref["apiGroup"] // v1beta2
	if version := ref["apiVersion"]; version != "" {
		group, _, _ = strings.Cut(version, "/") // v1beta1
	}
	return schema.GroupKind{Group: group, Kind: ref["kind"]}, ref["name"]
}

func templateOf(set *unstructured.Unstructured) (kind schema.GroupKind, name string) {
	return infrastructureOf(set, "spec", "template", "spec")
}

// metal3MachineOf is the Metal3Machine of a machine, or empty.
func metal3MachineOf(machine *unstructured.Unstructured) string {
	if kind, name := infrastructureOf(machine, "spec"); kind == (schema.GroupKind{Group: infrastructureGroup, Kind: consumerKind}) {
		return name
	}
	return ""
}

// selectorOf is the host selector of a Metal3MachineTemplate, read as Metal3Machines do: operators in any case, and none at
// all matches every host.
func selectorOf(template *unstructured.Unstructured) (labels.Selector, error) {
	path := []string{"spec", "template", "spec", "hostSelector"}
	match, _, err := unstructured.NestedStringMap(template.Object, append(path, "matchLabels")...)
	if err != nil {
		return nil, fmt.Errorf("reading matchLabels: %w", err)
	}
	selector, err := labels.ValidatedSelectorFromSet(match)
	if err != nil {
		return nil, fmt.Errorf("reading matchLabels: %w", err)
	}
	expressions, _, _ := unstructured.NestedSlice(template.Object, append(path, "matchExpressions")...)
	for _, e := range expressions {
		fields, _ := e.(map[string]any)
		key, _, _ := unstructured.NestedString(fields, "key")
		operator, _, _ := unstructured.NestedString(fields, "operator")
		values, _, _ := unstructured.NestedStringSlice(fields, "values")
		operator = strings.ToLower(operator)
		if operator == "doesnotexist" {
			operator = string(selection.DoesNotExist)
		}
		requirement, err := labels.NewRequirement(key, selection.Operator(operator), values)
		if err != nil {
			return nil, fmt.Errorf("reading matchExpressions: %w", err)
		}
		selector = selector.Add(*requirement)
	}
	return selector, nil
}

func text(o *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedString(o.Object, path...)
	return value
}

func flag(o *unstructured.Unstructured, path ...string) bool {
	value, _, _ := unstructured.NestedBool(o.Object, path...)
	return value
}

// replicasOf is what a set asks for. Cluster API fills it in where a user does not.
func replicasOf(set *unstructured.Unstructured) int32 {
	value, _, _ := unstructured.NestedInt64(set.Object, "spec", "replicas")
	return int32(value) //nolint:gosec // the schema has 32 bits
}
