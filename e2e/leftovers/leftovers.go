// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package leftovers compares what a cluster holds before something was installed with what it holds when that is removed.
package leftovers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// changing are resources that come and go by themselves.
var changing = []string{"events", "componentstatuses"}

// inEach are objects that Kubernetes makes in each namespace, soon after it is there, and that go with it.
var inEach = map[string]string{"configmaps": "kube-root-ca.crt", "serviceaccounts": "default"}

// List returns the names of all objects of a cluster, of every kind that it serves, such as "leases.coordination.k8s.io kube-system/x", in order.
func List(ctx context.Context, config *rest.Config) ([]string, error) {
	asks, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	_, lists, err := discovery.ServerGroupsAndResources(asks)
	if err != nil {
		return nil, fmt.Errorf("discovering what the cluster serves: %w", err)
	}
	reader, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	found := map[string]bool{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || slices.Contains(changing, resource.Name) {
				continue
			}
			if err := add(ctx, found, reader, version.WithResource(resource.Name)); err != nil {
				return nil, err
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

func add(ctx context.Context, found map[string]bool, reader metadata.Interface, resource schema.GroupVersionResource) error {
	objects, err := reader.Resource(resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing %s: %w", resource.GroupResource(), err)
	}
	for i := range objects.Items {
		if inEach[resource.GroupResource().String()] == objects.Items[i].Name {
			continue
		}
		found[resource.GroupResource().String()+" "+strings.TrimPrefix(objects.Items[i].Namespace+"/"+objects.Items[i].Name, "/")] = true
	}
	return nil
}

// Of returns the names that are in the second list alone.
func Of(before, now []string) []string {
	return slices.DeleteFunc(slices.Clone(now), func(name string) bool {
		_, there := slices.BinarySearch(before, name)
		return there
	})
}
