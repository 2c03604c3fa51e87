// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/pool-operator/internal/poolplan"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

// stillRunning counts the unclaimed clusters that run and are not asked to stop.
func (s *story) stillRunning() (running, installed int) {
	for _, c := range s.server.clusters {
		if !unclaimed(c) || !c.Installed {
			continue
		}
		installed++
		if c.Running() && c.ShouldRun() {
			running++
		}
	}
	return running, installed
}

// rollOut replaces all clusters and demands after every write of the pool that so many run and so many are installed.
func (s *story) rollOut(running, installed int) {
	s.t.Helper()
	s.server.edit(testobj.ImageSet("release-2"))
	s.say("a new image set")
	want := poolplan.Version(s.server.pool.Spec)
	for range 60 {
		s.act()
		gotRunning, gotInstalled := s.stillRunning()
		require.GreaterOrEqual(s.t, gotRunning, running, "so many run throughout: %s", s.server)
		require.GreaterOrEqual(s.t, gotInstalled, installed, "so many are there throughout: %s", s.server)
		s.server.finishDeletions()
		s.wait(10 * time.Second)
		for _, name := range s.server.names() {
			if cd := s.server.clusters[name]; !cd.Installed && !cd.Deleting {
				s.server.install(name)
				break
			}
		}
		s.act()
		s.powerAll()
	}
	for _, c := range s.server.clusters {
		require.Equal(s.t, want, c.Version, "everything is replaced")
	}
	require.Len(s.t, s.server.clusters, int(s.server.pool.Spec.Size))
}

func TestStoryRollingReplacementKeepsAsManyRunningAsRunningCountSays(t *testing.T) {
	for name, c := range map[string]struct {
		options            []testobj.PoolOption
		running, installed int
	}{
		"one at a time":             {[]testobj.PoolOption{testobj.Size(4), testobj.RunningCount(2)}, 2, 4},
		"with a bound":              {[]testobj.PoolOption{testobj.Size(4), testobj.RunningCount(2), testobj.MaxConcurrent(1)}, 2, 4},
		"two at a time":             {[]testobj.PoolOption{testobj.Size(4), testobj.RunningCount(2), testobj.MaxConcurrent(4)}, 2, 4},
		"all run":                   {[]testobj.PoolOption{testobj.Size(3), testobj.RunningCount(3)}, 3, 3},
		"a pool of one":             {[]testobj.PoolOption{testobj.Size(1), testobj.RunningCount(1)}, 1, 1},
		"without room in maxSize":   {[]testobj.PoolOption{testobj.Size(4), testobj.RunningCount(2), testobj.MaxSize(4)}, 2, 3},
		"with room for one":         {[]testobj.PoolOption{testobj.Size(4), testobj.RunningCount(2), testobj.MaxSize(5)}, 2, 4},
		"without a name to spare":   {[]testobj.PoolOption{testobj.Size(3), testobj.RunningCount(1), testobj.Inventory("red", "green", "blue")}, 1, 2},
		"with one name more":        {[]testobj.PoolOption{testobj.Size(3), testobj.RunningCount(1), testobj.Inventory("red", "green", "blue", "cyan")}, 1, 3},
		"none runs, none has to":    {[]testobj.PoolOption{testobj.Size(2)}, 0, 2},
		"no room and all have to":   {[]testobj.PoolOption{testobj.Size(2), testobj.RunningCount(2), testobj.MaxSize(2)}, 1, 1},
		"a large one, half at once": {[]testobj.PoolOption{testobj.Size(10), testobj.RunningCount(4), testobj.MaxConcurrent(20)}, 4, 10},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t, c.options...)
			for range 6 {
				s.fill()
				s.wait(time.Second)
			}
			s.act()
			s.powerAll()
			s.act()
			s.rollOut(c.running, c.installed)
		})
	}
}

func TestSleepingStaleClustersGoFirst(t *testing.T) {
	old := func(c *poolplan.Cluster) { c.Version = "old" }
	running := func(c *poolplan.Cluster) { c.Power, c.ObservedPower = "Running", "Running" }
	s := snapshot(testobj.Pool("p", testobj.Size(2), testobj.RunningCount(1), testobj.MaxSize(2)), with(with(free("p-a", 9), old), running), with(free("p-b", 1), old))
	require.Equal(t, []string{"delete p-b"}, kinds(poolplan.Plan(now, s).Actions))
}
