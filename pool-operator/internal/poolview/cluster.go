// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolview

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// Cluster is what a ClusterDeployment says, as far as pools and claims decide from it.
type Cluster struct {
	// Namespace of the ClusterDeployment. A cluster of a pool has the same Name.
	Namespace       string
	Name            string
	UID             types.UID
	ResourceVersion string
	Created         time.Time
	// Pool is the pool that the cluster says it belongs to; zero when it names none.
	Pool types.NamespacedName
	// ClusterName is the short name, from the inventory if the pool has one.
	ClusterName string
	// Version of the pool that the cluster was made from; empty when it does not say.
	Version string

	Deleting bool
	// DeletingSince is since when it is being deleted; zero when it is not.
	DeletingSince time.Time
	// Marked clusters are to be removed from their pool: their claim was deleted, or a user asked for it.
	Marked bool
	// Protected clusters are never deleted.
	Protected bool
	// Paused clusters are left alone altogether.
	Paused bool
	// PowerPaused clusters keep their power state.
	PowerPaused bool
	// Restored clusters come from a backup: the claim that they record may come later, and with another UID.
	Restored bool
	// Unreadable are sentences about annotations that should be booleans and are not, one per line; a string, so that clusters can be compared.
	Unreadable string

	// ClaimName and ClaimUID identify the claim that the cluster records; both are empty when it is free. Clusters that were claimed before UIDs were recorded have a name only.
	ClaimName string
	ClaimUID  types.UID
	// OrphanReason and OrphanedSince are what the cluster says about a claim that it records and that does not exist; empty when it says nothing.
	OrphanReason  string
	OrphanedSince time.Time
	// ClaimedAt is when the claim got the cluster; zero when the cluster does not say.
	ClaimedAt time.Time

	Installed   bool
	InstalledAt time.Time
	// InstallStarted is when installation began; zero as long as the installer has not said so.
	InstallStarted time.Time
	// InstallStopped is why installation failed for good; nil when it did not.
	InstallStopped *Failure

	// Power is what spec asks for, ObservedPower what status reports.
	Power         hivev1.PowerState
	ObservedPower hivev1.PowerState
	// NotReady says that the cluster reports itself as not usable, whatever ObservedPower is.
	NotReady bool
	// WaitsForClaim says that the cluster, as it reports, gets its machines when it is claimed: it does not know of a claim yet.
	WaitsForClaim bool
	// ResumingSince is since when the cluster reports to be neither asleep nor usable; see [Cluster.Resuming].
	ResumingSince time.Time
	// ResumeTook is how long the cluster took to resume, the last time it did; 0 if it never did, or if that cannot be told.
	ResumeTook time.Duration

	// DataMissing says that the cluster reports that its data is lost or elsewhere: it is not started without it.
	DataMissing bool
	// DataMissingSince is since when it reports that; zero when it does not.
	DataMissingSince time.Time

	// Metadata says which Secrets lead into the cluster; nil until it is installed.
	Metadata *hivev1.ClusterMetadata
	// Private are the names of Secrets beside a claimed cluster that no subject may read, whatever Metadata says.
	Private []string
}

// Failure is why a cluster is broken.
type Failure struct {
	Reason  string
	Message string
	// At is when the cluster broke; zero when it does not say.
	At time.Time
	// AfterInstallation says that the cluster was installed, and broke later.
	AfterInstallation bool
}

