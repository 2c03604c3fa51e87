// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package machinepool

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	agentctl "github.com/muster-io/muster/agent-service/internal/controller/agent"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/machineplan"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
	"github.com/muster-io/muster/apis/outcome"
)

// hasCluster says that the pool has a cluster to take machines for.
func (s *snapshot) hasCluster() bool {
	return s.pool.DeletionTimestamp.IsZero() && s.cluster != nil && s.cluster.DeletionTimestamp.IsZero()
}

// addFinalizer keeps the pool until its machines are released, and has it deleted with its cluster.
func (r *Reconciler) addFinalizer(ctx context.Context, seen *snapshot) error {
	before := seen.pool.DeepCopy()
	controllerutil.AddFinalizer(seen.pool, hivev1.FinalizerMachinePool)
	if err := controllerutil.SetOwnerReference(seen.cluster, seen.pool, r.Client.Scheme()); err != nil {
		return fmt.Errorf("making ClusterDeployment %s the owner of MachinePool %s: %w", seen.clusterKey(), seen.key, err)
	}
	if equality.Semantic.DeepEqual(before.ObjectMeta, seen.pool.ObjectMeta) {
		return nil
	}
	if err := r.Client.Patch(ctx, seen.pool, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("adding the finalizer and the owner of MachinePool %s: %w", seen.key, err)
	}
	return nil
}

// execute does what was decided, and puts what the API server made of Agents into the snapshot.
func (r *Reconciler) execute(ctx context.Context, seen *snapshot, d machineplan.Decision) error {
	taken, err := r.take(ctx, seen, d)
	err = errors.Join(err, r.give(ctx, seen, d.Release))
	for i := range d.Forget {
		if name := d.Forget[i].Name; !slices.Contains(taken, name) {
			err = errors.Join(err, r.change(ctx, seen, name, forget))
		}
	}
	r.read(ctx, seen)
	return err
}

// take binds as many machines as are missing, and returns their names. How many that is the API server says: the cache may not show yet what was bound a moment ago.
func (r *Reconciler) take(ctx context.Context, seen *snapshot, d machineplan.Decision) (taken []string, err error) {
	if d.Take == 0 {
		r.refusals.forget(seen.key)
	}
	if len(d.Candidates) == 0 {
		return nil, nil
	}
	cluster, err := r.known(ctx, seen)
	if err != nil || cluster == nil {
		return nil, err
	}
	if len(seen.addresses) > 0 {
		r.addresses.taking.Lock()
		defer r.addresses.taking.Unlock()
		if err := r.observeAddresses(ctx, seen); err != nil {
			return nil, err
		}
	}
	has, err := r.count(ctx, seen)
	if err != nil {
		return nil, err
	}
	defer func() { r.tellBound(seen, taken) }()
	candidates := r.refusals.last(seen.key, d.Candidates, r.Clock.Now())
	for i := 0; i < len(candidates) && has+len(taken) < seen.replicas(); i++ {
		name := candidates[i].Name
		if r.written.Ahead(client.ObjectKeyFromObject(seen.agents[name]), seen.agents[name].ResourceVersion) {
			continue // it would be a conflict
		}
		if seen.lacksAddress(seen.agents[name]) != "" {
			continue // those before it take the last ones
		}
		joins, err := r.canJoin(ctx, seen, name, cluster)
		if err != nil || !joins && len(seen.notTaken) == maxRefused {
			return taken, err
		}
		if !joins {
			continue
		}
		done := r.Order.Begin()
		err = r.patch(ctx, seen, name, seen.bind(r.Clock.Now()))
		done()
		if outcome.IsRefused(err) {
			r.refusals.add(seen.key, name, r.Clock.Now())
		}
		switch {
		case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
			continue // another one has it; the cache will tell
		case outcome.IsRefused(err) && len(seen.notTaken) < maxRefused:
			seen.notTaken = append(seen.notTaken, fmt.Sprintf("Agent %s cannot be bound: %v", name, err))
			r.Recorder.Eventf(seen.pool, seen.agents[name], corev1.EventTypeWarning, "MachineRefused", "Bind", "%s", cut(fmt.Sprintf("Agent %s/%s cannot be bound: %v", agentNamespace(seen.pool), name, err)))
			continue // the next one may be in order
		case err != nil:
			return taken, fmt.Errorf("binding Agent %s: %w", name, err)
		}
		taken = append(taken, name)
		seen.takeAddresses(seen.agents[name])
		logf.FromContext(ctx).Info("bound a machine", "agent", name)
	}
	return taken, nil
}

