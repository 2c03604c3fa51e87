// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedplan

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// machinesTimeout is how long the machines of a cluster may take to stop before its control plane does, and to become Ready nodes before the cluster runs without them.
const machinesTimeout = 10 * time.Minute

// machinesToStop says which machines run that are off before the control plane of a hibernating cluster stops, and for how long it waits for them; empty for none. The
// condition Ready has said since when the cluster is being stopped.
func machinesToStop(now time.Time, s Snapshot) (message string, left time.Duration) {
	machines := hivev1.FindCondition(s.Cluster.Status.Conditions, hivev1.ClusterDeploymentMachinesStopped)
	if machines == nil || machines.Status == corev1.ConditionTrue || !runs(s.Observed.State) {
		return "", 0
	}
	left = machinesTimeout
	if ready := hivev1.FindCondition(s.Cluster.Status.Conditions, hivev1.ClusterDeploymentReady); ready != nil && ready.Reason == hivev1.ReasonStoppingOrHibernating {
		left = ready.LastProbeTime.Add(machinesTimeout).Sub(now)
	}
	if left <= 0 {
		return "", 0
	}
	return "The control plane is stopped after the machines. " + machines.Message + ".", left
}

// runs says that there is something of a control plane to stop.
func runs(state provision.State) bool {
	switch state {
	case provision.StateReady, provision.StateStarting, provision.StateUnreachable, provision.StateFailed:
		return true
	case provision.StateAbsent, provision.StateStopped, provision.StateStopping, provision.StateDeleting:
	}
	return false
}

// machinesToStart says which machines were stopped with the cluster and are not Ready nodes again; empty for none, and where they take too long. The condition Hibernating
// has said since when the cluster resumes, also where it was not asleep yet: then its status is what it was.
func machinesToStart(now time.Time, s Snapshot) string {
	machines := hivev1.FindCondition(s.Cluster.Status.Conditions, hivev1.ClusterDeploymentMachinesStopped)
	if machines == nil || machines.Reason == hivev1.ReasonMachinesRunning {
		return ""
	}
	hibernating := hivev1.FindCondition(s.Cluster.Status.Conditions, hivev1.ClusterDeploymentHibernating)
	if hibernating != nil && hibernating.Reason == hivev1.ReasonResumingOrRunning && now.Sub(hibernating.LastProbeTime.Time) >= machinesTimeout {
		return ""
	}
	return "The API of the cluster answers. Its machines are being started: " + machines.Message + " (step 2 of 2)."
}

// leftRunning says that machines run on without the control plane; empty where none does.
func leftRunning(s Snapshot) string {
	machines := hivev1.FindCondition(s.Cluster.Status.Conditions, hivev1.ClusterDeploymentMachinesStopped)
	if machines == nil || machines.Status == corev1.ConditionTrue {
		return ""
	}
	return " Machines were waited for in vain: see the condition " + hivev1.ClusterDeploymentMachinesStopped + "."
}
