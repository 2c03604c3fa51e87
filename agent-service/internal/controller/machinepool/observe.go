// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package machinepool

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentctl "github.com/muster-io/muster/agent-service/internal/controller/agent"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/machineplan"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// snapshot is all that is known of one pool.
type snapshot struct {
	key  client.ObjectKey
	pool *hivev1.MachinePool
	// cluster is nil where it is missing.
	cluster *hivev1.ClusterDeployment
	// machines are the Agents with the pool's labels and, where it lacks some, those that match its selector; agents are those by name. They are of the cache and
	// are not changed.
	machines []machineplan.Machine
	agents   map[string]*agentv1.Agent
	// infraEnvs are those of the Agents' namespace by UID, namespace the labels of the cluster's namespace where one of them asks for them.
	infraEnvs map[types.UID]*agentv1.InfraEnv
	namespace labels.Set
	// refused says that Agents match whose InfraEnv does not let the pool's namespace have them.
	refused bool
	// unknown says that a machine is installed, and the cluster does not say whether its Node is Ready.
	unknown bool
	// addresses are those that IPPools have for machines that may be taken, by the names of the pools.
	addresses map[string]addressCount
	// notTaken says which Agents the API server refused to have bound, or whose machines cannot join the cluster, and why.
	notTaken []string
	// takesNone is why no machine can be bound to the cluster yet: the service does not know it. It is empty where that was not looked at.
	takesNone string
	// asks says that the service was told of the cluster a moment ago, and has not answered yet.
	asks bool
}

// spec is what the pool says of its machines.
func (s *snapshot) spec() *hivev1.AgentBareMetalMachinePool {
	return s.pool.Spec.Platform.AgentBareMetal
}

func (s *snapshot) clusterKey() client.ObjectKey {
	return client.ObjectKey{Namespace: s.key.Namespace, Name: s.pool.Spec.ClusterDeploymentRef.Name}
}

// agentNamespace is where the Agents of a pool are.
func agentNamespace(pool *hivev1.MachinePool) string {
	return cmp.Or(pool.Spec.Platform.AgentBareMetal.AgentNamespace, pool.Namespace)
}

// observe reads everything. Nil means that there is nothing to look after.
func (r *Reconciler) observe(ctx context.Context, key client.ObjectKey) (*snapshot, error) {
	seen := &snapshot{key: key, pool: &hivev1.MachinePool{}, agents: map[string]*agentv1.Agent{}, infraEnvs: map[types.UID]*agentv1.InfraEnv{}}
	if err := r.Client.Get(ctx, key, seen.pool); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if seen.spec() == nil || hivev1.IsTrue(seen.pool.Annotations, hivev1.AnnotationReconcilePause) {
		return nil, nil
	}
	cluster := &hivev1.ClusterDeployment{}
	err := r.Client.Get(ctx, seen.clusterKey(), cluster)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading the cluster of MachinePool %s: %w", key, err)
	}
	if err == nil {
		seen.cluster = cluster
	}
	if err := r.observeConsent(ctx, seen); err != nil {
		return nil, err
	}
	return seen, r.observeMachines(ctx, seen)
}

// observeConsent reads what the InfraEnvs say of clusters that may have their machines.
func (r *Reconciler) observeConsent(ctx context.Context, seen *snapshot) error {
	var infraEnvs agentv1.InfraEnvList
	if err := r.Client.List(ctx, &infraEnvs, client.InNamespace(agentNamespace(seen.pool)), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the InfraEnvs of MachinePool %s: %w", seen.key, err)
	}
	selects := false
	for i := range infraEnvs.Items {
		seen.infraEnvs[infraEnvs.Items[i].UID] = &infraEnvs.Items[i]
		selects = selects || allowed(&infraEnvs.Items[i]).Selector != nil
	}
	if !selects {
		return nil
	}
	// Namespaces are not watched, which would be much for this.
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := r.Live.Get(ctx, client.ObjectKey{Name: seen.key.Namespace}, namespace); err != nil {
		return fmt.Errorf("reading the namespace of MachinePool %s: %w", seen.key, err)
	}
	seen.namespace = namespace.Labels
	return nil
}

// observeMachines reads the machines that the pool has. Only a pool that lacks some, and may take them, looks at all that match: there may be as many as a fleet has.
func (r *Reconciler) observeMachines(ctx context.Context, seen *snapshot) error {
	has, err := r.listAgents(ctx, seen, client.MatchingFields{poolIndex: seen.key.String()})
	if err != nil {
		return err
	}
	for i := range has {
		seen.agents[has[i].Name] = &has[i]
	}
	r.read(ctx, seen)
	if wanted := seen.wanted(); wanted.Blocked || machineplan.Missing(wanted, seen.machines) <= 0 {
		return nil
	}
	return r.observeMatches(ctx, seen)
}

