// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package machinepool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	agentctl "github.com/muster-io/muster/agent-service/internal/controller/agent"
	"github.com/muster-io/muster/agent-service/internal/controller/precedence"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
	"github.com/muster-io/muster/apis/tracingtest"
)

// always does each write.
func always(do func() error) error { return do() }

// until reads an object until it is as wanted.
func (r *rack) until(object client.Object, what string, wanted func() bool) {
	r.Helper()
	if !assert.Eventually(r, func() bool {
		return r.user.Get(r.Context(), client.ObjectKeyFromObject(object), object) == nil && wanted()
	}, patience, 50*time.Millisecond, what) {
		r.Fatalf("%+v", object)
	}
}

func (r *rack) gone(object client.Object) {
	r.Helper()
	require.Eventually(r, func() bool {
		return apierrors.IsNotFound(r.user.Get(r.Context(), client.ObjectKeyFromObject(object), object))
	}, patience, 50*time.Millisecond)
}

func says(pool *hivev1.MachinePool, kind, reason string) bool {
	c := hivev1.FindCondition(pool.Status.Conditions, kind)
	return c != nil && c.Reason == reason
}

// change patches an object as a user does.
func change[O client.Object](r *rack, object O, do func(O)) {
	r.Helper()
	require.NoError(r, r.user.Get(r.Context(), client.ObjectKeyFromObject(object), object))
	before, ok := object.DeepCopyObject().(client.Object)
	require.True(r, ok)
	do(object)
	require.NoError(r, r.user.Patch(r.Context(), object, client.MergeFrom(before)))
}

// becomes writes the status of an Agent as the controller of Agents does.
func (r *rack) becomes(agent *agentv1.Agent, do func(*agentv1.AgentStatus)) {
	r.Helper()
	require.NoError(r, r.user.Get(r.Context(), client.ObjectKeyFromObject(agent), agent))
	before := agent.DeepCopy()
	do(&agent.Status)
	require.NoError(r, r.user.Status().Patch(r.Context(), agent, client.MergeFrom(before)))
}

func TestAMachinePoolNeedsNoHandWork(t *testing.T) {
	r := newRack(t)
	n := &nodes{}
	r.replica(n, always)
	pool := r.pool(r.cluster("blue").Name, 1, func(p *hivev1.MachinePool) {
		p.Spec.Labels = map[string]string{"tier": "web", "empty": ""}
		p.Spec.Taints = []corev1.Taint{{Key: "tier", Value: "web", Effect: corev1.TaintEffectNoSchedule}, {Key: "new", Effect: corev1.TaintEffectNoExecute}}
	})
	r.until(pool, "it says that there are no machines", func() bool { return says(pool, hivev1.MachinePoolMachinesAvailable, hivev1.ReasonNoSuitableAgents) })
	assert.Equal(t, fmt.Sprintf("0 of 1 machines are bound. In namespace %s, no Agent matches", r.metal),
		hivev1.FindCondition(pool.Status.Conditions, hivev1.MachinePoolMachinesAvailable).Message)

	agent := r.agent("5f1c0e5e-0000-4000-8000-0123456789ab", func(a *agentv1.Agent) {
		a.Spec.NodeTaints = []agentv1.NodeTaint{{Key: "of-the-user", Effect: "NoSchedule"}, {Key: "tier", Value: "db", Effect: "NoSchedule"}}
	})
	r.until(agent, "it is bound", func() bool {
		return agentctl.ClusterKey(agent) == client.ObjectKey{Namespace: r.clusters, Name: "blue"}
	})
	node := agent.Spec.Hostname
	assert.Regexp(t, "^worker-[0-9a-f]{8}$", node)
	assert.Equal(t, map[string]string{"tier": "web", "empty": ""}, agent.Spec.NodeLabels)
	assert.Equal(t, []agentv1.NodeTaint{{Key: "of-the-user", Effect: "NoSchedule"}, {Key: "tier", Value: "web", Effect: "NoSchedule"}, {Key: "new", Effect: "NoExecute"}}, agent.Spec.NodeTaints)
	assert.True(t, says(pool, hivev1.MachinePoolUnsupportedConfiguration, hivev1.ReasonConfigurationSupported))
	install := &hiveextv1.AgentClusterInstall{ObjectMeta: metav1.ObjectMeta{Namespace: r.clusters, Name: "blue"}}
	r.until(install, "hosts can join the cluster", func() bool { return len(install.OwnerReferences) == 1 })
	r.until(pool, "it is Binding", func() bool {
		return len(pool.Status.Machines) == 1 && pool.Status.Machines[0].Phase == hivev1.MachinePhaseBinding
	})
	r.becomes(agent, func(s *agentv1.AgentStatus) {
		s.DebugInfo.State, s.Progress.CurrentStage = "installing-in-progress", "Writing image to disk"
	})
	r.until(pool, "it is Installing", func() bool { return pool.Status.Machines[0].Phase == hivev1.MachinePhaseInstalling })
	assert.Equal(t, "Writing image to disk", pool.Status.Machines[0].Message)
	n.ready.Store(node, true)
	r.becomes(agent, func(s *agentv1.AgentStatus) {
		s.DebugInfo.State, s.Progress.CurrentStage = "added-to-existing-cluster", "Done"
	})
	r.until(pool, "its node is Ready", func() bool { return says(pool, hivev1.MachinePoolReady, hivev1.ReasonAllNodesReady) })
	assert.Equal(t, int32(1), pool.Status.ReadyReplicas)
	assert.NotNil(t, pool.Status.FirstReadyTime)

	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 0}, ObjectMeta: metav1.ObjectMeta{Namespace: pool.Namespace, Name: pool.Name}}
	require.NoError(t, r.user.SubResource("scale").Update(t.Context(), pool, client.WithSubResourceBody(scale)))
	r.until(agent, "it is released", func() bool { return agentctl.ClusterKey(agent).Name == "" })
	assert.Empty(t, agent.Spec.Hostname)
	assert.Empty(t, agent.Spec.NodeLabels)
	assert.Equal(t, []agentv1.NodeTaint{{Key: "of-the-user", Effect: "NoSchedule"}}, agent.Spec.NodeTaints)
	assert.Equal(t, client.ObjectKeyFromObject(pool), takenBy(agent), "its labels stay until it is free")
	r.until(pool, "it is Releasing", func() bool {
		return len(pool.Status.Machines) == 1 && pool.Status.Machines[0].Phase == hivev1.MachinePhaseReleasing
	})
	r.becomes(agent, func(s *agentv1.AgentStatus) { s.DebugInfo.State = "known-unbound" })
	r.until(agent, "it is not taken", func() bool { return takenBy(agent).Name == "" })
}

