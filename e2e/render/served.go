// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// untilServed waits until discovery tells of every custom resource among the objects. A client that looks before that takes the kind for unknown.
func untilServed(ctx context.Context, config *rest.Config, objects []*unstructured.Unstructured) error {
	api, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	for _, object := range objects {
		if object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		if err := untilOneServed(ctx, api, object); err != nil {
			return fmt.Errorf("waiting for %s to be served: %w", object.GetName(), err)
		}
	}
	return nil
}

func untilOneServed(ctx context.Context, api discovery.DiscoveryInterface, definition *unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		for _, version := range versions {
			fields, ok := version.(map[string]any)
			if !ok || fields["served"] != true {
				continue
			}
			list, err := api.ServerResourcesForGroupVersion(fmt.Sprintf("%s/%s", group, fields["name"]))
			if err != nil {
				return false, nil //nolint:nilerr // not there yet
			}
			if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == plural }) {
				return false, nil
			}
		}
		return true, nil
	})
}