// ClusterOf reads a ClusterDeployment.
func ClusterOf(cd *hivev1.ClusterDeployment) Cluster {
	c := Cluster{
		Namespace: cd.Namespace, Name: cd.Name, UID: cd.UID, ResourceVersion: cd.ResourceVersion, Created: cd.CreationTimestamp.Time,
		ClusterName: cd.Spec.ClusterName, Version: cd.Annotations[hivev1.AnnotationClusterPoolSpecHash],
		Deleting: !cd.DeletionTimestamp.IsZero(), DeletingSince: timeOf(cd.DeletionTimestamp),
		Marked:         hivev1.IsTrue(cd.Annotations, hivev1.AnnotationRemoveFromPool) || hivev1.IsTrue(cd.Annotations, hivev1.AnnotationRemoveFromPoolOld),
		Protected:      hivev1.IsTrue(cd.Annotations, hivev1.AnnotationProtectedDelete),
		Paused:         hivev1.IsTrue(cd.Annotations, hivev1.AnnotationReconcilePause),
		PowerPaused:    hivev1.IsTrue(cd.Annotations, hivev1.AnnotationPowerStatePause),
		Restored:       hivev1.IsTrue(cd.Labels, hivev1.LabelDisableCreationCheck),
		Unreadable:     joinLines(Unreadable(cd.Annotations)),
		Installed:      cd.Spec.Installed,
		InstalledAt:    timeOf(cd.Status.InstalledTimestamp),
		InstallStarted: timeOf(cd.Status.InstallStartedTimestamp),
		Power:          cd.Spec.PowerState, ObservedPower: cd.Status.PowerState,
		Metadata: cd.Spec.ClusterMetadata,
	}
	if ref := cd.Spec.ClusterPoolRef; ref != nil {
		c.Pool = types.NamespacedName{Namespace: ref.Namespace, Name: ref.PoolName}
		c.ClaimName, c.ClaimUID, c.ClaimedAt = ref.ClaimName, ref.ClaimUID, timeOf(ref.ClaimedTimestamp)
	}
	if stopped := hivev1.FindCondition(cd.Status.Conditions, hivev1.ClusterDeploymentProvisionStopped); stopped != nil && stopped.Status == corev1.ConditionTrue {
		c.InstallStopped = &Failure{Reason: stopped.Reason, Message: stopped.Message, At: stopped.LastTransitionTime.Time}
	}
	unreachable := hivev1.FindCondition(cd.Status.Conditions, hivev1.ClusterDeploymentUnreachable)
	if unreachable != nil && unreachable.Status == corev1.ConditionTrue && unreachable.Reason == hivev1.ReasonDataMissing {
		c.DataMissing, c.DataMissingSince = true, unreachable.LastTransitionTime.Time
		if said := unreachable.LastProbeTime.Time; said.After(c.DataMissingSince) { // it may have been unreachable for another reason before
			c.DataMissingSince = said
		}
	}
	if missing := hivev1.FindCondition(cd.Status.Conditions, hivev1.ClusterDeploymentClaimMissing); missing != nil && missing.Status == corev1.ConditionTrue {
		c.OrphanReason, c.OrphanedSince = missing.Reason, missing.LastTransitionTime.Time
	}
	if c.Claimed() {
		c.Private = privateSecrets(cd)
	}
	c.readPower(cd.Status.Conditions)
	if cd.Spec.Platform.Hosted != nil && cd.Status.PowerState == hivev1.PowerStateWaitingForNodes {
		c.ResumingSince = time.Time{} // it lacks machines: another cluster would, too
	}
	return c
}

// privateSecrets are the names of Secrets beside a cluster that are not for its users: those that it is installed with, the one by which machines join it, and those with the keys of a
// hosted cluster.
func privateSecrets(cd *hivev1.ClusterDeployment) []string {
	hosted := provision.ClusterRef{Namespace: cd.Namespace, Name: cd.Name, UID: cd.UID}
	private := append([]string{hosted.ObjectName(), hosted.ServingName()}, cd.Spec.Platform.SecretNames()...)
	refs := []*hivev1.LocalObjectReference{cd.Spec.PullSecretRef, cd.Spec.BoundServiceAccountSigningKeySecretRef}
	if how := cd.Spec.Provisioning; how != nil {
		refs = append(refs, how.InstallConfigSecretRef, how.SSHPrivateKeySecretRef, how.ManifestsSecretRef)
		for i := range how.InstallerEnv {
			if from := how.InstallerEnv[i].ValueFrom; from != nil && from.SecretKeyRef != nil {
				private = append(private, from.SecretKeyRef.Name)
			}
		}
	}
	for i := range cd.Spec.CertificateBundles {
		refs = append(refs, &cd.Spec.CertificateBundles[i].CertificateSecretRef)
	}
	if metadata := cd.Spec.ClusterMetadata; metadata != nil {
		refs = append(refs, metadata.NodeAccessSecretRef)
	}
	for _, ref := range refs {
		if ref != nil {
			private = append(private, ref.Name)
		}
	}
	slices.Sort(private) // clusters are compared
	return private
}

// longestResume is the most that a cluster is believed to have taken to resume. Conditions tell one that took longer not from one that resumed long ago, was down for a moment, as hosted
// clusters are while their operator is replaced, and became ready again.
const longestResume = time.Hour

