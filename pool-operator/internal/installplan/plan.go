// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package installplan decides what a ClusterDeployment should say about the object that installs it: any object that follows the install contract of
// hivev1.ClusterInstall. It is pure: no client, context, clock, randomness or logger.
package installplan

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/statusplan"
)

// Snapshot is all that a plan depends on, besides the time.
type Snapshot struct {
	// Cluster as read; its spec.clusterInstallRef is set.
	Cluster *hivev1.ClusterDeployment
	// Install is the install object, nil when it could not be read.
	Install *hivev1.ClusterInstall
	// Obstacle says, in a sentence, why Install is nil.
	Obstacle string
}

// Decision is what to write.
type Decision struct {
	// Record is the metadata to record together with spec.installed; nil when there is nothing to record.
	Record *hivev1.ClusterMetadata
	// Status is what the status should say, as far as it is this controller's to say; nil when nothing should be said.
	Status *hivev1.ClusterDeploymentStatus
	// RequeueAfter is when to look again if nothing else happens; 0 when a watch says so.
	RequeueAfter time.Duration
}

// retryMissing is when an install object that could not be read is looked for again. Its kind may not exist yet, and then nothing can be watched.
const retryMissing = 30 * time.Second

// Reasons that are not taken over from the install object.
const (
	// reasonInstallStopped is the reason of hivev1.ClusterDeploymentProvisionStopped when the install object gives none.
	reasonInstallStopped = "ClusterInstallStopped"
	// reasonRequirementsMet is its reason when the installer has all that it needs.
	reasonRequirementsMet = "AllRequirementsMet"
	// reasonRequirementsNotMet is the reason of hivev1.ClusterDeploymentRequirementsMet when the install object gives none.
	reasonRequirementsNotMet = "RequirementsNotMet"
)

// mirrored are the conditions of the contract and what they are called on a ClusterDeployment.
var mirrored = []struct{ from, to string }{
	{hivev1.ClusterInstallRequirementsMet, hivev1.ClusterDeploymentInstallRequirementsMet},
	{hivev1.ClusterInstallCompleted, hivev1.ClusterDeploymentInstallCompleted},
	{hivev1.ClusterInstallFailed, hivev1.ClusterDeploymentInstallFailed},
	{hivev1.ClusterInstallStopped, hivev1.ClusterDeploymentInstallStopped},
}

// Conditions lists the types of the conditions that a plan says something about.
func Conditions() []string {
	types := []string{
		hivev1.ClusterDeploymentRequirementsMet, hivev1.ClusterDeploymentProvisioned, hivev1.ClusterDeploymentProvisionStopped,
		hivev1.ClusterDeploymentProvisionFailed, hivev1.ClusterDeploymentHibernating, hivev1.ClusterDeploymentReady,
	}
	for _, m := range mirrored {
		types = append(types, m.to)
	}
	return types
}

// Plan decides what to write about a cluster that an install object installs.
func Plan(now time.Time, s Snapshot) Decision {
	if hivev1.IsTrue(s.Cluster.Annotations, hivev1.AnnotationReconcilePause) || s.Cluster.DeletionTimestamp != nil {
		return Decision{}
	}
	d := draft{statusplan.New(now, s.Cluster, Conditions())}
	if s.Install == nil {
		if s.Cluster.Spec.Installed { // the cluster no longer needs what installed it
			return Decision{}
		}
		d.Set(hivev1.ClusterDeploymentRequirementsMet, corev1.ConditionFalse, hivev1.ReasonClusterInstallNotFound, s.Obstacle)
		d.Set(hivev1.ClusterDeploymentProvisioned, corev1.ConditionFalse, hivev1.ReasonProvisioning, s.Obstacle)
		return Decision{Status: &d.Status, RequeueAfter: retryMissing}
	}
	d.mirror(s.Install)
	if s.Cluster.Spec.Installed {
		d.sayInstalled(s.Cluster)
		return Decision{Status: &d.Status}
	}
	if completed(s.Install) && complete(s.Install.Spec.ClusterMetadata) {
		return Decision{Record: s.Install.Spec.ClusterMetadata}
	}
	d.sayInstalling(s.Install)
	return Decision{Status: &d.Status}
}

func completed(install *hivev1.ClusterInstall) bool {
	return hivev1.IsConditionTrue(install.Status.Conditions, hivev1.ClusterInstallCompleted)
}

// stopped says whether the installer gave up. One that stopped because it is done has not.
func stopped(install *hivev1.ClusterInstall) bool {
	return !completed(install) && hivev1.IsConditionTrue(install.Status.Conditions, hivev1.ClusterInstallStopped)
}