// A machine that no image is for would wait in the cluster for ever: it stays free for pools that can use it, and another one is taken, however they sort.
func TestAMachineThatCannotJoinStaysFree(t *testing.T) {
	r := newRack(t)
	for _, name := range []string{"arm-1", "arm-2"} {
		r.service.hosts[name] = domain.Host{Summary: hardware.Summary{CPUArchitecture: "aarch64"}}
	}
	r.replica(&nodes{}, always)
	arms := []*agentv1.Agent{r.agent("arm-1"), r.agent("arm-2")}
	pool := r.pool(r.cluster("blue").Name, 1)
	r.until(pool, "it says why it has no machine", func() bool {
		c := hivev1.FindCondition(pool.Status.Conditions, hivev1.MachinePoolMachinesAvailable)
		return c != nil && c.Reason == hivev1.ReasonNoSuitableAgents && strings.Contains(c.Message, `0 of 1 machines are bound. In namespace `+r.metal+`, 2 Agents cannot be taken, such as: Agent arm-`) &&
			strings.Contains(c.Message, `there is no image of version "1.2.3" for aarch64`)
	})
	intel := r.agent("intel")
	r.until(intel, "it is bound", func() bool { return agentctl.ClusterKey(intel).Name == "blue" })
	r.until(pool, "it has its machine", func() bool { return says(pool, hivev1.MachinePoolMachinesAvailable, hivev1.ReasonMachinesBound) })
	for _, arm := range arms {
		require.NoError(t, r.user.Get(t.Context(), client.ObjectKeyFromObject(arm), arm))
		assert.Nil(t, arm.Spec.ClusterDeploymentName, arm.Name)
	}
}

// A machine that is bound to a cluster which the service does not know waits until the AgentClusterInstall is mended: until then none is taken, and the pool says what is wrong.
func TestAPoolTakesNoMachineForAClusterThatTheServiceDoesNotKnow(t *testing.T) {
	r := newRack(t)
	r.service.forgot = true
	r.replica(&nodes{}, always)
	agent := r.agent("one")
	pool := r.pool(r.cluster("blue").Name, 1)
	install := &hiveextv1.AgentClusterInstall{ObjectMeta: metav1.ObjectMeta{Namespace: r.clusters, Name: "blue"}}
	r.until(install, "it is made", func() bool { return true })
	synced := func(status corev1.ConditionStatus, message string) {
		t.Helper()
		require.NoError(t, r.user.Get(t.Context(), client.ObjectKeyFromObject(install), install))
		hivev1.SetCondition(&install.Status.Conditions, hivev1.Condition{Type: agentv1.ConditionSpecSynced, Status: status, Reason: "Test", Message: message}, metav1.Now())
		require.NoError(t, r.user.Status().Update(t.Context(), install))
	}
	synced(corev1.ConditionFalse, "ClusterImageSet v1 is missing")
	r.until(pool, "it says what is wrong", func() bool {
		c := hivev1.FindCondition(pool.Status.Conditions, hivev1.MachinePoolMachinesAvailable)
		return c != nil && c.Reason == hivev1.ReasonBinding && c.Message == "0 of 1 machines are bound. AgentClusterInstall blue: ClusterImageSet v1 is missing"
	})
	require.NoError(t, r.user.Get(t.Context(), client.ObjectKeyFromObject(agent), agent))
	assert.Nil(t, agent.Spec.ClusterDeploymentName)
	r.service.is(func() { r.service.forgot = false })
	synced(corev1.ConditionTrue, "The Spec has been successfully applied")
	r.until(agent, "it is bound", func() bool { return agentctl.ClusterKey(agent).Name == "blue" })
}

