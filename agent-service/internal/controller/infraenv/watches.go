// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package infraenv

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/muster-io/muster/agent-service/internal/controller/servicewatch"
	"github.com/muster-io/muster/agent-service/internal/domain"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
)

// UIDIndex finds an InfraEnv by its id in the service.
const UIDIndex = "infraenv.uid"

const (
	clusterIndex = "infraenv.cluster"
	// waitingIndex finds InfraEnvs whose cluster the service does not know yet.
	waitingIndex = "infraenv.waiting"
)

// Index adds the indexes that the controllers look by.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	for name, extract := range map[string]client.IndexerFunc{
		UIDIndex: func(object client.Object) []string { return []string{string(object.GetUID())} },
		clusterIndex: func(object client.Object) []string {
			infraEnv, ok := object.(*agentv1.InfraEnv)
			if !ok || infraEnv.Spec.ClusterRef == nil {
				return nil
			}
			return []string{clusterKey(infraEnv).String()}
		},
		waitingIndex: func(object client.Object) []string {
			infraEnv, ok := object.(*agentv1.InfraEnv)
			if !ok {
				return nil
			}
			c := agentv1.FindCondition(infraEnv.Status.Conditions, agentv1.ConditionImageCreated)
			if c == nil || c.Reason != agentv1.ReasonMissingClusterDeployment {
				return nil
			}
			return []string{"true"}
		},
	} {
		if err := indexer.IndexField(ctx, &agentv1.InfraEnv{}, name, extract); err != nil {
			return fmt.Errorf("indexing InfraEnvs: %w", err)
		}
	}
	return nil
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("infraenv").
		For(&agentv1.InfraEnv{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.NewPredicateFuncs(asksToRevoke)))).
		Watches(&agentv1.NMStateConfig{}, handler.EnqueueRequestsFromMapFunc(r.ofNamespace)).
		Watches(&hivev1.ClusterDeployment{}, handler.EnqueueRequestsFromMapFunc(r.ofCluster), builder.WithPredicates(servicewatch.ComesAndGoes)).
		WatchesRawSource(servicewatch.Source[ctrl.Request]{Service: r.Service, Concerns: r.concerned}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, RateLimiter: servicewatch.RateLimiter[ctrl.Request]()}).
		Complete(tracing.Reconciler("infraenv", outcome.Reconciler[ctrl.Request](r)))
}

// asksToRevoke is true for an InfraEnv whose hosts' tokens a user wants revoked.
func asksToRevoke(object client.Object) bool {
	_, asked := object.GetAnnotations()[agentv1.RevokeHostTokensAnnotation]
	return asked
}

func (r *Reconciler) list(ctx context.Context, options ...client.ListOption) []reconcile.Request {
	var found agentv1.InfraEnvList
	if err := r.Client.List(ctx, &found, options...); err != nil {
		return nil
	}
	requests := make([]reconcile.Request, 0, len(found.Items))
	for i := range found.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&found.Items[i])})
	}
	return requests
}

func (r *Reconciler) ofNamespace(ctx context.Context, object client.Object) []reconcile.Request {
	return r.list(ctx, client.InNamespace(object.GetNamespace()))
}

func (r *Reconciler) ofCluster(ctx context.Context, object client.Object) []reconcile.Request {
	return r.list(ctx, client.MatchingFields{clusterIndex: client.ObjectKeyFromObject(object).String()})
}

// concerned follows what changes in the service: an InfraEnv's tokens, hosts that were in the way of its deletion, and clusters that come up.
func (r *Reconciler) concerned(ctx context.Context, change domain.Change) []reconcile.Request {
	var found agentv1.InfraEnvList
	if change.Kind == domain.ClusterChanged {
		return r.list(ctx, client.MatchingFields{waitingIndex: "true"})
	}
	if err := r.Client.List(ctx, &found, client.MatchingFields{UIDIndex: change.ID}, client.UnsafeDisableDeepCopy); err != nil || len(found.Items) == 0 {
		return nil
	}
	infraEnv := &found.Items[0]
	if change.Kind == domain.HostChanged && infraEnv.DeletionTimestamp.IsZero() {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(infraEnv)}}
}
