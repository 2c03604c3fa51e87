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

// moveLabel makes "clusterctl move" take an object along that no Cluster owns.
const moveLabel = "clusterctl.cluster.x-k8s.io/move"

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
	if isStopped(cluster) {
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
	in := holdInputsOf(obj)
	return in.paused || in.marked
}

// IsLeftBehind reports whether an object is being deleted because it lives on elsewhere.
func IsLeftBehind(obj client.Object) bool {
	in := holdInputsOf(obj)
	return in.marked && in.deleting
}

// Hold reports whether something may be done for an object of a pool. The pool may be nil. The Cluster is the one that the
// object belongs to by its kind; empty where its kind does not say.
func (c *Clusters) Hold(ctx context.Context, obj client.Object, pool *ipamv1.IPPool, cluster string) (allocate.Hold, error) {
	clusters := []types.NamespacedName{{Namespace: namespaceOf(obj), Name: cluster}}
	if pool == nil {
		return c.hold(ctx, clusters, obj)
	}
	if name := pool.Spec.ClusterName; name != nil {
		clusters = append(clusters, types.NamespacedName{Namespace: pool.Namespace, Name: *name})
	}
	if holdInputsOf(pool).moves {
		// The pool can be ahead of the Cluster on the way to another management cluster, and its claims ahead of their addresses.
		clusters = append(clusters, clusterOf(obj))
	}
	return c.hold(ctx, clusters, obj, pool)
}

// HoldFor reports whether something may be done for objects that belong together, and to a Cluster; empty for none.
func (c *Clusters) HoldFor(ctx context.Context, cluster string, objects ...client.Object) (allocate.Hold, error) {
	return c.hold(ctx, []types.NamespacedName{{Namespace: objects[0].GetNamespace(), Name: cluster}}, objects...)
}

// namespaceOf is the namespace of the Cluster that the label of an object names. An address has the label of its claim.
func namespaceOf(obj client.Object) string {
	if address, ok := obj.(*ipamv1.IPAddress); ok {
		return address.ClaimKey().Namespace
	}
	return obj.GetNamespace()
}

// clusterOf is the Cluster that the label of an object names; its name is empty where there is no label.
func clusterOf(obj client.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: namespaceOf(obj), Name: holdInputsOf(obj).cluster}
}

// hold reports whether something may be done for objects that belong together: nothing while one of them is paused, or one of the
// Clusters, or a Cluster that a label names. While one of the Clusters is missing, nothing is allocated.
//
// Objects that a mover has marked are left to it, unless a Cluster runs: then the move was cut off and the mark says nothing, or the
// mark was moved along.
func (c *Clusters) hold(ctx context.Context, clusters []types.NamespacedName, objects ...client.Object) (allocate.Hold, error) {
	marked := false
	demanded := map[types.NamespacedName]bool{}
	for _, obj := range objects {
		in := holdInputsOf(obj)
		if in.paused {
			return allocate.HeldPaused, nil
		}
		marked = marked || in.marked
		demanded[clusterOf(obj)] = false
	}
	for _, name := range clusters {
		demanded[name] = true
	}
	hold, runs := allocate.NotHeld, false
	for name, isDemanded := range demanded {
		if name.Name == "" {
			continue
		}
		is, err := c.state(ctx, name)
		switch {
		case err != nil:
			return hold, err
		case is == paused:
			return allocate.HeldPaused, nil
		case is == running:
			runs = true
		case isDemanded:
			hold = allocate.HeldClusterMissing
		}
	}
	if marked && !runs {
		return allocate.HeldPaused, nil
	}
	return hold, nil
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
