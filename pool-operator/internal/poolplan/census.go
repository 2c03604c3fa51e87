// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"unicode/utf8"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
)

// state is what a cluster counts as; each cluster has exactly one.
type state int

const (
	// installing: unclaimed and not installed yet, or about to be created.
	installing state = iota
	// standby: unclaimed, installed and not running.
	standby
	// ready: unclaimed, installed and running.
	ready
	// withheld: unclaimed, installed and paused by a user, so that no claim gets it.
	withheld
	// broken: unclaimed, and installation stopped or the cluster does not resume.
	broken
	// claimed: recorded for a claim, or taken by one that has not recorded itself yet.
	claimed
	// released: marked to be removed.
	released
	// deleting: being deleted, or about to be.
	deleting
)

// member is a cluster of the pool, or one that is about to be.
type member struct {
	Cluster
	state   state
	failure Failure
	// planned says that the cluster has not been seen yet.
	planned bool
}

func (m member) unclaimed() bool {
	switch m.state {
	case installing, standby, ready, withheld, broken:
		return true
	case claimed, released, deleting:
		return false
	}
	return false
}

// census gives the clusters of a pool their states.
type census struct {
	*timer
	limits func(Cluster) poolview.Limits
}

// takeCensus sorts the clusters and gives each its state, operations included: what was decided counts as done. It plans again when a cluster is due to be broken.
func takeCensus(s Snapshot, t *timer) fleet {
	f := fleet{version: Version(s.Pool.Spec)}
	c := census{timer: t, limits: Limits(s.Pool)}
	named := poolview.Named(s.Claims)
	toDelete := poolview.PoolOf(s.Pool).ToDelete()
	seen := map[string]bool{}
	for _, cluster := range sorted(s.Clusters) {
		seen[cluster.Namespace] = true
		m := member{Cluster: cluster}
		// A deletion of a cluster that is kept by now is given up: the cluster counts.
		going := toDelete[poolview.DeletionKey(cluster.Namespace, cluster.UID)] && !cluster.Kept()
		m.state, m.failure = c.stateOf(cluster, named[cluster.Namespace], going)
		f.add(m)
	}
	for _, op := range s.Pool.Status.Operations {
		if op.Kind != hivev1.OperationCreate || seen[op.Namespace] {
			continue
		}
		m := f.planned(t.now, op)
		if named[op.Namespace] {
			m.state = claimed
		}
		f.add(m)
	}
	return f
}

func (c census) stateOf(cluster Cluster, named, toDelete bool) (state, Failure) {
	switch {
	case cluster.Deleting:
		return deleting, Failure{}
	case cluster.Marked:
		if toDelete {
			return deleting, Failure{}
		}
		return released, Failure{}
	case cluster.Claimed() || named:
		return claimed, Failure{}
	case toDelete:
		return deleting, Failure{}
	}
	failure, due := cluster.Broken(c.now, c.limits(cluster))
	if failure != nil {
		return broken, *failure
	}
	if !due.IsZero() {
		c.wakeAt(due)
	}
	switch {
	case !cluster.Installed:
		return installing, Failure{}
	case !cluster.Usable():
		return withheld, Failure{}
	case cluster.Running():
		return ready, Failure{}
	}
	return standby, Failure{}
}

// Limits returns how long each cluster of a pool may take. Without an installTimeout, one of an earlier version that installs for unusually long is given up, unless the inventory is unusable:
// it may wait for what the present version has mended, and while it counts as being installed it holds up the clusters that would replace it.
func Limits(pool *hivev1.ClusterPool) func(Cluster) poolview.Limits {
	limits, inventory, version := poolview.LimitsOf(&pool.Spec), pool.Spec.Inventory, ""
	replaceable := inventory == nil || inventory.Unusable == nil
	return func(cluster Cluster) poolview.Limits {
		if limits.Install != 0 || cluster.Installed || !replaceable {
			return limits
		}
		if version == "" {
			version = Version(pool.Spec)
		}
		own := limits
		if cluster.Version != version {
			own.Install = slowInstallation
		}
		return own
	}
}

// countPending counts the claims that wait for a cluster, and plans again when the first of them leaves the queue.
func countPending(s Snapshot, t *timer) int {
	waiting := poolview.Waiting(t.now, s.Claims, s.Clusters)
	for _, claim := range waiting {
		if !claim.Expires.IsZero() {
			t.wakeAt(claim.Expires)
		}
	}
	return len(waiting)
}

// power is the power state of a cluster that runs or does not.
func power(running bool) hivev1.PowerState {
	if running {
		return hivev1.PowerStateRunning
	}
	return hivev1.PowerStateHibernating
}

// cut shortens s to at most n bytes, without cutting a character in two.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
