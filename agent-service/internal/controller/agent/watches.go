// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/muster-io/muster/agent-service/internal/controller/precedence"
	"github.com/muster-io/muster/agent-service/internal/controller/servicewatch"
	"github.com/muster-io/muster/agent-service/internal/domain"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
)

// ClusterIndex finds Agents by the ClusterDeployment that their spec names, as namespace/name.
const ClusterIndex = "agent.cluster"

// HostIndex finds Agents by the host that they are of, as the InfraEnv's UID/host id.
const HostIndex = "agent.host"

// workers is how many hosts are looked at at the same time.
const workers = 20

// Index adds the indexes that the controllers look by.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	for name, extract := range map[string]client.IndexerFunc{
		HostIndex: func(object client.Object) []string { return []string{HostKey(object).String()} },
		ClusterIndex: func(object client.Object) []string {
			agent, ok := object.(*agentv1.Agent)
			if !ok || ClusterKey(agent) == (client.ObjectKey{}) {
				return nil
			}
			return []string{ClusterKey(agent).String()}
		},
	} {
		if err := indexer.IndexField(ctx, &agentv1.Agent{}, name, extract); err != nil {
			return fmt.Errorf("indexing Agents: %w", err)
		}
	}
	return nil
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	log := mgr.GetLogger().WithValues("controller", "agent")
	return builder.TypedControllerManagedBy[domain.HostKey](mgr).
		Named("agent").
		Watches(&agentv1.Agent{}, follow(func(_ context.Context, object client.Object) []domain.HostKey {
			return []domain.HostKey{HostKey(object)}
		})).
		Watches(&agentv1.InfraEnv{}, follow(r.ofInfraEnv), builder.WithPredicates(servicewatch.ComesAndGoes)).
		Watches(&agentv1.AgentClassification{}, follow(r.ofNamespace), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&hivev1.ClusterDeployment{}, follow(r.ofCluster), builder.WithPredicates(servicewatch.ComesAndGoes)).
		WatchesRawSource(servicewatch.Source[domain.HostKey]{Service: r.Service, All: r.everyHost, Concerns: r.concerned, First: r.lacksAgent}).
		WithOptions(controller.TypedOptions[domain.HostKey]{MaxConcurrentReconciles: workers, RateLimiter: servicewatch.RateLimiter[domain.HostKey]()}).
		WithLogConstructor(func(key *domain.HostKey) logr.Logger {
			if key == nil {
				return log
			}
			return log.WithValues("infraEnvID", key.InfraEnvID, "host", key.HostID)
		}).
		Complete(precedence.Yield(r.Order, tracing.Reconciler("agent", outcome.Reconciler[domain.HostKey](r)), r.cannotWait))
}

func follow(keys handler.TypedMapFunc[client.Object, domain.HostKey]) handler.TypedEventHandler[client.Object, domain.HostKey] {
	return handler.TypedEnqueueRequestsFromMapFunc(keys)
}

// everyHost lists all hosts: those whose InfraEnv is no custom resource are left alone later.
func (r *Reconciler) everyHost(ctx context.Context) ([]domain.HostKey, error) {
	return r.hosts(ctx, domain.HostFilter{})
}

func (r *Reconciler) hosts(ctx context.Context, filter domain.HostFilter) ([]domain.HostKey, error) {
	const page = 1000
	var keys []domain.HostKey
	for {
		filter.Page = domain.Page{Limit: page, Offset: len(keys)}
		found, err := r.Service.ListHosts(ctx, domain.Kubernetes, filter)
		if err != nil {
			return keys, fmt.Errorf("listing hosts: %w", err)
		}
		for i := range found.Items {
			keys = append(keys, found.Items[i].HostKey)
		}
		if len(found.Items) < page {
			return keys, nil
		}
	}
}

// ofInfraEnv are hosts that came before their InfraEnv was seen.
func (r *Reconciler) ofInfraEnv(ctx context.Context, object client.Object) []domain.HostKey {
	keys, err := r.hosts(ctx, domain.HostFilter{InfraEnvID: string(object.GetUID())})
	if err != nil {
		return nil
	}
	return keys
}

func (r *Reconciler) list(ctx context.Context, options ...client.ListOption) []domain.HostKey {
	var found agentv1.AgentList
	if err := r.Client.List(ctx, &found, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil
	}
	keys := make([]domain.HostKey, 0, len(found.Items))
	for i := range found.Items {
		keys = append(keys, HostKey(&found.Items[i]))
	}
	return keys
}

func (r *Reconciler) ofNamespace(ctx context.Context, object client.Object) []domain.HostKey {
	return r.list(ctx, client.InNamespace(object.GetNamespace()))
}

func (r *Reconciler) ofCluster(ctx context.Context, object client.Object) []domain.HostKey {
	return r.list(ctx, client.MatchingFields{ClusterIndex: client.ObjectKeyFromObject(object).String()})
}

// concerned follows what changes in the service: hosts, and clusters that Agents wait for.
func (r *Reconciler) concerned(ctx context.Context, change domain.Change) []domain.HostKey {
	switch change.Kind {
	case domain.HostChanged:
		return []domain.HostKey{change.Host}
	case domain.ClusterChanged:
		return r.waiting(ctx, change.ID)
	case domain.InfraEnvChanged, domain.EventAdded, domain.EverythingChanged:
	}
	return nil
}

// lacksAgent is true for a host without an Agent: of a thousand machines that register at once, each has its Agent before Agents say more.
func (r *Reconciler) lacksAgent(ctx context.Context, key domain.HostKey) bool {
	found, err := r.agentsOf(ctx, key)
	return err == nil && len(found) == 0
}

// cannotWait is true for a host without an Agent, and for an Agent that is being deleted, or whose tokens a user revokes.
func (r *Reconciler) cannotWait(ctx context.Context, key domain.HostKey) bool {
	found, err := r.agentsOf(ctx, key)
	return err == nil && (len(found) == 0 || slices.ContainsFunc(found, func(a agentv1.Agent) bool {
		_, revoked := a.Annotations[agentv1.RevokeTokensAnnotation]
		return revoked || !a.DeletionTimestamp.IsZero()
	}))
}

// agentsOf are the Agents that say they are of a host; they are those of the cache.
func (r *Reconciler) agentsOf(ctx context.Context, key domain.HostKey) ([]agentv1.Agent, error) {
	var found agentv1.AgentList
	if err := r.Client.List(ctx, &found, client.MatchingFields{HostIndex: key.String()}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("looking for the Agent of host %s: %w", key, err)
	}
	return found.Items, nil
}

// waiting are Agents for a cluster that are not in it as far as they say.
func (r *Reconciler) waiting(ctx context.Context, clusterID string) []domain.HostKey {
	cluster, err := r.Service.GetCluster(ctx, domain.Kubernetes, clusterID)
	if err != nil || cluster.Kube == (domain.KubeRef{}) {
		return nil
	}
	var found agentv1.AgentList
	key := client.ObjectKey{Namespace: cluster.Kube.Namespace, Name: cluster.Kube.Name}
	if err := r.Client.List(ctx, &found, client.MatchingFields{ClusterIndex: key.String()}, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var keys []domain.HostKey
	for i := range found.Items {
		if !agentv1.IsConditionTrue(found.Items[i].Status.Conditions, agentv1.ConditionSpecSynced) {
			keys = append(keys, HostKey(&found.Items[i]))
		}
	}
	return keys
}
