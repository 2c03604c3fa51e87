// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

// failed is an unclaimed cluster that was created and whose installation stopped so long ago.
func failed(name string, created, stopped time.Duration) poolplan.Cluster {
	return with(free(name, 0), func(c *poolplan.Cluster) {
		c.Created, c.Installed = now.Add(-created), false
		c.InstallStopped = &poolplan.Failure{Reason: "QuotaExceeded", Message: "no room", At: now.Add(-stopped)}
	})
}

func TestFailuresAtOneMomentAreOneFailure(t *testing.T) {
	for name, size := range map[string]int{"six": 6, "ten": 10} {
		t.Run(name, func(t *testing.T) {
			s := snapshot(testobj.Pool("p", testobj.Size(int32(size))))
			for i := range size {
				s.Clusters = append(s.Clusters, with(failed(fmt.Sprintf("p-%02d", i), 10*time.Minute, time.Second), func(c *poolplan.Cluster) { c.Version = poolplan.Version(s.Pool.Spec) }))
			}
			d := poolplan.Plan(now, s)
			require.EqualValues(t, 1, d.Status.Provisioning.ConsecutiveFailures)
			require.Equal(t, hivev1.CircuitBreakerClosed, d.Status.Provisioning.CircuitBreaker)
			require.Equal(t, 30*time.Second, d.Status.Provisioning.NextAttemptTime.Sub(now))
		})
	}
}

func TestOfOneMomentAlsoWhenTheyAreNoticedInSeveralPasses(t *testing.T) {
	pool := testobj.Pool("p", testobj.Size(6), testobj.MaxConcurrent(2))
	s := snapshot(pool)
	for i := range 6 {
		s.Clusters = append(s.Clusters, with(failed(fmt.Sprintf("p-%02d", i), 10*time.Minute, time.Duration(i)*time.Second), func(c *poolplan.Cluster) { c.Version = poolplan.Version(pool.Spec) }))
	}
	at := now
	for len(s.Clusters) > 0 {
		d := poolplan.Plan(at, s)
		require.EqualValues(t, 1, d.Status.Provisioning.ConsecutiveFailures, "maxConcurrent stretches the deletion of what broke at one moment")
		s.Pool.Status = d.Status
		s.Pool.Status.Operations, s.Pool.Status.Observed = nil, nil
		s.Clusters = s.Clusters[min(2, len(s.Clusters)):]
		at = at.Add(5 * time.Minute)
	}
}

func TestFailuresAfterTheLastKnownOneCount(t *testing.T) {
	known := func(p *hivev1.ClusterPool) {
		p.Status.Provisioning = &hivev1.ClusterPoolProvisioning{ConsecutiveFailures: 2, LastFailureTime: new(metav1.NewTime(now.Add(-10 * time.Minute))), SpecHash: poolplan.Recipe(p.Spec)}
	}
	for name, c := range map[string]struct {
		cluster poolplan.Cluster
		want    int32
	}{
		"a cluster that was begun since":                        {failed("p-a", 5*time.Minute, time.Minute), 3},
		"one that was begun before and failed much later":       {failed("p-a", 30*time.Minute, time.Minute), 3},
		"one that was begun before and failed about then":       {failed("p-a", 30*time.Minute, 9*time.Minute+30*time.Second), 2},
		"one that was begun before and failed before":           {failed("p-a", 30*time.Minute, 12*time.Minute), 2},
		"one that does not say when it failed, and began since": {with(failed("p-a", 5*time.Minute, 0), func(c *poolplan.Cluster) { c.InstallStopped.At = time.Time{} }), 3},
	} {
		t.Run(name, func(t *testing.T) {
			d := poolplan.Plan(now, snapshot(testobj.Pool("p", testobj.Size(1), known), c.cluster))
			require.Equal(t, []string{"delete p-a"}, kinds(d.Actions))
			require.Equal(t, c.want, d.Status.Provisioning.ConsecutiveFailures)
		})
	}
}