// observeMatches reads the Agents that the pool's selector matches.
func (r *Reconciler) observeMatches(ctx context.Context, seen *snapshot) error {
	selector, err := metav1.LabelSelectorAsSelector(&seen.spec().AgentSelector)
	if err != nil {
		selector = labels.Nothing() // the schema lets through what no selector can be made of
	}
	matches, err := r.listAgents(ctx, seen, client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		return err
	}
	for i := range matches {
		switch agent := &matches[i]; {
		case takenBy(agent) == seen.key: // it has been read
		case !seen.consents(agent):
			seen.refused = true // a namespace learns nothing about machines that it may not have
		default:
			seen.agents[agent.Name] = agent
		}
	}
	if err := r.observeAddresses(ctx, seen); err != nil {
		return err
	}
	r.read(ctx, seen)
	return nil
}

// listAgents lists Agents of a choice from the cache. They are not to be changed.
func (r *Reconciler) listAgents(ctx context.Context, seen *snapshot, choice client.ListOption) ([]agentv1.Agent, error) {
	var agents agentv1.AgentList
	if err := r.Client.List(ctx, &agents, client.InNamespace(agentNamespace(seen.pool)), choice, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the Agents of MachinePool %s: %w", seen.key, err)
	}
	return agents.Items, nil
}

// read makes machines of the Agents.
func (r *Reconciler) read(ctx context.Context, seen *snapshot) {
	seen.machines, seen.unknown = nil, false
	for _, agent := range seen.agents {
		seen.machines = append(seen.machines, r.machine(ctx, seen, agent))
	}
	slices.SortFunc(seen.machines, func(a, b machineplan.Machine) int { return cmp.Compare(a.Name, b.Name) })
}

// takenBy is the pool whose labels an Agent has, empty for none.
func takenBy(agent client.Object) client.ObjectKey {
	l := agent.GetLabels()
	return client.ObjectKey{Namespace: l[agentv1.MachinePoolNamespaceLabel], Name: l[agentv1.MachinePoolLabel]}
}

// machine is an Agent as the plan sees it.
func (r *Reconciler) machine(ctx context.Context, seen *snapshot, agent *agentv1.Agent) machineplan.Machine {
	state := lifecycle.State(agent.Status.DebugInfo.State)
	cluster := agentctl.ClusterKey(agent)
	_, reserved := agent.Labels[agentv1.MachineReferenceLabel]
	reserved = reserved || agentv1.IsConditionTrue(agent.Status.Conditions, agentv1.ConditionReserved)
	_, marked := agent.Annotations[agentv1.DeleteMachineAnnotation]
	bound, _ := time.Parse(time.RFC3339, agent.Annotations[agentv1.MachinePoolBoundAtAnnotation])
	m := machineplan.Machine{
		Name: agent.Name, Mine: takenBy(agent) == seen.key, Bound: cluster.Name != "", Ours: cluster == seen.clusterKey(), Reserved: reserved,
		Deleting: !agent.DeletionTimestamp.IsZero(), Free: free(agent, state), Forbidden: seen.forbidden(agent), Approved: agent.Spec.Approved,
		Worker: slices.Contains([]string{"", "auto-assign", "worker"}, agent.Spec.Role), SilentSince: silentSince(agent),
		Valid:     state == lifecycle.KnownUnbound && agentv1.IsConditionTrue(agent.Status.Conditions, agentv1.ConditionValidated),
		NoAddress: seen.lacksAddress(agent), Size: size(agent), Spread: agent.Labels[seen.spec().SpreadBy], DeleteFirst: marked, BoundAt: bound,
		Node: strings.ToLower(cmp.Or(agent.Spec.Hostname, agent.Status.Inventory.Hostname)),
	}
	if m.Mine {
		m.Left = !m.Ours && !usesCluster(agent)
		m.Phase, m.Message = r.phase(ctx, seen, agent, state, &m)
	}
	return m
}

// free says that the host of an Agent is in no cluster, and that nothing is left to do about the last one.
func free(agent *agentv1.Agent, state lifecycle.State) bool {
	released := agentv1.FindCondition(agent.Status.Conditions, agentv1.ConditionReleased)
	return lifecycle.Free(state) && (released == nil || released.Status == corev1.ConditionTrue)
}

