// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package statusplan writes the status of a ClusterDeployment for those that plan it: that of a hosted cluster, and that of one that an install object installs. It is pure: no client, context,
// clock, randomness or logger.
package statusplan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
)

// Draft is a status that is being written, beginning with what it says now.
type Draft struct {
	Status hivev1.ClusterDeploymentStatus
	Now    metav1.Time
	// Note is appended to the message of Ready.
	Note string
}

// New begins a status with what the cluster says, of its conditions those of the types only.
func New(now time.Time, cluster *hivev1.ClusterDeployment, types []string) *Draft {
	old := cluster.Status
	d := &Draft{Now: metav1.NewTime(now.Truncate(time.Second)), Note: poolview.UnreadableNote(cluster.Annotations), Status: hivev1.ClusterDeploymentStatus{
		PowerState: old.PowerState, APIURL: old.APIURL, InstallVersion: old.InstallVersion, InstallRestarts: old.InstallRestarts,
		InstallStartedTimestamp: old.InstallStartedTimestamp, InstalledTimestamp: old.InstalledTimestamp,
	}}
	for _, c := range old.Conditions {
		if slices.Contains(types, c.Type) {
			d.Status.Conditions = append(d.Status.Conditions, d.corrected(c))
		}
	}
	return d
}

// corrected has a condition that is of the future begin now: the clock of its writer was ahead, and what counts from it, such as for how long a cluster does not answer, would take as much longer.
// That a cluster is Ready stays as it is: it is put to sleep a time after that, which would come too early where it is this clock that is behind.
func (d *Draft) corrected(c hivev1.Condition) hivev1.Condition {
	if c.Type == hivev1.ClusterDeploymentReady && c.Status == corev1.ConditionTrue {
		return c
	}
	for _, at := range []*metav1.Time{&c.LastProbeTime, &c.LastTransitionTime} {
		if poolview.IsAhead(d.Now.Time, at.Time) {
			*at = d.Now
		}
	}
	return c
}

// Set sets a condition.
func (d *Draft) Set(conditionType string, status corev1.ConditionStatus, reason, message string) {
	if conditionType == hivev1.ClusterDeploymentReady {
		message += d.Note
	}
	hivev1.SetCondition(&d.Status.Conditions, hivev1.Condition{Type: conditionType, Status: status, Reason: reason, Message: message}, d.Now)
}

// Find returns a condition, or nil.
func (d *Draft) Find(conditionType string) *hivev1.Condition {
	return hivev1.FindCondition(d.Status.Conditions, conditionType)
}

// SetInstalled says what is true of every installed cluster.
func (d *Draft) SetInstalled() {
	if d.Status.InstalledTimestamp == nil {
		d.Status.InstalledTimestamp = &d.Now
	}
	d.Set(hivev1.ClusterDeploymentProvisioned, corev1.ConditionTrue, hivev1.ReasonProvisioned, "The cluster is installed.")
	d.Set(hivev1.ClusterDeploymentProvisionStopped, corev1.ConditionFalse, hivev1.ReasonProvisionNotStopped, "The cluster is installed.")
	if d.Find(hivev1.ClusterDeploymentProvisionFailed) != nil {
		d.Set(hivev1.ClusterDeploymentProvisionFailed, corev1.ConditionFalse, hivev1.ReasonProvisioned, "The cluster is installed.")
	}
}
