// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
)

// Groups of the kinds that this package reads.
const (
	clusterGroup        = "cluster.x-k8s.io"
	infrastructureGroup = "infrastructure.cluster.x-k8s.io"
)

// Kinds that this package reads.
const (
	deploymentKind = "MachineDeployment"
	setKind        = "MachineSet"
	machineKind    = "Machine"
	clusterKind    = "Cluster"
	templateKind   = "Metal3MachineTemplate"
	consumerKind   = "Metal3Machine"
)

// definitions are the CustomResourceDefinitions of the kinds.
var definitions = map[string]schema.GroupKind{
	"machinedeployments." + clusterGroup:            {Group: clusterGroup, Kind: deploymentKind},
	"machinesets." + clusterGroup:                   {Group: clusterGroup, Kind: setKind},
	"machines." + clusterGroup:                      {Group: clusterGroup, Kind: machineKind},
	"clusters." + clusterGroup:                      {Group: clusterGroup, Kind: clusterKind},
	"metal3machinetemplates." + infrastructureGroup: {Group: infrastructureGroup, Kind: templateKind},
}

// kinds has the version of each kind that the API server prefers.
type kinds map[string]schema.GroupVersionKind

// object makes an empty object of a kind.
func (k kinds) object(kind string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(k[kind])
	return u
}

// list makes an empty list of a kind.
func (k kinds) list(kind string) *unstructured.UnstructuredList {
	l := &unstructured.UnstructuredList{}
	gvk := k[kind]
	gvk.Kind += "List"
	l.SetGroupVersionKind(gvk)
	return l
}

// lookAgain is how soon a kind is looked for again that is defined already, and served in a moment.
const lookAgain = time.Second

// waiter waits until Cluster API is installed: the definitions of its kinds say when to look.
type waiter struct {
	mapper meta.RESTMapper
	start  func(kinds) error
	mu     sync.Mutex
	done   bool
}

// SetupWithManager makes the manager follow hosts as soon as the kinds of Cluster API are there.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, d Deps) error {
	if err := indexHosts(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	w := &waiter{mapper: mgr.GetRESTMapper(), start: func(k kinds) error { return start(ctx, mgr, d, k) }}
	definition := &metav1.PartialObjectMetadata{}
	definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	ours := predicate.NewPredicateFuncs(func(o client.Object) bool { return definitions[o.GetName()] != schema.GroupKind{} })
	err := ctrl.NewControllerManagedBy(mgr).
		Named("autoscale-kinds").
		WatchesMetadata(definition, &handler.EnqueueRequestForObject{}, builder.WithPredicates(ours)).
		Complete(tracing.Reconciler("autoscale-kinds", outcome.Reconciler[ctrl.Request](w)))
	return wrap(err, "watching for the kinds of Cluster API")
}

// Reconcile starts to follow hosts once all kinds are served.
func (w *waiter) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		return ctrl.Result{}, nil
	}
	found := kinds{}
	for name, kind := range definitions {
		mapping, err := w.mapper.RESTMapping(kind)
		if meta.IsNoMatchError(err) {
			if name == req.Name {
				return ctrl.Result{RequeueAfter: lookAgain}, nil
			}
			ctrl.LoggerFrom(ctx).V(1).Info("kind of Cluster API not served yet", "kind", kind.String())
			return ctrl.Result{}, nil
		} else if err != nil {
			return ctrl.Result{}, fmt.Errorf("looking for %s: %w", kind, err)
		}
		found[kind.Kind] = mapping.GroupVersionKind
	}
	if err := w.start(found); err != nil {
		return ctrl.Result{}, err
	}
	w.done = true
	ctrl.LoggerFrom(ctx).Info("following hosts began", "version", found[deploymentKind].GroupVersion().String())
	return ctrl.Result{}, nil
}

func start(ctx context.Context, mgr ctrl.Manager, d Deps, k kinds) error {
	if err := index(ctx, mgr.GetFieldIndexer(), k); err != nil {
		return err
	}
	for _, kind := range []string{deploymentKind, setKind} {
		if err := newReconciler(d, k, kind).setupWithManager(mgr); err != nil {
			return wrap(err, "adding the controller of %ss", kind)
		}
	}
	return nil
}

func wrap(err error, attempt string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(attempt+": %w", append(args, err)...)
}
