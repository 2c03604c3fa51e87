// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

func TestStoryFillClaimRefill(t *testing.T) {
	s := newStory(t, testobj.Size(3), testobj.RunningCount(1))
	s.fill()
	s.wait(time.Minute)
	s.claim("alice")
	s.act()
	s.wait(time.Second)
	s.installAll()
	s.act()
	s.wait(time.Hour)
	s.say("claim alice is deleted")
	s.server.release("alice")
	s.act()
	s.gone()
	s.golden()
}

func TestStoryBurstOfClaims(t *testing.T) {
	s := newStory(t, testobj.Size(2), testobj.MaxSize(5), testobj.RunningCount(1))
	s.fill()
	s.wait(time.Minute)
	for _, name := range []string{"a", "b", "c", "d"} {
		s.claim(name)
	}
	s.act()
	s.wait(time.Second)
	s.installAll()
	s.act()
	s.golden()
}

func TestStoryMaxConcurrentSpendsItsBudgetInOrder(t *testing.T) {
	s := newStory(t, testobj.Size(4), testobj.MaxConcurrent(2))
	for range 3 {
		s.fill()
		s.wait(time.Second)
	}
	first := s.claim("a")
	s.say("a is released, another cluster breaks, and size goes up")
	s.server.release("a")
	for _, c := range s.oldest() {
		if c.Namespace != first {
			s.server.breakInstall(c.Namespace, "Broke")
			break
		}
	}
	s.edit("size 5", testobj.Size(5))
	s.gone()
	s.installAll()
	s.act()
	s.edit("maxConcurrent 0 freezes", testobj.MaxConcurrent(0), testobj.Size(1))
	s.edit("maxConcurrent 2 again", testobj.MaxConcurrent(2))
	s.gone()
	s.gone()
	s.golden()
}

func TestStoryScaleDown(t *testing.T) {
	s := newStory(t, testobj.Size(3), testobj.RunningCount(2))
	s.fill()
	s.wait(time.Minute)
	s.edit("size 5", testobj.Size(5))
	s.wait(time.Minute)
	s.edit("size 4: of two that install, one goes", testobj.Size(4))
	s.edit("size 2: the other, and the one on standby", testobj.Size(2))
	s.edit("size 0: all", testobj.Size(0))
	s.gone()
	s.golden()
}

func TestStoryInventory(t *testing.T) {
	s := newStory(t, testobj.Size(3), testobj.Inventory("red", "green"))
	s.fill()
	s.wait(time.Minute)
	s.edit("blue is added", testobj.Inventory("red", "green", "blue"))
	s.wait(time.Second)
	s.installAll()
	s.act()
	taken := s.claim("a")
	s.act()
	s.edit("the claimed name, an unclaimed one and blue go; cyan comes", testobj.Inventory("cyan"))
	s.gone()
	require.Contains(t, s.server.pool.Status.ClusterNameUsage, s.server.clusters[taken].ClusterName, "a claimed name stays until its cluster is gone")
	s.say("claim a is deleted")
	s.server.release("a")
	s.act()
	s.gone()
	s.act()
	require.Len(t, s.server.pool.Status.ClusterNameUsage, 1)
	s.golden()
}

func TestStoryInventoryAppearsAndDisappears(t *testing.T) {
	s := newStory(t, testobj.Size(2))
	s.fill()
	s.wait(time.Minute)
	s.edit("an inventory appears: everything is stale, and is replaced one by one", testobj.Inventory("red", "green", "blue"))
	for range 4 {
		s.gone()
		s.wait(time.Second)
		s.installAll()
		s.act()
	}
	s.edit("the inventory disappears", func(p *hivev1.ClusterPool) { p.Spec.Inventory = nil })
	for range 4 {
		s.gone()
		s.wait(time.Second)
		s.installAll()
		s.act()
	}
	s.golden()
}

func TestStoryStaleReplacement(t *testing.T) {
	s := newStory(t, testobj.Size(4), testobj.MaxConcurrent(3))
	for range 2 {
		s.fill()
		s.wait(time.Second)
	}
	s.edit("a new image set", testobj.ImageSet("release-2"))
	for range 4 {
		s.gone()
		s.wait(time.Second)
		s.installAll()
		s.act()
	}
	s.golden()
}

func TestStoryFailuresSlowThePoolDown(t *testing.T) {
	s := newStory(t, testobj.Size(1))
	for range 6 {
		s.act()
		s.wait(time.Second)
		for _, name := range s.server.names() {
			if !s.server.clusters[name].Deleting {
				s.say("installation of %s fails", name)
				s.server.breakInstall(name, "QuotaExceeded")
			}
		}
		s.act()
		s.gone()
		p := s.server.pool.Status.Provisioning
		next := p.NextAttemptTime.Sub(s.server.now)
		s.say("  failures %d (%s), breaker %s, next in %s", p.ConsecutiveFailures, p.LastFailureReason, p.CircuitBreaker, next)
		s.wait(next - time.Second)
		s.act()
		s.wait(time.Second)
	}
	s.act()
	s.wait(time.Minute)
	s.installAll()
	s.act()
	require.Nil(t, s.server.pool.Status.Provisioning, "a success closes the breaker")
	s.golden()
}

