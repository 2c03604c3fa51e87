// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// value is a setting of a chart. Its path has one or two parts.
type value struct {
	path, about string
	// kind is the type in JSON schema.
	kind string
	// standard is the default; from reads it from the overlay instead.
	standard any
	from     func(objects []*unstructured.Unstructured) any
	// words are all that a string may be.
	words []string
	// items is the JSON schema of the items of an array; nil allows any.
	items map[string]any
}

func portSchema() map[string]any {
	return map[string]any{"type": "integer", "minimum": 1, "maximum": 65535}
}

// common are the values of every operator.
func (s source) common() []value {
	return []value{
		{path: "image.registry", about: "where the image is", kind: "string", standard: "ghcr.io/muster-io"},
		{path: "image.tag", about: "the image's tag; empty is the version of the chart", kind: "string", standard: ""},
		{path: "image.pullPolicy", about: "when the image is pulled", kind: "string", standard: "IfNotPresent", words: []string{"Always", "IfNotPresent", "Never"}},
		{path: "imagePullSecrets", about: "Secrets for the registry, as a list of {name}", kind: "array", standard: []any{}},
		{path: "replicas", about: "replicas; one at a time acts", kind: "integer", from: at(s.operator, "spec", "replicas")},
		{path: "resources", about: "requests and limits of the container", kind: "object", from: resourcesOf(s.operator)},
		{path: "nodeSelector", about: "labels of the nodes that it may run on", kind: "object", standard: map[string]any{}},
		{path: "tolerations", about: "taints of nodes that it tolerates", kind: "array", standard: []any{}},
		{path: "priorityClassName", about: "priority of the pods", kind: "string", standard: ""},
		{path: "logLevel", about: "debug, info or error; empty is info", kind: "string", standard: "", words: []string{"", "debug", "info", "error"}},
		{path: "extraArgs", about: "further flags of the operator, as a list", kind: "array", standard: []any{}},
		{path: "extraEnv", about: "further variables of the environment, as a list of {name, value} or {name, valueFrom}", kind: "array", standard: []any{}},
		{path: "networkPolicy.enabled", about: "whether connections are restricted to those that are needed", kind: "boolean", standard: true},
		{path: "networkPolicy.apiServerPorts", about: "ports of API servers beside 443 and 6443, such as 16443 with MicroK8s", kind: "array", items: portSchema(), standard: []any{}},
		{path: "podDisruptionBudget.enabled", about: "whether a drain leaves one replica", kind: "boolean", standard: true},
		{path: "openshift.enabled", about: "whether the pods are bound to the security contexts nonroot-v2 of OpenShift, which refuses them otherwise", kind: "boolean", standard: false},
		{path: "monitoring.enabled", about: "whether scraping, alerts and a dashboard are installed; needs the kinds of the Prometheus Operator", kind: "boolean", standard: false},
		{path: "monitoring.token", about: "whether scraping takes its token from a Secret: OpenShift, Grafana Alloy and others refuse that of Prometheus's own account", kind: "boolean", standard: false},
		{path: "monitoring.overview", about: "whether the dashboard of all operators is installed, which one chart of a namespace does", kind: "boolean", standard: false},
	}
}

// at reads a field of the Deployment of that name.
func at(deployment string, path ...string) func([]*unstructured.Unstructured) any {
	return func(objects []*unstructured.Unstructured) any {
		for _, object := range objects {
			if object.GetKind() == "Deployment" && object.GetName() == deployment {
				found, _, _ := unstructured.NestedFieldCopy(object.Object, path...)
				return found
			}
		}
		return nil
	}
}

func resourcesOf(deployment string) func([]*unstructured.Unstructured) any {
	return func(objects []*unstructured.Unstructured) any {
		containers, _ := at(deployment, "spec", "template", "spec", "containers")(objects).([]any)
		if len(containers) == 0 {
			return nil
		}
		container, _ := containers[0].(map[string]any)
		return container["resources"]
	}
}

// data reads an entry of a ConfigMap.
func data(name, entry string) func([]*unstructured.Unstructured) any {
	return func(objects []*unstructured.Unstructured) any {
		for _, object := range objects {
			if object.GetKind() == "ConfigMap" && plainName("ConfigMap", object.GetName()) == name {
				found, _, _ := unstructured.NestedString(object.Object, "data", entry)
				return found
			}
		}
		return nil
	}
}

// valuesFile is values.yaml: each value with what it is for.
func valuesFile(values []value) []byte {
	var out bytes.Buffer
	out.WriteString("# Copyright The Muster Authors.\n# SPDX-License-Identifier: Apache-2.0\n")
	last := ""
	for _, v := range values {
		head, name, nested := strings.Cut(v.path, ".")
		indent := ""
		if !nested {
			name = head
		} else {
			indent = "  "
			if head != last {
				fmt.Fprintf(&out, "\n%s:\n", head)
			}
		}
		if head != last && !nested {
			out.WriteString("\n")
		}
		last = head
		fmt.Fprintf(&out, "%s# %s\n%s", indent, v.about, indented(indent, name, v.standard))
	}
	return out.Bytes()
}

func indented(indent, name string, standard any) string {
	content, err := yaml.Marshal(map[string]any{name: standard})
	if err != nil { // maps, lists and scalars have no other error
		panic(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")
	return indent + strings.Join(lines, "\n"+indent) + "\n"
}

// schemaOf is the JSON schema of the values: a word that is not one of them is refused.
func schemaOf(values []value) map[string]any {
	properties := map[string]any{}
	for _, v := range values {
		one := map[string]any{"type": v.kind, "description": v.about}
		if v.words != nil {
			one["enum"] = slices.Clone(v.words)
		}
		if v.items != nil {
			one["items"] = v.items
		}
		if v.kind == "integer" {
			one["minimum"] = 0
		}
		head, name, nested := strings.Cut(v.path, ".")
		if !nested {
			properties[head] = one
			continue
		}
		group, is := properties[head].(map[string]any)
		if !is {
			group = map[string]any{"type": "object", "additionalProperties": false, "properties": map[string]any{}}
			properties[head] = group
		}
		members, _ := group["properties"].(map[string]any)
		members[name] = one
	}
	properties["global"] = map[string]any{"type": "object", "description": "values of a parent chart"}
	return map[string]any{
		"$schema": "https://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": false, "properties": properties,
	}
}
