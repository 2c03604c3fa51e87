// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeaddress

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/muster-io/muster/agent-service/internal/controller/agent"
	"github.com/muster-io/muster/agent-service/internal/controller/infraenv"
	"github.com/muster-io/muster/agent-service/internal/controller/servicewatch"
	"github.com/muster-io/muster/agent-service/internal/domain"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
)

// Claims is a cache of claims.
type Claims = cache.Cache

// NewClaims returns a cache of claims that are for Agents. It runs with the manager.
func NewClaims(mgr ctrl.Manager) (Claims, error) {
	ofAgents, err := labels.NewRequirement(agentv1.ClaimOwnerLabel, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("selecting claims: %w", err)
	}
	made, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(),
		DefaultLabelSelector: labels.NewSelector().Add(*ofAgents), DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, fmt.Errorf("preparing a cache of claims: %w", err)
	}
	return made, mgr.Add(made)
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	log := mgr.GetLogger().WithValues("controller", "nodeaddress")
	made := ctrl.NewControllerManagedBy(mgr).
		Named("nodeaddress").
		Watches(&agentv1.Agent{}, handler.EnqueueRequestsFromMapFunc(r.ofAgent), builder.WithPredicates(servicewatch.ComesAndGoes)).
		Watches(&agentv1.InfraEnv{}, handler.EnqueueRequestsFromMapFunc(r.ofInfraEnv), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(servicewatch.Source[ctrl.Request]{Service: r.Service, Concerns: r.concerned}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8, RateLimiter: servicewatch.RateLimiter[ctrl.Request]()}).
		WithLogConstructor(func(request *ctrl.Request) logr.Logger {
			if request == nil {
				return log
			}
			return log.WithValues("Agent", request.NamespacedName)
		})
	for _, kind := range r.Kinds {
		made = made.WatchesRawSource(source.Kind(r.Claims, client.Object(empty(kind.Claim)), handler.EnqueueRequestsFromMapFunc(ofClaim)))
	}
	return made.Complete(tracing.Reconciler("nodeaddress", outcome.Reconciler[ctrl.Request](r)))
}

// ofAgent is an Agent that was made or deleted, where there is something to do about its addresses: of a thousand machines that register at once there often is nothing.
func (r *Reconciler) ofAgent(ctx context.Context, object client.Object) []ctrl.Request {
	key := client.ObjectKeyFromObject(object)
	if !r.addressed(ctx, key, agent.HostKey(object)) {
		return nil
	}
	return []ctrl.Request{{NamespacedName: key}}
}

// addressed is false for an Agent that has no claims and whose host gets no addresses and has none: Reconcile has nothing to do. Where that is not known it is true.
func (r *Reconciler) addressed(ctx context.Context, key client.ObjectKey, of domain.HostKey) bool {
	claims, err := r.claims(ctx, key)
	if err != nil || len(claims) > 0 {
		return true
	}
	var infraEnvs agentv1.InfraEnvList
	err = r.Client.List(ctx, &infraEnvs, client.InNamespace(key.Namespace), client.MatchingFields{infraenv.UIDIndex: of.InfraEnvID}, client.UnsafeDisableDeepCopy)
	if err != nil || len(infraEnvs.Items) == 0 || len(infraenv.Pools(infraEnvs.Items[0].Spec)) > 0 {
		return true
	}
	host, err := r.Service.GetHost(ctx, domain.Kubernetes, of)
	return err != nil || len(host.Addressing.Pools) > 0
}

func ofClaim(_ context.Context, object client.Object) []ctrl.Request {
	var requests []ctrl.Request
	names := map[string]bool{object.GetLabels()[agentv1.ClaimOwnerLabel]: true}
	if owner := metav1.GetControllerOf(object); owner != nil {
		names[owner.Name] = true
	}
	for name := range names {
		requests = append(requests, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: name}})
	}
	return requests
}

func (r *Reconciler) ofInfraEnv(ctx context.Context, object client.Object) []ctrl.Request {
	infraEnv, ok := object.(*agentv1.InfraEnv)
	if !ok {
		return nil
	}
	return r.agents(ctx, client.InNamespace(infraEnv.Namespace), client.MatchingLabels{agentv1.InfraEnvLabel: infraenv.Label(infraEnv)})
}

// concerned is the Agent of a host that changed.
func (r *Reconciler) concerned(ctx context.Context, change domain.Change) []ctrl.Request {
	if change.Kind != domain.HostChanged {
		return nil
	}
	return slices.DeleteFunc(r.agents(ctx, client.MatchingFields{agent.HostIndex: change.Host.String()}), func(one ctrl.Request) bool {
		return !r.addressed(ctx, one.NamespacedName, change.Host)
	})
}

func (r *Reconciler) agents(ctx context.Context, options ...client.ListOption) []ctrl.Request {
	var found agentv1.AgentList
	if err := r.Client.List(ctx, &found, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil
	}
	requests := make([]ctrl.Request, 0, len(found.Items))
	for i := range found.Items {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&found.Items[i])})
	}
	return requests
}
