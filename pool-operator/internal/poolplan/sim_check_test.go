// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan_test

import (
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
)

// demand ends the run with everything that is needed to understand it.
func (c *chaos) demand(holds bool, what string, arguments ...any) {
	if holds {
		return
	}
	c.t.Helper()
	tail := c.events[max(0, len(c.events)-60):]
	c.t.Logf("MUSTER_SEED=%d\n%s\n%s", c.seed, strings.Join(tail, "\n"), c.server)
	require.Failf(c.t, what, "seed %d: %v", c.seed, arguments)
}

func unclaimed(cd poolplan.Cluster) bool {
	return cd.ClaimUID == "" && !cd.Marked && !cd.Deleting
}

// check checks what must never happen, in the API server itself.
func (c *chaos) check() {
	busy := 0
	names := map[string]string{}
	limits := poolview.Limits{}
	if c.server.pool != nil {
		limits = poolview.LimitsOf(&c.server.pool.Spec)
	}
	for _, name := range c.server.names() {
		cd := c.server.clusters[name]
		broken, _ := cd.Broken(c.server.now, limits)
		if cd.Deleting || (unclaimed(cd) && !cd.Installed && broken == nil) {
			busy++
		}
		c.demand(names[cd.ClusterName] == "", "two clusters have one name", cd.ClusterName, names[cd.ClusterName], name)
		names[cd.ClusterName] = name
		c.demand(!cd.Deleting || cd.ClaimUID == "" || cd.Marked, "a claimed cluster is deleted", name)
		c.demand(c.server.used[name] == 1, "a cluster was created again", name)
	}
	c.demand(len(c.server.kept) == 0, "a protected cluster is deleted", c.server.kept)
	c.demand(len(c.server.clusters) <= c.maxSize, "there are more clusters than maxSize", len(c.server.clusters), c.maxSize)
	c.demand(c.atOnce < 0 || busy <= c.atOnce, "more clusters are installing or deleting than maxConcurrent", busy, c.atOnce)
}

// checkTicket checks a decision at the moment at which it becomes valid: with what really is there, no more clusters are created than were asked for.
func (c *chaos) checkTicket(s poolplan.Snapshot, d poolplan.Decision) {
	created := slices.ContainsFunc(d.Actions, func(a poolplan.Action) bool {
		create, ok := a.(poolplan.CreateCluster)
		return ok && !create.Replay
	})
	if !created {
		return
	}
	named := map[string]bool{}
	for _, cl := range c.server.claims {
		named[cl.Namespace] = true
	}
	for _, cl := range s.Claims {
		named[cl.Namespace] = true
	}
	have := 0
	for name, cd := range c.server.clusters {
		if unclaimed(cd) && !named[name] {
			have++
		}
	}
	for _, op := range d.Status.Operations {
		if _, there := c.server.clusters[op.Namespace]; op.Kind == hivev1.OperationCreate && !there {
			have++
		}
		if cd, there := c.server.clusters[op.Namespace]; op.Kind == hivev1.OperationDelete && there && unclaimed(cd) && !named[op.Namespace] {
			have--
		}
	}
	target := int(s.Pool.Spec.Size) + int(d.Status.PendingClaims)
	// While stale clusters are replaced, there may be more: one, or as many as half of the target if the pool says how many may be installing at a time.
	surge := 1
	if s.Pool.Spec.MaxConcurrent != nil {
		surge = max(1, target/2)
	}
	stale := 0
	for _, cd := range s.Clusters {
		if unclaimed(cd) && cd.Version != poolplan.Version(s.Pool.Spec) {
			stale++
		}
	}
	target += min(surge, stale)
	c.demand(have <= target, "more clusters are created than asked for", have, target)
}

