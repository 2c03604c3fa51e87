// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolview_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
)

func TestResumingSince(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		woke, ready time.Time
		isReady     corev1.ConditionStatus
		since       time.Time
		took        time.Duration
	}{
		"a cluster that wakes up resumes since then":                {noon, noon.Add(-time.Hour), corev1.ConditionFalse, noon, 0},
		"a cluster that died resumes since then, not since dawn":    {noon.Add(-time.Hour), noon, corev1.ConditionFalse, noon, 0},
		"a cluster that runs woke up when it did":                   {noon.Add(-time.Hour), noon, corev1.ConditionTrue, noon.Add(-time.Hour), time.Hour},
		"one that ran, ended with the operator and runs again, too": {noon.Add(-50 * time.Hour), noon, corev1.ConditionTrue, noon.Add(-50 * time.Hour), 0},
	} {
		t.Run(name, func(t *testing.T) {
			cd := &hivev1.ClusterDeployment{Status: hivev1.ClusterDeploymentStatus{Conditions: []hivev1.Condition{
				{Type: hivev1.ClusterDeploymentHibernating, Status: corev1.ConditionFalse, Reason: hivev1.ReasonResumingOrRunning, LastTransitionTime: metav1.NewTime(c.woke)},
				{Type: hivev1.ClusterDeploymentReady, Status: c.isReady, LastTransitionTime: metav1.NewTime(c.ready)},
			}}}
			cluster := poolview.ClusterOf(cd)
			assert.Equal(t, c.since, cluster.ResumingSince)
			assert.Equal(t, c.took, cluster.ResumeTook)
		})
	}
}

// A cluster whose disk fails dies before its data is taken away to be repaired.
func TestAnInstallationOfTheFutureTimesOut(t *testing.T) {
	created := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	c := poolview.Cluster{Created: created, InstallStarted: created.AddDate(1, 0, 0)}
	failure, due := c.Broken(created.Add(time.Minute), poolview.Limits{Install: time.Hour})
	assert.Nil(t, failure)
	assert.Equal(t, created.Add(time.Hour), due)
	failure, _ = c.Broken(created.Add(time.Hour), poolview.Limits{Install: time.Hour})
	assert.NotNil(t, failure)
}

func TestDataIsMissingSinceThatIsSaid(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	cd := &hivev1.ClusterDeployment{}
	unreachable := func(reason string, at time.Time) {
		hivev1.SetCondition(&cd.Status.Conditions, hivev1.Condition{Type: hivev1.ClusterDeploymentUnreachable, Status: corev1.ConditionTrue, Reason: reason}, metav1.NewTime(at))
	}
	unreachable(hivev1.ReasonProcessExited, noon.Add(-time.Hour))
	unreachable(hivev1.ReasonDataMissing, noon)
	assert.Equal(t, noon, poolview.ClusterOf(cd).DataMissingSince)
}
