// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedplan

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/provision"
	"github.com/muster-io/muster/pool-operator/internal/statusplan"
)

// Conditions lists the types of the conditions that a plan says something about; all others belong to other controllers.
func Conditions() []string {
	return []string{
		hivev1.ClusterDeploymentProvisioned, hivev1.ClusterDeploymentProvisionStopped, hivev1.ClusterDeploymentProvisionFailed,
		hivev1.ClusterDeploymentHibernating, hivev1.ClusterDeploymentReady, hivev1.ClusterDeploymentUnreachable, hivev1.ClusterDeploymentDataAtRisk,
	}
}

func newDraft(now time.Time, s Snapshot) *statusplan.Draft {
	d := statusplan.New(now, s.Cluster, Conditions())
	if s.Observed.URL != "" {
		d.Status.APIURL = s.Observed.URL
	}
	return d
}

// statusInstalling says how far the installation is.
func statusInstalling(now time.Time, s Snapshot) *hivev1.ClusterDeploymentStatus {
	d := newDraft(now, s)
	if d.Status.InstallStartedTimestamp == nil {
		d.Status.InstallStartedTimestamp = &d.Now
	}
	d.Status.InstallRestarts = attempts(s)
	message := "The control plane is being started for the first time."
	if p := cmp.Or(s.Observed.Problem, s.Refused); p != nil {
		message = "Installation is tried again: " + p.Message
		d.Set(hivev1.ClusterDeploymentProvisionFailed, corev1.ConditionTrue, string(p.Reason), p.Message)
	}
	reason := hivev1.ReasonProvisioning
	if provisionStopped(s) {
		reason = hivev1.ReasonProvisionStopped
		message = fmt.Sprintf("Installation failed %d times, which is all that installAttemptsLimit allows. %s", attempts(s), lastFailure(s, d))
		d.Set(hivev1.ClusterDeploymentProvisionStopped, corev1.ConditionTrue, hivev1.ReasonInstallAttemptsLimitReached, message)
	} else {
		d.Set(hivev1.ClusterDeploymentProvisionStopped, corev1.ConditionFalse, hivev1.ReasonProvisionNotStopped, "Installation goes on.")
	}
	d.Set(hivev1.ClusterDeploymentProvisioned, corev1.ConditionFalse, reason, message)
	d.Set(hivev1.ClusterDeploymentReady, corev1.ConditionFalse, reason, message)
	return &d.Status
}

// lastFailure is what the last attempt died of: as observed, or as the status remembers it.
func lastFailure(s Snapshot, d *statusplan.Draft) string {
	if s.Observed.Problem != nil {
		return s.Observed.Problem.Message
	}
	if c := d.Find(hivev1.ClusterDeploymentProvisionFailed); c != nil {
		return c.Message
	}
	return ""
}

// draftInstalled says what is true of every installed cluster.
func draftInstalled(now time.Time, s Snapshot) *statusplan.Draft {
	d := newDraft(now, s)
	outdated := s.Observed.Outdated && s.Cluster.Spec.PowerState != hivev1.PowerStateHibernating // what hibernates is not renewed
	if s.Refused != nil && (s.AccessMissing || s.NodeAccessMissing || outdated) {
		d.Note += " Access to the cluster is not complete: " + s.Refused.Message + "."
	}
	if d.Status.InstallVersion == nil && s.Observed.Version != "" {
		d.Status.InstallVersion = new(strings.TrimPrefix(s.Observed.Version, "v"))
	}
	d.SetInstalled()
	return d
}

// statusPowerPaused is the status of a cluster whose power is neither observed nor changed.
func statusPowerPaused(now time.Time, s Snapshot) *hivev1.ClusterDeploymentStatus {
	d := draftInstalled(now, s)
	message := "Power is neither looked at nor changed while the annotation " + hivev1.AnnotationPowerStatePause + " is true."
	d.Status.PowerState = hivev1.PowerStateUnknown
	d.Set(hivev1.ClusterDeploymentHibernating, corev1.ConditionUnknown, hivev1.ReasonPowerStatePaused, message)
	d.Set(hivev1.ClusterDeploymentReady, corev1.ConditionUnknown, hivev1.ReasonPowerStatePaused, message)
	setDataAtRisk(d, s)
	return &d.Status
}

// statusDataMissing says that an installed cluster cannot run because its data is elsewhere or lost.
func statusDataMissing(now time.Time, s Snapshot) *hivev1.ClusterDeploymentStatus {
	d := draftInstalled(now, s)
	message := "The cluster is installed and its data is not here: it is on another machine, or lost. The cluster is not started without it: restore the data, or delete the cluster."
	switch p := s.Observed.Problem; {
	case s.Observed.DataMissing != "":
		message = s.Observed.DataMissing + " The cluster is not started without it: restore it, or delete the cluster."
	case s.Observed.DataAtRisk != "":
		message = s.Observed.DataAtRisk + " No claim has the cluster: its pool replaces it."
	case p != nil && p.Reason == provision.ReasonDataDamaged:
		message = "The cluster is installed and its data cannot be used: " + p.Message + ". The cluster is not started without it: restore it, or delete the cluster."
	case s.FormerUID != "":
		message = fmt.Sprintf("The ClusterDeployment was restored with another UID, and the cluster's data belongs to the former one, %s. The cluster is not started without it, and the data is kept: "+
			"restore a snapshot of etcd, which keeps UIDs, or delete the cluster, which removes the data.", s.FormerUID)
	}
	d.Status.PowerState = hivev1.PowerStateFailedToStartMachines
	d.Set(hivev1.ClusterDeploymentHibernating, corev1.ConditionFalse, hivev1.ReasonResumingOrRunning, message)
	d.Set(hivev1.ClusterDeploymentReady, corev1.ConditionFalse, hivev1.ReasonFailedToStartMachines, message)
	d.Set(hivev1.ClusterDeploymentUnreachable, corev1.ConditionTrue, hivev1.ReasonDataMissing, message)
	setDataAtRisk(d, s)
	return &d.Status
}

// statusDeleting says that the cluster goes.
func statusDeleting(now time.Time, s Snapshot) *hivev1.ClusterDeploymentStatus {
	reason, message := hivev1.ReasonDeprovisioning, "The processes of the cluster are being stopped and its data removed."
	p := s.Refused // which need not show: what could not be deleted runs on
	if p == nil && s.Observed.State == provision.StateDeleting {
		p = s.Observed.Problem
	}
	if p != nil {
		reason, message = hivev1.ReasonDeprovisionFailed, "Removing the cluster is tried again: "+p.Message
	}
	return statusGoing(now, s, reason, message)
}

// statusGoing is the status of a cluster that is being deleted.
func statusGoing(now time.Time, s Snapshot, reason, message string) *hivev1.ClusterDeploymentStatus {
	d := newDraft(now, s)
	d.Status.PowerState = hivev1.PowerStateUnknown
	d.Set(hivev1.ClusterDeploymentProvisioned, corev1.ConditionFalse, reason, message)
	d.Set(hivev1.ClusterDeploymentHibernating, corev1.ConditionUnknown, hivev1.ReasonClusterDeploymentDeleted, message)
	d.Set(hivev1.ClusterDeploymentReady, corev1.ConditionUnknown, hivev1.ReasonClusterDeploymentDeleted, message)
	return &d.Status
}
