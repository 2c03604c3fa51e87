// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package render turns the directories of deploy into objects, as kubectl apply -k would.
package render

import (
	"fmt"

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
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy
	resources, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("rendering %s: %w", path, err)
	}
	objects := make([]*unstructured.Unstructured, 0, resources.Size())
	for _, resource := range resources.Resources() {
		raw, err := resource.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("reading %s from %s: %w", resource.CurId(), path, err)
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(raw); err != nil {
			return nil, fmt.Errorf("reading %s from %s: %w", resource.CurId(), path, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}
