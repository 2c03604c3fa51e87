// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package machinepool

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/internal/controller/conditionevent"
	"github.com/muster-io/muster/agent-service/internal/machineplan"
	hivev1ac "github.com/muster-io/muster/apis/applyconfiguration/hive/v1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/truncate"
)

// Most that a status says of machines.
const (
	maxMachines = 64
	maxMessage  = 1024
	maxNamed    = 3
)

// phases are the words for phases of the plan.
var phases = map[machineplan.Phase]hivev1.MachinePhase{
	machineplan.Failed: hivev1.MachinePhaseFailed, machineplan.Binding: hivev1.MachinePhaseBinding, machineplan.Installing: hivev1.MachinePhaseInstalling,
	machineplan.Joining: hivev1.MachinePhaseJoining, machineplan.Lost: hivev1.MachinePhaseNotReady, machineplan.Ready: hivev1.MachinePhaseReady, machineplan.Releasing: hivev1.MachinePhaseReleasing,
}

// eventRules lists the outcomes that become events.
var eventRules = []conditionevent.Rule{
	{Condition: hivev1.MachinePoolMachinesAvailable, Action: "Bind", Warning: []string{hivev1.ReasonNoSuitableAgents}},
	{Condition: hivev1.MachinePoolReady, Action: "Join", Normal: []string{hivev1.ReasonAllNodesReady}, Warning: []string{hivev1.ReasonMachinesFailed, hivev1.ReasonNodesNotReady}},
}

// report writes the status where it changed, and says whether the pool is as it should be.
func (r *Reconciler) report(ctx context.Context, seen *snapshot, d machineplan.Decision) (asItShouldBe bool, err error) {
	before := seen.pool.DeepCopy()
	seen.pool.Status = status(seen, d, metav1.NewTime(r.Clock.Now()).Rfc3339Copy())
	after := &seen.pool.Status
	asItShouldBe = hivev1.IsConditionTrue(after.Conditions, hivev1.MachinePoolReady)
	if equality.Semantic.DeepEqual(before.Status, *after) {
		return asItShouldBe, nil
	}
	apply := hivev1ac.MachinePool(seen.pool.Name, seen.pool.Namespace).WithUID(seen.pool.UID).WithStatus(configuration(after))
	if err := r.Client.Status().Apply(ctx, apply, client.FieldOwner(owner), client.ForceOwnership); err != nil {
		return false, outcome.IgnoreGone(fmt.Errorf("reporting on MachinePool %s: %w", seen.key, err))
	}
	conditionevent.Publish(r.Recorder, seen.pool, nil, eventRules, conditionevent.OfHive(before.Status.Conditions), conditionevent.OfHive(after.Conditions))
	return asItShouldBe, nil
}

// status is what to say of a pool.
func status(seen *snapshot, d machineplan.Decision, now metav1.Time) hivev1.MachinePoolStatus {
	said := *seen.pool.Status.DeepCopy()
	mine := seen.mine()
	said.Replicas, said.ReadyReplicas, said.Machines = 0, 0, nil
	for i := range mine {
		if mine[i].Phase != machineplan.Releasing {
			said.Replicas++
		}
		if mine[i].Phase == machineplan.Ready {
			said.ReadyReplicas++
		}
		if len(said.Machines) < maxMachines {
			said.Machines = append(said.Machines, hivev1.MachinePoolMachine{
				Agent: hivev1.AgentReference{Namespace: agentNamespace(seen.pool), Name: mine[i].Name}, Node: mine[i].Node, Phase: phases[mine[i].Phase],
				Message: cut(mine[i].Message),
			})
		}
	}
	for _, c := range []hivev1.Condition{available(seen, d), ready(seen, mine), supported(seen)} {
		hivev1.SetCondition(&said.Conditions, c, now)
	}
	if c := hivev1.FindCondition(said.Conditions, hivev1.MachinePoolReady); said.FirstReadyTime == nil && c.Reason == hivev1.ReasonAllNodesReady {
		said.FirstReadyTime = &now
	}
	return said
}

// conditionTypes are the conditions that the controller writes.
var conditionTypes = []string{hivev1.MachinePoolMachinesAvailable, hivev1.MachinePoolReady, hivev1.MachinePoolUnsupportedConfiguration}

// configuration is a status to apply: conditions of others stay.
func configuration(status *hivev1.MachinePoolStatus) *hivev1ac.MachinePoolStatusApplyConfiguration {
	out := hivev1ac.MachinePoolStatus().WithReplicas(status.Replicas).WithReadyReplicas(status.ReadyReplicas)
	if status.FirstReadyTime != nil {
		out.WithFirstReadyTime(*status.FirstReadyTime)
	}
	for i := range status.Machines {
		m := &status.Machines[i]
		machine := hivev1ac.MachinePoolMachine().WithAgent(hivev1ac.AgentReference().WithNamespace(m.Agent.Namespace).WithName(m.Agent.Name)).WithPhase(m.Phase)
		if m.Node != "" {
			machine.WithNode(m.Node)
		}
		if m.Message != "" {
			machine.WithMessage(m.Message)
		}
		out.WithMachines(machine)
	}
	for _, conditionType := range conditionTypes {
		c := hivev1.FindCondition(status.Conditions, conditionType)
		out.WithConditions(hivev1ac.Condition().WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).WithMessage(c.Message).
			WithLastProbeTime(c.LastProbeTime).WithLastTransitionTime(c.LastTransitionTime))
	}
	return out
}

// mine are the machines of the pool: those that are not Ready first, then by name.
func (s *snapshot) mine() []machineplan.Machine {
	mine := slices.DeleteFunc(slices.Clone(s.machines), func(m machineplan.Machine) bool { return !m.Mine })
	slices.SortStableFunc(mine, func(a, b machineplan.Machine) int {
		return cmp.Or(rank(a.Phase)-rank(b.Phase), cmp.Compare(a.Name, b.Name))
	})
	return mine
}

