// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
)

// OnChange handles Clusters that appear, go away, are paused or go on; nothing else of a Cluster matters here.
func OnChange(handle func(context.Context, client.Object, workqueue.TypedRateLimitingInterface[reconcile.Request])) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			handle(ctx, e.Object, q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if isStopped(e.ObjectOld) != isStopped(e.ObjectNew) {
				handle(ctx, e.ObjectNew, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			handle(ctx, e.Object, q)
		},
	}
}

// discovery waits for a kind that is not there yet: its CustomResourceDefinition says when it is. Later that says when the version is served no more that was started with.
type discovery struct {
	mapper meta.RESTMapper
	live   client.Reader
	kind   schema.GroupKind
	start  func(schema.GroupVersionKind) error
	// unserved has the error that ends the operator.
	unserved chan error

	mu sync.Mutex
	// version is what was started with; empty before.
	version string
}

// Discover calls start once, as soon as a kind is served: at once, or when the CustomResourceDefinition of this name
// appears. The manager ends with an error when the version that start was called with is not served any more, as after an upgrade of what serves the kind: its caches would go on with
// what they had. The next start takes the version that is served then.
func Discover(mgr ctrl.Manager, kind schema.GroupKind, crd string, start func(schema.GroupVersionKind) error) error {
	d := &discovery{mapper: mgr.GetRESTMapper(), live: mgr.GetAPIReader(), kind: kind, start: start, unserved: make(chan error, 1)}
	if err := d.try(); err != nil && !meta.IsNoMatchError(err) {
		return err
	}
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	named := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetName() == crd })
	err := ctrl.NewControllerManagedBy(mgr).
		Named("discovery-"+crd).
		WatchesMetadata(obj, &handler.EnqueueRequestForObject{}, builder.WithPredicates(named)).
		WithOptions(controller.TypedOptions[reconcile.Request]{NeedLeaderElection: new(false)}).
		Complete(tracing.Reconciler("discovery-"+crd, outcome.Reconciler[ctrl.Request](d)))
	if err == nil {
		err = mgr.Add(d)
	}
	if err != nil {
		return fmt.Errorf("watching for %s: %w", crd, err)
	}
	return nil
}

// try starts if the kind is served. The mapper asks no group that it knows for further versions: those of the definition are tried then.
func (d *discovery) try(versions ...string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.version != "" {
		return nil
	}
	mapping, err := d.mapper.RESTMapping(d.kind)
	if meta.IsNoMatchError(err) && len(versions) > 0 {
		mapping, err = d.mapper.RESTMapping(d.kind, versions...)
	}
	if err != nil {
		return fmt.Errorf("looking for %s: %w", d.kind, err)
	}
	if err := d.start(mapping.GroupVersionKind); err != nil {
		return err
	}
	d.version = mapping.GroupVersionKind.Version
	return nil
}

// Reconcile looks whether the kind is served by now; between its definition and that lies a moment, hence the back-off. Of one that was started it looks whether the version still is.
func (d *discovery) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := d.live.Get(ctx, req.NamespacedName, definition); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // the caches are told that its objects are gone
	}
	versions := servedVersions(definition)
	if err := d.try(versions...); err != nil {
		return ctrl.Result{}, err
	}
	if !slices.Contains(versions, d.version) {
		select {
		case d.unserved <- fmt.Errorf("%s is not served as %s any more: start again to read the version that is", d.kind, d.version):
		default: // it was said before
		}
	}
	return ctrl.Result{}, nil
}

// servedVersions are the versions in which a definition is served, those that the API server prefers first.
func servedVersions(definition *apiextensionsv1.CustomResourceDefinition) []string {
	var out []string
	for i := range definition.Spec.Versions {
		if v := &definition.Spec.Versions[i]; v.Served {
			out = append(out, v.Name)
		}
	}
	slices.SortFunc(out, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
	return out
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: the caches of all replicas are concerned.
func (d *discovery) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (d *discovery) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-d.unserved:
		return err
	}
}
