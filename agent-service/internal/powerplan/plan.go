// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package powerplan decides which machines of a cluster are switched off when it hibernates, and on when it resumes, and what is said of it. It is a pure function of the
// objects. Machines are off before the control plane stops, and on once it answers again; its operator waits for the condition MachinesStopped.
package powerplan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// maxNamed is how many machines a message names.
const maxNamed = 5

// Machine is a machine of the cluster that is installed, or is being installed.
type Machine struct {
	// Agent and Node are the names of its Agent and its Node.
	Agent, Node string
	// Host is its BareMetalHost, nil where it has none.
	Host *metal3v1.BareMetalHost
	// Shared says that the host is linked to further Agents.
	Shared bool
	// Installing says that the disk of the machine is being written, or that it starts from it for the first time.
	Installing bool
	// NodeReady says that its Node is Ready, as far as that is known.
	NodeReady bool
}

// Snapshot is what is known of the power of a cluster.
type Snapshot struct {
	// Name is <namespace>/<ClusterDeployment>.
	Name string
	// Cluster is nil where it is gone, or takes no nodes.
	Cluster *hivev1.ClusterDeployment
	// Answers says that the API of the cluster answers.
	Answers bool
	// Machines are those of the cluster, in any order.
	Machines []Machine
	// Left are hosts that were switched off with the cluster, and are not of its machines any more.
	Left []*metal3v1.BareMetalHost
}

// Decision says how the objects should be. Conditions are written first: a machine is on only while they do not say that it is off.
type Decision struct {
	// Hosts are those that change.
	Hosts []Change
	// Conditions are those of the cluster, empty where it never had machines.
	Conditions []hivev1.Condition
	// Settled says that time alone changes nothing.
	Settled bool
}

// Change is a host as it was seen, and as it should be.
type Change struct {
	Before, After *metal3v1.BareMetalHost
}

// Plan decides.
func Plan(s Snapshot) Decision {
	var d Decision
	for _, host := range s.Left {
		d.Hosts = append(d.Hosts, switchedOn(host))
	}
	switch {
	case s.Cluster == nil || !s.Cluster.DeletionTimestamp.IsZero():
		for i := range s.Machines { // they are released, and wiped by themselves
			if host := s.Machines[i].Host; stopped(s, host) {
				d.Hosts = append(d.Hosts, switchedOn(host))
			}
		}
		d.Settled = true
		return d
	case paused(s.Cluster):
		d.Conditions, d.Settled = Said(s.Cluster), true
		return d
	case len(s.Machines) == 0 && len(Said(s.Cluster)) == 0:
		d.Settled = true
		return d
	}
	slices.SortFunc(s.Machines, func(a, b Machine) int { return cmp.Compare(a.Agent, b.Agent) })
	if s.Cluster.Spec.PowerState == hivev1.PowerStateHibernating {
		return stop(s, d)
	}
	return start(s, d)
}

// paused says that a user wants the power of the cluster left alone.
func paused(cluster *hivev1.ClusterDeployment) bool {
	return hivev1.IsTrue(cluster.Annotations, hivev1.AnnotationReconcilePause) || hivev1.IsTrue(cluster.Annotations, hivev1.AnnotationPowerStatePause)
}

// Said are the conditions as the cluster has them.
func Said(cluster *hivev1.ClusterDeployment) []hivev1.Condition {
	var conditions []hivev1.Condition
	for _, kind := range []string{hivev1.ClusterDeploymentMachinesStopped, hivev1.ClusterDeploymentMachinesPowerManaged} {
		if c := hivev1.FindCondition(cluster.Status.Conditions, kind); c != nil {
			conditions = append(conditions, *c)
		}
	}
	return conditions
}

// stop switches off the machines of a cluster that hibernates. One is off when it has no power and its Node is not Ready: a Node that is said to be Ready would still be so when the
// cluster resumes, before its machine is on.
func stop(s Snapshot, d Decision) Decision {
	var waits, without []string
	off := 0
	for i := range s.Machines {
		m := &s.Machines[i]
		switch obstacle := m.obstacle(); {
		case m.Installing:
			waits = append(waits, m.Node+" is being installed")
		case obstacle != "":
			without = append(without, m.Node+": "+obstacle)
		case m.Host.Spec.Online && stopped(s, m.Host):
			without = append(without, fmt.Sprintf("%s: another client switched BareMetalHost %s on", m.Node, m.Host.Name))
		case m.Host.Spec.Online:
			d.Hosts = append(d.Hosts, switchedOff(s, m.Host))
			waits = append(waits, m.Node+" is being switched off")
		case m.Host.Status.PoweredOn:
			waits = append(waits, m.isBeingSwitched("off"))
		case m.NodeReady:
			waits = append(waits, m.Node+" has no power, and is still a Ready node"+m.problem())
		default:
			off++
		}
	}
	managed := len(s.Machines) - len(without)
	d.Conditions = []hivev1.Condition{condition(corev1.ConditionFalse, hivev1.ReasonStoppingMachines, fmt.Sprintf("%d of %d machines are off; %s", off, managed, list(waits))), power(without)}
	if len(waits) == 0 {
		d.Conditions[0] = condition(corev1.ConditionTrue, hivev1.ReasonMachinesStopped, fmt.Sprintf("%d of %d machines are off", off, len(s.Machines)))
		d.Settled = true
	}
	return d
}