// tellBound publishes one event about all machines that a pass bound: one each would be as many writes as their binding.
func (r *Reconciler) tellBound(seen *snapshot, taken []string) {
	if len(taken) == 0 {
		return
	}
	nodes := make([]string, len(taken))
	for i, name := range taken {
		nodes[i] = fmt.Sprintf("Agent %s/%s as node %s", agentNamespace(seen.pool), name, seen.agents[name].Spec.Hostname)
	}
	r.Recorder.Eventf(seen.pool, seen.agents[taken[0]], corev1.EventTypeNormal, "MachineBound", "Bind", "%s", cut("Bound "+strings.Join(nodes, ", ")))
}

// known is the cluster as the service knows it; nil while it does not, and the snapshot says why: a machine that is bound then is in no cluster, and missing in others.
func (r *Reconciler) known(ctx context.Context, seen *snapshot) (*domain.Cluster, error) {
	install, err := r.install(ctx, seen)
	if err != nil {
		return nil, err
	}
	cluster, err := r.Service.GetCluster(ctx, domain.Kubernetes, string(seen.cluster.UID))
	switch {
	case err == nil:
		return cluster, nil
	case domain.KindOf(err) != domain.NotFound:
		return nil, fmt.Errorf("reading the cluster of MachinePool %s: %w", seen.key, err)
	case install == nil:
		ref := seen.cluster.Spec.ClusterInstallRef
		seen.takesNone = fmt.Sprintf("Machines join clusters of an AgentClusterInstall, and spec.clusterInstallRef of ClusterDeployment %s names %s %s", seen.clusterKey(), ref.Kind, ref.Name)
		return nil, nil
	}
	seen.takesNone = "The service does not know the cluster yet"
	synced := hivev1.FindCondition(install.Status.Conditions, agentv1.ConditionSpecSynced)
	if synced != nil && synced.Status == corev1.ConditionFalse {
		seen.takesNone = fmt.Sprintf("AgentClusterInstall %s: %s", install.Name, synced.Message)
	}
	seen.asks = synced == nil && r.Clock.Now().Sub(install.CreationTimestamp.Time).Abs() < asked
	return nil, nil
}

// canJoin says whether the machine of an Agent can be installed for the cluster. Where it cannot, the pool remembers it, and has another one.
func (r *Reconciler) canJoin(ctx context.Context, seen *snapshot, name string, cluster *domain.Cluster) (bool, error) {
	host, err := r.Service.GetHost(ctx, domain.Kubernetes, agentctl.HostKey(seen.agents[name]))
	if domain.KindOf(err) == domain.NotFound {
		return false, nil // the Agent will say so
	}
	if err != nil {
		return false, fmt.Errorf("reading the host of Agent %s: %w", name, err)
	}
	why := r.Rules.CheckJoin(host, cluster)
	if why == nil {
		return true, nil
	}
	r.refusals.add(seen.key, name, r.Clock.Now())
	if len(seen.notTaken) < maxRefused {
		seen.notTaken = append(seen.notTaken, fmt.Sprintf("Agent %s cannot join the cluster: %v", name, why))
	}
	return false, nil
}

// maxRefused is after how many Agents that are refused a pass tries no other one: all may be refused for what the pool states. The next pass begins with those that were not refused.
const maxRefused = 100

// count asks the API server how many machines the pool has.
func (r *Reconciler) count(ctx context.Context, seen *snapshot) (int, error) {
	var agents agentv1.AgentList
	err := r.Live.List(ctx, &agents, client.InNamespace(agentNamespace(seen.pool)), client.MatchingLabels{
		agentv1.MachinePoolLabel: seen.key.Name, agentv1.MachinePoolNamespaceLabel: seen.key.Namespace,
	})
	if err != nil {
		return 0, fmt.Errorf("counting the machines of MachinePool %s: %w", seen.key, err)
	}
	has := 0
	for i := range agents.Items {
		if m := r.machine(ctx, seen, &agents.Items[i]); m.Counts() {
			has++
		}
	}
	return has, nil
}

