// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/pool-operator/internal/provision"
	"github.com/muster-io/muster/pool-operator/internal/provision/changes"
)

// Informers hand out watches by kind; a cache does.
type Informers interface {
	GetInformer(ctx context.Context, object client.Object, options ...cache.InformerGetOption) (cache.Informer, error)
}

// installWatches watches each kind of install object once, from when a ClusterDeployment first names it.
type installWatches struct {
	informers Informers
	changes   *changes.Changes

	mu   sync.Mutex
	seen map[schema.GroupVersionKind]bool
}

func newInstallWatches(informers Informers) *installWatches {
	return &installWatches{informers: informers, changes: changes.New(), seen: map[schema.GroupVersionKind]bool{}}
}

// ensure watches the kind. It does not wait for the first list: where listing is not allowed it would never end, and reading does not need it.
func (w *installWatches) ensure(ctx context.Context, gvk schema.GroupVersionKind) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen[gvk] {
		return nil
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gvk)
	informer, err := w.informers.GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching %s: %w", gvk, err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    w.wake,
		UpdateFunc: func(_, object any) { w.wake(object) },
		DeleteFunc: w.wake,
	})
	if err != nil {
		return fmt.Errorf("watching %s: %w", gvk, err)
	}
	w.seen[gvk] = true
	return nil
}

// wake has the ClusterDeployment looked at that an install object names.
func (w *installWatches) wake(object any) {
	if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	install, ok := object.(*unstructured.Unstructured)
	if !ok {
		return
	}
	name, _, err := unstructured.NestedString(install.Object, "spec", "clusterDeploymentRef", "name")
	if err != nil || name == "" {
		name = install.GetName() // an object that names no cluster is taken for its namesake's
	}
	w.changes.Add(provision.ClusterRef{Namespace: install.GetNamespace(), Name: name})
}
