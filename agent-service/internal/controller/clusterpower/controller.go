// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusterpower switches the machines of clusters off when the clusters hibernate, and on when they resume, by their BareMetalHosts, and says so on the ClusterDeployment.
package clusterpower

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	agentctl "github.com/muster-io/muster/agent-service/internal/controller/agent"
	"github.com/muster-io/muster/agent-service/internal/controller/precedence"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/powerplan"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1ac "github.com/muster-io/muster/apis/applyconfiguration/hive/v1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
)

const (
	// owner is the field owner of what the controller writes.
	owner = client.FieldOwner("agent-service/power")
	// look is how often a cluster is looked at whose machines are being switched: that its API answers is not watched.
	look = 10 * time.Second
)

// Nodes knows the nodes of clusters.
type Nodes interface {
	// NodeReady says whether a cluster has a Ready Node of that name, and whether that is known: the API of the cluster answers.
	NodeReady(cluster types.NamespacedName, node string) (ready, known bool)
}

// Service is what the controller needs of the service.
type Service interface {
	GetHost(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error)
}

// Deps are what a Reconciler works with; all are required.
type Deps struct {
	Client  client.Client
	Nodes   Nodes
	Service Service
	// Order is what waits for what.
	Order *precedence.Order
	Clock clock.PassiveClock
}

// Reconciler switches machines.
type Reconciler struct{ Deps }

// New returns a Reconciler.
func New(d Deps) *Reconciler { return &Reconciler{d} }

// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterdeployments,verbs=get;list;watch
// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterdeployments/status,verbs=patch
// +kubebuilder:rbac:groups=agent-install.openshift.io,resources=agents,verbs=get;list;watch
// +kubebuilder:rbac:groups=metal3.io,resources=baremetalhosts,verbs=get;list;watch;patch

// Reconcile brings the machines of a cluster to its power state. Conditions are written first.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	seen, err := r.observe(ctx, request.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	decision := powerplan.Plan(seen)
	if err := r.report(ctx, seen.Cluster, decision.Conditions); err != nil {
		return ctrl.Result{}, err
	}
	for _, change := range decision.Hosts {
		if err := r.change(ctx, change); err != nil {
			return ctrl.Result{}, err
		}
	}
	if decision.Settled {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: look}, nil
}

// observe reads everything.
func (r *Reconciler) observe(ctx context.Context, key client.ObjectKey) (powerplan.Snapshot, error) {
	seen := powerplan.Snapshot{Name: key.String()}
	cluster := &hivev1.ClusterDeployment{}
	err := r.Client.Get(ctx, key, cluster)
	if err != nil && !apierrors.IsNotFound(err) {
		return seen, fmt.Errorf("reading ClusterDeployment %s: %w", key, err)
	}
	if err == nil && takesNodes(cluster) {
		seen.Cluster = cluster
	}
	var agents agentv1.AgentList
	if err := r.Client.List(ctx, &agents, client.MatchingFields{agentctl.ClusterIndex: key.String()}); err != nil {
		return seen, fmt.Errorf("listing the Agents of ClusterDeployment %s: %w", key, err)
	}
	if runsControlPlane(agents.Items) {
		seen.Cluster = nil
	}
	linked := map[client.ObjectKey]bool{}
	for i := range agents.Items {
		agent := &agents.Items[i]
		state := lifecycle.State(agent.Status.DebugInfo.State)
		if !lifecycle.WasInstalled(state) && !lifecycle.Installs(state) {
			// The service does not know it, or it has failed: its host stays as it is while the cluster hibernates, and is switched on afterwards.
			linked[hostOf(agent)] = err == nil && cluster.Spec.PowerState == hivev1.PowerStateHibernating
			continue
		}
		linked[hostOf(agent)] = true
		machine, answers, err := r.machine(ctx, key, agent, state)
		if err != nil {
			return seen, err
		}
		seen.Answers = seen.Answers || answers
		seen.Machines = append(seen.Machines, machine)
	}
	var hosts metal3v1.BareMetalHostList
	if err := r.Client.List(ctx, &hosts, client.MatchingFields{hibernatesIndex: key.String()}); err != nil {
		return seen, fmt.Errorf("listing the hosts that were switched off with ClusterDeployment %s: %w", key, err)
	}
	for i := range hosts.Items {
		if host := &hosts.Items[i]; !linked[client.ObjectKeyFromObject(host)] {
			seen.Left = append(seen.Left, host)
		}
	}
	return seen, nil
}

