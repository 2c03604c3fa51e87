// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Watcher turns what happens to the pods and volumes of hosted clusters into wake-ups: the volume is the last to go when a cluster is deleted, a Service gets its address when a load balancer
// gives it one, and a network policy that another client deletes has to come back. It is a manager.Runnable for the leader.
type Watcher struct {
	runtime *Runtime
	cache   cache.Cache
}

// Watch returns the watcher of a runtime. It holds pods, StatefulSets, Services, network policies and volume claims of hosted clusters only, whatever else runs in the cluster.
func (r *Runtime) Watch(config *rest.Config, scheme *runtime.Scheme) (*Watcher, error) {
	ours, err := labels.NewRequirement(Label, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("selecting the pods of hosted clusters: %w", err)
	}
	c, err := cache.New(config, cache.Options{Scheme: scheme, DefaultLabelSelector: labels.NewSelector().Add(*ours)})
	if err != nil {
		return nil, fmt.Errorf("watching the pods of hosted clusters: %w", err)
	}
	return &Watcher{runtime: r, cache: c}, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (w *Watcher) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable.
func (w *Watcher) Start(ctx context.Context) error {
	for _, kind := range []client.Object{&corev1.Pod{}, &appsv1.StatefulSet{}, &corev1.PersistentVolumeClaim{}, &corev1.Service{}, &networkingv1.NetworkPolicy{}} {
		informer, err := w.cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching the pods of hosted clusters: %w", err)
		}
		handler := toolscache.ResourceEventHandlerFuncs{
			AddFunc:    w.wake,
			UpdateFunc: func(_, object any) { w.wake(object) },
			DeleteFunc: w.wake,
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watching the pods of hosted clusters: %w", err)
		}
	}
	return w.cache.Start(ctx)
}

func (w *Watcher) wake(object any) {
	if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	if object, ok := object.(client.Object); ok {
		w.runtime.changes.Add(refOf(object))
	}
}