// silentSince is when a machine was last in contact, zero while it is.
func silentSince(agent *agentv1.Agent) time.Time {
	connected := agentv1.FindCondition(agent.Status.Conditions, agentv1.ConditionConnected)
	switch {
	case connected == nil:
		return agent.CreationTimestamp.Time
	case connected.Status == corev1.ConditionTrue:
		return time.Time{}
	}
	return connected.LastTransitionTime.Time
}

func size(agent *agentv1.Agent) machineplan.Size {
	inventory := &agent.Status.Inventory
	s := machineplan.Size{CPUs: inventory.CPU.Count, Memory: inventory.Memory.PhysicalBytes}
	for i := range inventory.Disks {
		if inventory.Disks[i].InstallationEligibility.Eligible {
			s.Disk = max(s.Disk, inventory.Disks[i].SizeBytes)
		}
	}
	return s
}

func allowed(infraEnv *agentv1.InfraEnv) agentv1.ClusterNamespaces {
	if infraEnv.Spec.AllowedClusters == nil || infraEnv.Spec.AllowedClusters.Namespaces == nil {
		return agentv1.ClusterNamespaces{From: agentv1.FromSame}
	}
	return *infraEnv.Spec.AllowedClusters.Namespaces
}

// infraEnvOf is the InfraEnv of an Agent, nil where it is missing.
func (s *snapshot) infraEnvOf(agent *agentv1.Agent) *agentv1.InfraEnv {
	for _, one := range agent.OwnerReferences {
		if found := s.infraEnvs[one.UID]; found != nil {
			return found
		}
	}
	return nil
}

// consents says that the InfraEnv of an Agent lets clusters of the pool's namespace have its machines.
func (s *snapshot) consents(agent *agentv1.Agent) bool {
	infraEnv := s.infraEnvOf(agent)
	if agent.Namespace == s.key.Namespace {
		return true
	}
	if infraEnv == nil {
		return false
	}
	choice := allowed(infraEnv)
	selector, err := metav1.LabelSelectorAsSelector(choice.Selector) // that of nil matches nothing
	return choice.From == agentv1.FromAll || choice.From == agentv1.FromSelector && err == nil && selector.Matches(s.namespace)
}

// forbidden is why the InfraEnv of an Agent gives it to no pool; empty where it does.
func (s *snapshot) forbidden(agent *agentv1.Agent) string {
	switch infraEnv := s.infraEnvOf(agent); {
	case infraEnv == nil:
		return "its InfraEnv is missing"
	case !infraEnv.DeletionTimestamp.IsZero():
		return fmt.Sprintf("InfraEnv %s is being deleted", infraEnv.Name)
	case infraEnv.Spec.ClusterRef != nil:
		return fmt.Sprintf("InfraEnv %s has a cluster of its own", infraEnv.Name)
	}
	return ""
}

// phase is how far a machine of the pool is, and what it waits for.
func (r *Reconciler) phase(ctx context.Context, seen *snapshot, agent *agentv1.Agent, state lifecycle.State, m *machineplan.Machine) (machineplan.Phase, string) {
	info := agent.Status.DebugInfo.StateInfo
	switch {
	case !m.Has():
		return machineplan.Releasing, info
	case state == lifecycle.Failed || state == lifecycle.Cancelled || state == lifecycle.ResettingPendingUserAction:
		return machineplan.Failed, info
	case lifecycle.WasInstalled(state):
		return r.node(ctx, seen, agent, m)
	case state == lifecycle.InstallingPendingUserAction:
		return machineplan.Joining, info
	case lifecycle.Installs(state) && lifecycle.AfterReboot(lifecycle.Stage(agent.Status.Progress.CurrentStage)):
		return machineplan.Joining, agent.Status.Progress.CurrentStage
	case lifecycle.Installs(state) || lifecycle.Busy(state):
		return machineplan.Installing, cmp.Or(agent.Status.Progress.CurrentStage, info)
	}
	for _, kind := range []string{agentv1.ConditionSpecSynced, agentv1.ConditionConnected, agentv1.ConditionValidated} {
		if c := agentv1.FindCondition(agent.Status.Conditions, kind); c != nil && c.Status != corev1.ConditionTrue {
			return machineplan.Binding, c.Message
		}
	}
	if c := agentv1.FindCondition(agent.Status.Conditions, agentv1.ConditionRequirementsMet); c != nil && c.Reason == agentv1.ReasonAgentIsNotApproved {
		return machineplan.Binding, c.Message // its state is that of a machine that can be installed
	}
	return machineplan.Binding, info
}

