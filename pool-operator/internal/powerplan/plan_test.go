// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package powerplan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) *metav1.Time { return new(metav1.NewTime(noon.Add(d))) }

type change func(*hivev1.ClusterDeployment)

// cluster was installed at noon, runs since then and may run for an hour.
func cluster(changes ...change) *hivev1.ClusterDeployment {
	cd := &hivev1.ClusterDeployment{}
	cd.CreationTimestamp = *at(-time.Hour)
	cd.Spec.Installed = true
	cd.Spec.HibernateAfter = &metav1.Duration{Duration: time.Hour}
	cd.Status.InstalledTimestamp = at(0)
	cd.Status.PowerState = hivev1.PowerStateRunning
	ready(corev1.ConditionTrue, 0)(cd)
	for _, f := range changes {
		f(cd)
	}
	return cd
}

func ready(status corev1.ConditionStatus, since time.Duration) change {
	return condition(hivev1.ClusterDeploymentReady, status, hivev1.ReasonRunning, since)
}

func condition(conditionType string, status corev1.ConditionStatus, reason string, since time.Duration) change {
	return func(cd *hivev1.ClusterDeployment) {
		hivev1.SetCondition(&cd.Status.Conditions, hivev1.Condition{Type: conditionType, Status: status, Reason: reason, LastTransitionTime: *at(since)}, *at(since))
		hivev1.FindCondition(cd.Status.Conditions, conditionType).LastTransitionTime = *at(since)
	}
}

func claimed(since time.Duration) change {
	return func(cd *hivev1.ClusterDeployment) {
		cd.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{Namespace: "n", PoolName: "p", ClaimName: "c", ClaimedTimestamp: at(since)}
		cd.Status.ClaimedTimestamp = at(since)
	}
}

func without(conditionType string) change {
	return func(cd *hivev1.ClusterDeployment) {
		kept := cd.Status.Conditions[:0]
		for _, c := range cd.Status.Conditions {
			if c.Type != conditionType {
				kept = append(kept, c)
			}
		}
		cd.Status.Conditions = kept
	}
}

func TestHibernateAfter(t *testing.T) {
	for sentence, c := range map[string]struct {
		cluster *hivev1.ClusterDeployment
		after   time.Duration
		want    Decision
	}{
		"a cluster of no pool sleeps when it has run for hibernateAfter": {cluster(), time.Hour, Decision{Hibernate: true, Why: WhyHibernateAfter}},
		"and not a second before":                            {cluster(), time.Hour - time.Second, Decision{Why: WhyTime, RequeueAfter: time.Second}},
		"the time counts from the claim when that is later":  {cluster(claimed(30 * time.Minute)), time.Hour, Decision{Why: WhyTime, RequeueAfter: 30 * time.Minute}},
		"the time counts from the resume when that is later": {cluster(claimed(time.Minute), ready(corev1.ConditionTrue, 40*time.Minute)), time.Hour, Decision{Why: WhyTime, RequeueAfter: 40 * time.Minute}},
		"a claim long after the resume counts":               {cluster(claimed(50*time.Minute), ready(corev1.ConditionTrue, 40*time.Minute)), 2 * time.Hour, Decision{Hibernate: true, Why: WhyHibernateAfter}},
		"without Ready the end of hibernation counts": {
			cluster(without(hivev1.ClusterDeploymentReady), condition(hivev1.ClusterDeploymentHibernating, corev1.ConditionFalse, hivev1.ReasonResumingOrRunning, 10*time.Minute)),
			time.Hour, Decision{Why: WhyTime, RequeueAfter: 10 * time.Minute},
		},
		"without any condition the installation counts": {cluster(without(hivev1.ClusterDeploymentReady)), time.Hour, Decision{Hibernate: true, Why: WhyHibernateAfter}},
		"an unclaimed cluster of a pool is exempt": {
			cluster(func(cd *hivev1.ClusterDeployment) {
				cd.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{Namespace: "n", PoolName: "p"}
			}), 100 * time.Hour, Decision{Why: WhyUnclaimed},
		},
		"a claim that does not say since when it has the cluster lets it run": {
			cluster(claimed(0), func(cd *hivev1.ClusterDeployment) { cd.Spec.ClusterPoolRef.ClaimedTimestamp = nil }), 100 * time.Hour, Decision{Why: WhyClaimTimeUnknown},
		},
		"a cluster that still installs is left alone, whatever its power state was changed to": {
			cluster(func(cd *hivev1.ClusterDeployment) {
				cd.Spec.Installed, cd.Spec.PowerState = false, hivev1.PowerStateRunning
			}), 100 * time.Hour, Decision{Why: WhyNotInstalled},
		},
		"a cluster that sleeps is left alone":   {cluster(func(cd *hivev1.ClusterDeployment) { cd.Spec.PowerState = hivev1.PowerStateHibernating }), 100 * time.Hour, Decision{Why: WhyAsleep}},
		"a cluster that resumes has time":       {cluster(ready(corev1.ConditionFalse, 0)), 100 * time.Hour, Decision{Why: WhyResuming}},
		"a cluster on its way up has time, too": {cluster(func(cd *hivev1.ClusterDeployment) { cd.Status.PowerState = hivev1.PowerStateWaitingForMachines }), 100 * time.Hour, Decision{Why: WhyResuming}},
		"no controller can stop it": {
			cluster(condition(hivev1.ClusterDeploymentHibernating, corev1.ConditionFalse, hivev1.ReasonUnsupported, 0)), 100 * time.Hour, Decision{Why: WhyUnsupported},
		},
		"without hibernateAfter it runs for ever": {cluster(func(cd *hivev1.ClusterDeployment) { cd.Spec.HibernateAfter = nil }), 100 * time.Hour, Decision{Why: WhyNoLimit}},
		"a pause of its power is respected": {
			cluster(func(cd *hivev1.ClusterDeployment) {
				cd.Annotations = map[string]string{hivev1.AnnotationPowerStatePause: "true"}
			}), 100 * time.Hour, Decision{Why: WhyPaused},
		},
		"a cluster that is being deleted is left alone": {cluster(func(cd *hivev1.ClusterDeployment) { cd.DeletionTimestamp = at(0) }), 100 * time.Hour, Decision{Why: WhyDeleting}},
	} {
		t.Run(sentence, func(t *testing.T) { require.Equal(t, c.want, Plan(noon.Add(c.after), c.cluster)) })
	}
}