// A node that was Ready and is none does not join: its user looks for a machine that died. What the pool says becomes right again by itself.
func TestAPoolSaysWhichNodesItLost(t *testing.T) {
	r := newRack(t)
	n := &nodes{}
	changed := r.replica(n, always)
	tells := func(node string, ready bool) {
		if ready {
			n.ready.Store(node, true)
		} else {
			n.ready.Delete(node)
		}
		changed <- event.GenericEvent{Object: &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: r.clusters, Name: "blue"}}}
	}
	agents := []*agentv1.Agent{r.agent("one"), r.agent("two")}
	deployment := r.cluster("blue")
	pool := r.pool(deployment.Name, 2)
	for _, agent := range agents {
		r.until(agent, "it is bound", func() bool { return agentctl.ClusterKey(agent).Name == "blue" })
		r.becomes(agent, func(s *agentv1.AgentStatus) { s.DebugInfo.State = "added-to-existing-cluster" })
	}
	one, two := agents[0].Spec.Hostname, agents[1].Spec.Hostname
	ready := func() hivev1.Condition { return *hivev1.FindCondition(pool.Status.Conditions, hivev1.MachinePoolReady) }
	tells(one, true)
	r.until(pool, "one joins", func() bool {
		return says(pool, hivev1.MachinePoolReady, hivev1.ReasonJoining) && pool.Status.ReadyReplicas == 1
	})
	assert.Equal(t, "1 of 2 nodes are Ready; "+two+": not a Ready node yet; status.machines says what each waits for", ready().Message)
	tells(two, true)
	r.until(pool, "all are Ready", func() bool { return says(pool, hivev1.MachinePoolReady, hivev1.ReasonAllNodesReady) })

	for _, name := range []string{"one", "two"} {
		r.service.is(func() {
			r.service.hosts[name] = domain.Host{Summary: hardware.Summary{CPUArchitecture: "x86_64"}, Node: domain.Node{WasReady: true}}
		})
	}
	tells(two, false)
	r.until(pool, "one is lost", func() bool { return says(pool, hivev1.MachinePoolReady, hivev1.ReasonNodesNotReady) })
	assert.Equal(t, "1 of 2 nodes are Ready; "+two+": not Ready any more; see the Nodes in the cluster, and whether the machines run", ready().Message)
	assert.Equal(t, []int32{2, 1}, []int32{pool.Status.Replicas, pool.Status.ReadyReplicas})
	assert.Equal(t, hivev1.MachinePhaseNotReady, pool.Status.Machines[0].Phase)
	tells(two, true)
	r.until(pool, "it is back", func() bool {
		return says(pool, hivev1.MachinePoolReady, hivev1.ReasonAllNodesReady) && pool.Status.ReadyReplicas == 2
	})

	// The Node keeps its name, whatever a user writes: the service refuses another one.
	r.service.is(func() {
		r.service.hosts["one"] = domain.Host{Summary: hardware.Summary{CPUArchitecture: "x86_64"}, Node: domain.Node{Name: one, WasReady: true}}
	})
	change(r, agents[0], func(a *agentv1.Agent) { a.Spec.Hostname = "other" })
	tells(two, false)
	r.until(pool, "one is lost", func() bool { return says(pool, hivev1.MachinePoolReady, hivev1.ReasonNodesNotReady) })
	assert.Contains(t, ready().Message, "1 of 2 nodes are Ready; "+two+": not")
	tells(two, true)

	// Machines that are switched on with their cluster are not lost, for as long as that takes.
	require.NoError(t, r.user.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment))
	hivev1.SetCondition(&deployment.Status.Conditions, hivev1.Condition{
		Type: hivev1.ClusterDeploymentMachinesStopped, Status: corev1.ConditionFalse, Reason: hivev1.ReasonStartingMachines, Message: "test",
	}, metav1.NewTime(r.clock.Now()))
	require.NoError(t, r.user.Status().Update(t.Context(), deployment))
	change(r, deployment, func(d *hivev1.ClusterDeployment) { d.Spec.HibernateAfter = &metav1.Duration{Duration: time.Hour} }) // the pool sees it
	tells(two, false)
	r.until(pool, "it starts", func() bool { return says(pool, hivev1.MachinePoolReady, hivev1.ReasonJoining) })
	r.clock.SetTime(r.clock.Now().Add(startTimeout))
	tells(two, false)
	r.until(pool, "it does not come back", func() bool { return says(pool, hivev1.MachinePoolReady, hivev1.ReasonNodesNotReady) })
}

// What a bound machine waits for stands beside it.
func TestAPoolSaysWhatItsMachineWaitsFor(t *testing.T) {
	r := newRack(t)
	r.replica(&nodes{}, always)
	agent := r.agent("one")
	pool := r.pool(r.cluster("blue").Name, 1)
	r.until(agent, "it is bound", func() bool { return agentctl.ClusterKey(agent).Name == "blue" })
	waits := func(phase hivev1.MachinePhase, message string) {
		t.Helper()
		r.until(pool, "it says: "+message, func() bool {
			return len(pool.Status.Machines) == 1 && pool.Status.Machines[0].Phase == phase && pool.Status.Machines[0].Message == message
		})
	}
	r.becomes(agent, func(s *agentv1.AgentStatus) {
		s.DebugInfo.State, s.DebugInfo.StateInfo = "known", "Host is ready to be installed"
		agentv1.SetCondition(&s.Conditions, agentv1.Condition{Type: agentv1.ConditionRequirementsMet, Status: corev1.ConditionFalse, Reason: agentv1.ReasonAgentIsNotApproved, Message: "The agent is not approved"}, metav1.Now())
	})
	waits(hivev1.MachinePhaseBinding, "The agent is not approved")
	r.becomes(agent, func(s *agentv1.AgentStatus) {
		s.DebugInfo.State, s.DebugInfo.StateInfo, s.Progress.CurrentStage = "installing-pending-user-action", "Expected the host to boot from disk", "Rebooting"
	})
	waits(hivev1.MachinePhaseJoining, "Expected the host to boot from disk")
}