// The user has corrected the image set. What is still being installed of the wrong one breaks by and by, and says nothing about the right one.
func TestAClusterOfAnEarlierVersionThatBreaksIsNoFailureOfThePresentOne(t *testing.T) {
	pool := testobj.Pool("p", testobj.Size(1), testobj.ImageSet("wrong"))
	wrong := with(failed("p-a", 40*time.Minute, time.Second), func(c *poolplan.Cluster) { c.Version = poolplan.Version(pool.Spec) })
	testobj.ImageSet("right")(pool)
	d := poolplan.Plan(now, snapshot(pool, wrong))
	require.Equal(t, []string{"delete p-a"}, kinds(d.Actions))
	require.Nil(t, d.Status.Provisioning)

	pool.Status = d.Status
	s := snapshot(pool, with(wrong, func(c *poolplan.Cluster) { c.Deleting = true }))
	require.Equal(t, []string{"create p-bbbbb"}, kinds(poolplan.Plan(now.Add(time.Second), s).Actions), "its successor does not wait")
}

// A machine had a wrong time when clusters broke, and has the right one now.
func TestAFailureInTheFutureStopsThePoolNoLongerThanAnother(t *testing.T) {
	pool := testobj.Pool("p", testobj.Size(1))
	pool.Status.Provisioning = &hivev1.ClusterPoolProvisioning{ConsecutiveFailures: 3, LastFailureTime: new(metav1.NewTime(now.Add(300 * time.Hour))),
		NextAttemptTime: new(metav1.NewTime(now.Add(300*time.Hour + 2*time.Minute))), SpecHash: poolplan.Recipe(pool.Spec)}
	d := poolplan.Plan(now, snapshot(pool))
	require.Empty(t, d.Actions)
	require.Equal(t, 2*time.Minute, d.RequeueAfter)
	require.Equal(t, poolplan.StatusReport, d.Change, "the time is kept, so that the pause ends")
	pool.Status = d.Status
	at := now.Add(2 * time.Minute)
	d = poolplan.Plan(at, snapshot(pool))
	require.Equal(t, []string{"create p-bbbbb"}, kinds(d.Actions))

	d = poolplan.Plan(at.Add(5*time.Minute), snapshot(pool, failed("p-a", -2*time.Minute, -4*time.Minute)))
	require.EqualValues(t, 4, d.Status.Provisioning.ConsecutiveFailures, "the next failure counts")
}

func TestAResumeThatTimesOutIsNoFailureOfInstallation(t *testing.T) {
	stuck := with(free("p-a", 60), func(c *poolplan.Cluster) {
		c.Power, c.ObservedPower, c.ResumingSince = hivev1.PowerStateRunning, hivev1.PowerStateWaitingForNodes, now.Add(-time.Hour)
	})
	d := poolplan.Plan(now, snapshot(testobj.Pool("p", testobj.Size(1), testobj.RunningCount(1), testobj.ResumeTimeout(time.Minute)), stuck))
	require.Equal(t, []string{"delete p-a"}, kinds(d.Actions))
	require.Nil(t, d.Status.Provisioning)
}

