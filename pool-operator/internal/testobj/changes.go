// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package testobj

import (
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// The tables of this file change one thing that planners read, by the field of package poolview that shows it. Tests of wake-ups demand that every field is in them.

// FieldsOf returns the names of the fields of a struct, without those that are left out, sorted.
func FieldsOf(value any, without []string) []string {
	var out []string
	for field := range reflect.TypeOf(value).Fields() {
		if !slices.Contains(without, field.Name) {
			out = append(out, field.Name)
		}
	}
	slices.Sort(out)
	return out
}

func annotate(o metav1.Object, key, value string) {
	annotations := map[string]string{}
	maps.Copy(annotations, o.GetAnnotations())
	annotations[key] = value
	o.SetAnnotations(annotations)
}

func cdCondition(cd *hivev1.ClusterDeployment, kind string, status corev1.ConditionStatus, reason string, at time.Time) {
	hivev1.SetCondition(&cd.Status.Conditions, hivev1.Condition{Type: kind, Status: status, Reason: reason}, metav1.NewTime(at))
}

// ClusterChanges are changes of a ClusterDeployment by the field of poolview.Cluster that they change.
func ClusterChanges(at time.Time) map[string]func(*hivev1.ClusterDeployment) {
	mark := func(annotation, value string) func(*hivev1.ClusterDeployment) {
		return func(cd *hivev1.ClusterDeployment) { annotate(cd, annotation, value) }
	}
	return map[string]func(*hivev1.ClusterDeployment){
		"ClusterName":   func(cd *hivev1.ClusterDeployment) { cd.Spec.ClusterName = "other" },
		"Version":       mark(hivev1.AnnotationClusterPoolSpecHash, "other"),
		"Deleting":      func(cd *hivev1.ClusterDeployment) { cd.DeletionTimestamp = new(metav1.NewTime(at)) },
		"DeletingSince": func(cd *hivev1.ClusterDeployment) { cd.DeletionTimestamp = new(metav1.NewTime(at)) },
		"Marked":        mark(hivev1.AnnotationRemoveFromPool, "True"),
		"Protected":     mark(hivev1.AnnotationProtectedDelete, "1"),
		"Paused":        mark(hivev1.AnnotationReconcilePause, "t"),
		"PowerPaused":   mark(hivev1.AnnotationPowerStatePause, "true"),
		"Unreadable":    mark(hivev1.AnnotationPowerStatePause, "yes"),
		"Restored": func(cd *hivev1.ClusterDeployment) {
			cd.Labels = map[string]string{hivev1.LabelDisableCreationCheck: "true"}
		},
		"ClaimName": func(cd *hivev1.ClusterDeployment) { cd.Spec.ClusterPoolRef.ClaimName = "other" },
		"ClaimUID":  func(cd *hivev1.ClusterDeployment) { cd.Spec.ClusterPoolRef.ClaimUID = "other" },
		"ClaimedAt": func(cd *hivev1.ClusterDeployment) { cd.Spec.ClusterPoolRef.ClaimedTimestamp = new(metav1.NewTime(at)) },
		"OrphanReason": func(cd *hivev1.ClusterDeployment) {
			cdCondition(cd, hivev1.ClusterDeploymentClaimMissing, corev1.ConditionTrue, hivev1.ReasonClaimDeleted, at)
		},
		"OrphanedSince": func(cd *hivev1.ClusterDeployment) {
			cdCondition(cd, hivev1.ClusterDeploymentClaimMissing, corev1.ConditionTrue, hivev1.ReasonClaimDeleted, at)
		},
		"Installed":      func(cd *hivev1.ClusterDeployment) { cd.Spec.Installed = !cd.Spec.Installed },
		"InstalledAt":    func(cd *hivev1.ClusterDeployment) { cd.Status.InstalledTimestamp = new(metav1.NewTime(at)) },
		"InstallStarted": func(cd *hivev1.ClusterDeployment) { cd.Status.InstallStartedTimestamp = new(metav1.NewTime(at)) },
		"InstallStopped": func(cd *hivev1.ClusterDeployment) {
			cdCondition(cd, hivev1.ClusterDeploymentProvisionStopped, corev1.ConditionTrue, hivev1.ReasonInstallAttemptsLimitReached, at)
		},
		"Power":         func(cd *hivev1.ClusterDeployment) { cd.Spec.PowerState = hivev1.PowerStateRunning },
		"ObservedPower": func(cd *hivev1.ClusterDeployment) { cd.Status.PowerState = hivev1.PowerStateWaitingForNodes },
		"NotReady": func(cd *hivev1.ClusterDeployment) {
			cdCondition(cd, hivev1.ClusterDeploymentReady, corev1.ConditionFalse, hivev1.ReasonStoppingOrHibernating, at)
		},
		"WaitsForClaim": func(cd *hivev1.ClusterDeployment) {
			cdCondition(cd, hivev1.ClusterDeploymentReady, corev1.ConditionTrue, hivev1.ReasonWaitingForClaim, at)
		},
		"ResumingSince": func(cd *hivev1.ClusterDeployment) {
			cdCondition(cd, hivev1.ClusterDeploymentHibernating, corev1.ConditionFalse, hivev1.ReasonResumingOrRunning, at)
		},
		"ResumeTook": func(cd *hivev1.ClusterDeployment) {
			cdCondition(cd, hivev1.ClusterDeploymentHibernating, corev1.ConditionFalse, hivev1.ReasonResumingOrRunning, at)
			cdCondition(cd, hivev1.ClusterDeploymentReady, corev1.ConditionTrue, hivev1.ReasonRunning, at.Add(time.Minute))
		},
		"DataMissing": func(cd *hivev1.ClusterDeployment) {
			cdCondition(cd, hivev1.ClusterDeploymentUnreachable, corev1.ConditionTrue, hivev1.ReasonDataMissing, at)
		},
		"DataMissingSince": func(cd *hivev1.ClusterDeployment) {
			cdCondition(cd, hivev1.ClusterDeploymentUnreachable, corev1.ConditionTrue, hivev1.ReasonDataMissing, at.Add(time.Minute))
		},
		"Private": func(cd *hivev1.ClusterDeployment) {
			cd.Spec.ClusterPoolRef.ClaimName, cd.Spec.PullSecretRef = "other", &hivev1.LocalObjectReference{Name: "other"}
		},
		"Metadata": func(cd *hivev1.ClusterDeployment) {
			cd.Spec.ClusterMetadata = &hivev1.ClusterMetadata{InfraID: "other"}
		},
	}
}

// FixedOfClusters are the fields of poolview.Cluster that no change of an object changes, but for its version, from which nothing is decided.
func FixedOfClusters() []string {
	return []string{"Namespace", "Name", "UID", "ResourceVersion", "Created", "Pool"}
}

// ClaimChanges are changes of a ClusterClaim by the field of poolview.Claim that they change.
func ClaimChanges(at time.Time) map[string]func(*hivev1.ClusterClaim) {
	return map[string]func(*hivev1.ClusterClaim){
		"Namespace": func(c *hivev1.ClusterClaim) {
			c.Spec.Namespace, c.Finalizers = "other", []string{hivev1.FinalizerClusterClaim}
		},
		"Expires":  func(c *hivev1.ClusterClaim) { c.Spec.QueueTimeout = &metav1.Duration{Duration: time.Hour} },
		"Deleting": func(c *hivev1.ClusterClaim) { c.DeletionTimestamp = new(metav1.NewTime(at)) },
		"Paused":   func(c *hivev1.ClusterClaim) { annotate(c, hivev1.AnnotationReconcilePause, "True") },
	}
}

// FixedOfClaims are the fields of poolview.Claim that no change of an object changes.
func FixedOfClaims() []string { return []string{"Name", "UID", "Created"} }

// PoolChanges are changes of a ClusterPool by the field of poolview.Pool that they change.
func PoolChanges(at time.Time) map[string]func(*hivev1.ClusterPool) {
	return map[string]func(*hivev1.ClusterPool){
		"Deleting":    DeletedAt(at),
		"ClaimPolicy": func(p *hivev1.ClusterPool) { p.Spec.ClaimPolicy = hivev1.ClaimPolicyRunningFirst },
		"Bounded":     MaxConcurrent(3),
		"Frozen":      MaxConcurrent(0),
		"Paused":      func(p *hivev1.ClusterPool) { annotate(p, hivev1.AnnotationReconcilePause, "true") },
		"ClaimLifetime": func(p *hivev1.ClusterPool) {
			p.Spec.ClaimLifetime = &hivev1.ClusterPoolClaimLifetime{Default: &metav1.Duration{Duration: time.Hour}}
		},
		"Limits": ResumeTimeout(time.Hour),
		"MachinePools": func(p *hivev1.ClusterPool) {
			p.Spec.Platform = hivev1.Platform{AgentBareMetal: &hivev1.AgentBareMetalPlatform{}}
		},
		"Conditions": func(p *hivev1.ClusterPool) {
			hivev1.SetCondition(&p.Status.Conditions, hivev1.Condition{Type: hivev1.ClusterPoolCapacityAvailable, Status: "False", Reason: hivev1.ReasonMaxCapacity}, metav1.NewTime(at))
		},
		"DeletionKeys": func(p *hivev1.ClusterPool) { p.Status.Operations = nil },
	}
}