// start switches on the machines that were switched off with the cluster, once its API answers.
func start(s Snapshot, d Decision) Decision {
	var waits, without []string
	was := hivev1.FindCondition(s.Cluster.Status.Conditions, hivev1.ClusterDeploymentMachinesStopped)
	resumes := was != nil && was.Reason != hivev1.ReasonMachinesRunning
	for i := range s.Machines {
		m := &s.Machines[i]
		obstacle := m.obstacle()
		if obstacle != "" {
			without = append(without, m.Node+": "+obstacle)
		}
		switch {
		case stopped(s, m.Host) && !s.Answers && !m.Host.Spec.Online:
			waits = append(waits, m.Node+" waits for the API of the cluster")
		case stopped(s, m.Host):
			d.Hosts = append(d.Hosts, switchedOn(m.Host))
			waits = append(waits, m.Node+" is being switched on")
		case !resumes, m.Installing, obstacle != "", !m.Host.Spec.Online:
		case !m.Host.Status.PoweredOn:
			waits = append(waits, m.isBeingSwitched("on"))
		case !m.NodeReady:
			waits = append(waits, m.Node+" is not a Ready node")
		}
	}
	d.Conditions = []hivev1.Condition{condition(corev1.ConditionFalse, hivev1.ReasonStartingMachines, list(waits)), power(without)}
	if len(waits) == 0 {
		d.Conditions[0] = condition(corev1.ConditionFalse, hivev1.ReasonMachinesRunning, "The machines are not stopped")
		d.Settled = true
	}
	return d
}

// obstacle is why the power of a machine is not changed; empty where it can be.
func (m *Machine) obstacle() string {
	switch h := m.Host; {
	case h == nil:
		return "it has no BareMetalHost"
	case m.Shared:
		return fmt.Sprintf("BareMetalHost %s is linked to several Agents", h.Name)
	case !h.DeletionTimestamp.IsZero():
		return fmt.Sprintf("BareMetalHost %s is being deleted", h.Name)
	case !h.HasPowerControl():
		return fmt.Sprintf("BareMetalHost %s names no management controller", h.Name)
	case h.Spec.DisablePowerOff:
		return fmt.Sprintf("spec.disablePowerOff of BareMetalHost %s is true", h.Name)
	case h.Spec.ConsumerRef != nil:
		return fmt.Sprintf("BareMetalHost %s is in use by %s %s", h.Name, h.Spec.ConsumerRef.Kind, h.Spec.ConsumerRef.Name)
	}
	for _, annotation := range []string{metal3v1.PausedAnnotation, metal3v1.DetachedAnnotation} {
		if _, is := m.Host.Annotations[annotation]; is {
			return fmt.Sprintf("BareMetalHost %s has the annotation %s", m.Host.Name, annotation)
		}
	}
	return ""
}

func (m *Machine) isBeingSwitched(to string) string {
	return fmt.Sprintf("%s is being switched %s by BareMetalHost %s", m.Node, to, m.Host.Name) + m.problem()
}

// problem is what the host says of the last change of its power that failed.
func (m *Machine) problem() string {
	if message := m.Host.Status.ErrorMessage; message != "" {
		return fmt.Sprintf(" (BareMetalHost %s: %s)", m.Host.Name, message)
	}
	return ""
}

// stopped says that the host was switched off with the cluster.
func stopped(s Snapshot, host *metal3v1.BareMetalHost) bool {
	return host != nil && host.Annotations[agentv1.BMHHibernatesAnnotation] == s.Name
}

// switchedOff switches a host off with its cluster.
func switchedOff(s Snapshot, host *metal3v1.BareMetalHost) Change {
	changed := host.DeepCopy()
	changed.Spec.Online = false
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	changed.Annotations[agentv1.BMHHibernatesAnnotation] = s.Name
	return Change{host, changed}
}

// switchedOn switches a host on that was switched off with a cluster.
func switchedOn(host *metal3v1.BareMetalHost) Change {
	changed := host.DeepCopy()
	changed.Spec.Online = true
	delete(changed.Annotations, agentv1.BMHHibernatesAnnotation)
	return Change{host, changed}
}

func condition(status corev1.ConditionStatus, reason, message string) hivev1.Condition {
	return hivev1.Condition{Type: hivev1.ClusterDeploymentMachinesStopped, Status: status, Reason: reason, Message: message}
}

// power names the machines whose power is not changed.
func power(without []string) hivev1.Condition {
	c := hivev1.Condition{
		Type: hivev1.ClusterDeploymentMachinesPowerManaged, Status: corev1.ConditionTrue, Reason: hivev1.ReasonPowerManaged, Message: "The machines are stopped and started with the cluster",
	}
	if len(without) > 0 {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, hivev1.ReasonMachinesWithoutPowerControl, "Not stopped and started with the cluster: "+list(without)
	}
	return c
}

// list names some of the machines.
func list(machines []string) string {
	if more := len(machines) - maxNamed; more > 0 {
		return fmt.Sprintf("%s; and %d more", strings.Join(machines[:maxNamed], "; "), more)
	}
	return strings.Join(machines, "; ")
}
