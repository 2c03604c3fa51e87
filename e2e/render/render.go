// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package render turns the directories of deploy into objects, as kubectl apply -k would.
package render

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/muster-io/muster/e2e/checkout"
)

// Directory renders a directory of the repository, such as deploy/overlays/local. Objects come in an order in which they can be created.
func Directory(path string) ([]*unstructured.Unstructured, error) {
	dir, err := checkout.Path(path)
	if err != nil {
		return nil, err
	}
	return build(dir, path)
}

// Overlay is a kustomization that a user writes. Resources and Components are directories of deploy, such as overlays/production/pool-operator.
type Overlay struct {
	Namespace             string
	Resources, Components []string
}

// Render renders the overlay as Directory does.
func (o Overlay) Render() ([]*unstructured.Unstructured, error) {
	dir, err := os.MkdirTemp("", "muster-overlay-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	resources, err := relative(dir, o.Resources)
	if err != nil {
		return nil, err
	}
	components, err := relative(dir, o.Components)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "namespace": o.Namespace, "resources": resources, "components": components,
	})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), text, 0o600); err != nil {
		return nil, err
	}
	return build(dir, fmt.Sprint(o.Resources, o.Components))
}

// relative makes directories of deploy relative to another directory: kustomize takes no others.
func relative(from string, directories []string) ([]string, error) {
	var out []string
	for _, directory := range directories {
		target, err := checkout.Path("deploy", directory)
		if err != nil {
			return nil, err
		}
		if target, err = filepath.EvalSymlinks(target); err != nil {
			return nil, err
		}
		if target, err = filepath.Rel(from, target); err != nil {
			return nil, err
		}
		out = append(out, filepath.ToSlash(target))
	}
	return out, nil
}

func build(dir, name string) ([]*unstructured.Unstructured, error) {
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy
	resources, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("rendering %s: %w", name, err)
	}
	objects := make([]*unstructured.Unstructured, 0, resources.Size())
	for _, resource := range resources.Resources() {
		raw, err := resource.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("reading %s from %s: %w", resource.CurId(), name, err)
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(raw); err != nil {
			return nil, fmt.Errorf("reading %s from %s: %w", resource.CurId(), name, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}