// An Agent that cannot become a machine of the pool, because it would have too many labels, keeps no other one from it.
func TestAnAgentThatIsRefusedKeepsNoOtherFromThePool(t *testing.T) {
	r := newRack(t)
	r.replica(&nodes{}, always)
	full := r.agent("full", func(a *agentv1.Agent) {
		a.Spec.NodeLabels, a.Status.Inventory.Memory.PhysicalBytes = map[string]string{}, 8<<30 // it fits best
		for i := range 256 {
			a.Spec.NodeLabels[fmt.Sprintf("of-the-user-%d", i)] = ""
		}
	})
	pool := r.pool(r.cluster("blue").Name, 1, func(p *hivev1.MachinePool) { p.Spec.Labels = map[string]string{"tier": "web"} })
	r.until(pool, "it says why the machine is not taken", func() bool {
		c := hivev1.FindCondition(pool.Status.Conditions, hivev1.MachinePoolMachinesAvailable)
		return c != nil && c.Reason == hivev1.ReasonNoSuitableAgents && strings.Contains(c.Message, "Agent full cannot be bound: ") && strings.Contains(c.Message, "spec.nodeLabels")
	})
	other := r.agent("other")
	r.until(other, "it is taken", func() bool { return takenBy(other).Name != "" })
	r.until(pool, "it has its machine", func() bool { return says(pool, hivev1.MachinePoolMachinesAvailable, hivev1.ReasonMachinesBound) })
	require.NoError(t, r.user.Get(t.Context(), client.ObjectKeyFromObject(full), full))
	assert.Empty(t, agentctl.ClusterKey(full).Name)
}

func TestAMachineThatIsNotReleasedIsNotTaken(t *testing.T) {
	r := newRack(t)
	r.replica(&nodes{}, always)
	released := func(status corev1.ConditionStatus, reason string) func(*agentv1.AgentStatus) {
		return func(s *agentv1.AgentStatus) {
			agentv1.SetCondition(&s.Conditions, agentv1.Condition{Type: agentv1.ConditionReleased, Status: status, Reason: reason}, metav1.Now())
		}
	}
	agent := r.agent("one", func(a *agentv1.Agent) { released(corev1.ConditionFalse, agentv1.ReasonWiping)(&a.Status) })
	pool := r.pool(r.cluster("blue").Name, 1)
	r.until(pool, "it says why", func() bool {
		c := hivev1.FindCondition(pool.Status.Conditions, hivev1.MachinePoolMachinesAvailable)
		return c != nil && c.Message == fmt.Sprintf("0 of 1 machines are bound. In namespace %s, 1 Agent matches; 1 not free yet", r.metal)
	})
	r.becomes(agent, released(corev1.ConditionTrue, agentv1.ReasonReleased))
	r.until(agent, "it is taken", func() bool { return takenBy(agent) == client.ObjectKeyFromObject(pool) })
}

func TestMachinesAreTakenByConsentOnly(t *testing.T) {
	r := newRack(t)
	r.replica(&nodes{}, always)
	change(r, r.infraEnv, func(e *agentv1.InfraEnv) { e.Spec.AllowedClusters = nil })
	agent := r.agent("one")
	allocated := r.agent("four", func(a *agentv1.Agent) {
		a.Status.Conditions = append(a.Status.Conditions, agentv1.Condition{Type: agentv1.ConditionReserved, Status: corev1.ConditionTrue})
	})
	reserved := r.agent("two", func(a *agentv1.Agent) { a.Labels = map[string]string{agentv1.MachineReferenceLabel: "machine"} })
	unapproved := r.agent("three", func(a *agentv1.Agent) { a.Spec.Approved = false })
	pool := r.pool(r.cluster("blue").Name, 3)
	r.until(pool, "it says why", func() bool {
		c := hivev1.FindCondition(pool.Status.Conditions, hivev1.MachinePoolMachinesAvailable)
		return c != nil && c.Message == fmt.Sprintf("0 of 3 machines are bound. In namespace %s, spec.allowedClusters of no InfraEnv with matching Agents allows namespace %s", r.metal, r.clusters)
	})
	change(r, r.infraEnv, func(e *agentv1.InfraEnv) {
		e.Spec.AllowedClusters = &agentv1.AllowedClusters{Namespaces: &agentv1.ClusterNamespaces{From: agentv1.FromAll}}
	})
	r.until(agent, "it is taken", func() bool { return takenBy(agent) == client.ObjectKeyFromObject(pool) })
	r.until(pool, "it says why", func() bool {
		c := hivev1.FindCondition(pool.Status.Conditions, hivev1.MachinePoolMachinesAvailable)
		return c.Message == fmt.Sprintf("1 of 3 machines are bound. In namespace %s, 4 Agents match; 1 bound, 2 reserved, 1 not approved", r.metal)
	})
	for _, other := range []*agentv1.Agent{reserved, allocated, unapproved} {
		require.NoError(t, r.user.Get(t.Context(), client.ObjectKeyFromObject(other), other))
		assert.Empty(t, agentctl.ClusterKey(other).Name)
	}
}

