// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metal3dataclaim

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/controller/metal3data"
	"github.com/muster-io/muster/ipam-operator/internal/engine"
)

// SetupWithManager starts the controller with the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, name string) error {
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named(name).
		For(&infrav1.Metal3DataClaim{}).
		Watches(&infrav1.Metal3DataTemplate{}, handler.EnqueueRequestsFromMapFunc(r.ofTemplate), builder.WithPredicates(metal3data.ButStatus)).
		Watches(&infrav1.Metal3Data{}, handler.EnqueueRequestsFromMapFunc(claimOf)).
		WithOptions(controller.TypedOptions[reconcile.Request]{
			MaxConcurrentReconciles: r.Workers, ReconciliationTimeout: time.Minute, EnableWarmup: new(true),
		}).
		Build(tracing.Reconciler(name, outcome.Reconciler[ctrl.Request](r)))
	if err != nil {
		return fmt.Errorf("building the controller %s: %w", name, err)
	}
	r.control = c
	return nil
}

func claimOf(_ context.Context, obj client.Object) []reconcile.Request {
	claim := obj.(*infrav1.Metal3Data).Spec.Claim.Name
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: claim}}}
}

// ofTemplate are the claims of a template that have no data, or are being deleted.
func (r *Reconciler) ofTemplate(ctx context.Context, template client.Object) []reconcile.Request {
	return r.unfinished(ctx, client.InNamespace(template.GetNamespace()), client.MatchingFields{metal3data.ByTemplate: template.GetName()})
}

func (r *Reconciler) unfinished(ctx context.Context, options ...client.ListOption) []reconcile.Request {
	list := &infrav1.Metal3DataClaimList{}
	if err := r.Client.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Metal3DataClaims could not be listed from the cache")
	}
	var out []reconcile.Request
	for i := range list.Items {
		if claim := &list.Items[i]; claim.Status.RenderedData == nil || !claim.DeletionTimestamp.IsZero() {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(claim)})
		}
	}
	return out
}

// WatchClusters makes claims follow Clusters, from now on.
func (r *Reconciler) WatchClusters(c cache.Cache, kind schema.GroupVersionKind) error {
	return engine.WatchKind(r.control, c, kind, capi.OnChange(func(ctx context.Context, cluster client.Object, q engine.Queue) {
		wake := r.unfinished(ctx, metal3data.InCluster(cluster)...)
		for _, template := range metal3data.TemplatesOf(ctx, r.Client, cluster) {
			wake = append(wake, r.ofTemplate(ctx, &template)...)
		}
		for _, request := range wake {
			q.Add(request)
		}
	}))
}
