// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bmhplan decides how a BareMetalHost and the Agent of its machine belong together: the host boots the image of an InfraEnv, and what is written on
// the host becomes the spec of the Agent. It is a pure function of the objects.
package bmhplan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// Snapshot is what is known of a BareMetalHost that names an InfraEnv.
type Snapshot struct {
	Host *metal3v1.BareMetalHost
	// InfraEnv is the one that the label of the host names, in its namespace; nil where there is none.
	InfraEnv *agentv1.InfraEnv
	// Agents are those of the InfraEnv whose machines report a MAC of the host, in any order.
	Agents []*agentv1.Agent
	// Elsewhere are Agents of other InfraEnvs of the namespace whose machines report a MAC of the host, in any order.
	Elsewhere []*agentv1.Agent
}

// Decision says how the objects should be. A nil object stays as it is.
type Decision struct {
	// Host boots the image of the InfraEnv.
	Host *metal3v1.BareMetalHost
	// Agent is linked to the host, and has what the host says of it.
	Agent *agentv1.Agent
	// Remove is the Agent of a host that is deleted with it, once its Node has left the cluster.
	Remove *agentv1.Agent
	// Reason and Problem say what a user has to mend; they are empty where all is well.
	Reason, Problem string
}

// Reasons of problems, as events name them.
const (
	ReasonInfraEnvMissing   = "InfraEnvMissing"
	ReasonHostInUse         = "HostInUse"
	ReasonOtherImage        = "OtherImage"
	ReasonAmbiguousMachine  = "AmbiguousMachine"
	ReasonInvalidAnnotation = "InvalidAnnotationValue"
	ReasonUnknownAnnotation = "UnknownAnnotation"
	ReasonNoSuchDisk        = "NoSuchDisk"
)

// Plan decides. A host that is being deleted is only rid of its Agent, where it says so.
func Plan(s Snapshot) Decision {
	if !s.Host.DeletionTimestamp.IsZero() {
		return remove(s)
	}
	if takesAgent(s.Host) != slices.Contains(s.Host.Finalizers, agentv1.BMHFinalizer) {
		return Decision{Host: finalized(s.Host, takesAgent(s.Host))} // the rest follows when it is written
	}
	var d Decision
	if s.InfraEnv == nil {
		return d.because(ReasonInfraEnvMissing, "there is no InfraEnv %s in namespace %s", s.Host.Labels[agentv1.InfraEnvLabel], s.Host.Namespace)
	}
	agent, d := choose(s, d)
	unapproved := pending(s.Host)
	if !unapproved {
		d = boot(s, agent, d)
	}
	if agent != nil && agent.DeletionTimestamp.IsZero() && (linked(s.Host, agent) || !unapproved) {
		d = link(s.Host, agent, d)
	}
	if keys := withoutEffect(s.Host); len(keys) > 0 {
		d = d.because(ReasonUnknownAnnotation, "annotations without effect: %s; remove them, or set the fields of the Agent", strings.Join(keys, ", "))
	}
	return d
}

// knownAnnotations are the annotations of the domain that have an effect; labels of nodes have a prefix.
var knownAnnotations = []string{
	agentv1.BMHRoleAnnotation, agentv1.BMHHostnameAnnotation, agentv1.BMHMachineConfigPoolAnnotation, agentv1.BMHInstallerArgsAnnotation, agentv1.BMHIgnitionConfigOverridesAnnotation,
	agentv1.BMHClusterReferenceAnnotation, agentv1.BMHRemoveAgentAnnotation,
}

