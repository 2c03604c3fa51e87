// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package baremetalhost links BareMetalHosts that name an InfraEnv with the Agents of their machines.
package baremetalhost

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/muster-io/muster/agent-service/internal/bmhplan"
	"github.com/muster-io/muster/agent-service/internal/controller/servicewatch"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/apis/truncate"
)

const (
	// hostMACIndex finds BareMetalHosts, and agentMACIndex Agents, by namespace and a MAC of the machine.
	hostMACIndex  = "baremetalhost.mac"
	agentMACIndex = "agent.mac"
	// infraEnvIndex finds BareMetalHosts by the name of their InfraEnv.
	infraEnvIndex = "baremetalhost.infraenv"
)

// Deps are what a Reconciler works with; all are required.
type Deps struct {
	Client client.Client
	// Recorder publishes events about BareMetalHosts.
	Recorder events.EventRecorder
}

// Reconciler links BareMetalHosts with Agents.
type Reconciler struct{ Deps }

// New returns a Reconciler.
func New(d Deps) *Reconciler { return &Reconciler{d} }

// Index adds the indexes that the controller looks by.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	for _, index := range []struct {
		object  client.Object
		name    string
		extract client.IndexerFunc
	}{
		{&metal3v1.BareMetalHost{}, hostMACIndex, macsOf},
		{&metal3v1.BareMetalHost{}, infraEnvIndex, func(o client.Object) []string { return []string{o.GetLabels()[agentv1.InfraEnvLabel]} }},
		{&agentv1.Agent{}, agentMACIndex, macsOf},
	} {
		if err := indexer.IndexField(ctx, index.object, index.name, index.extract); err != nil {
			return fmt.Errorf("indexing by MAC: %w", err)
		}
	}
	return nil
}

// macsOf are the MACs of a machine, in lower case, without repetition.
func macsOf(object client.Object) []string {
	switch o := object.(type) {
	case *metal3v1.BareMetalHost:
		return o.MACAddresses()
	case *agentv1.Agent:
		macs := make([]string, 0, len(o.Status.Inventory.Interfaces))
		for i := range o.Status.Inventory.Interfaces {
			if mac := strings.ToLower(o.Status.Inventory.Interfaces[i].MacAddress); mac != "" && !slices.Contains(macs, mac) {
				macs = append(macs, mac)
			}
		}
		return macs
	}
	return nil
}

// SetupWithManager registers the controller. Other changes of the status of an Agent change nothing here.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("baremetalhost").
		For(&metal3v1.BareMetalHost{}).
		Watches(&agentv1.Agent{}, handler.EnqueueRequestsFromMapFunc(r.ofAgent)).
		Watches(&agentv1.InfraEnv{}, handler.EnqueueRequestsFromMapFunc(r.ofInfraEnv), builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, RateLimiter: servicewatch.RateLimiter[ctrl.Request]()}).
		Complete(tracing.Reconciler("baremetalhost", outcome.Reconciler[ctrl.Request](r)))
}

// ofAgent are the hosts that have a MAC of the Agent's machine.
func (r *Reconciler) ofAgent(ctx context.Context, object client.Object) []ctrl.Request {
	var requests []ctrl.Request
	for _, mac := range macsOf(object) {
		requests = append(requests, r.requests(ctx, object.GetNamespace(), client.MatchingFields{hostMACIndex: mac})...)
	}
	return requests
}

func (r *Reconciler) ofInfraEnv(ctx context.Context, object client.Object) []ctrl.Request {
	return r.requests(ctx, object.GetNamespace(), client.MatchingFields{infraEnvIndex: object.GetName()})
}

func (r *Reconciler) requests(ctx context.Context, namespace string, by client.MatchingFields) []ctrl.Request {
	var hosts metal3v1.BareMetalHostList
	if err := r.Client.List(ctx, &hosts, client.InNamespace(namespace), by); err != nil {
		return nil
	}
	requests := make([]ctrl.Request, 0, len(hosts.Items))
	for i := range hosts.Items {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&hosts.Items[i])})
	}
	return requests
}

