// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package bmhplan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

const (
	liveISO  = "live-iso"
	disabled = "disabled"
	// hard is the value of a reboot annotation for a machine whose system need not be asked to shut down.
	hard = `{"mode":"hard"}`
)

// use says whether a machine may be restarted.
type use int

const (
	// silent machines belong to no cluster and do not ask for instructions.
	silent use = iota
	// discovered machines belong to no cluster, and run the discovery image or are on their way to it.
	discovered
	// released machines belong to no cluster once they have booted the discovery image.
	released
	// used machines belong to a cluster.
	used
	// unknown machines are those that the service does not know: it may have lost its data.
	unknown
)

// useOf is what the status of an Agent says of its machine.
func useOf(agent *agentv1.Agent) use {
	state := lifecycle.State(agent.Status.DebugInfo.State)
	switch {
	case state == "":
		return unknown
	case agent.Status.Progress.CurrentStage == string(lifecycle.StageDone) && lifecycle.Free(state):
		return used // it was installed before the service lost its data, and its cluster is not back yet
	case state == lifecycle.UnbindingPendingUserAction:
		return released
	case state == lifecycle.Unbinding || state == lifecycle.DisconnectedUnbound:
		return silent
	case lifecycle.Unbound(state):
		return discovered
	}
	return used
}

// boot lets the machine boot the image of the InfraEnv, once. A machine that is in use, or that runs the image already, is not restarted; nor does a new address of the image restart
// a machine that has appeared.
func boot(s Snapshot, agent *agentv1.Agent, d Decision) Decision {
	host, url, image := s.Host, s.InfraEnv.Status.ISODownloadURL, s.Host.Spec.Image
	if _, restarted := host.Annotations[agentv1.BMHRestartedAnnotation]; restarted && agent != nil && linked(host, agent) && useOf(agent) != released && useOf(agent) != unknown {
		d.Host = settled(host)
		return d
	}
	switch {
	case !host.HasPowerControl() || unmanaged(host) || url == "":
		return d // its user boots the machine, or another pass does it later
	case host.Spec.ExternallyProvisioned:
		return d.because(ReasonHostInUse, "the host is externally provisioned: it does not boot the image of InfraEnv %s", s.InfraEnv.Name)
	case host.Spec.ConsumerRef != nil:
		return d.because(ReasonHostInUse, "the host is in use by %s %s: it does not boot the image of InfraEnv %s", host.Spec.ConsumerRef.Kind, host.Spec.ConsumerRef.Name, s.InfraEnv.Name)
	case image != nil && (image.DiskFormat == nil || *image.DiskFormat != liveISO):
		return d.because(ReasonOtherImage, "spec.image is another image: remove it to boot that of InfraEnv %s", s.InfraEnv.Name)
	case agent != nil && linked(host, agent) && useOf(agent) == released:
		return restart(host, agent, url, d)
	case image != nil && image.URL == url:
		return d
	}
	if user := inUse(s); user != nil {
		if user == agent && linked(host, agent) {
			return d
		}
		return d.because(ReasonHostInUse, "the machine of Agent %s %s: it does not restart into the image of InfraEnv %s", user.Name, why(user), s.InfraEnv.Name)
	}
	runs := slices.ContainsFunc(s.Agents, func(a *agentv1.Agent) bool { return useOf(a) != silent })
	if runs || image != nil && agent != nil {
		return d
	}
	d.Host = booting(host, url)
	return d
}

// unmanaged says that another client, or no operator, looks after the host.
func unmanaged(host *metal3v1.BareMetalHost) bool {
	_, paused := host.Annotations[metal3v1.PausedAnnotation]
	return paused || host.Detached()
}

// inUse is an Agent whose machine may not be restarted, nil where there is none.
func inUse(s Snapshot) *agentv1.Agent {
	agents := slices.Concat(s.Agents, s.Elsewhere)
	if at := slices.IndexFunc(agents, func(a *agentv1.Agent) bool { return useOf(a) == used || useOf(a) == unknown }); at >= 0 {
		return agents[at]
	}
	return nil
}

// why says in a part of a sentence why a machine may not be restarted.
func why(agent *agentv1.Agent) string {
	if useOf(agent) == unknown {
		return "may be in use, because the service does not know the Agent"
	}
	return "is in use (" + agent.Status.DebugInfo.State + ")"
}

// booting is the host as it boots the image.
func booting(host *metal3v1.BareMetalHost, url string) *metal3v1.BareMetalHost {
	changed := host.DeepCopy()
	changed.Spec.Image = &metal3v1.Image{URL: url, DiskFormat: new(liveISO)}
	changed.Spec.AutomatedCleaningMode, changed.Spec.Online = disabled, true
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	changed.Annotations[metal3v1.InspectAnnotation] = disabled // the agent reports what the machine is made of
	return changed
}

// restart boots the image on a machine that left its cluster and cannot restart by itself, once for each release, after the cluster has lost its Node. The annotation without a key is used:
// its operator removes it when the machine is off. One with a key keeps a machine off for as long as it stands.
func restart(host *metal3v1.BareMetalHost, agent *agentv1.Agent, url string, d Decision) Decision {
	since, left := agentv1.FindCondition(agent.Status.Conditions, agentv1.ConditionReleased), agent.Status.DeprovisionInfo
	_, hibernates := host.Annotations[agentv1.BMHHibernatesAnnotation] // it is switched on first
	if hibernates || since == nil || since.Status != corev1.ConditionFalse || left != nil && left.Message == agentv1.NodeIsRemoved {
		return d
	}
	release := since.LastTransitionTime.UTC().Format(time.RFC3339)
	if host.Annotations[agentv1.BMHRestartedAnnotation] == release {
		return d
	}
	d.Host = booting(host, url)
	d.Host.Annotations[agentv1.BMHRestartedAnnotation], d.Host.Annotations[metal3v1.RebootAnnotation] = release, hard
	return d
}

// settled is the host once its machine has registered after a restart. A restart that was not carried out until then is not wanted any more.
func settled(host *metal3v1.BareMetalHost) *metal3v1.BareMetalHost {
	changed := host.DeepCopy()
	delete(changed.Annotations, agentv1.BMHRestartedAnnotation)
	if changed.Annotations[metal3v1.RebootAnnotation] == hard {
		delete(changed.Annotations, metal3v1.RebootAnnotation)
	}
	return changed
}