func TestTheClaimIsMirroredWithinAMinute(t *testing.T) {
	cd := cluster(claimed(0), func(cd *hivev1.ClusterDeployment) { cd.Status.ClaimedTimestamp, cd.Spec.HibernateAfter = nil, nil })
	require.Equal(t, Decision{Why: WhyNoLimit, RequeueAfter: 40 * time.Second}, Plan(noon.Add(20*time.Second), cd))
	require.Equal(t, Decision{Why: WhyNoLimit, MirrorClaim: at(0)}, Plan(noon.Add(time.Minute), cd))
	cd.Status.ClaimedTimestamp = at(0)
	require.Equal(t, Decision{Why: WhyNoLimit}, Plan(noon.Add(time.Hour), cd))
}

// TestAStoryOfClaimsAndPower plays what users do to one cluster and checks after every step that it never sleeps before its time and always does at it.
func TestAStoryOfClaimsAndPower(t *testing.T) {
	cd := cluster(func(cd *hivev1.ClusterDeployment) {
		cd.Spec.Installed, cd.Status.InstalledTimestamp, cd.Status.PowerState, cd.Status.Conditions = false, nil, "", nil
		cd.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{Namespace: "n", PoolName: "p"}
	})
	now := noon
	for _, state := range []hivev1.PowerState{"Running", "Hibernating", "", "Hibernating", "Running"} {
		cd.Spec.PowerState = state
		now = now.Add(2 * time.Hour)
		require.False(t, Plan(now, cd).Hibernate, "it still installs")
	}
	cd.Spec.Installed, cd.Status.InstalledTimestamp, cd.Status.PowerState = true, new(metav1.NewTime(now)), hivev1.PowerStateRunning
	now = now.Add(5 * time.Hour)
	require.False(t, Plan(now, cd).Hibernate, "it has no claim")
	cd.Spec.ClusterPoolRef.ClaimName, cd.Spec.ClusterPoolRef.ClaimedTimestamp = "c", new(metav1.NewTime(now))
	require.Equal(t, mirrorAfter, Plan(now, cd).RequeueAfter)
	now = now.Add(time.Hour)
	require.True(t, Plan(now, cd).Hibernate)
	cd.Spec.PowerState = hivev1.PowerStateHibernating
	require.False(t, Plan(now.Add(time.Hour), cd).Hibernate)
	cd.Spec.PowerState, cd.Status.PowerState = hivev1.PowerStateRunning, hivev1.PowerStateWaitingForMachines
	now = now.Add(3 * time.Hour)
	require.False(t, Plan(now, cd).Hibernate, "it resumes")
	cd.Status.PowerState = hivev1.PowerStateRunning
	ready(corev1.ConditionTrue, now.Sub(noon))(cd)
	require.False(t, Plan(now.Add(59*time.Minute), cd).Hibernate)
	require.True(t, Plan(now.Add(time.Hour), cd).Hibernate)
}
