// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metal3datatemplate writes the indexes of a template and their claims, and keeps a template while it has data.
package metal3datatemplate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/controller/metal3data"
	"github.com/muster-io/muster/ipam-operator/internal/engine"
)

// FieldOwner is the name that writes of this controller carry.
const FieldOwner = "ipam-operator/metal3datatemplate"

// maxIndexes is how many claims status.indexes names at most; those that come last in order of name are left out.
const maxIndexes = 4096

// Deps is what the controller works with.
type Deps struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Clusters finds the Cluster that owns a template.
	Clusters *capi.Clusters
	// Filter selects the objects that are served.
	Filter capi.WatchFilter
	// Clock tells the time.
	Clock clock.PassiveClock
	// StatusInterval is how far apart two writes of one template's status are that its data causes.
	StatusInterval time.Duration
}

// Reconciler looks after templates.
type Reconciler struct {
	Deps
	control controller.Controller
}

// New returns a Reconciler.
func New(deps Deps) *Reconciler { return &Reconciler{Deps: deps} }

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3datatemplates,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3datatemplates/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3datas,verbs=get;list;watch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=metal3datatemplates.infrastructure.cluster.x-k8s.io,verbs=get;patch
// +kubebuilder:rbac:groups="",namespace=muster-ipam-operator,resources=secrets,resourceNames=ipam-operator-webhook,verbs=update

// Reconcile brings the metadata and the status of one template up to date.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	template := &infrav1.Metal3DataTemplate{}
	if err := r.Client.Get(ctx, req.NamespacedName, template); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !r.Filter.Selects(template) {
		return ctrl.Result{}, nil
	}
	if hold, err := r.Clusters.HoldFor(ctx, template.Spec.ClusterName, template); err != nil || hold != allocate.NotHeld && capi.IsLeftBehind(template) {
		return ctrl.Result{}, err // who moves it away takes its finalizer off
	}
	data, err := r.data(ctx, template)
	if err != nil {
		return ctrl.Result{}, err
	}
	err = r.metadata(ctx, template, len(data) > 0)
	if err == nil {
		err = r.report(ctx, template, data)
	}
	return ctrl.Result{}, outcome.IgnoreGone(outcome.Pace(err, r.StatusInterval))
}

// data lists the data of a template. For a template that is being deleted, it asks the API server.
func (r *Reconciler) data(ctx context.Context, template *infrav1.Metal3DataTemplate) ([]infrav1.Metal3Data, error) {
	list := &infrav1.Metal3DataList{}
	err := r.Client.List(ctx, list, client.InNamespace(template.Namespace), client.MatchingFields{metal3data.ByTemplate: template.Name})
	if err == nil && len(list.Items) == 0 && !template.DeletionTimestamp.IsZero() {
		err = r.Live.List(ctx, list, client.InNamespace(template.Namespace))
	}
	if err != nil {
		return nil, fmt.Errorf("listing the data of Metal3DataTemplate %s: %w", template.Name, err)
	}
	return slices.DeleteFunc(list.Items, func(data infrav1.Metal3Data) bool { return data.Spec.Template.Name != template.Name }), nil
}

// metadata writes finalizer and owner reference, both in one, unless they are right. It does so also while the Cluster is
// paused: the owner is what makes the template move with it.
func (r *Reconciler) metadata(ctx context.Context, template *infrav1.Metal3DataTemplate, hasData bool) error {
	before := template.DeepCopy()
	if template.DeletionTimestamp.IsZero() {
		controllerutil.AddFinalizer(template, infrav1.TemplateFinalizer)
		if err := r.belongToCluster(ctx, template); err != nil {
			return err
		}
	} else if !hasData {
		controllerutil.RemoveFinalizer(template, infrav1.TemplateFinalizer)
	}
	if equality.Semantic.DeepEqual(before.ObjectMeta, template.ObjectMeta) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, template, patch, client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("writing the metadata of Metal3DataTemplate %s: %w", template.Name, err)
	}
	return nil
}

