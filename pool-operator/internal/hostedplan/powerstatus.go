// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedplan

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/provision"
	"github.com/muster-io/muster/pool-operator/internal/statusplan"
)

// power is how one observed state reads on an installed cluster.
type power struct {
	state              hivev1.PowerState
	hibernating        corev1.ConditionStatus
	hibernatingReason  string
	hibernatingMessage string
	ready              corev1.ConditionStatus
	readyReason        string
	readyMessage       string
}

// statusPower says whether an installed cluster runs, as observed.
func statusPower(now time.Time, s Snapshot) *hivev1.ClusterDeploymentStatus {
	d := draftInstalled(now, s)
	p := powerOf(now, s)
	d.Status.PowerState = p.state
	d.Set(hivev1.ClusterDeploymentHibernating, p.hibernating, p.hibernatingReason, p.hibernatingMessage)
	d.Set(hivev1.ClusterDeploymentReady, p.ready, p.readyReason, p.readyMessage)
	setUnreachable(d, s)
	setDataAtRisk(d, s)
	return &d.Status
}

// setDataAtRisk says that the data goes with the end of what runs. A cluster whose data was never at risk does not say that it is not.
func setDataAtRisk(d *statusplan.Draft, s Snapshot) {
	switch {
	case s.Observed.DataAtRisk != "":
		d.Set(hivev1.ClusterDeploymentDataAtRisk, corev1.ConditionTrue, hivev1.ReasonVolumeDeleted, s.Observed.DataAtRisk)
	case s.Observed.DataMissing != "" && d.Find(hivev1.ClusterDeploymentDataAtRisk) != nil:
		d.Set(hivev1.ClusterDeploymentDataAtRisk, corev1.ConditionFalse, hivev1.ReasonDataMissing, s.Observed.DataMissing)
	case d.Find(hivev1.ClusterDeploymentDataAtRisk) != nil:
		d.Set(hivev1.ClusterDeploymentDataAtRisk, corev1.ConditionFalse, hivev1.ReasonVolumeKept, "The volume of the cluster stays.")
	}
}

func powerOf(now time.Time, s Snapshot) power {
	if message, left := machinesToStop(now, s); left > 0 && s.Cluster.Spec.PowerState == hivev1.PowerStateHibernating {
		p := down(s)
		p.state, p.hibernatingReason, p.hibernatingMessage = hivev1.PowerStateWaitingForMachinesToStop, hivev1.ReasonWaitingForMachinesToStop, message
		return p
	}
	if why := notStopped(s); why != "" {
		p := down(s)
		p.state, p.hibernating, p.hibernatingReason = hivev1.PowerStateFailedToStop, corev1.ConditionFalse, hivev1.ReasonFailedToStop
		p.hibernatingMessage = why
		return p
	}
	switch s.Observed.State {
	case provision.StateReady:
		if p := s.Observed.Problem; p != nil {
			return up(hivev1.PowerStateWaitingForClusterOperators, corev1.ConditionFalse, string(p.Reason), p.Message)
		}
		if message := cmp.Or(awaited(s), machinesToStart(now, s)); message != "" {
			return up(hivev1.PowerStateWaitingForNodes, corev1.ConditionFalse, hivev1.ReasonWaitingForNodes, message)
		}
		if waitsForClaim(s) {
			return up(hivev1.PowerStateRunning, corev1.ConditionTrue, hivev1.ReasonWaitingForClaim, "The API of the cluster answers. Its machines are bound when it is claimed.")
		}
		return up(hivev1.PowerStateRunning, corev1.ConditionTrue, hivev1.ReasonRunning, "The API of the cluster answers.")
	case provision.StateFailed:
		return up(hivev1.PowerStateFailedToStartMachines, corev1.ConditionFalse, hivev1.ReasonFailedToStartMachines,
			"The cluster is started again: "+problemMessage(s))
	case provision.StateUnreachable:
		return up(hivev1.PowerStateWaitingForClusterOperators, corev1.ConditionFalse, hivev1.ReasonNotAnswering, problemMessage(s))
	case provision.StateStopping, provision.StateDeleting, provision.StateAbsent:
		return down(s)
	case provision.StateStopped:
		if s.Cluster.Spec.PowerState == hivev1.PowerStateHibernating {
			return down(s)
		}
	case provision.StateStarting:
		if s.Observed.Problem != nil {
			return up(hivev1.PowerStateFailedToStartMachines, corev1.ConditionFalse, hivev1.ReasonFailedToStartMachines,
				"The cluster is being started, and has not come up: "+problemMessage(s))
		}
	}
	return up(hivev1.PowerStateStartingMachines, corev1.ConditionFalse, hivev1.ReasonStartingMachines,
		"The control plane is started, and its API does not answer yet (step 1 of 1).")
}