// install returns the AgentClusterInstall that lets hosts join the cluster, and makes it where there is none: it asks for no machines, as the control plane is there. It is nil where the
// cluster names another installer.
func (r *Reconciler) install(ctx context.Context, seen *snapshot) (*hiveextv1.AgentClusterInstall, error) {
	var installs hiveextv1.AgentClusterInstallList
	if err := r.Client.List(ctx, &installs, client.InNamespace(seen.key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the AgentClusterInstalls of ClusterDeployment %s: %w", seen.clusterKey(), err)
	}
	ref := seen.cluster.Spec.ClusterInstallRef
	for i := range installs.Items {
		install := &installs.Items[i]
		if install.Spec.ClusterDeploymentRef.Name == seen.cluster.Name && (ref == nil || ref.Kind == "AgentClusterInstall" && ref.Name == install.Name) {
			return install, nil
		}
	}
	if ref != nil {
		return nil, nil
	}
	install := &hiveextv1.AgentClusterInstall{
		ObjectMeta: metav1.ObjectMeta{Namespace: seen.cluster.Namespace, Name: seen.cluster.Name, Finalizers: []string{hiveextv1.FinalizerAgentClusterInstall}},
		Spec:       hiveextv1.AgentClusterInstallSpec{ClusterDeploymentRef: hivev1.LocalObjectReference{Name: seen.cluster.Name}},
	}
	if how := seen.cluster.Spec.Provisioning; how != nil {
		install.Spec.ImageSetRef = how.ImageSetRef
	}
	if err := controllerutil.SetOwnerReference(seen.cluster, install, r.Client.Scheme()); err != nil {
		return nil, fmt.Errorf("making ClusterDeployment %s the owner of its AgentClusterInstall: %w", seen.clusterKey(), err)
	}
	if err := r.Client.Create(ctx, install, client.FieldOwner(owner)); client.IgnoreAlreadyExists(err) != nil {
		return nil, fmt.Errorf("making the AgentClusterInstall of ClusterDeployment %s: %w", seen.clusterKey(), err)
	}
	return install, nil
}

// releasesAtOnce is how many machines of a pool are released at the same time.
const releasesAtOnce = 5

// give releases machines. They do not wait for each other's writes: a cluster that goes lets all of them go.
func (r *Reconciler) give(ctx context.Context, seen *snapshot, machines []machineplan.Machine) error {
	patched, errs := make([]*agentv1.Agent, len(machines)), make([]error, len(machines))
	var all errgroup.Group
	all.SetLimit(releasesAtOnce)
	for i := range machines {
		all.Go(func() error {
			defer r.Order.Begin()()
			patched[i], errs[i] = r.patched(ctx, seen.agents[machines[i].Name], seen.unbind)
			return nil
		})
	}
	_ = all.Wait() // the errors are in errs
	for i := range machines {
		switch {
		case errs[i] == nil:
			seen.agents[machines[i].Name] = patched[i]
		case apierrors.IsConflict(errs[i]) || apierrors.IsNotFound(errs[i]):
			errs[i] = nil // its event follows
		}
	}
	return errors.Join(errs...)
}

// change patches an Agent of the pool. One that changed meanwhile is looked at again later.
func (r *Reconciler) change(ctx context.Context, seen *snapshot, name string, do func(*agentv1.Agent)) error {
	err := r.patch(ctx, seen, name, do)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // its event follows
	}
	return err
}

// patch changes an Agent as it was seen, or not at all: everything that is written about a machine is one write.
func (r *Reconciler) patch(ctx context.Context, seen *snapshot, name string, do func(*agentv1.Agent)) error {
	after, err := r.patched(ctx, seen.agents[name], do)
	if err == nil {
		seen.agents[name] = after
	}
	return err
}

// patched is what the API server made of a patch.
func (r *Reconciler) patched(ctx context.Context, before *agentv1.Agent, do func(*agentv1.Agent)) (*agentv1.Agent, error) {
	after := before.DeepCopy()
	do(after)
	err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(owner))
	if err == nil {
		r.written.Wrote(client.ObjectKeyFromObject(after), after.ResourceVersion)
	}
	return after, err
}