func TestStoryResumeTimesOut(t *testing.T) {
	s := newStory(t, testobj.Size(2), testobj.RunningCount(1), testobj.ResumeTimeout(10*time.Minute))
	s.fill()
	s.wait(time.Minute)
	s.edit("both run", testobj.RunningCount(2))
	for _, name := range s.server.names() {
		if c := s.server.clusters[name]; c.ObservedPower != c.Power {
			s.say("%s hangs", name)
			c.ObservedPower, c.ResumingSince = hivev1.PowerStateWaitingForNodes, s.server.now
			s.server.putCluster(c)
		}
	}
	d := s.replica.reconcile()
	require.Equal(t, 10*time.Minute, d.RequeueAfter, "the pool wakes up when the time is over, not when something else happens")
	s.wait(9 * time.Minute)
	s.act()
	s.wait(time.Minute)
	s.act()
	s.wait(30 * time.Second)
	s.act()
	s.gone()
	s.golden()
}

func TestStoryPoolDeletion(t *testing.T) {
	s := newStory(t, testobj.Size(3), testobj.MaxConcurrent(2))
	for range 2 {
		s.fill()
		s.wait(time.Second)
	}
	s.claim("a")
	s.say("the pool is deleted")
	s.server.deletePool()
	s.act()
	s.gone()
	s.gone()
	s.say("claim a is deleted")
	s.server.release("a")
	s.act()
	s.gone()
	s.act()
	require.Nil(t, s.server.pool)
	s.golden()
}

func TestStoryCreationIsRefused(t *testing.T) {
	s := newStory(t, testobj.Size(1))
	refused := true
	s.server.refuse = func(string) bool { return refused }
	s.say("the API server refuses clusters")
	s.act()
	refused = false
	s.wait(30 * time.Second)
	s.act()
	s.wait(30 * time.Second)
	s.act()
	s.wait(time.Second)
	s.installAll()
	s.act()
	s.gone()
	s.golden()
}

func TestStoryARefusedNameDoesNotBlockTheOthers(t *testing.T) {
	s := newStory(t, testobj.Size(1), testobj.Inventory("blue", "green"))
	s.server.refuse = func(name string) bool { return strings.HasPrefix(name, "blue-") }
	s.say("the API server refuses clusters of the name blue")
	s.act()
	valid := func() *hivev1.Condition {
		return hivev1.FindCondition(s.server.pool.Status.Conditions, hivev1.ClusterPoolInventoryValid)
	}
	require.Equal(t, hivev1.ReasonInvalid, valid().Reason)
	require.Contains(t, valid().Message, "blue; it said: ")
	s.wait(30 * time.Second)
	s.act()
	s.installAll()
	s.wait(time.Minute)
	s.act()
	s.gone()
	require.Equal(t, hivev1.ReasonValid, valid().Reason, "a cluster was installed since, and blue may be tried again")
	require.NotEmpty(t, s.server.pool.Status.ClusterNameUsage["green"])
	s.golden()
}

func TestStoryPowerIsPutBack(t *testing.T) {
	s := newStory(t, testobj.Size(3), testobj.RunningCount(1))
	s.fill()
	s.say("a user starts all clusters by hand")
	for _, name := range s.server.names() {
		c := s.server.clusters[name]
		c.Power = hivev1.PowerStateRunning
		s.server.putCluster(c)
	}
	s.act()
	s.edit("runningCount 9 is no more than size", testobj.RunningCount(9))
	s.edit("runningCount 0", testobj.RunningCount(0))
	s.claim("a")
	s.act()
	s.golden()
}

// A replica whose pool is old sees the namespace of a cluster that another replica is just creating, and no cluster in it: it must not take it for one that was left over.
func TestOldPoolReapsNoNamespaceOfAClusterBeingCreated(t *testing.T) {
	s := newStory(t, testobj.Size(0))
	s.act()
	old := newReplica(s.server, s.replica.random)
	s.server.edit(testobj.Size(1))
	s.replica.catchUp()
	s.replica.plan(false)
	s.replica.step() // the ticket
	s.replica.step() // the namespace
	require.Len(t, s.server.namespaces, 1)

	for old.observe(namespaces) {
		continue
	}
	d := old.plan(false)
	require.Len(t, d.Actions, 1)
	require.IsType(t, poolplan.DeleteNamespace{}, d.Actions[0], "in its view the namespace is left over")
	for old.step() {
		continue
	}
	for s.replica.step() {
		continue
	}
	require.Len(t, s.server.clusters, 1)
	for _, ns := range s.server.namespaces {
		require.False(t, ns.Deleting, "the pool was not the newest, so nothing was done")
	}
}
