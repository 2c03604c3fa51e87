// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Objects are written with marks where values stand, which survive the way to YAML; expand makes expressions of them. A mark has no space, at which YAML would
// break a long line.
const space = "␣"

func mark(kind, of string) string {
	return "<<" + kind + ":" + strings.ReplaceAll(of, " ", space) + ">>"
}

// expression stands for a scalar.
func expression(of string) string { return mark("scalar", of) }

// block stands for YAML: the value of a field, or items of a list.
func block(of string) string { return mark("block", of) }

// field stands for a field that is left out while its value is empty.
func field(value string) string { return mark("field", value) }

// items stand for further items of a list, of which there may be none.
func items(value string) string { return mark("items", value) }

// literal is a value of JSON as an expression of Helm has it.
func literal(value any) string {
	switch v := value.(type) {
	case map[string]any:
		words := []string{"dict"}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			words = append(words, "`"+name+"`", literal(v[name]))
		}
		return "(" + strings.Join(words, " ") + ")"
	case []any:
		words := []string{"list"}
		for _, item := range v {
			words = append(words, literal(item))
		}
		return "(" + strings.Join(words, " ") + ")"
	case string:
		return "`" + v + "`"
	}
	return fmt.Sprint(value)
}

var (
	moreItems  = regexp.MustCompile(`(?m)^( *)- ['"]?<<items:(.*?)>>['"]?$`)
	blockItem  = regexp.MustCompile(`(?m)^( *)- ['"]?<<block:(.*?)>>['"]?$`)
	blockValue = regexp.MustCompile(`(?m)^( *)([\w-]+): ['"]?<<block:(.*?)>>['"]?$`)
	fieldValue = regexp.MustCompile(`(?m)^( *)([\w-]+): ['"]?<<field:(.*?)>>['"]?$`)
	scalar     = regexp.MustCompile(`['"]?<<scalar:(.*?)>>['"]?`)
)

// expand makes expressions of marks in YAML.
func expand(text string) string {
	text = replace(moreItems, text, func(m []string) string {
		return fmt.Sprintf("{{- with %s }}\n{{- toYaml . | nindent %d }}\n{{- end }}", m[2], len(m[1]))
	})
	text = replace(blockItem, text, func(m []string) string { return fmt.Sprintf("{{- %s | nindent %d }}", m[2], len(m[1])) })
	text = replace(blockValue, text, func(m []string) string {
		return fmt.Sprintf("%s%s:\n{{- %s | nindent %d }}", m[1], m[2], m[3], len(m[1])+2)
	})
	text = replace(fieldValue, text, func(m []string) string {
		return fmt.Sprintf("{{- with %s }}\n%s%s:\n{{- toYaml . | nindent %d }}\n{{- end }}", m[3], m[1], m[2], len(m[1])+2)
	})
	return replace(scalar, text, func(m []string) string { return "{{ " + m[1] + " }}" })
}

func replace(expr *regexp.Regexp, text string, with func(groups []string) string) string {
	return expr.ReplaceAllStringFunc(text, func(found string) string {
		groups := expr.FindStringSubmatch(found)
		for i := range groups {
			groups[i] = strings.ReplaceAll(groups[i], space, " ")
		}
		return with(groups)
	})
}

// hashed are names that kustomize gives to ConfigMaps that it generates.
var hashed = regexp.MustCompile(`^(agent-service(?:-[a-z]+)*)-[a-z0-9]{10}$`)

func plainName(kind, name string) string {
	if kind == "ConfigMap" {
		return hashed.ReplaceAllString(name, "$1")
	}
	return name
}

// unhash gives generated ConfigMaps a name that stays. Pods are replaced by a change of values, of which they carry a checksum.
func unhash(object *unstructured.Unstructured) {
	object.SetName(plainName(object.GetKind(), object.GetName()))
	unhashIn(object.Object)
}

func unhashIn(node any) {
	switch n := node.(type) {
	case map[string]any:
		for _, reference := range []string{"configMapRef", "configMap", "configMapKeyRef"} {
			if to, is := n[reference].(map[string]any); is {
				if name, is := to["name"].(string); is {
					to["name"] = plainName("ConfigMap", name)
				}
			}
		}
		for _, child := range n {
			unhashIn(child)
		}
	case []any:
		for _, child := range n {
			unhashIn(child)
		}
	}
}