// withoutEffect returns the keys of annotations that are addressed to this service and have no effect, in order.
func withoutEffect(host *metal3v1.BareMetalHost) []string {
	var keys []string
	for key := range host.Annotations {
		if strings.HasPrefix(key, "bmac.agent-install.openshift.io") && !strings.HasPrefix(key, agentv1.BMHNodeLabelAnnotationPrefix) && !slices.Contains(knownAnnotations, key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// pending says that discovery holds the host until a user approves it.
func pending(host *metal3v1.BareMetalHost) bool {
	return host.Labels[metal3v1.ApprovalLabel] == "pending" && host.Annotations[metal3v1.ApprovedAnnotation] != "true"
}

// linked says that the Agent is that of the host's machine.
func linked(host *metal3v1.BareMetalHost, agent *agentv1.Agent) bool {
	return agent.Labels[agentv1.BareMetalHostLabel] == host.Name
}

// takesAgent says that the Agent of the host is deleted with it.
func takesAgent(host *metal3v1.BareMetalHost) bool {
	value, stated := host.Annotations[agentv1.BMHRemoveAgentAnnotation]
	return stated && value != "false"
}

func finalized(host *metal3v1.BareMetalHost, held bool) *metal3v1.BareMetalHost {
	changed := host.DeepCopy()
	changed.Finalizers = slices.DeleteFunc(changed.Finalizers, func(name string) bool { return name == agentv1.BMHFinalizer })
	if held {
		changed.Finalizers = append(changed.Finalizers, agentv1.BMHFinalizer)
	}
	return changed
}

// remove frees the machine of a host that is being deleted, waits until its Node has left the cluster, deletes the Agent and removes the finalizer of the host. A machine that registers again
// has another Agent, which is not linked.
func remove(s Snapshot) Decision {
	if !slices.Contains(s.Host.Finalizers, agentv1.BMHFinalizer) {
		return Decision{}
	}
	at := slices.IndexFunc(s.Agents, func(a *agentv1.Agent) bool { return a.Labels[agentv1.BareMetalHostLabel] == s.Host.Name })
	if at < 0 || !takesAgent(s.Host) {
		return Decision{Host: finalized(s.Host, false)}
	}
	agent := s.Agents[at]
	bound := agentv1.FindCondition(agent.Status.Conditions, agentv1.ConditionBound)
	left := agent.Status.DeprovisionInfo
	switch {
	case !agent.DeletionTimestamp.IsZero():
		return Decision{}
	case agent.Spec.ClusterDeploymentName != nil:
		changed := agent.DeepCopy()
		changed.Spec.ClusterDeploymentName, changed.Spec.Approved = nil, false // no other cluster takes it meanwhile
		if changed.Annotations == nil {
			changed.Annotations = map[string]string{}
		}
		changed.Annotations[agentv1.LeavesClusterAnnotation] = ""
		return Decision{Agent: changed}
	case bound != nil && bound.Reason == agentv1.ReasonBound, left != nil && left.Message == agentv1.NodeIsRemoved:
		return Decision{}
	}
	return Decision{Remove: agent}
}

// because keeps the first problem.
func (d Decision) because(reason, format string, args ...any) Decision {
	if d.Problem == "" {
		d.Reason, d.Problem = reason, fmt.Sprintf(format, args...)
	}
	return d
}

// choose returns the Agent of the host's machine. A machine says by itself which MACs it has: where several say the same, or one is linked to another host, a
// user decides by the label.
func choose(s Snapshot, d Decision) (*agentv1.Agent, Decision) {
	var free []*agentv1.Agent
	var others []string
	for _, agent := range s.Agents {
		switch agent.Labels[agentv1.BareMetalHostLabel] {
		case s.Host.Name:
			return agent, d
		case "":
			free = append(free, agent)
		default:
			others = append(others, agent.Name)
		}
	}
	names := make([]string, 0, len(s.Agents))
	for _, agent := range s.Agents {
		names = append(names, agent.Name)
	}
	slices.Sort(names)
	switch {
	case len(free) == 1 && len(others) == 0:
		return free[0], d
	case len(s.Agents) == 0:
		return nil, d
	}
	return nil, d.because(ReasonAmbiguousMachine, "several Agents report a MAC of this host, set the label %s=%s on the right one: %s", agentv1.BareMetalHostLabel, s.Host.Name, strings.Join(names, ", "))
}

// link marks the Agent as that of the host, which approves it once, and gives it what the annotations of the host say.
func link(host *metal3v1.BareMetalHost, agent *agentv1.Agent, d Decision) Decision {
	changed := agent.DeepCopy()
	if changed.Labels[agentv1.BareMetalHostLabel] == "" {
		if changed.Labels == nil {
			changed.Labels = map[string]string{}
		}
		changed.Labels[agentv1.BareMetalHostLabel] = host.Name
		changed.Spec.Approved = true
	}
	for annotation, field := range map[string]*string{
		agentv1.BMHRoleAnnotation: &changed.Spec.Role, agentv1.BMHHostnameAnnotation: &changed.Spec.Hostname,
		agentv1.BMHMachineConfigPoolAnnotation: &changed.Spec.MachineConfigPool, agentv1.BMHInstallerArgsAnnotation: &changed.Spec.InstallerArgs,
		agentv1.BMHIgnitionConfigOverridesAnnotation: &changed.Spec.IgnitionConfigOverrides,
	} {
		if value, ok := host.Annotations[annotation]; ok {
			*field = value
		}
	}
	for annotation, value := range host.Annotations {
		if key, ok := strings.CutPrefix(annotation, agentv1.BMHNodeLabelAnnotationPrefix); ok {
			if changed.Spec.NodeLabels == nil {
				changed.Spec.NodeLabels = map[string]string{}
			}
			changed.Spec.NodeLabels[key] = value
		}
	}
	d = cluster(host, changed, d)
	d = disk(host, changed, d)
	if !same(agent, changed) {
		d.Agent = changed
	}
	return d
}

// cluster binds the Agent to the cluster that the host names, or frees it where the host names the empty one.
func cluster(host *metal3v1.BareMetalHost, agent *agentv1.Agent, d Decision) Decision {
	value, ok := host.Annotations[agentv1.BMHClusterReferenceAnnotation]
	switch namespace, name, valid := strings.Cut(value, "/"); {
	case !ok:
	case value == "" && agent.Labels[agentv1.MachinePoolLabel] != "": // a free machine is there for MachinePools, and this one was taken
	case value == "":
		agent.Spec.ClusterDeploymentName = nil
	case !valid || namespace == "" || name == "" || strings.Contains(name, "/"):
		return d.because(ReasonInvalidAnnotation, "annotation %s is %q: write <namespace>/<ClusterDeployment>, or the empty value to free the machine", agentv1.BMHClusterReferenceAnnotation, value)
	default:
		agent.Spec.ClusterDeploymentName = &agentv1.ClusterReference{Namespace: namespace, Name: name}
	}
	return d
}

// same compares what a plan may change.
func same(a, b *agentv1.Agent) bool {
	x, y := a.Spec.ClusterDeploymentName, b.Spec.ClusterDeploymentName
	return maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Spec.NodeLabels, b.Spec.NodeLabels) && (x == y || x != nil && y != nil && *x == *y) &&
		a.Spec.Approved == b.Spec.Approved && a.Spec.Role == b.Spec.Role && a.Spec.Hostname == b.Spec.Hostname && a.Spec.MachineConfigPool == b.Spec.MachineConfigPool &&
		a.Spec.InstallerArgs == b.Spec.InstallerArgs && a.Spec.IgnitionConfigOverrides == b.Spec.IgnitionConfigOverrides && a.Spec.InstallationDiskID == b.Spec.InstallationDiskID
}