// converge runs all replicas until they have no work left, without new requests. Then the pool has to be what its spec says, and nothing may be left to do.
func (c *chaos) converge() {
	c.fails = 0
	c.server.refuse = func(string) bool { return false }
	for _, name := range sortedKeys(c.server.claims) {
		if cl := c.server.claims[name]; cl.Paused {
			cl.Paused = false
			c.server.putClaim(cl)
		}
	}
	for _, name := range c.server.names() {
		if cd := c.server.clusters[name]; cd.Protected {
			cd.Protected = false
			c.server.putCluster(cd)
		}
	}
	if c.server.pool == nil || !c.server.pool.DeletionTimestamp.IsZero() {
		for _, name := range sortedKeys(c.server.claims) {
			c.server.release(name)
		}
	}
	quiet := 0
	for round := 0; quiet < 3; round++ {
		c.demand(round < 2000, "the pool does not come to rest")
		before := c.server.version
		wake := c.calmRound()
		c.check()
		c.server.now = c.server.now.Add(max(20*time.Second, wake))
		if before == c.server.version && wake == 0 {
			quiet++
		} else {
			quiet = 0
		}
	}
	c.checkRest()
}

// calmRound runs each replica once, and returns how long the longest wait is that a plan asked for.
func (c *chaos) calmRound() (wake time.Duration) {
	for _, r := range c.replicas {
		wake = max(wake, r.reconcile().RequeueAfter)
		r.catchUp()
		for range c.server.claims {
			for range 3 {
				c.claimController(r)
				r.catchUp()
			}
		}
	}
	if c.server.pool == nil {
		c.sweep()
	}
	for _, name := range c.server.names() {
		switch cd := c.server.clusters[name]; {
		case cd.Deleting || cd.InstallStopped != nil:
		case !cd.Installed:
			c.server.install(name)
		case cd.ObservedPower != cd.Power || cd.NotReady:
			c.server.followPower(name)
		}
	}
	c.deletions(true)
	return wake
}

// sweep is what the controller does about a pool that is gone: a replica whose view of what a namespace holds was behind may have removed the finalizer of the pool without it.
func (c *chaos) sweep() {
	var left []poolplan.Namespace
	for _, name := range sortedKeys(c.server.namespaces) {
		n := c.server.namespaces[name]
		_, n.Occupied = c.server.clusters[name]
		left = append(left, n)
	}
	for _, a := range poolplan.Orphans(left) {
		c.server.deleteNamespace(a)
	}
}

// checkRest checks a pool at rest against its spec.
func (c *chaos) checkRest() {
	pool := c.server.pool
	if pool == nil {
		c.demand(len(c.server.clusters) == 0 && len(c.server.namespaces) == 0, "a pool that is gone left something behind")
		return
	}
	c.demand(pool.DeletionTimestamp.IsZero(), "the pool is not deleted")
	free, running, claimed := 0, 0, 0
	for _, cd := range c.server.clusters {
		switch {
		case unclaimed(cd):
			free++
			c.demand(cd.Version == poolplan.Version(pool.Spec), "a stale cluster is left", cd.Name)
			if cd.Power == hivev1.PowerStateRunning {
				running++
			}
		default:
			claimed++
		}
	}
	pending := int(pool.Status.PendingClaims)
	want := min(int(pool.Spec.Size)+pending, c.maxSize-claimed)
	if pool.Spec.Inventory != nil {
		want = min(want, free+c.freeNames(pool))
	}
	c.demand(free == max(0, want), "the pool is not filled", free, want)
	c.demand(running == min(free, int(min(pool.Spec.RunningCount, pool.Spec.Size))+pending), "not the right number of clusters runs", running)
	c.demand(len(c.server.namespaces) == len(c.server.clusters), "a namespace is left over")
	c.demand(len(pool.Status.Operations) == 0, "operations are left over")
	for _, r := range c.replicas {
		d := r.reconcile()
		c.demand(len(d.Actions) == 0 && d.Change == poolplan.StatusSame, "a second plan is not empty", d.Actions, d.Change)
	}
}

// freeNames are the names of the inventory that no cluster has.
func (c *chaos) freeNames(pool *hivev1.ClusterPool) int {
	used := map[string]bool{}
	for _, cd := range c.server.clusters {
		used[cd.ClusterName] = true
	}
	n := 0
	for _, entry := range pool.Spec.Inventory.ClusterDeployments {
		if !used[entry.Name] {
			n++
		}
	}
	return n
}
