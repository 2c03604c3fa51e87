// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// FieldOwner is the field manager of Apply.
const FieldOwner = "muster-deploy"

// Apply puts the objects on a cluster by server-side apply, in their order, and waits for custom resources to be served before it goes on.
// Options such as client.DryRunAll are handed on.
func Apply(ctx context.Context, config *rest.Config, objects []*unstructured.Unstructured, options ...client.ApplyOption) error {
	mapper, err := dynamicMapper(config)
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Mapper: mapper})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	options = append([]client.ApplyOption{client.FieldOwner(FieldOwner), client.ForceOwnership}, options...)
	for _, object := range objects {
		if err := applyOne(ctx, c, object, options); err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), client.ObjectKeyFromObject(object), err)
		}
	}
	return untilServed(ctx, config, objects)
}

func dynamicMapper(config *rest.Config) (meta.RESTMapper, error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making an HTTP client: %w", err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("discovering what the cluster serves: %w", err)
	}
	return mapper, nil
}

// applyOne waits out the moment in which a kind or a namespace that was just created is not yet known everywhere.
func applyOne(ctx context.Context, c client.Client, object *unstructured.Unstructured, options []client.ApplyOption) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		last = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), options...)
		if last == nil {
			return true, nil
		}
		if meta.IsNoMatchError(last) || apierrors.IsNotFound(last) || apierrors.IsServiceUnavailable(last) {
			return false, nil
		}
		return false, last
	})
	if err != nil && last != nil && !errors.Is(err, last) {
		return last
	}
	return err
}
