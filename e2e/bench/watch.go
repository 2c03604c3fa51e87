// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Watch tells a handler of the objects of a kind in a namespace until ctx ends. When it returns, those that are there have been listed. A watch that the API server
// ends is begun again.
func Watch(ctx context.Context, config *rest.Config, scheme *runtime.Scheme, namespace string, kind client.Object, handler toolscache.ResourceEventHandler) error {
	objects, err := cache.New(config, cache.Options{Scheme: scheme, DefaultNamespaces: map[string]cache.Config{namespace: {}}})
	if err != nil {
		return fmt.Errorf("preparing to watch %T: %w", kind, err)
	}
	informer, err := objects.GetInformer(ctx, kind)
	if err != nil {
		return fmt.Errorf("watching %T: %w", kind, err)
	}
	if _, err := informer.AddEventHandler(handler); err != nil {
		return fmt.Errorf("watching %T: %w", kind, err)
	}
	go func() { _ = objects.Start(ctx) }() // if it cannot, the handler is told of nothing, and the workload says so
	if !objects.WaitForCacheSync(ctx) {
		return errors.Join(fmt.Errorf("the objects of %T were not listed", kind), ctx.Err())
	}
	return nil
}