// bind makes an Agent a machine of the pool.
func (s *snapshot) bind(now time.Time) func(*agentv1.Agent) {
	return func(agent *agentv1.Agent) {
		metav1.SetMetaDataLabel(&agent.ObjectMeta, agentv1.MachinePoolLabel, s.key.Name)
		metav1.SetMetaDataLabel(&agent.ObjectMeta, agentv1.MachinePoolNamespaceLabel, s.key.Namespace)
		metav1.SetMetaDataLabel(&agent.ObjectMeta, agentv1.ClusterNamespaceLabel, s.key.Namespace) // else it would be a write of its own
		metav1.SetMetaDataAnnotation(&agent.ObjectMeta, agentv1.MachinePoolBoundAtAnnotation, now.UTC().Format(time.RFC3339))
		metav1.SetMetaDataAnnotation(&agent.ObjectMeta, agentv1.MachinePoolWipeAnnotation, string(s.wipe()))
		agent.Spec.ClusterDeploymentName = &agentv1.ClusterReference{Namespace: s.key.Namespace, Name: s.cluster.Name}
		takeBack(agent, stated{}) // what a pool said before, of which a user took the machine
		node := stated{Labels: s.pool.Spec.Labels, Taints: s.taints()}
		if agent.Spec.Hostname == "" {
			node.Hostname = s.hostname(agent)
		}
		node.put(agent)
	}
}

// unbind releases a machine. The labels of the pool, and what is to be wiped, stay until the machine is free.
func (s *snapshot) unbind(agent *agentv1.Agent) {
	agent.Spec.ClusterDeploymentName = nil
	delete(agent.Labels, agentv1.ClusterNamespaceLabel) // as bind sets it
	takeBack(agent, stated{Hostname: s.hostname(agent), Labels: s.pool.Spec.Labels, Taints: s.taints()})
	delete(agent.Annotations, agentv1.DeleteMachineAnnotation)
}

// stated is what a pool put into the spec of an Agent that it took. It stands in an annotation: the pool may say something else by the time at which it is taken back.
type stated struct {
	Hostname string              `json:"hostname,omitempty"`
	Labels   map[string]string   `json:"labels,omitempty"`
	Taints   []agentv1.NodeTaint `json:"taints,omitempty"`
}

func (n stated) put(agent *agentv1.Agent) {
	text, err := json.Marshal(n)
	if err != nil {
		panic(err) // it is made of text
	}
	metav1.SetMetaDataAnnotation(&agent.ObjectMeta, agentv1.MachinePoolNodeAnnotation, string(text))
	agent.Spec.Hostname = cmp.Or(n.Hostname, agent.Spec.Hostname)
	if len(n.Labels) > 0 {
		if agent.Spec.NodeLabels == nil {
			agent.Spec.NodeLabels = map[string]string{}
		}
		maps.Copy(agent.Spec.NodeLabels, n.Labels)
	}
	for _, taint := range n.Taints {
		agent.Spec.NodeTaints = append(slices.DeleteFunc(agent.Spec.NodeTaints, func(t agentv1.NodeTaint) bool { return t.Key == taint.Key && t.Effect == taint.Effect }), taint)
	}
}

// takeBack takes what a pool stated from an Agent: nothing of it is said of the next cluster's node. Changes of a user stay. Without is for an Agent that was taken before pools wrote down
// what they stated.
func takeBack(agent *agentv1.Agent, without stated) {
	node := stated{}
	if json.Unmarshal([]byte(agent.Annotations[agentv1.MachinePoolNodeAnnotation]), &node) != nil {
		node = without
	}
	delete(agent.Annotations, agentv1.MachinePoolNodeAnnotation)
	if agent.Spec.Hostname == node.Hostname {
		agent.Spec.Hostname = ""
	}
	maps.DeleteFunc(agent.Spec.NodeLabels, func(key, value string) bool {
		put, ok := node.Labels[key]
		return ok && put == value
	})
	agent.Spec.NodeTaints = slices.DeleteFunc(agent.Spec.NodeTaints, func(t agentv1.NodeTaint) bool { return slices.Contains(node.Taints, t) })
}

// taints are those of the pool's nodes.
func (s *snapshot) taints() []agentv1.NodeTaint {
	taints := make([]agentv1.NodeTaint, 0, len(s.pool.Spec.Taints))
	for _, taint := range s.pool.Spec.Taints {
		taints = append(taints, agentv1.NodeTaint{Key: taint.Key, Value: taint.Value, Effect: string(taint.Effect)})
	}
	return taints
}