// rank puts machines that are Ready last.
func rank(phase machineplan.Phase) int {
	if phase == machineplan.Ready {
		return 1
	}
	return 0
}

func cut(message string) string { return truncate.To(message, maxMessage) }

func condition(kind string, status corev1.ConditionStatus, reason, message string) hivev1.Condition {
	return hivev1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func available(seen *snapshot, d machineplan.Decision) hivev1.Condition {
	const kind = hivev1.MachinePoolMachinesAvailable
	wanted := seen.replicas()
	has := wanted - d.Take
	blocked, why := seen.blocked()
	switch {
	case d.Take == 0:
		return condition(kind, corev1.ConditionTrue, hivev1.ReasonMachinesBound, fmt.Sprintf("All of %d machines are bound", wanted))
	case blocked != "":
		return condition(kind, corev1.ConditionUnknown, blocked, why)
	case seen.takesNone != "":
		return condition(kind, corev1.ConditionFalse, hivev1.ReasonBinding, cut(fmt.Sprintf("%d of %d machines are bound. %s", has, wanted, seen.takesNone)))
	case len(seen.notTaken) > 0:
		why := fmt.Sprintf("In namespace %s, %s", agentNamespace(seen.pool), seen.notTaken[0])
		if more := len(seen.notTaken) - 1; more > 0 {
			why = fmt.Sprintf("In namespace %s, %d Agents cannot be taken, such as: %s", agentNamespace(seen.pool), more+1, seen.notTaken[0])
		}
		return condition(kind, corev1.ConditionFalse, hivev1.ReasonNoSuitableAgents, cut(fmt.Sprintf("%d of %d machines are bound. %s", has, wanted, why)))
	case d.Why != "":
		return condition(kind, corev1.ConditionFalse, hivev1.ReasonNoSuitableAgents, fmt.Sprintf("%d of %d machines are bound. In namespace %s, %s", has, wanted, agentNamespace(seen.pool), d.Why))
	}
	return condition(kind, corev1.ConditionFalse, hivev1.ReasonBinding, fmt.Sprintf("%d of %d machines are bound", has, wanted))
}

func ready(seen *snapshot, mine []machineplan.Machine) hivev1.Condition {
	const kind = hivev1.MachinePoolReady
	in := map[machineplan.Phase][]string{}
	for i := range mine {
		in[mine[i].Phase] = append(in[mine[i].Phase], cmp.Or(mine[i].Node, mine[i].Name))
	}
	wanted := seen.replicas()
	has := len(mine) - len(in[machineplan.Releasing])
	said := func(reason, format string, values ...any) hivev1.Condition {
		return condition(kind, corev1.ConditionFalse, reason, fmt.Sprintf(format, values...))
	}
	blocked, why := seen.blocked()
	switch {
	case seen.waitsForClaim() && len(mine) == 0:
		return condition(kind, corev1.ConditionTrue, hivev1.ReasonWaitingForClaim, "Machines are bound when the cluster is claimed")
	case blocked != "":
		return said(blocked, "%s", why)
	case len(in[machineplan.Failed]) > 0:
		return said(hivev1.ReasonMachinesFailed, "The installation of %s failed; see status.machines, and remove spec.clusterDeploymentName of the Agent to have another machine take its place",
			list(in[machineplan.Failed]))
	case len(in[machineplan.Lost]) > 0:
		return said(hivev1.ReasonNodesNotReady, "%d of %d nodes are Ready; %s: not Ready any more; see the Nodes in the cluster, and whether the machines run", len(in[machineplan.Ready]), wanted,
			list(in[machineplan.Lost]))
	case has < wanted:
		return said(hivev1.ReasonMachinesMissing, "%d of %d machines are bound; see MachinesAvailable", has, wanted)
	case len(in[machineplan.Installing]) > 0:
		return said(hivev1.ReasonInstalling, "%s: being installed", list(append(in[machineplan.Binding], in[machineplan.Installing]...)))
	case len(in[machineplan.Binding]) > 0:
		return said(hivev1.ReasonInstalling, "%s: bound, and not being installed yet; status.machines says what each waits for", list(in[machineplan.Binding]))
	case seen.unknown:
		return said(hivev1.ReasonClusterNotReachable, "The cluster does not say whether its nodes are Ready")
	case len(in[machineplan.Joining]) > 0:
		return said(hivev1.ReasonJoining, "%d of %d nodes are Ready; %s: not a Ready node yet; status.machines says what each waits for", len(in[machineplan.Ready]), wanted,
			list(in[machineplan.Joining]))
	case has > wanted:
		return said(hivev1.ReasonReleasing, "%d machines are bound, %d are wanted", has, wanted)
	}
	return condition(kind, corev1.ConditionTrue, hivev1.ReasonAllNodesReady, fmt.Sprintf("%d of %d nodes are Ready", has, wanted))
}

// list names some of the machines.
func list(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}

// supported names fields that have no effect.
func supported(seen *snapshot) hivev1.Condition {
	const kind = hivev1.MachinePoolUnsupportedConfiguration
	var without []string
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"autoscaling", seen.pool.Spec.Autoscaling != nil},
	} {
		if field.set {
			without = append(without, "spec."+field.name)
		}
	}
	if len(without) > 0 {
		return condition(kind, corev1.ConditionTrue, hivev1.ReasonUnsupportedFields, "Without effect on machines of agentBareMetal: "+strings.Join(without, ", "))
	}
	return condition(kind, corev1.ConditionFalse, hivev1.ReasonConfigurationSupported, "All fields have their effect")
}