// An InfraEnv that is deleted waits until none of its machines is bound.
func TestNoMachineOfAnInfraEnvThatIsBeingDeletedIsTaken(t *testing.T) {
	r := newRack(t)
	r.replica(&nodes{}, always)
	change(r, r.infraEnv, func(e *agentv1.InfraEnv) { e.Finalizers = []string{agentv1.InfraEnvFinalizer} })
	require.NoError(t, r.user.Delete(t.Context(), r.infraEnv))
	agent := r.agent("one")
	pool := r.pool(r.cluster("blue").Name, 1)
	r.until(pool, "it says why", func() bool {
		c := hivev1.FindCondition(pool.Status.Conditions, hivev1.MachinePoolMachinesAvailable)
		return c != nil && strings.Contains(c.Message, "InfraEnv "+r.infraEnv.Name+" is being deleted")
	})
	require.NoError(t, r.user.Get(t.Context(), client.ObjectKeyFromObject(agent), agent))
	assert.Empty(t, agentctl.ClusterKey(agent).Name)
	change(r, r.infraEnv, func(e *agentv1.InfraEnv) { e.Finalizers = nil })
}

func TestMachinesAreBoundWhenTheClusterIsClaimed(t *testing.T) {
	r := newRack(t)
	r.replica(&nodes{}, always)
	agent := r.agent("one")
	cluster := r.cluster("blue", func(d *hivev1.ClusterDeployment) {
		d.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{Namespace: r.metal, PoolName: "dev"}
	})
	pool := r.pool("blue", 1, func(p *hivev1.MachinePool) { p.Spec.Platform.AgentBareMetal.BindAt = hivev1.BindAtClaim })
	r.until(pool, "it waits", func() bool {
		return says(pool, hivev1.MachinePoolReady, hivev1.ReasonWaitingForClaim) && hivev1.IsConditionTrue(pool.Status.Conditions, hivev1.MachinePoolReady)
	})
	assert.Nil(t, pool.Status.FirstReadyTime)
	change(r, cluster, func(d *hivev1.ClusterDeployment) { d.Spec.ClusterPoolRef.ClaimName = "mine" })
	r.until(agent, "it is taken", func() bool { return takenBy(agent) == client.ObjectKeyFromObject(pool) })
}

// Machines that a claim binds are part of its way to a cluster, and what comes after the cluster runs with them is not.
func TestAClaimsMachinesAreInItsTrace(t *testing.T) {
	collector, _ := tracingtest.Trace(t, "agent-service")
	r := newRack(t)
	n := &nodes{}
	r.replica(n, always)
	agent := r.agent("one")
	cluster := r.cluster("blue", func(d *hivev1.ClusterDeployment) {
		d.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{Namespace: r.metal, PoolName: "dev"}
	})
	before := cluster.DeepCopy()
	cluster.Status.PowerState = hivev1.PowerStateRunning
	require.NoError(t, r.user.Status().Patch(t.Context(), cluster, client.MergeFrom(before)))
	pool := r.pool("blue", 1, func(p *hivev1.MachinePool) {
		p.Labels = map[string]string{hivev1.LabelClusterPoolName: "dev"}
		p.Spec.Platform.AgentBareMetal.BindAt = hivev1.BindAtClaim
	})
	r.until(pool, "it waits", func() bool { return says(pool, hivev1.MachinePoolReady, hivev1.ReasonWaitingForClaim) })

	const claim, id = "0b6a5f2e-1c1d-4d3a-9f10-6a2b3c4d5e6f", "0b6a5f2e1c1d4d3a9f106a2b3c4d5e6f"
	change(r, cluster, func(d *hivev1.ClusterDeployment) {
		d.Spec.ClusterPoolRef.ClaimName, d.Spec.ClusterPoolRef.ClaimUID = "mine", claim
	})
	r.until(agent, "it is taken", func() bool { return takenBy(agent) == client.ObjectKeyFromObject(pool) })
	span := collector.Wait(t, func(s tracingtest.Span) bool { return s.Trace == id })
	assert.Equal(t, "machinepool", span.Name)
	assert.Equal(t, pool.Name, span.Attributes["name"])

	n.ready.Store(agent.Spec.Hostname, true)
	r.becomes(agent, func(s *agentv1.AgentStatus) {
		s.DebugInfo.State, s.Progress.CurrentStage = "added-to-existing-cluster", "Done"
	})
	r.until(pool, "its node is Ready", func() bool { return says(pool, hivev1.MachinePoolReady, hivev1.ReasonAllNodesReady) })
	earlier := collector.Spans(func(s tracingtest.Span) bool { return s.Trace != id })
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 0}, ObjectMeta: metav1.ObjectMeta{Namespace: pool.Namespace, Name: pool.Name}}
	require.NoError(t, r.user.SubResource("scale").Update(t.Context(), pool, client.WithSubResourceBody(scale)))
	r.until(agent, "it is released", func() bool { return agentctl.ClusterKey(agent).Name == "" })
	collector.Wait(t, func(s tracingtest.Span) bool {
		return s.Trace != id && s.Attributes["name"] == pool.Name && !slices.ContainsFunc(earlier, func(e tracingtest.Span) bool { return e.ID == s.ID })
	})
}