// notStopped says why a cluster that should hibernate runs on; empty where it does not, or is being stopped. Its stop is the first action of the plan before, and the one that was refused
// where it still runs.
func notStopped(s Snapshot) string {
	switch {
	case s.Cluster.Spec.PowerState != hivev1.PowerStateHibernating || s.Observed.State == provision.StateStopping:
		return ""
	case s.Observed.DataAtRisk != "":
		return "The cluster is not stopped, so that its data stays. " + s.Observed.DataAtRisk
	case s.Refused != nil && runs(s.Observed.State):
		return "Stopping is tried again: " + s.Refused.Message
	}
	return ""
}

// up is a cluster that runs or is on its way.
func up(state hivev1.PowerState, ready corev1.ConditionStatus, reason, message string) power {
	return power{
		state:       state,
		hibernating: corev1.ConditionFalse, hibernatingReason: hivev1.ReasonResumingOrRunning, hibernatingMessage: "The cluster runs or is being started.",
		ready: ready, readyReason: reason, readyMessage: message,
	}
}

// down is a cluster that is stopped or on its way.
func down(s Snapshot) power {
	p := power{ready: corev1.ConditionFalse, readyReason: hivev1.ReasonStoppingOrHibernating, readyMessage: "The cluster is stopped or being stopped."}
	switch {
	case s.Observed.State == provision.StateStopped:
		p.state, p.hibernating, p.hibernatingReason = hivev1.PowerStateHibernating, corev1.ConditionTrue, hivev1.ReasonHibernating
		p.hibernatingMessage = "No process of the cluster runs; its data is kept." + leftRunning(s)
	case s.Observed.Problem != nil:
		p.state, p.hibernating, p.hibernatingReason = hivev1.PowerStateFailedToStop, corev1.ConditionFalse, hivev1.ReasonFailedToStop
		p.hibernatingMessage = "Stopping is tried again: " + s.Observed.Problem.Message
	default:
		p.state, p.hibernating, p.hibernatingReason = hivev1.PowerStateStopping, corev1.ConditionFalse, hivev1.ReasonStopping
		p.hibernatingMessage = "The control plane is being stopped."
	}
	return p
}

// setUnreachable tells a cluster that should answer and does not from one that is not expected to. While it is started again it stays as it was, so
// that the reason of the last death can be read until the cluster answers.
func setUnreachable(d *statusplan.Draft, s Snapshot) {
	state := s.Observed.State
	if state == provision.StateStarting && s.Observed.Problem != nil {
		state = provision.StateFailed
	}
	switch state {
	case provision.StateReady:
		d.Set(hivev1.ClusterDeploymentUnreachable, corev1.ConditionFalse, "Running", "The API of the cluster answers.")
	case provision.StateFailed, provision.StateUnreachable:
		reason := string(provision.ReasonNotAnswering)
		if s.Observed.Problem != nil {
			reason = string(s.Observed.Problem.Reason)
		}
		d.Set(hivev1.ClusterDeploymentUnreachable, corev1.ConditionTrue, reason, problemMessage(s))
	case provision.StateStopped, provision.StateStarting, provision.StateStopping, provision.StateDeleting, provision.StateAbsent:
		if d.Find(hivev1.ClusterDeploymentUnreachable) == nil || s.Cluster.Spec.PowerState == hivev1.PowerStateHibernating {
			d.Set(hivev1.ClusterDeploymentUnreachable, corev1.ConditionFalse, hivev1.ReasonStoppingOrHibernating, "The cluster is not meant to answer.")
		}
	}
}

func problemMessage(s Snapshot) string {
	if s.Observed.Problem != nil {
		return s.Observed.Problem.Message
	}
	return "the API of the cluster does not answer"
}