// wipe is what is wiped of machines that the pool binds, when they are released.
func (s *snapshot) wipe() hivev1.MachineWipe {
	if release := s.spec().OnRelease; release != nil && release.Wipe != "" {
		return release.Wipe
	}
	return hivev1.WipeInstalledDisk
}

// hostname is the name of a node whose Agent states none. It is made of the Agent's name as a whole: ids of machines of one vendor begin alike.
func (s *snapshot) hostname(agent *agentv1.Agent) string {
	sum := sha256.Sum256([]byte(agent.Name))
	return s.pool.Spec.Name + "-" + hex.EncodeToString(sum[:4])
}

// forget takes the labels of the pool from an Agent, and what is left of what it stated where a user released the machine. One that a user gave to another cluster stays as it is.
func forget(agent *agentv1.Agent) {
	if agent.Spec.ClusterDeploymentName == nil {
		takeBack(agent, stated{})
	}
	delete(agent.Annotations, agentv1.MachinePoolNodeAnnotation)
	delete(agent.Labels, agentv1.MachinePoolLabel)
	delete(agent.Labels, agentv1.MachinePoolNamespaceLabel)
	delete(agent.Annotations, agentv1.MachinePoolBoundAtAnnotation)
	delete(agent.Annotations, agentv1.MachinePoolWipeAnnotation)
}

// leave takes the labels of a pool that goes from an Agent whose machine is not free yet. What is wiped of it stays: the service may lose its data before it is. One that was taken before pools
// said so is wiped, too.
func leave(agent *agentv1.Agent) {
	wipe := cmp.Or(agent.Annotations[agentv1.MachinePoolWipeAnnotation], string(hivev1.WipeInstalledDisk))
	forget(agent)
	metav1.SetMetaDataAnnotation(&agent.ObjectMeta, agentv1.MachinePoolWipeAnnotation, wipe)
}

// release removes the finalizer of a pool that is being deleted, once no machine is bound and none needs the cluster any more. A machine that does not answer
// keeps neither: that its binding ends is a write to the API server, and the rest is waited for only so long.
func (r *Reconciler) release(ctx context.Context, seen *snapshot, err error) (ctrl.Result, error) {
	if err != nil || !controllerutil.ContainsFinalizer(seen.pool, hivev1.FinalizerMachinePool) {
		return ctrl.Result{}, err
	}
	left := seen.pool.DeletionTimestamp.Add(releaseTimeout + seen.drainTimeout()).Sub(r.Clock.Now())
	clusterStays := seen.cluster != nil && seen.cluster.DeletionTimestamp.IsZero()
	for i := range seen.machines {
		m := &seen.machines[i]
		if m.Counts() || m.Mine && clusterStays && left > 0 && usesCluster(seen.agents[m.Name]) {
			_, err := r.report(ctx, seen, machineplan.Decision{})
			return ctrl.Result{RequeueAfter: min(look, max(left, time.Second))}, err
		}
	}
	for i := range seen.machines {
		m := &seen.machines[i]
		if !m.Mine {
			continue
		}
		do := forget
		if !m.Bound && !m.Free {
			do = leave
		}
		// Not by change: once the pool is gone, nothing would take its labels from an Agent that was changed meanwhile.
		if err := r.patch(ctx, seen, m.Name, do); outcome.IgnoreGone(err) != nil {
			return ctrl.Result{}, fmt.Errorf("taking the labels of MachinePool %s from Agent %s: %w", seen.key, m.Name, err)
		}
	}
	before := seen.pool.DeepCopy()
	controllerutil.RemoveFinalizer(seen.pool, hivev1.FinalizerMachinePool)
	return ctrl.Result{}, outcome.IgnoreGone(r.Client.Patch(ctx, seen.pool, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

func (s *snapshot) drainTimeout() time.Duration {
	if timeout := s.spec().NodeDrainTimeout; timeout != nil {
		return timeout.Duration
	}
	return drainTimeout
}

// usesCluster says that something is left to do in the cluster for a machine that leaves it.
func usesCluster(agent *agentv1.Agent) bool {
	released := agentv1.FindCondition(agent.Status.Conditions, agentv1.ConditionReleased)
	if released != nil && released.Status == corev1.ConditionFalse {
		return released.Reason == agentv1.ReasonDraining
	}
	return !lifecycle.Unbound(lifecycle.State(agent.Status.DebugInfo.State))
}
