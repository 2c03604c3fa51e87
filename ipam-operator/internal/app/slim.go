// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-io/muster/ipam-operator/internal/capi"
)

// slim takes out of an object what no decision needs, before it enters the cache.
func slim(obj any) (any, error) {
	switch o := obj.(type) {
	case *unstructured.Unstructured:
		if o.GroupVersionKind().GroupKind() == capi.ClusterKind {
			return capi.Slim(o), nil
		}
	case *metav1.PartialObjectMetadata:
		o.Annotations = nil
		if o.Kind != "Namespace" {
			o.Labels = nil
		}
	}
	if object, err := meta.Accessor(obj); err == nil {
		object.SetManagedFields(nil)
	}
	return obj, nil
}
