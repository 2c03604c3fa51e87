// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package capi reads what Cluster API says about a pool or a claim: whether its Cluster is there, and whether it is
// paused. It works where Cluster API is not installed, and notices when it is.
package capi

import (
	"context"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

// ClusterKind is the kind of a Cluster.
var ClusterKind = schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Cluster"}

// Clusters answers from the cache of Clusters, once there is one.
type Clusters struct {
	reader client.Reader
	served atomic.Pointer[schema.GroupVersionKind]
}

// NewClusters returns Clusters that knows no Cluster until Serve is called.
func NewClusters(reader client.Reader) *Clusters { return &Clusters{reader: reader} }

// Serve says that Clusters can be read, and in which version.
func (c *Clusters) Serve(kind schema.GroupVersionKind) { c.served.Store(&kind) }

type state int

const (
	running state = iota
	paused
	missing
)

func (c *Clusters) state(ctx context.Context, name types.NamespacedName) (state, error) {
	cluster, err := c.Get(ctx, name)
	if err != nil || cluster == nil {
		return missing, err
	}
	if stop, _, _ := unstructured.NestedBool(cluster.Object, "spec", "paused"); stop || IsPaused(cluster) {
		return paused, nil
	}
	return running, nil
}

// Get returns the Cluster of a name; nil means that there is none.
func (c *Clusters) Get(ctx context.Context, name types.NamespacedName) (*unstructured.Unstructured, error) {
	kind := c.served.Load()
	if kind == nil {
		return nil, nil
	}
	cluster := &unstructured.Unstructured{}
	cluster.SetGroupVersionKind(*kind)
	if err := c.reader.Get(ctx, name, cluster); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading Cluster %s: %w", name, err)
	}
	return cluster, nil
}

// IsPaused reports whether an object says itself that nothing may be done for it: it is paused, or it is deleted here
// because it lives on elsewhere.
func IsPaused(obj client.Object) bool {
	notes := obj.GetAnnotations()
	_, stop := notes[ipamv1.PausedAnnotation]
	_, moving := notes[ipamv1.DeleteForMoveAnnotation]
	return stop || moving
}

// Hold tells whether something may be done for an object of a pool. The pool may be nil. A Cluster that only a label of
// the object names stops things while it is paused; one that the pool names also while it is missing.
func (c *Clusters) Hold(ctx context.Context, obj client.Object, pool *ipamv1.IPPool) (allocate.Hold, error) {
	if IsPaused(obj) || pool != nil && IsPaused(pool) {
		return allocate.HeldPaused, nil
	}
	hold := allocate.NotHeld
	named := ""
	if pool != nil && pool.Spec.ClusterName != nil && *pool.Spec.ClusterName != "" {
		named = *pool.Spec.ClusterName
		switch is, err := c.state(ctx, types.NamespacedName{Namespace: obj.GetNamespace(), Name: named}); {
		case err != nil:
			return hold, err
		case is == paused:
			return allocate.HeldPaused, nil
		case is == missing:
			hold = allocate.HeldClusterMissing
		}
	}
	if label := obj.GetLabels()[ipamv1.ClusterNameLabel]; label != "" && label != named {
		switch is, err := c.state(ctx, types.NamespacedName{Namespace: obj.GetNamespace(), Name: label}); {
		case err != nil:
			return hold, err
		case is == paused:
			return allocate.HeldPaused, nil
		}
	}
	return hold, nil
}

// HoldNamed tells whether something may be done for an object that belongs to a Cluster of this name: not while that is
// missing or paused.
func (c *Clusters) HoldNamed(ctx context.Context, name types.NamespacedName) (allocate.Hold, error) {
	is, err := c.state(ctx, name)
	switch is {
	case paused:
		return allocate.HeldPaused, err
	case missing:
		return allocate.HeldClusterMissing, err
	default:
		return allocate.NotHeld, err
	}
}

// Slim is what matters of a Cluster: who it is, and whether it is paused.
func Slim(cluster *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(cluster.GroupVersionKind())
	out.SetNamespace(cluster.GetNamespace())
	out.SetName(cluster.GetName())
	out.SetUID(cluster.GetUID())
	out.SetResourceVersion(cluster.GetResourceVersion())
	out.SetDeletionTimestamp(cluster.GetDeletionTimestamp())
	out.SetAnnotations(cluster.GetAnnotations())
	if stop, found, _ := unstructured.NestedBool(cluster.Object, "spec", "paused"); found {
		_ = unstructured.SetNestedField(out.Object, stop, "spec", "paused")
	}
	return out
}
