// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

var update = flag.Bool("update", false, "write the golden transcripts anew")

// story is a sequence of events around one pool with one replica whose caches are fresh, and a transcript of what the pool does.
type story struct {
	t       *testing.T
	server  *apiServer
	replica *replica
	lines   []string
	begin   time.Time
}

func newStory(t *testing.T, options ...testobj.PoolOption) *story {
	t.Helper()
	server := newServer(testobj.Pool("p", options...))
	s := &story{t: t, server: server, replica: newReplica(server, rand.New(rand.NewPCG(1, 1))), begin: server.now}
	s.replica.note = s.note
	return s
}

func (s *story) note(a poolplan.Action) {
	var text string
	switch a := a.(type) {
	case poolplan.HoldPool:
		text = "hold pool"
	case poolplan.ReleasePool:
		text = "release pool"
	case poolplan.CreateCluster:
		text = fmt.Sprintf("create %s, %s", a.Namespace, a.Power)
	case poolplan.DeleteCluster:
		text = "delete " + a.Namespace
	case poolplan.WithdrawCluster:
		text = "withdraw " + a.Namespace
	case poolplan.SetPower:
		text = fmt.Sprintf("power %s, %s", a.Namespace, a.Power)
	case poolplan.DeleteNamespace:
		text = "delete namespace " + a.Name
	}
	s.lines = append(s.lines, fmt.Sprintf("%6s   %s: %s", s.server.now.Sub(s.begin), a.Reason(), text))
}

// say writes an event into the transcript.
func (s *story) say(format string, arguments ...any) {
	s.lines = append(s.lines, fmt.Sprintf("%6s %s", s.server.now.Sub(s.begin), fmt.Sprintf(format, arguments...)))
}

// act lets the pool work until it has nothing left to do.
func (s *story) act() {
	s.t.Helper()
	for range 50 {
		before := len(s.lines)
		d := s.replica.reconcile()
		slices.Sort(s.lines[before:])
		if d.Change == poolplan.StatusSame && len(d.Actions) == 0 {
			s.summary()
			return
		}
	}
	require.Fail(s.t, "the pool does not come to rest", s.lines)
}

func (s *story) summary() {
	if s.server.pool == nil {
		s.say("  the pool is gone")
		return
	}
	status := s.server.pool.Status
	text := fmt.Sprintf("  = %d unclaimed (%d installing, %d standby, %d ready, %d broken), %d claimed, %d deleting, %d claims wait", status.Size, status.Installing, status.Standby,
		status.Ready, status.Broken, status.Claimed, status.Deleting, status.PendingClaims)
	for _, c := range status.Conditions {
		if c.Type == hivev1.ClusterPoolReady {
			text += "; " + c.Reason + ": " + c.Message
		}
	}
	s.say("%s", text)
}

// wait lets time pass.
func (s *story) wait(d time.Duration) {
	s.server.now = s.server.now.Add(d)
}

func (s *story) installAll() {
	s.say("everything is installed")
	for _, name := range s.server.names() {
		if cd := s.server.clusters[name]; !cd.Installed && !cd.Deleting && cd.InstallStopped == nil {
			s.server.install(name)
		}
	}
	s.powerAll()
}

// powerAll lets all clusters reach their power state.
func (s *story) powerAll() {
	for _, name := range s.server.names() {
		if cd := s.server.clusters[name]; cd.Installed && !cd.Deleting {
			s.server.followPower(name)
		}
	}
}

// fill lets the pool fill.
func (s *story) fill() {
	s.t.Helper()
	s.act()
	s.wait(time.Second)
	s.installAll()
	s.act()
}

// gone lets everything go that is being deleted.
func (s *story) gone() {
	s.say("deletions finish")
	s.server.finishDeletions()
	s.act()
	s.server.finishDeletions()
}

// claim makes a claim and gives it the oldest free installed cluster, if there is one.
func (s *story) claim(name string) string {
	s.server.claim(name)
	for _, c := range s.oldest() {
		if c.Installed && unclaimed(c) {
			s.say("claim %s gets %s", name, c.Namespace)
			s.server.bind(name, c.Namespace)
			return c.Namespace
		}
	}
	s.say("claim %s waits", name)
	return ""
}

func (s *story) oldest() []poolplan.Cluster {
	var all []poolplan.Cluster
	for _, name := range s.server.names() {
		all = append(all, s.server.clusters[name])
	}
	slices.SortStableFunc(all, func(a, b poolplan.Cluster) int { return a.Created.Compare(b.Created) })
	return all
}

func (s *story) edit(what string, options ...testobj.PoolOption) {
	s.say("%s", what)
	s.server.edit(options...)
	s.act()
}

// golden compares the transcript with the one on file.
func (s *story) golden() {
	s.t.Helper()
	path := filepath.Join("testdata", strings.ReplaceAll(s.t.Name(), "/", "_")+".txt")
	got := strings.Join(s.lines, "\n") + "\n"
	if *update {
		require.NoError(s.t, os.MkdirAll("testdata", 0o750))
		require.NoError(s.t, os.WriteFile(path, []byte(got), 0o600))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(s.t, err, "run the test with -update once")
	require.Equal(s.t, string(want), got)
}
