// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package installplan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/installplan"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func metadata() *hivev1.ClusterMetadata {
	return &hivev1.ClusterMetadata{ClusterID: "id", InfraID: "blue-1", AdminKubeconfigSecretRef: hivev1.LocalObjectReference{Name: "k"}}
}

// install returns an install object that says what the conditions say, as type → status.
func install(conditions map[string]corev1.ConditionStatus) *hivev1.ClusterInstall {
	i := &hivev1.ClusterInstall{Spec: hivev1.ClusterInstallSpec{ClusterMetadata: metadata()}}
	for conditionType, status := range conditions {
		i.Status.Conditions = append(i.Status.Conditions, hivev1.Condition{Type: conditionType, Status: status,
			Reason: "Its" + conditionType, Message: "so it is with " + conditionType})
	}
	return i
}

func cluster(change ...func(*hivev1.ClusterDeployment)) *hivev1.ClusterDeployment {
	c := &hivev1.ClusterDeployment{Spec: hivev1.ClusterDeploymentSpec{
		Platform:          hivev1.Platform{AgentBareMetal: &hivev1.AgentBareMetalPlatform{}},
		ClusterInstallRef: &hivev1.ClusterInstallLocalReference{Kind: "AnyInstall", Name: "blue"},
	}}
	for _, f := range change {
		f(c)
	}
	return c
}

func installed(c *hivev1.ClusterDeployment) { c.Spec.Installed = true }

func TestStatus(t *testing.T) {
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	for name, c := range map[string]struct {
		snapshot installplan.Snapshot
		said     map[string]string
	}{
		"an install object that is not there": {
			installplan.Snapshot{Cluster: cluster(), Obstacle: "There is none."},
			map[string]string{"RequirementsMet": "False/ClusterInstallNotFound", "Provisioned": "False/Provisioning"}},
		"an install object that says nothing yet": {
			installplan.Snapshot{Cluster: cluster(), Install: install(nil)},
			map[string]string{"RequirementsMet": "Unknown/Initialized", "Provisioned": "False/Provisioning", "Ready": "False/Provisioning"}},
		"something is missing": {
			installplan.Snapshot{Cluster: cluster(), Install: install(map[string]corev1.ConditionStatus{"RequirementsMet": no})},
			map[string]string{"RequirementsMet": "False/ItsRequirementsMet", "ClusterInstallRequirementsMet": "False/ItsRequirementsMet",
				"Provisioned": "False/Provisioning"}},
		"it is at work": {
			installplan.Snapshot{Cluster: cluster(), Install: install(map[string]corev1.ConditionStatus{"RequirementsMet": yes, "Completed": no, "Failed": no, "Stopped": no})},
			map[string]string{"RequirementsMet": "True/AllRequirementsMet", "ClusterInstallCompleted": "False/ItsCompleted",
				"ProvisionStopped": "False/ProvisionNotStopped", "ProvisionFailed": ""}},
		"an attempt failed and another one follows": {
			installplan.Snapshot{Cluster: cluster(), Install: install(map[string]corev1.ConditionStatus{"Failed": yes, "Stopped": no})},
			map[string]string{"ProvisionFailed": "True/ItsFailed", "ProvisionStopped": "False/ProvisionNotStopped", "Provisioned": "False/Provisioning"}},
		"it gave up": {
			installplan.Snapshot{Cluster: cluster(), Install: install(map[string]corev1.ConditionStatus{"Failed": yes, "Stopped": yes})},
			map[string]string{"ProvisionFailed": "True/ItsFailed", "ProvisionStopped": "True/ItsFailed", "Provisioned": "False/ProvisionStopped"}},
		"it stopped without a failure": {
			installplan.Snapshot{Cluster: cluster(), Install: install(map[string]corev1.ConditionStatus{"Stopped": yes})},
			map[string]string{"ProvisionStopped": "True/ItsStopped", "Provisioned": "False/ProvisionStopped"}},
		"it is installed": {
			installplan.Snapshot{Cluster: cluster(installed), Install: install(map[string]corev1.ConditionStatus{"Completed": yes, "Stopped": yes})},
			map[string]string{"Provisioned": "True/Provisioned", "ProvisionStopped": "False/ProvisionNotStopped", "Ready": "True/Running",
				"Hibernating": "False/Unsupported", "ClusterInstallCompleted": "True/ItsCompleted", "ClusterInstallStopped": "True/ItsStopped"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := installplan.Plan(now, c.snapshot)
			require.NotNil(t, d.Status)
			assert.Nil(t, d.Record)
			for conditionType, said := range c.said {
				assert.Equal(t, said, read(d.Status.Conditions, conditionType), conditionType)
			}
			again := c.snapshot
			again.Cluster = again.Cluster.DeepCopy()
			again.Cluster.Status = *d.Status
			assert.Equal(t, d.Status, installplan.Plan(now.Add(time.Hour), again).Status, "a later plan without news says the same")
		})
	}
}

func read(conditions []hivev1.Condition, conditionType string) string {
	c := hivev1.FindCondition(conditions, conditionType)
	if c == nil {
		return ""
	}
	return string(c.Status) + "/" + c.Reason
}

func TestACompletedInstallationIsRecordedOnceItSaysHowToGetIn(t *testing.T) {
	done := install(map[string]corev1.ConditionStatus{"Completed": corev1.ConditionTrue})
	assert.Equal(t, metadata(), installplan.Plan(now, installplan.Snapshot{Cluster: cluster(), Install: done}).Record)

	done.Spec.ClusterMetadata.AdminKubeconfigSecretRef.Name = ""
	d := installplan.Plan(now, installplan.Snapshot{Cluster: cluster(), Install: done})
	assert.Nil(t, d.Record)
	assert.Contains(t, hivev1.FindCondition(d.Status.Conditions, "Provisioned").Message, "spec.clusterMetadata lacks")
}

func TestNothingIsSaid(t *testing.T) {
	for name, s := range map[string]installplan.Snapshot{
		"of a paused cluster": {Cluster: cluster(func(c *hivev1.ClusterDeployment) {
			c.Annotations = map[string]string{hivev1.AnnotationReconcilePause: "true"}
		}), Install: install(nil)},
		"of a cluster that goes":                                  {Cluster: cluster(func(c *hivev1.ClusterDeployment) { c.DeletionTimestamp = &metav1.Time{Time: now} }), Install: install(nil)},
		"of an installed cluster whose install object is no more": {Cluster: cluster(installed)},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, installplan.Decision{}, installplan.Plan(now, s)) })
	}
}

func TestAClusterTellsOfAnAnnotationThatIsNoBoolean(t *testing.T) {
	odd := func(c *hivev1.ClusterDeployment) {
		c.Annotations = map[string]string{hivev1.AnnotationReconcilePause: "yes"}
	}
	for name, given := range map[string]*hivev1.ClusterDeployment{"installing": cluster(odd), "installed": cluster(installed, odd)} {
		t.Run(name, func(t *testing.T) {
			status := installplan.Plan(now, installplan.Snapshot{Cluster: given, Install: install(nil)}).Status
			require.NotNil(t, status)
			assert.Contains(t, hivev1.FindCondition(status.Conditions, hivev1.ClusterDeploymentReady).Message,
				`; annotation hive.openshift.io/reconcile-pause is "yes", which is no boolean and counts as false`)
		})
	}
}
