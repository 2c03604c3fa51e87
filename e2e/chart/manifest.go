// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/e2e/render"
)

// published is where images of a release are.
const published = "ghcr.io/muster-io/"

// Manifest is what installs an operator as its overlay for production does, with its kinds before it: YAML documents for kubectl apply, with the
// images of a version, such as v0.2.0. The image of hosted control planes has the version of Kubernetes, and keeps it.
func Manifest(operator, version string) ([]byte, error) {
	i := slices.IndexFunc(sources(), func(s source) bool { return s.operator == operator })
	if i < 0 {
		return nil, fmt.Errorf("there is no operator %q: write one of %s", operator, strings.Join(Operators(), ", "))
	}
	var objects []*unstructured.Unstructured
	directories := make([]string, 0, len(sources()[i].crds)+1)
	for _, set := range sources()[i].crds {
		directories = append(directories, "deploy/crds/"+set)
	}
	for _, directory := range append(directories, "deploy/overlays/production/"+operator) {
		found, err := render.Directory(directory)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	image := regexp.MustCompile(regexp.QuoteMeta(published+operator) + `:[A-Za-z0-9_.-]+`)
	var out bytes.Buffer
	for _, object := range objects {
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return nil, fmt.Errorf("writing %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		out.WriteString("---\n")
		out.Write(image.ReplaceAll(text, []byte(published+operator+":"+version)))
	}
	return out.Bytes(), nil
}
