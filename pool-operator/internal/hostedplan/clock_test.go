// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedplan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/hostedplan"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// TestAClockThatWasAheadKeepsNoClusterHanging has a cluster that stopped to answer while the clock was ahead by a year. It is stopped as soon after the clock is right as any other.
func TestAClockThatWasAheadKeepsNoClusterHanging(t *testing.T) {
	s := snapshot(installed, observed(provision.StateUnreachable), silentFor(-365*24*time.Hour))
	at, stopped := now, time.Duration(0)
	for ; stopped == 0 && at.Before(now.Add(time.Hour)); at = at.Add(10 * time.Second) {
		d := hostedplan.Plan(at, s)
		if len(d.Actions) > 0 {
			stopped = at.Sub(now)
		} else if d.Status != nil {
			s.Cluster.Status = *d.Status
		}
	}
	assert.Equal(t, 5*time.Minute, stopped)
}

// TestThatAClusterIsReadyIsNotCorrected: where it is this clock that is behind, the cluster would be put to sleep too early.
func TestThatAClusterIsReadyIsNotCorrected(t *testing.T) {
	ahead := metav1.NewTime(now.Add(5 * time.Hour))
	s := snapshot(installed, observed(provision.StateReady), func(s *hostedplan.Snapshot) {
		s.Cluster.Status.Conditions = []hivev1.Condition{{Type: hivev1.ClusterDeploymentReady, Status: corev1.ConditionTrue, Reason: hivev1.ReasonRunning, LastTransitionTime: ahead}}
	})
	d := hostedplan.Plan(now, s)
	assert.Equal(t, ahead, hivev1.FindCondition(d.Status.Conditions, hivev1.ClusterDeploymentReady).LastTransitionTime)
}
