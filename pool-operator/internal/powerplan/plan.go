// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package powerplan decides when a cluster is put to sleep because it ran long enough. It does not know what stops or starts a cluster.
package powerplan

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/requeue"
)

// mirrorAfter is how long after a claim status.claimedTimestamp is written at the latest. An earlier write of the status includes it, so that it rarely costs a write of its own.
const mirrorAfter = time.Minute

// Why says why a cluster is left alone or hibernated. The set is closed.
type Why string

// The reasons.
const (
	// WhyNoLimit: hibernateAfter is not set.
	WhyNoLimit Why = "NoHibernateAfter"
	// WhyUnclaimed: the pool decides about the power of its unclaimed clusters.
	WhyUnclaimed Why = "UnclaimedPoolCluster"
	// WhyClaimTimeUnknown: the cluster does not say when it was claimed; its claim is about to say so, and the time counts from then.
	WhyClaimTimeUnknown Why = "ClaimTimeUnknown"
	// WhyPaused: an annotation pauses the cluster.
	WhyPaused Why = "Paused"
	// WhyDeleting: the cluster is being deleted.
	WhyDeleting Why = "Deleting"
	// WhyNotInstalled: the cluster is not installed yet; what it should do then may change any number of times.
	WhyNotInstalled Why = "NotInstalled"
	// WhyUnsupported: no controller can stop the cluster.
	WhyUnsupported Why = "Unsupported"
	// WhyAsleep: the cluster sleeps, or is about to.
	WhyAsleep Why = "Asleep"
	// WhyResuming: the cluster is not running yet; its time starts when it does.
	WhyResuming Why = "Resuming"
	// WhyTime: the time is not over yet.
	WhyTime Why = "TimeLeft"
	// WhyHibernateAfter: the cluster ran for hibernateAfter.
	WhyHibernateAfter Why = "HibernateAfter"
)

// Decision is what happens to a cluster's power.
type Decision struct {
	// Hibernate says that spec.powerState is to become Hibernating.
	Hibernate bool
	// MirrorClaim is what status.claimedTimestamp is to become; nil when it is right, or not due yet.
	MirrorClaim *metav1.Time
	Why         Why
	// RequeueAfter is when time alone changes the decision; 0 when it never does.
	RequeueAfter time.Duration
}

// Plan decides as of now. A cluster that has run for hibernateAfter is put to sleep; see [base] for since when that counts. Unclaimed clusters of a pool are exempt.
func Plan(now time.Time, cd *hivev1.ClusterDeployment) Decision {
	d := power(now, cd)
	if due := mirrorDue(cd); !due.IsZero() && d.Why != WhyDeleting && !hivev1.IsTrue(cd.Annotations, hivev1.AnnotationReconcilePause) {
		if now.Before(due) {
			d.RequeueAfter = requeue.Sooner(d.RequeueAfter, due.Sub(now))
		} else {
			d.MirrorClaim = cd.Spec.ClusterPoolRef.ClaimedTimestamp
		}
	}
	return d
}

func power(now time.Time, cd *hivev1.ClusterDeployment) Decision {
	switch {
	case !cd.DeletionTimestamp.IsZero():
		return Decision{Why: WhyDeleting}
	case hivev1.IsTrue(cd.Annotations, hivev1.AnnotationReconcilePause) || hivev1.IsTrue(cd.Annotations, hivev1.AnnotationPowerStatePause):
		return Decision{Why: WhyPaused}
	case cd.Spec.HibernateAfter == nil || cd.Spec.HibernateAfter.Duration <= 0:
		return Decision{Why: WhyNoLimit}
	case cd.Spec.ClusterPoolRef != nil && cd.Spec.ClusterPoolRef.ClaimName == "":
		return Decision{Why: WhyUnclaimed}
	case cd.Spec.ClusterPoolRef != nil && cd.Spec.ClusterPoolRef.ClaimedTimestamp == nil:
		return Decision{Why: WhyClaimTimeUnknown}
	case !cd.Spec.Installed:
		return Decision{Why: WhyNotInstalled}
	case cd.Spec.PowerState == hivev1.PowerStateHibernating:
		return Decision{Why: WhyAsleep}
	case unsupported(cd):
		return Decision{Why: WhyUnsupported}
	case !running(cd):
		return Decision{Why: WhyResuming}
	}
	due := base(cd).Add(cd.Spec.HibernateAfter.Duration)
	if now.Before(due) {
		return Decision{Why: WhyTime, RequeueAfter: due.Sub(now)}
	}
	return Decision{Hibernate: true, Why: WhyHibernateAfter}
}

// base is the latest of when the cluster was installed, claimed, and last began to run: when its Ready condition became True, or else its Hibernating condition False.
func base(cd *hivev1.ClusterDeployment) time.Time {
	latest := cd.CreationTimestamp.Time
	consider := func(t *metav1.Time) {
		if t != nil && t.After(latest) {
			latest = t.Time
		}
	}
	consider(cd.Status.InstalledTimestamp)
	if cd.Spec.ClusterPoolRef != nil {
		consider(cd.Spec.ClusterPoolRef.ClaimedTimestamp)
	}
	ready := hivev1.FindCondition(cd.Status.Conditions, hivev1.ClusterDeploymentReady)
	hibernating := hivev1.FindCondition(cd.Status.Conditions, hivev1.ClusterDeploymentHibernating)
	switch {
	case ready != nil && ready.Status == corev1.ConditionTrue:
		consider(&ready.LastTransitionTime)
	case hibernating != nil && hibernating.Status == corev1.ConditionFalse:
		consider(&hibernating.LastTransitionTime)
	}
	return latest
}

// running says whether the cluster runs as far as its status reports. A cluster without a reported power state counts as running.
func running(cd *hivev1.ClusterDeployment) bool {
	if cd.Status.PowerState != hivev1.PowerStateRunning && cd.Status.PowerState != "" {
		return false
	}
	ready := hivev1.FindCondition(cd.Status.Conditions, hivev1.ClusterDeploymentReady)
	return ready == nil || ready.Status != corev1.ConditionFalse
}

func unsupported(cd *hivev1.ClusterDeployment) bool {
	c := hivev1.FindCondition(cd.Status.Conditions, hivev1.ClusterDeploymentHibernating)
	return c != nil && c.Reason == hivev1.ReasonUnsupported
}

// mirrorDue says when the claim's time has to stand in the status; zero when it does, or there is none.
func mirrorDue(cd *hivev1.ClusterDeployment) time.Time {
	ref := cd.Spec.ClusterPoolRef
	if ref == nil || ref.ClaimedTimestamp == nil || cd.Status.ClaimedTimestamp != nil {
		return time.Time{}
	}
	return ref.ClaimedTimestamp.Add(mirrorAfter)
}