// node is how far an installed machine is. One that was a Ready node, and is none, does not join: it died, or is off. A Node keeps the name that its machine was installed with, whatever the
// Agent states since.
func (r *Reconciler) node(ctx context.Context, seen *snapshot, agent *agentv1.Agent, m *machineplan.Machine) (machineplan.Phase, string) {
	ready, known := r.Nodes.NodeReady(seen.clusterKey(), m.Node)
	seen.unknown = seen.unknown || !known
	if ready || !known {
		return nodePhase(ready, false)
	}
	host, err := r.Service.GetHost(ctx, domain.Kubernetes, agentctl.HostKey(agent))
	if err != nil {
		return nodePhase(false, false)
	}
	if name := host.Node.Name; name != "" && name != m.Node {
		m.Node = name
		ready, _ = r.Nodes.NodeReady(seen.clusterKey(), name)
	}
	return nodePhase(ready, host.Node.WasReady && !seen.resumes(r.Clock.Now()))
}

func nodePhase(ready, was bool) (machineplan.Phase, string) {
	switch {
	case ready:
		return machineplan.Ready, ""
	case was:
		return machineplan.Lost, "its Node was Ready, and is not any more: see its conditions in the cluster, and whether the machine runs"
	}
	return machineplan.Joining, "its Node is not Ready"
}

// resumes says that the machines of the cluster are off on purpose, or are being started, which takes no longer than startTimeout.
func (s *snapshot) resumes(now time.Time) bool {
	if s.cluster == nil || s.cluster.Spec.PowerState == hivev1.PowerStateHibernating {
		return true
	}
	machines := hivev1.FindCondition(s.cluster.Status.Conditions, hivev1.ClusterDeploymentMachinesStopped)
	return machines != nil && machines.Reason != hivev1.ReasonMachinesRunning && now.Sub(machines.LastTransitionTime.Time) < startTimeout
}

// wanted is what the plan works towards.
func (s *snapshot) wanted() machineplan.Pool {
	reason, _ := s.blocked()
	wanted := machineplan.Pool{Name: s.key.String(), Replicas: s.replicas(), Blocked: reason != "", Spread: s.spec().SpreadBy != ""}
	if s.refused {
		wanted.Refused = "spec.allowedClusters of no InfraEnv with matching Agents allows namespace " + s.key.Namespace
	}
	if minimum := s.spec().Minimum; minimum != nil {
		wanted.Minimum = machineplan.MinimumOf(minimum.CPUCores, minimum.MemoryGiB, minimum.DiskGB)
	}
	return wanted
}

// replicas is how many machines the pool wants at the moment. One that leaves that to an autoscaler keeps those that it has: no autoscaler looks at it.
func (s *snapshot) replicas() int {
	switch {
	case !s.pool.DeletionTimestamp.IsZero() || s.cluster != nil && !s.cluster.DeletionTimestamp.IsZero() || s.waitsForClaim():
		return 0
	case s.pool.Spec.Replicas != nil:
		return int(*s.pool.Spec.Replicas)
	case s.pool.Spec.Autoscaling != nil:
		has := 0
		for i := range s.machines {
			if s.machines[i].Counts() {
				has++
			}
		}
		return has
	}
	return 0
}

// waitsForClaim says that machines are bound when the cluster is claimed, and it is not.
func (s *snapshot) waitsForClaim() bool {
	return s.spec().BindAt == hivev1.BindAtClaim && s.cluster != nil && s.cluster.Spec.ClusterPoolRef != nil && s.cluster.Spec.ClusterPoolRef.ClaimName == ""
}

// blocked is why no machine is bound at the moment; empty where machines can be.
func (s *snapshot) blocked() (reason, message string) {
	switch {
	case s.cluster == nil:
		return hivev1.ReasonClusterMissing, fmt.Sprintf("ClusterDeployment %s is missing", s.clusterKey())
	case !s.cluster.DeletionTimestamp.IsZero():
		return hivev1.ReasonClusterMissing, fmt.Sprintf("ClusterDeployment %s is being deleted", s.clusterKey())
	case !s.cluster.Spec.Installed:
		return hivev1.ReasonClusterNotInstalled, fmt.Sprintf("ClusterDeployment %s is not installed yet", s.clusterKey())
	case s.cluster.Spec.ClusterMetadata == nil || s.cluster.Spec.ClusterMetadata.NodeAccessSecretRef == nil:
		return hivev1.ReasonNoNodeAccess, fmt.Sprintf("ClusterDeployment %s names no spec.clusterMetadata.nodeAccessSecretRef: the cluster takes no nodes", s.clusterKey())
	case s.cluster.Spec.PowerState == hivev1.PowerStateHibernating:
		return hivev1.ReasonClusterHibernating, fmt.Sprintf("spec.powerState of ClusterDeployment %s is Hibernating", s.clusterKey())
	}
	return "", ""
}