// readPower reads since when the cluster is on its way, or how long it took the last time.
func (c *Cluster) readPower(conditions []hivev1.Condition) {
	ready := hivev1.FindCondition(conditions, hivev1.ClusterDeploymentReady)
	c.NotReady = ready != nil && ready.Status == corev1.ConditionFalse
	c.WaitsForClaim = ready != nil && ready.Reason == hivev1.ReasonWaitingForClaim
	hibernating := hivev1.FindCondition(conditions, hivev1.ClusterDeploymentHibernating)
	if hibernating == nil || hibernating.Status != corev1.ConditionFalse || hibernating.Reason != hivev1.ReasonResumingOrRunning {
		return
	}
	c.ResumingSince = hibernating.LastTransitionTime.Time
	switch {
	case ready == nil:
	// A cluster that was only just installed has not resumed from anything.
	case ready.Status == corev1.ConditionTrue && c.ResumingSince.After(c.InstalledAt):
		if took := ready.LastTransitionTime.Sub(c.ResumingSince); took > 0 && took <= longestResume {
			c.ResumeTook = took
		}
	// A cluster that ran and died is resuming since then, and not since it last woke up.
	case c.NotReady && ready.LastTransitionTime.After(c.ResumingSince):
		c.ResumingSince = ready.LastTransitionTime.Time
	}
}

// Claimed says whether the cluster records a claim.
func (c *Cluster) Claimed() bool { return c.ClaimName != "" || c.ClaimUID != "" }

// Running says whether the cluster can be used. A cluster that reports Running without a Ready condition is believed.
func (c *Cluster) Running() bool {
	return c.ObservedPower == hivev1.PowerStateRunning && !c.NotReady
}

// ShouldRun says whether spec asks for a running cluster: an empty power state means Running.
func (c *Cluster) ShouldRun() bool { return c.Power != hivev1.PowerStateHibernating }

// Resuming is since when the cluster should run, and neither runs nor sleeps; zero when it is not resuming.
func (c *Cluster) Resuming() time.Time {
	if !c.Installed || !c.ShouldRun() || c.Running() || c.ObservedPower == hivev1.PowerStateHibernating {
		return time.Time{}
	}
	return c.ResumingSince
}

// IsAhead reports whether a time that an object states is in the future, by more than clocks differ: that of its writer was wrong.
func IsAhead(now, at time.Time) bool { return at.After(now.Add(time.Minute)) }

// InstallingSince is when installation began, as far as it is known: when the installer said so, or else when the cluster was created; zero once it is installed.
func (c *Cluster) InstallingSince() time.Time {
	switch {
	case c.Installed:
		return time.Time{}
	case c.InstallStarted.After(c.Created):
		return c.InstallStarted
	}
	return c.Created
}

// Kept says whether the cluster must not be deleted.
func (c *Cluster) Kept() bool { return c.Protected || c.Paused }

// Broken says why the cluster is broken: its installation stopped or takes too long, its data is missing, or it has been resuming for too long. It is nil when the cluster is not; then due is when
// time alone breaks it, and zero if it never does.
func (c *Cluster) Broken(now time.Time, limits Limits) (failure *Failure, due time.Time) {
	if c.InstallStopped != nil {
		return c.InstallStopped, time.Time{}
	}
	if c.DataMissing && !c.Paused {
		return &Failure{Reason: hivev1.ReasonDataMissing, Message: "the data of the cluster is missing, without which it is not started", AfterInstallation: true}, time.Time{}
	}
	since, limit := c.InstallingSince(), limits.Install
	if IsAhead(now, since) {
		since = c.Created
	}
	f := Failure{Reason: reasonInstallTimedOut, Message: "the cluster was not installed within " + limits.Install.String()}
	if c.Installed {
		since, limit = c.Resuming(), limits.Resume
		f = Failure{Reason: reasonResumeTimedOut, Message: "the cluster should run and did not within " + limits.Resume.String(), AfterInstallation: true}
	}
	if since.IsZero() || limit <= 0 || c.Paused {
		return nil, time.Time{}
	}
	f.At = since.Add(limit)
	if now.Before(f.At) {
		return nil, f.At
	}
	return &f, time.Time{}
}

// Reasons of failures that no installer gives.
const (
	// reasonInstallTimedOut: the cluster was not installed within the pool's installTimeout.
	reasonInstallTimedOut = "InstallTimedOut"
	// reasonResumeTimedOut: the cluster did not resume within the pool's resumeTimeout.
	reasonResumeTimedOut = "ResumeTimedOut"
)

// ByAge orders clusters as claims get them and as they run: by age in whole seconds, as the API server keeps it, then by name and UID.
func ByAge(a, b Cluster) int {
	return cmp.Or(a.Created.Truncate(time.Second).Compare(b.Created.Truncate(time.Second)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// ByRunningAndAge is the same with running clusters before others.
func ByRunningAndAge(a, b Cluster) int {
	if a.Running() != b.Running() {
		if a.Running() {
			return -1
		}
		return 1
	}
	return ByAge(a, b)
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}