// machine is an Agent as the plan sees it; answers says that the API of its cluster does.
func (r *Reconciler) machine(ctx context.Context, cluster client.ObjectKey, agent *agentv1.Agent, state lifecycle.State) (m powerplan.Machine, answers bool, err error) {
	m = powerplan.Machine{Agent: agent.Name, Node: strings.ToLower(cmp.Or(agent.Spec.Hostname, agent.Status.Inventory.Hostname, agent.Name)), Installing: !lifecycle.WasInstalled(state)}
	m.NodeReady, answers = r.Nodes.NodeReady(cluster, m.Node)
	if answers && !m.NodeReady && !m.Installing { // a Node keeps the name that its machine was installed with, whatever the Agent states since
		if known, err := r.Service.GetHost(ctx, domain.Kubernetes, agentctl.HostKey(agent)); err == nil && known.Node.Name != "" && known.Node.Name != m.Node {
			m.Node = known.Node.Name
			m.NodeReady, answers = r.Nodes.NodeReady(cluster, m.Node)
		}
	}
	m.NodeReady = m.NodeReady && answers
	key := hostOf(agent)
	if key.Name == "" {
		return m, answers, nil
	}
	host := &metal3v1.BareMetalHost{}
	if err := r.Client.Get(ctx, key, host); apierrors.IsNotFound(err) {
		return m, answers, nil
	} else if err != nil {
		return m, answers, fmt.Errorf("reading BareMetalHost %s: %w", key, err)
	}
	m.Host = host
	agents, err := r.linked(ctx, key)
	m.Shared = len(agents) > 1
	return m, answers, err
}

// hostOf is the BareMetalHost that an Agent is linked to, without a name for none.
func hostOf(agent *agentv1.Agent) client.ObjectKey {
	return client.ObjectKey{Namespace: agent.Namespace, Name: agent.Labels[agentv1.BareMetalHostLabel]}
}

// runsControlPlane says that one of the machines runs the control plane: with it off, no API could say that the others may be switched on.
func runsControlPlane(agents []agentv1.Agent) bool {
	return slices.ContainsFunc(agents, func(a agentv1.Agent) bool { return a.Status.Bootstrap })
}

// takesNodes says that the cluster has nodes that the service knows.
func takesNodes(cluster *hivev1.ClusterDeployment) bool {
	return cluster.Spec.ClusterMetadata != nil && cluster.Spec.ClusterMetadata.NodeAccessSecretRef != nil
}

// linked are the Agents that are linked to a BareMetalHost.
func (r *Reconciler) linked(ctx context.Context, host client.ObjectKey) ([]agentv1.Agent, error) {
	var agents agentv1.AgentList
	if err := r.Client.List(ctx, &agents, client.InNamespace(host.Namespace), client.MatchingFields{hostIndex: host.Name}); err != nil {
		return nil, fmt.Errorf("listing the Agents of BareMetalHost %s: %w", host, err)
	}
	return agents.Items, nil
}

// report writes the conditions of the cluster where they changed, on the version that was seen: a cluster that is to hibernate meanwhile does not say that its machines run.
func (r *Reconciler) report(ctx context.Context, cluster *hivev1.ClusterDeployment, conditions []hivev1.Condition) error {
	if cluster == nil || !cluster.DeletionTimestamp.IsZero() {
		return nil
	}
	now := metav1.NewTime(r.Clock.Now()).Rfc3339Copy()
	after := cluster.Status.DeepCopy().Conditions
	changed := false
	status := hivev1ac.ClusterDeploymentStatus()
	for _, c := range conditions {
		changed = hivev1.SetCondition(&after, c, now) || changed
		is := hivev1.FindCondition(after, c.Type)
		status.WithConditions(hivev1ac.Condition().WithType(is.Type).WithStatus(is.Status).WithReason(is.Reason).WithMessage(is.Message).
			WithLastProbeTime(is.LastProbeTime).WithLastTransitionTime(is.LastTransitionTime))
	}
	if !changed {
		return nil
	}
	apply := hivev1ac.ClusterDeployment(cluster.Name, cluster.Namespace).WithUID(cluster.UID).WithResourceVersion(cluster.ResourceVersion).WithStatus(status)
	if err := r.Client.Status().Apply(ctx, apply, owner, client.ForceOwnership); err != nil {
		return outcome.IgnoreGone(fmt.Errorf("saying of ClusterDeployment %s whether its machines run: %w", client.ObjectKeyFromObject(cluster), err))
	}
	return nil
}

// change writes a host on the version that was seen.
func (r *Reconciler) change(ctx context.Context, change powerplan.Change) error {
	key := client.ObjectKeyFromObject(change.Before)
	if err := r.Client.Patch(ctx, change.After, client.MergeFromWithOptions(change.Before, client.MergeFromWithOptimisticLock{}), owner); err != nil {
		return outcome.IgnoreGone(fmt.Errorf("switching BareMetalHost %s: %w", key, err))
	}
	logf.FromContext(ctx).Info("asked for a change of power", "bareMetalHost", key.String(), "online", change.After.Spec.Online)
	return nil
}