// A machine that does not answer keeps neither its MachinePool nor its binding; while it may still be drained, its pool waits.
func TestAMachineThatDoesNotAnswerDoesNotBlockTheDeletionOfItsPool(t *testing.T) {
	r := newRack(t)
	r.replica(&nodes{}, always)
	dead := r.agent("dead")
	pool := r.pool(r.cluster("blue").Name, 1)
	r.until(dead, "it is taken", func() bool { return takenBy(dead).Name != "" })
	r.becomes(dead, func(s *agentv1.AgentStatus) {
		s.DebugInfo.State = "added-to-existing-cluster"
		agentv1.SetCondition(&s.Conditions, agentv1.Condition{Type: agentv1.ConditionConnected, Status: corev1.ConditionFalse, Reason: "AgentIsDisconnected"}, metav1.Now())
	})
	require.NoError(t, r.user.Delete(t.Context(), pool))
	r.until(dead, "its binding ends", func() bool { return agentctl.ClusterKey(dead).Name == "" })
	r.until(pool, "it waits for the machine", func() bool {
		return len(pool.Status.Machines) == 1 && pool.Status.Machines[0].Phase == hivev1.MachinePhaseReleasing
	})
	r.clock.SetTime(time.Now().Add(drainTimeout + releaseTimeout + time.Minute))
	r.becomes(dead, func(s *agentv1.AgentStatus) { s.DebugInfo.StateInfo = "silent" })
	r.gone(pool)
	require.NoError(t, r.user.Get(t.Context(), client.ObjectKeyFromObject(dead), dead))
	assert.Empty(t, takenBy(dead).Name)
}

// Machines that died wait for their user for ever. They do not keep the pool from releasing the next one.
func TestDeadMachinesDoNotStallAScaleDown(t *testing.T) {
	r := newRack(t)
	n := &nodes{}
	r.replica(n, always)
	agents := map[string]*agentv1.Agent{}
	for _, name := range []string{"live-1", "live-2", "dead-1", "dead-2", "dead-3"} {
		agents[name] = r.agent(name)
	}
	pool := r.pool(r.cluster("blue").Name, 5)
	for name, agent := range agents {
		r.until(agent, "it is taken", func() bool { return takenBy(agent).Name != "" })
		if strings.HasPrefix(name, "live") {
			n.ready.Store(agent.Spec.Hostname, true)
		}
		r.becomes(agent, func(s *agentv1.AgentStatus) {
			s.DebugInfo.State, s.Progress.CurrentStage = "added-to-existing-cluster", "Done"
		})
	}
	r.until(pool, "two of its nodes are Ready", func() bool { return pool.Status.ReadyReplicas == 2 })
	change(r, pool, func(p *hivev1.MachinePool) { p.Spec.Replicas = new(int64(3)) })
	released := map[string]bool{}
	for range 2 {
		var left *agentv1.Agent
		require.Eventually(t, func() bool {
			for name, agent := range agents {
				if released[name] || r.user.Get(t.Context(), client.ObjectKeyFromObject(agent), agent) != nil {
					continue
				}
				if agentctl.ClusterKey(agent).Name == "" {
					left, released[name] = agent, true
					return true
				}
			}
			return false
		}, patience, 50*time.Millisecond, "the next dead machine is released")
		r.becomes(left, func(s *agentv1.AgentStatus) {
			s.DebugInfo.State = "unbinding-pending-user-action"
			agentv1.SetCondition(&s.Conditions, agentv1.Condition{Type: agentv1.ConditionReleased, Status: corev1.ConditionFalse, Reason: agentv1.ReasonWaitingForUser}, metav1.Now())
		})
	}
	assert.NotContains(t, released, "live-1")
	assert.NotContains(t, released, "live-2")
	r.until(pool, "three machines are left", func() bool { return pool.Status.Replicas == 3 })
}

// What is wiped of a machine is agreed when it is bound, and stays on its Agent until the machine is free.
func TestAMachineIsWipedAsItsPoolSays(t *testing.T) {
	for name, test := range map[string]struct {
		release *hivev1.MachineRelease
		want    string
	}{
		"by default the installed disk": {nil, "InstalledDisk"},
		"all disks":                     {&hivev1.MachineRelease{Wipe: hivev1.WipeAllDisks}, "AllDisks"},
		"nothing":                       {&hivev1.MachineRelease{Wipe: hivev1.WipeNone}, "None"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRack(t)
			r.replica(&nodes{}, always)
			agent := r.agent("one")
			pool := r.pool(r.cluster("blue").Name, 1, func(p *hivev1.MachinePool) { p.Spec.Platform.AgentBareMetal.OnRelease = test.release })
			r.until(agent, "it is taken", func() bool { return takenBy(agent).Name != "" })
			assert.Equal(t, test.want, agent.Annotations[agentv1.MachinePoolWipeAnnotation])
			r.until(pool, "all fields have their effect", func() bool {
				return says(pool, hivev1.MachinePoolUnsupportedConfiguration, hivev1.ReasonConfigurationSupported)
			})
			r.becomes(agent, func(s *agentv1.AgentStatus) { s.DebugInfo.State = "added-to-existing-cluster" })
			change(r, pool, func(p *hivev1.MachinePool) { p.Spec.Replicas = new(int64(0)) })
			r.until(agent, "it is released", func() bool { return agentctl.ClusterKey(agent).Name == "" })
			assert.Equal(t, test.want, agent.Annotations[agentv1.MachinePoolWipeAnnotation])
			r.becomes(agent, func(s *agentv1.AgentStatus) { s.DebugInfo.State = "known-unbound" })
			r.until(agent, "it is free", func() bool { return takenBy(agent).Name == "" })
			assert.NotContains(t, agent.Annotations, agentv1.MachinePoolWipeAnnotation)
		})
	}
}