func (r *Reconciler) belongToCluster(ctx context.Context, template *infrav1.Metal3DataTemplate) error {
	if template.Spec.ClusterName == "" {
		return nil
	}
	cluster, err := r.Clusters.Get(ctx, types.NamespacedName{Namespace: template.Namespace, Name: template.Spec.ClusterName})
	if err != nil || cluster == nil {
		return err
	}
	if at := slices.IndexFunc(template.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == cluster.GetUID() }); at >= 0 {
		// The garbage collector cannot find an owner in a version that the API server does not serve any more.
		template.OwnerReferences[at].APIVersion = cluster.GetAPIVersion()
		return nil
	}
	// One of an earlier life of the Cluster would stop the garbage collector from ever being done with it.
	template.OwnerReferences = slices.DeleteFunc(slices.Clone(template.OwnerReferences), func(o metav1.OwnerReference) bool {
		return o.Kind == cluster.GetKind() && o.Name == cluster.GetName()
	})
	template.OwnerReferences = append(template.OwnerReferences, ownerOf(cluster))
	return nil
}

func ownerOf(cluster *unstructured.Unstructured) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: cluster.GetAPIVersion(), Kind: cluster.GetKind(), Name: cluster.GetName(), UID: cluster.GetUID()}
}

// report writes who has which index, unless the status says so.
func (r *Reconciler) report(ctx context.Context, template *infrav1.Metal3DataTemplate, data []infrav1.Metal3Data) error {
	if !template.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(template, infrav1.TemplateFinalizer) {
		return nil
	}
	wanted := map[string]int{}
	for i := range data {
		wanted[data[i].Spec.Claim.Name] = data[i].Spec.Index
	}
	if names := slices.Sorted(maps.Keys(wanted)); len(names) > maxIndexes {
		for _, name := range names[maxIndexes:] {
			delete(wanted, name)
		}
	}
	if maps.Equal(wanted, template.Status.Indexes) {
		return nil
	}
	before := template.DeepCopy()
	template.Status = infrav1.Metal3DataTemplateStatus{Indexes: wanted, LastUpdated: new(metav1.NewTime(r.Clock.Now()))}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, template, patch, client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("writing the status of Metal3DataTemplate %s: %w", template.Name, err)
	}
	return nil
}

// SetupWithManager starts the controller with the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, name string) error {
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named(name).
		For(&infrav1.Metal3DataTemplate{}).
		Watches(&infrav1.Metal3Data{}, handler.Funcs{
			CreateFunc: func(_ context.Context, e event.CreateEvent, q engine.Queue) { r.later(e.Object, q) },
			DeleteFunc: func(_ context.Context, e event.DeleteEvent, q engine.Queue) { r.later(e.Object, q) },
		}).
		WithOptions(controller.TypedOptions[reconcile.Request]{MaxConcurrentReconciles: 2, ReconciliationTimeout: time.Minute, EnableWarmup: new(true)}).
		Build(tracing.Reconciler(name, outcome.Reconciler[ctrl.Request](r)))
	if err != nil {
		return fmt.Errorf("building the controller %s: %w", name, err)
	}
	r.control = c
	return nil
}

// later looks at the template of data after a while, so that much data makes few writes.
func (r *Reconciler) later(data client.Object, q engine.Queue) {
	template := data.(*infrav1.Metal3Data).Spec.Template.Name
	q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: data.GetNamespace(), Name: template}}, r.StatusInterval)
}

// WatchClusters makes templates follow Clusters, from now on.
func (r *Reconciler) WatchClusters(c cache.Cache, kind schema.GroupVersionKind) error {
	return engine.WatchKind(r.control, c, kind, capi.OnChange(func(ctx context.Context, cluster client.Object, q engine.Queue) {
		for _, request := range metal3data.Requests(metal3data.TemplatesOf(ctx, r.Client, cluster)) {
			q.Add(request)
		}
	}))
}
