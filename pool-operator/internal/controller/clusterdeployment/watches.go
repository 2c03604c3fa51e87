// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/pool-operator/internal/hostedplan"
	"github.com/muster-io/muster/pool-operator/internal/provision/changes"
)

// isHosted lets through the ClusterDeployments that this controller looks after.
func isHosted(object client.Object) bool {
	cluster, ok := object.(*hivev1.ClusterDeployment)
	return ok && hostedplan.Hosted(cluster)
}

// onlyDeletions lets through the loss of a Secret; that it was written is no news to the one who wrote it.
func onlyDeletions() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// wakeUps turns what the runtime notices into passes, for as long as the controller runs.
func wakeUps(changes *changes.Changes) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go func() {
			for {
				refs, err := changes.Wait(ctx)
				if err != nil {
					return
				}
				for _, ref := range refs {
					queue.Add(reconcile.Request{NamespacedName: ref.NamespacedName()})
				}
			}
		}()
		return nil
	})
}

// SetupWithManager registers the controller and the removal of orphans; both run on the leader only.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if err := mgr.Add(&orphans{Deps: r.Deps}); err != nil {
		return fmt.Errorf("registering the removal of orphaned hosted clusters: %w", err)
	}
	hosted := ctrl.NewControllerManagedBy(mgr).
		Named("clusterdeployment-hosted").
		For(&hivev1.ClusterDeployment{}, builder.WithPredicates(predicate.NewPredicateFuncs(isHosted))).
		Owns(&corev1.Secret{}, builder.OnlyMetadata, builder.WithPredicates(onlyDeletions())).
		WatchesRawSource(wakeUps(r.Runtime.Changes())).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency, NeedLeaderElection: new(true)})
	if r.MachinePools != nil {
		hosted.Watches(&hivev1.MachinePool{}, ofMachinePool())
	}
	return hosted.Complete(tracing.ReconcilerOf("clusterdeployment-hosted", outcome.Reconciler[ctrl.Request](r), tracing.OfClusterDeployment(r.Client)))
}
