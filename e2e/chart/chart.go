// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart makes a Helm chart of each operator from the kustomize overlay for production, so that there is one description of what is installed. With the
// values that a chart brings it renders the overlay; values change what teams change.
package chart

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/e2e/render"
)

// Operators are those that have a chart.
func Operators() []string {
	var names []string
	for _, s := range sources() {
		names = append(names, s.operator)
	}
	return names
}

// source is what a chart is made of, beside the overlay for production.
type source struct {
	operator, summary string
	// crds are the sets of CustomResourceDefinitions, directories of deploy/crds.
	crds []string
	// options are components that a condition on values adds. They may only add objects.
	options []option
	values  []value
	// arguments is the body of the template of further arguments of the operator.
	arguments string
	// edit puts values where an object has what teams change.
	edit func(object *unstructured.Unstructured)

	objects []*unstructured.Unstructured
}

type option struct{ component, condition string }

// Write writes the chart of an operator into a directory of its name below dir. Version is that of chart and operator, such as v0.1.0.
func Write(dir, operator, version string) error {
	i := slices.IndexFunc(sources(), func(s source) bool { return s.operator == operator })
	if i < 0 {
		return fmt.Errorf("there is no chart of %q: write one of %s", operator, strings.Join(Operators(), ", "))
	}
	s := sources()[i]
	var err error
	if s.objects, err = s.overlay().Render(); err != nil {
		return err
	}
	files := map[string][]byte{"templates/_helpers.tpl": []byte(helpers(s)), "templates/NOTES.txt": []byte(notes(s))}
	if err := s.metadata(files, version); err != nil {
		return err
	}
	if err := s.definitions(files); err != nil {
		return err
	}
	if err := s.templates(files); err != nil {
		return err
	}
	for name, content := range files {
		path := filepath.Join(dir, operator, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // a chart is public
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil { //nolint:gosec // a chart is public
			return err
		}
	}
	return nil
}

// metadata writes what describes the chart: Chart.yaml, values.yaml and its schema.
func (s source) metadata(files map[string][]byte, version string) error {
	about := map[string]any{
		"apiVersion": "v2", "name": s.operator, "type": "application", "description": s.summary, "kubeVersion": ">=1.31.0-0",
		"version": strings.TrimPrefix(version, "v"), "appVersion": version, "home": "https://github.com/muster-io/muster",
		"annotations": map[string]string{"artifacthub.io/license": "Apache-2.0"},
	}
	content, err := yaml.Marshal(about)
	if err != nil {
		return err
	}
	schema, err := json.MarshalIndent(schemaOf(s.all()), "", "  ")
	if err != nil {
		return err
	}
	files["Chart.yaml"], files["values.yaml"], files["values.schema.json"] = content, valuesFile(s.all()), append(schema, '\n')
	return nil
}

// definitions writes the CustomResourceDefinitions where Helm installs them, and never deletes them. "helm show crds" prints one after the other as they are: each file has to
// separate itself from the one before, or kubectl takes all of them for one object, which is the last.
func (s source) definitions(files map[string][]byte) error {
	for _, set := range s.crds {
		objects, err := render.Directory("deploy/crds/" + set)
		if err != nil {
			return err
		}
		for _, object := range objects {
			content, err := yaml.Marshal(object.Object)
			if err != nil {
				return err
			}
			files["crds/"+object.GetName()+".yaml"] = append([]byte("---\n"), content...)
		}
	}
	return nil
}

// templates writes the objects of the overlay, and those of each option under its condition.
func (s source) templates(files map[string][]byte) error {
	there := map[string]bool{}
	for _, object := range s.objects {
		there[key(object)] = true
		if err := s.template(files, object, conditions[object.GetKind()]); err != nil {
			return err
		}
	}
	for _, o := range s.options {
		with := s.overlay()
		with.Components = append(with.Components, o.component)
		objects, err := with.Render()
		if err != nil {
			return err
		}
		for _, object := range objects {
			if there[key(object)] {
				continue
			}
			if err := s.template(files, object, o.condition); err != nil {
				return err
			}
		}
	}
	return nil
}

// releaseNamespace stands in rendered objects for the namespace of the release.
const releaseNamespace = "namespace-of-the-release"

func (s source) overlay() render.Overlay {
	return render.Overlay{
		Namespace: releaseNamespace, Resources: []string{"overlays/production/" + s.operator}, Components: []string{"components/existing-namespace"},
	}
}

func key(object *unstructured.Unstructured) string {
	return object.GetKind() + "/" + plainName(object.GetKind(), object.GetName())
}

// conditions are values that leave objects of a kind out.
var conditions = map[string]string{"NetworkPolicy": ".Values.networkPolicy.enabled", "PodDisruptionBudget": ".Values.podDisruptionBudget.enabled"}

// template writes an object as a template.
func (s source) template(files map[string][]byte, object *unstructured.Unstructured, condition string) error {
	object = object.DeepCopy()
	unhash(object)
	var text string
	var err error
	if object.GetKind() == "Deployment" {
		text, err = s.deployment(object)
	} else {
		allowAPIServers(object)
		s.chooseToken(object)
		if s.edit != nil {
			s.edit(object)
		}
		text, err = escaped(object)
	}
	if err != nil {
		return err
	}
	text = expand(strings.ReplaceAll(text, releaseNamespace, "{{ .Release.Namespace }}"))
	if condition != "" {
		text = "{{- if " + condition + " }}\n" + text + "{{- end }}\n"
	}
	files["templates/"+strings.ToLower(object.GetKind())+"-"+strings.ReplaceAll(object.GetName(), ":", "-")+".yaml"] = []byte(text)
	return nil
}

// apiServerPort is the port of API servers beside which a policy allows those that a value states.
const apiServerPort = 6443

// allowAPIServers lets a value add ports to the rule of a NetworkPolicy for API servers.
func allowAPIServers(object *unstructured.Unstructured) {
	if object.GetKind() != "NetworkPolicy" {
		return
	}
	egress, _, _ := unstructured.NestedSlice(object.Object, "spec", "egress")
	for _, rule := range egress {
		allowed, _ := rule.(map[string]any)
		ports, _ := allowed["ports"].([]any)
		if slices.ContainsFunc(ports, func(p any) bool {
			port, _ := p.(map[string]any)
			return port["port"] == int64(apiServerPort)
		}) {
			add(allowed, "ports", block(`include "apiServerPorts" .`))
			set(object.Object, egress, "spec", "egress")
		}
	}
}

// chooseToken lets a value replace the file with the token of a ServiceMonitor by the Secret of components/metrics-token.
func (s source) chooseToken(object *unstructured.Unstructured) {
	if object.GetKind() != "ServiceMonitor" {
		return
	}
	endpoints, _, _ := unstructured.NestedSlice(object.Object, "spec", "endpoints")
	secret := runtime.DeepCopyJSONValue(endpoints).([]any)
	for _, endpoint := range secret {
		if e, is := endpoint.(map[string]any); is {
			delete(e, "bearerTokenFile")
			e["authorization"] = map[string]any{"credentials": map[string]any{"name": s.operator + "-scraper", "key": "token"}}
		}
	}
	set(object.Object, block(fmt.Sprintf("toYaml (ternary %s %s .Values.monitoring.token)", literal(secret), literal(endpoints))), "spec", "endpoints")
}

// escaped is an object in YAML in which nothing is an expression of Helm but what expression marks.
func escaped(object *unstructured.Unstructured) (string, error) {
	content, err := yaml.Marshal(object.Object)
	if err != nil {
		return "", fmt.Errorf("writing %s: %w", key(object), err)
	}
	return strings.NewReplacer("{{", `{{ "{{" }}`, "}}", `{{ "}}" }}`).Replace(string(content)), nil
}

// all are the values of every operator, and the operator's own. The overlay states their defaults.
func (s source) all() []value {
	values := append(s.common(), s.values...)
	for i, v := range values {
		if v.from != nil {
			values[i].standard = v.from(s.objects)
		}
	}
	slices.SortStableFunc(values, func(a, b value) int { return cmp.Compare(section(a.path), section(b.path)) })
	return values
}

func section(path string) string {
	head, _, _ := strings.Cut(path, ".")
	return head
}
