// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"slices"
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
	case installing, standby, ready, broken:
		return true
	case claimed, released, deleting:
		return false
	}
	return false
}

// takeCensus sorts the clusters and gives each its state, operations included: what was decided counts as done.
func (p *pass) takeCensus() {
	named := poolview.Named(p.in.Claims)
	doomed := poolview.PoolOf(p.pool).Doomed()
	p.pending = p.countPending()
	seen := map[string]bool{}
	for _, c := range sorted(p.in.Clusters) {
		seen[c.Namespace] = true
		m := member{Cluster: c}
		m.state, m.failure = p.stateOf(c, named[c.Namespace], doomed[poolview.DoomKey(c.Namespace, c.UID)])
		p.members = append(p.members, m)
	}
	for _, op := range p.pool.Status.Operations {
		if op.Kind == hivev1.OperationCreate && !seen[op.Namespace] {
			p.members = append(p.members, p.unseen(op, named[op.Namespace]))
		}
	}
}

// unseen is the cluster that an operation creates and that is not in view.
func (p *pass) unseen(op hivev1.ClusterPoolOperation, named bool) member {
	m := member{planned: true, state: installing, Cluster: Cluster{
		Namespace: op.Namespace, Name: op.Namespace, ClusterName: op.ClusterName, Version: p.version, Created: p.now, Power: power(op.Running),
	}}
	if named {
		m.state = claimed
	}
	return m
}

func (p *pass) stateOf(c Cluster, named, doomed bool) (state, Failure) {
	switch {
	case c.Deleting:
		return deleting, Failure{}
	case c.Marked:
		if doomed {
			return deleting, Failure{}
		}
		return released, Failure{}
	case c.Claimed() || named:
		return claimed, Failure{}
	case doomed:
		return deleting, Failure{}
	}
	failure, due := c.Broken(p.now, p.limits)
	if failure != nil {
		return broken, *failure
	}
	if !due.IsZero() {
		p.wakeAt(due)
	}
	switch {
	case !c.Installed:
		return installing, Failure{}
	case c.Running():
		return ready, Failure{}
	}
	return standby, Failure{}
}

// countPending counts the claims that wait for a cluster, and plans again when the first of them leaves the queue.
func (p *pass) countPending() int {
	waiting := poolview.Waiting(p.now, p.in.Claims, p.in.Clusters)
	for _, claim := range waiting {
		if !claim.Expires.IsZero() {
			p.wakeAt(claim.Expires)
		}
	}
	return len(waiting)
}

func (p *pass) count(states ...state) int {
	n := 0
	for _, m := range p.members {
		if slices.Contains(states, m.state) {
			n++
		}
	}
	return n
}

func (p *pass) countUnclaimed() int { return p.count(installing, standby, ready, broken) }

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

// byAge orders members by age, oldest first, with a total order.
func byAge(a, b member) int { return poolview.ByAge(a.Cluster, b.Cluster) }