// complete says whether the metadata is enough to get into the cluster.
func complete(metadata *hivev1.ClusterMetadata) bool {
	return metadata != nil && metadata.ClusterID != "" && metadata.InfraID != "" && metadata.AdminKubeconfigSecretRef.Name != ""
}

// draft is a status that is being written.
type draft struct{ *statusplan.Draft }

// mirror takes over what the install object says of itself.
func (d draft) mirror(install *hivev1.ClusterInstall) {
	d.Status.InstallRestarts = install.Status.InstallRestarts
	if install.Status.InstallStartedTimestamp != nil {
		d.Status.InstallStartedTimestamp = install.Status.InstallStartedTimestamp
	}
	for _, m := range mirrored {
		if c := hivev1.FindCondition(install.Status.Conditions, m.from); c != nil {
			d.Set(m.to, c.Status, c.Reason, c.Message)
		}
	}
	switch c := hivev1.FindCondition(install.Status.Conditions, hivev1.ClusterInstallRequirementsMet); {
	case c == nil:
		d.Set(hivev1.ClusterDeploymentRequirementsMet, corev1.ConditionUnknown, hivev1.ReasonInitialized, "The installer has not said yet what it needs.")
	case c.Status == corev1.ConditionTrue:
		d.Set(hivev1.ClusterDeploymentRequirementsMet, corev1.ConditionTrue, reasonRequirementsMet, "The installer has all that it needs.")
	default:
		d.Set(hivev1.ClusterDeploymentRequirementsMet, corev1.ConditionFalse, or(c.Reason, reasonRequirementsNotMet), c.Message)
	}
}

// sayInstalling says how far an installation is.
func (d draft) sayInstalling(install *hivev1.ClusterInstall) {
	failed := hivev1.FindCondition(install.Status.Conditions, hivev1.ClusterInstallFailed)
	if failed != nil && (failed.Status == corev1.ConditionTrue || d.Find(hivev1.ClusterDeploymentProvisionFailed) != nil) {
		d.Set(hivev1.ClusterDeploymentProvisionFailed, failed.Status, failed.Reason, failed.Message)
	}
	reason, message := hivev1.ReasonProvisioning, "The installer is at work."
	switch {
	case stopped(install):
		reason = hivev1.ReasonProvisionStopped
		why, sentence := giveUp(install, failed)
		message = "The installer tries no more: " + sentence
		d.Set(hivev1.ClusterDeploymentProvisionStopped, corev1.ConditionTrue, why, message)
	case completed(install):
		message = "The installer says that it is done, and its spec.clusterMetadata lacks clusterID, infraID or adminKubeconfigSecretRef."
		d.Set(hivev1.ClusterDeploymentProvisionStopped, corev1.ConditionFalse, hivev1.ReasonProvisionNotStopped, "Installation goes on.")
	default:
		if c := d.Find(hivev1.ClusterDeploymentRequirementsMet); c.Status == corev1.ConditionFalse {
			message = "The installer waits for what it needs: " + c.Message
		}
		d.Set(hivev1.ClusterDeploymentProvisionStopped, corev1.ConditionFalse, hivev1.ReasonProvisionNotStopped, "Installation goes on.")
	}
	d.Set(hivev1.ClusterDeploymentProvisioned, corev1.ConditionFalse, reason, message)
	d.Set(hivev1.ClusterDeploymentReady, corev1.ConditionFalse, reason, message)
}

// giveUp says why an installer gave up: what failed, or what it says of stopping.
func giveUp(install *hivev1.ClusterInstall, failed *hivev1.Condition) (reason, message string) {
	c := hivev1.FindCondition(install.Status.Conditions, hivev1.ClusterInstallStopped)
	if failed != nil && failed.Status == corev1.ConditionTrue {
		c = failed
	}
	return or(c.Reason, reasonInstallStopped), c.Message
}

// sayInstalled says what is true of a cluster that an install object installed: it runs, and the operator does not stop it.
func (d draft) sayInstalled(cluster *hivev1.ClusterDeployment) {
	d.SetInstalled()
	d.Status.PowerState = hivev1.PowerStateRunning
	d.Set(hivev1.ClusterDeploymentReady, corev1.ConditionTrue, hivev1.ReasonRunning, "The cluster is installed; the operator does not stop it.")
	d.Set(hivev1.ClusterDeploymentHibernating, corev1.ConditionFalse, hivev1.ReasonUnsupported,
		fmt.Sprintf("The operator does not stop and start clusters of the platform %s.", or(cluster.Spec.Platform.Name(), "that is set")))
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