func TestChangesThatMayHelpAreTriedAtOnce(t *testing.T) {
	secretTemplate := testobj.InstallConfigTemplate("other")
	for name, c := range map[string]struct {
		change func(*poolplan.Snapshot)
		tried  bool
	}{
		"no failure":        {func(*poolplan.Snapshot) {}, false},
		"another image set": {func(s *poolplan.Snapshot) { testobj.ImageSet("release-2")(s.Pool) }, true},
		"another platform": {func(s *poolplan.Snapshot) {
			s.Pool.Spec.Platform = hivev1.Platform{AgentBareMetal: &hivev1.AgentBareMetalPlatform{}}
		}, true},
		"another template":             {func(s *poolplan.Snapshot) { secretTemplate(s.Pool) }, true},
		"another pull secret":          {func(s *poolplan.Snapshot) { testobj.PullSecret("other")(s.Pool) }, true},
		"another size":                 {func(s *poolplan.Snapshot) { testobj.Size(2)(s.Pool) }, false},
		"new content of a Secret":      {func(s *poolplan.Snapshot) { s.Changed = now.Add(-time.Second) }, true},
		"content that changed earlier": {func(s *poolplan.Snapshot) { s.Changed = now.Add(-time.Hour) }, false},
		"a repaired dependency": {func(s *poolplan.Snapshot) {
			s.Pool.Status.Conditions = []hivev1.Condition{{Type: hivev1.ClusterPoolMissingDependencies, Status: "True"}}
		}, true},
		"a dependency that is still missing": {func(s *poolplan.Snapshot) {
			s.Pool.Status.Conditions = []hivev1.Condition{{Type: hivev1.ClusterPoolMissingDependencies, Status: "True"}}
			s.Missing = []string{"pull secret: gone"}
		}, false},
		"a success": {func(s *poolplan.Snapshot) {
			testobj.Size(2)(s.Pool)
			s.Clusters = append(s.Clusters, with(free("p-a", 9), func(c *poolplan.Cluster) {
				c.InstalledAt, c.Version = now.Add(-time.Second), poolplan.Version(s.Pool.Spec)
			}))
		}, true},
		"a success of a clock that was ahead": {func(s *poolplan.Snapshot) {
			testobj.Size(2)(s.Pool)
			s.Clusters = append(s.Clusters, with(free("p-a", 9), func(c *poolplan.Cluster) {
				c.InstalledAt, c.Version = now.Add(2*time.Hour), poolplan.Version(s.Pool.Spec)
			}))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			pool := testobj.Pool("p", testobj.Size(1))
			pool.Status.Provisioning = &hivev1.ClusterPoolProvisioning{ConsecutiveFailures: 7, LastFailureTime: new(metav1.NewTime(now.Add(-time.Minute))),
				NextAttemptTime: new(metav1.NewTime(now.Add(30 * time.Minute))), SpecHash: poolplan.Recipe(pool.Spec)}
			s := snapshot(pool)
			c.change(&s)
			d := poolplan.Plan(now, s)
			require.Equal(t, c.tried, len(d.Status.Operations) > 0)
			require.Equal(t, c.tried, d.Status.Provisioning == nil)
		})
	}
}

func TestInstallationThatHangsTimesOut(t *testing.T) {
	foreign := func(p *hivev1.ClusterPool) {
		p.Spec.Platform = hivev1.Platform{AgentBareMetal: &hivev1.AgentBareMetalPlatform{}}
	}
	limit := func(d time.Duration) testobj.PoolOption {
		return func(p *hivev1.ClusterPool) { p.Spec.InstallTimeout = &metav1.Duration{Duration: d} }
	}
	for name, c := range map[string]struct {
		options []testobj.PoolOption
		age     time.Duration
		broken  bool
	}{
		"hosted: ten minutes unless the pool says otherwise": {nil, 10 * time.Minute, true},
		"hosted: not before":                            {nil, 9 * time.Minute, false},
		"hosted: as the pool says":                      {[]testobj.PoolOption{limit(time.Hour)}, 30 * time.Minute, false},
		"hosted: never, if the pool says so":            {[]testobj.PoolOption{limit(0)}, 100 * time.Hour, false},
		"others: never, unless the pool says otherwise": {[]testobj.PoolOption{foreign}, 100 * time.Hour, false},
		"others: as the pool says":                      {[]testobj.PoolOption{foreign, limit(time.Hour)}, time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			options := append([]testobj.PoolOption{testobj.Size(1), testobj.MaxConcurrent(1)}, c.options...)
			hanging := with(free("p-a", 0), func(cd *poolplan.Cluster) { cd.Installed, cd.Created = false, now.Add(-c.age) })
			d := poolplan.Plan(now, snapshot(testobj.Pool("p", options...), hanging))
			if !c.broken {
				require.Empty(t, d.Actions)
				return
			}
			require.Equal(t, []string{"delete p-a"}, kinds(d.Actions), "it does not block the pool for ever")
			require.Equal(t, "InstallTimedOut", d.Status.Provisioning.LastFailureReason)
		})
	}
	d := poolplan.Plan(now, snapshot(testobj.Pool("p", testobj.Size(1)), with(free("p-a", 0), func(cd *poolplan.Cluster) { cd.Installed, cd.Created = false, now.Add(-4*time.Minute) })))
	require.Equal(t, 6*time.Minute, d.RequeueAfter, "the pool wakes up when the time is over, not when something else happens")
}
