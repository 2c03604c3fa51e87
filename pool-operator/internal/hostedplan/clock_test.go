// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedplan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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

// TestNoInstallationIsOfTheFuture has a cluster that says that its installation begins, and ends, in a year.
func TestNoInstallationIsOfTheFuture(t *testing.T) {
	ahead := metav1.NewTime(now.AddDate(1, 0, 0))
	said := func(s *hostedplan.Snapshot) {
		s.Cluster.Status = hivev1.ClusterDeploymentStatus{InstallStartedTimestamp: &ahead, InstalledTimestamp: &ahead}
	}
	d := hostedplan.Plan(now, snapshot(installed, observed(provision.StateReady), said))
	assert.Equal(t, now.Truncate(time.Second), d.Status.InstallStartedTimestamp.Time)
	assert.Equal(t, now.Truncate(time.Second), d.Status.InstalledTimestamp.Time)
}