// A pool that goes says no more whose machine it was, and what is wiped of it until it is free.
func TestWhatIsWipedOutlivesThePool(t *testing.T) {
	r := newRack(t)
	r.replica(&nodes{}, always)
	agent := r.agent("one")
	pool := r.pool(r.cluster("blue").Name, 1, func(p *hivev1.MachinePool) {
		p.Spec.Platform.AgentBareMetal.OnRelease = &hivev1.MachineRelease{Wipe: hivev1.WipeAllDisks}
	})
	r.until(agent, "it is taken", func() bool { return takenBy(agent).Name != "" })
	r.becomes(agent, func(s *agentv1.AgentStatus) {
		s.DebugInfo.State = "unbinding-pending-user-action"
		agentv1.SetCondition(&s.Conditions, agentv1.Condition{Type: agentv1.ConditionReleased, Status: corev1.ConditionFalse, Reason: agentv1.ReasonWaitingForUser}, metav1.Now())
	})
	require.NoError(t, r.user.Delete(t.Context(), pool))
	r.gone(pool)
	require.NoError(t, r.user.Get(t.Context(), client.ObjectKeyFromObject(agent), agent))
	assert.Empty(t, takenBy(agent).Name)
	assert.Equal(t, "AllDisks", agent.Annotations[agentv1.MachinePoolWipeAnnotation])
	for key := range agent.Annotations {
		assert.True(t, key == agentv1.MachinePoolWipeAnnotation || !strings.Contains(key, "machine-pool"), key)
	}
}

// An Agent that was taken before pools said what is wiped says nothing of that.
func TestAMachineOfAFormerVersionIsWipedWhenItsPoolGoes(t *testing.T) {
	for stated, want := range map[string]string{"": "InstalledDisk", "None": "None", "AllDisks": "AllDisks"} {
		agent := &agentv1.Agent{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{agentv1.MachinePoolLabel: "workers", agentv1.MachinePoolNamespaceLabel: "team"}}}
		if stated != "" {
			agent.Annotations = map[string]string{agentv1.MachinePoolWipeAnnotation: stated}
		}
		leave(agent)
		assert.Empty(t, takenBy(agent).Name)
		assert.Equal(t, map[string]string{agentv1.MachinePoolWipeAnnotation: want}, agent.Annotations)
	}
}

// A console that has a user switch autoscaling on takes replicas away, and states the bounds instead.
func TestAPoolThatIsLeftToAnAutoscalerKeepsItsMachines(t *testing.T) {
	r := newRack(t)
	r.replica(&nodes{}, always)
	agents := []*agentv1.Agent{r.agent("one"), r.agent("two"), r.agent("three")}
	pool := r.pool(r.cluster("blue").Name, 2)
	r.until(pool, "its machines are bound", func() bool { return pool.Status.Replicas == 2 })
	patch := `[{"op": "remove", "path": "/spec/replicas"}, {"op": "add", "path": "/spec/autoscaling", "value": {"minReplicas": 1, "maxReplicas": 4}}]`
	require.NoError(t, r.user.Patch(t.Context(), pool, client.RawPatch(types.JSONPatchType, []byte(patch))))
	r.until(pool, "it says that this has no effect", func() bool {
		return says(pool, hivev1.MachinePoolUnsupportedConfiguration, hivev1.ReasonUnsupportedFields)
	})
	assert.Equal(t, "All of 2 machines are bound", hivev1.FindCondition(pool.Status.Conditions, hivev1.MachinePoolMachinesAvailable).Message)
	bound := 0
	for _, agent := range agents {
		require.NoError(t, r.user.Get(t.Context(), client.ObjectKeyFromObject(agent), agent))
		if agentctl.ClusterKey(agent).Name != "" {
			bound++
		}
	}
	assert.Equal(t, 2, bound, "no machine is released, and none is taken")
	require.NoError(t, r.user.Delete(t.Context(), pool))
	r.gone(pool)
	assert.Empty(t, r.has())
}