// +kubebuilder:rbac:groups=metal3.io,resources=baremetalhosts,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=agent-install.openshift.io,resources=agents,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=agent-install.openshift.io,resources=infraenvs,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile boots the machine of a host from the image of its InfraEnv, and links the host with the Agent that appears.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	seen, err := r.observe(ctx, request)
	if err != nil || seen.Host == nil {
		return ctrl.Result{}, err
	}
	decision := bmhplan.Plan(seen)
	if decision.Problem != "" {
		r.Recorder.Eventf(seen.Host, nil, corev1.EventTypeWarning, decision.Reason, "LinkAgent", "%s", truncate.Note(decision.Problem))
	}
	if decision.Host != nil {
		if err := r.patch(ctx, seen.Host, decision.Host); err != nil {
			return ctrl.Result{}, err
		}
	}
	if decision.Remove != nil {
		if err := r.Client.Delete(ctx, decision.Remove, client.Preconditions{UID: &decision.Remove.UID, ResourceVersion: &decision.Remove.ResourceVersion}); outcome.IgnoreGone(err) != nil {
			return ctrl.Result{}, fmt.Errorf("deleting the Agent of BareMetalHost %s: %w", request, err)
		}
	}
	for _, agent := range seen.Agents {
		if decision.Agent != nil && agent.Name == decision.Agent.Name {
			return ctrl.Result{}, r.patch(ctx, agent, decision.Agent)
		}
	}
	return ctrl.Result{}, nil
}

func (r *Reconciler) observe(ctx context.Context, request ctrl.Request) (bmhplan.Snapshot, error) {
	host := &metal3v1.BareMetalHost{}
	if err := r.Client.Get(ctx, request.NamespacedName, host); err != nil {
		return bmhplan.Snapshot{}, client.IgnoreNotFound(err)
	}
	seen := bmhplan.Snapshot{Host: host}
	infraEnv := &agentv1.InfraEnv{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: host.Namespace, Name: host.Labels[agentv1.InfraEnvLabel]}, infraEnv)
	switch {
	case err == nil:
		seen.InfraEnv = infraEnv
	case !apierrors.IsNotFound(err):
		return seen, fmt.Errorf("reading the InfraEnv of BareMetalHost %s: %w", request, err)
	}
	err = r.observeAgents(ctx, &seen)
	return seen, err
}

// observeAgents reads the Agents whose machines report a MAC of the host.
func (r *Reconciler) observeAgents(ctx context.Context, seen *bmhplan.Snapshot) error {
	found := map[string]bool{}
	for _, mac := range macsOf(seen.Host) {
		var agents agentv1.AgentList
		if err := r.Client.List(ctx, &agents, client.InNamespace(seen.Host.Namespace), client.MatchingFields{agentMACIndex: mac}); err != nil {
			return fmt.Errorf("looking for the Agent of BareMetalHost %s: %w", client.ObjectKeyFromObject(seen.Host), err)
		}
		for i := range agents.Items {
			agent := &agents.Items[i]
			switch {
			case found[agent.Name]:
			case agent.Labels[agentv1.InfraEnvLabel] == seen.Host.Labels[agentv1.InfraEnvLabel]:
				seen.Agents = append(seen.Agents, agent)
			default:
				seen.Elsewhere = append(seen.Elsewhere, agent)
			}
			found[agent.Name] = true
		}
	}
	return nil
}

// patch writes what was decided on the version that was seen; a conflict is tried again with a newer one.
func (r *Reconciler) patch(ctx context.Context, before, after client.Object) error {
	if err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return outcome.IgnoreGone(fmt.Errorf("linking %T %s: %w", after, client.ObjectKeyFromObject(after), err))
	}
	return nil
}