// What a pool said of the node of a machine is not said of the node that the machine becomes in the next cluster: neither where the pool says something else by then, nor where a user took the machine.
func TestWhatAPoolSaysOfANodeEndsWithTheBinding(t *testing.T) {
	for name, release := range map[string]func(*rack, *hivev1.MachinePool, *agentv1.Agent){
		"the pool changed, and shrinks": func(r *rack, pool *hivev1.MachinePool, _ *agentv1.Agent) {
			change(r, pool, func(p *hivev1.MachinePool) {
				p.Spec.Labels, p.Spec.Taints, p.Spec.Replicas = map[string]string{"tier": "db"}, nil, new(int64(0))
			})
		},
		"a user takes the machine": func(r *rack, pool *hivev1.MachinePool, agent *agentv1.Agent) {
			change(r, pool, func(p *hivev1.MachinePool) {
				p.Spec.Platform.AgentBareMetal.Minimum = &hivev1.MachineMinimum{CPUCores: 999} // it is not taken again
			})
			change(r, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRack(t)
			r.replica(&nodes{}, always)
			agent := r.agent("one", func(a *agentv1.Agent) {
				a.Spec.NodeLabels, a.Spec.NodeTaints = map[string]string{"of-the-user": ""}, []agentv1.NodeTaint{{Key: "of-the-user", Effect: "NoSchedule"}}
			})
			pool := r.pool(r.cluster("blue").Name, 1, func(p *hivev1.MachinePool) {
				p.Spec.Labels, p.Spec.Taints = map[string]string{"tier": "web", "new": ""}, []corev1.Taint{{Key: "tier", Value: "web", Effect: corev1.TaintEffectNoSchedule}}
			})
			r.until(agent, "it is taken", func() bool { return takenBy(agent).Name != "" })
			assert.Equal(t, "web", agent.Spec.NodeLabels["tier"])
			assert.Len(t, agent.Spec.NodeTaints, 2)
			r.becomes(agent, func(s *agentv1.AgentStatus) { s.DebugInfo.State = "error" })
			release(r, pool, agent)
			r.until(agent, "it is released", func() bool { return agentctl.ClusterKey(agent).Name == "" })
			r.becomes(agent, func(s *agentv1.AgentStatus) { s.DebugInfo.State = "known-unbound" })
			r.until(agent, "it is free", func() bool { return takenBy(agent).Name == "" })
			assert.Empty(t, agent.Spec.Hostname)
			assert.Equal(t, map[string]string{"of-the-user": ""}, agent.Spec.NodeLabels)
			assert.Equal(t, []agentv1.NodeTaint{{Key: "of-the-user", Effect: "NoSchedule"}}, agent.Spec.NodeTaints)
			for key := range agent.Annotations {
				assert.NotContains(t, key, "machine-pool")
			}
		})
	}
}

var errDied = errors.New("the process died here")

// A process dies at each of its writes, before it is done and after, and the next one goes on: the pool ends with as many machines as are wanted, and without any
// when it is deleted.
func TestAProcessMayDieAtEveryWrite(t *testing.T) {
	const most = 100
	for n, dies := int64(1), true; dies; n++ {
		require.Less(t, n, int64(most), "it writes without end")
		dies = false // until it has written all that it has to
		for _, done := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d, done %t", n, done), func(t *testing.T) {
				r := newRack(t)
				for i := range 3 {
					r.agent(fmt.Sprintf("agent-%d", i))
				}
				var writes, died atomic.Int64
				write := func(do func() error) error {
					if writes.Add(1) < n {
						return do()
					}
					died.Store(1)
					if done && writes.Load() == n {
						return errors.Join(do(), errDied)
					}
					return errDied
				}
				r.replica(&nodes{}, write)
				pool := r.pool(r.cluster("blue").Name, 2)
				r.until(pool, "the process died, or has nothing more to do", func() bool { return died.Load() == 1 || pool.Status.Replicas == 2 })
				dies = dies || died.Load() == 1
				r.replica(&nodes{}, always)
				require.Eventually(t, func() bool { return r.has()["blue"] == 2 }, patience, 50*time.Millisecond)
				require.NoError(t, r.user.Delete(t.Context(), pool))
				r.gone(pool)
				assert.Empty(t, r.has())
			})
		}
	}
}

// Pools that look at the same moment see the same machines as free. What one of them took the other does not ask for, however far the cache is behind.
func TestPoolsOfAProcessDoNotTryForTheSameMachine(t *testing.T) {
	r := newRack(t)
	pools := []string{"one", "two", "three", "four", "five", "six"}
	for _, name := range pools {
		r.cluster(name)
		r.pool(name, 1)
	}
	for i := range pools {
		r.agent(fmt.Sprintf("m%d", i))
	}
	var before agentv1.AgentList
	require.NoError(t, r.user.List(t.Context(), &before, client.InNamespace(r.metal)))
	refused := 0
	behind := interceptor.NewClient(r.user, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if agents, is := list.(*agentv1.AgentList); is {
				before.DeepCopyInto(agents)
				return nil
			}
			return c.List(ctx, list, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			err := c.Patch(ctx, object, patch, options...)
			if apierrors.IsConflict(err) {
				refused++
			}
			return err
		},
	})
	reconciler := New(Deps{
		Client: behind, Live: r.user, Nodes: &nodes{}, Service: r.service, Rules: &hostplan.Rules{OSImages: images}, Recorder: &events.FakeRecorder{},
		Order: &precedence.Order{Clock: clock.RealClock{}}, Clock: r.clock,
	})
	for _, name := range pools {
		_, err := reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: r.clusters, Name: name + "-worker"}})
		require.NoError(t, err)
	}
	assert.Len(t, r.has(), len(pools), "each has its machine")
	assert.Zero(t, refused)
}
