// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"cmp"
	"slices"
	"time"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
)

// fleet is the clusters of a pool, those that are about to be created or deleted included.
type fleet struct {
	// version is the pool's; clusters of others are stale.
	version string
	members []member
}

func (f *fleet) count(states ...state) int {
	n := 0
	for _, m := range f.members {
		if slices.Contains(states, m.state) {
			n++
		}
	}
	return n
}

func (f *fleet) countUnclaimed() int { return f.count(installing, standby, ready, withheld, broken) }

func (f *fleet) countIf(holds func(member) bool) int {
	n := 0
	for _, m := range f.members {
		if holds(m) {
			n++
		}
	}
	return n
}

// stale says whether the cluster was made from an earlier version of the pool, and is there to be replaced.
func (f *fleet) stale(m member) bool {
	return m.unclaimed() && !m.planned && m.state != broken && m.Version != f.version
}

func (f *fleet) countStale() int { return f.countIf(f.stale) }

// countCurrent counts the unclaimed clusters that are not stale.
func (f *fleet) countCurrent() int {
	return f.countIf(func(m member) bool { return m.unclaimed() && !f.stale(m) })
}

// countCurrentRunnable counts the clusters that come before a new one when it is decided which run. Stale ones come after it.
func (f *fleet) countCurrentRunnable() int {
	return f.countIf(func(m member) bool { return runnable(m) && !f.stale(m) })
}

// runnable says whether a member is one of those of which some run and the others hibernate.
func runnable(m member) bool {
	switch m.state {
	case installing, standby, ready:
		return true
	case withheld, broken, claimed, released, deleting:
		return false
	}
	return false
}

// planned is the member that an operation creates and that is not in view.
func (f *fleet) planned(now time.Time, op hivev1.ClusterPoolOperation) member {
	return member{planned: true, state: installing, Cluster: Cluster{
		Namespace: op.Namespace, Name: op.Namespace, ClusterName: op.ClusterName, Version: f.version, Created: now, Power: power(op.Running),
	}}
}

// add puts a member into the fleet.
func (f *fleet) add(m member) { f.members = append(f.members, m) }

// has says whether a member has the namespace.
func (f *fleet) has(namespace string) bool {
	return slices.ContainsFunc(f.members, func(m member) bool { return m.Namespace == namespace })
}

// runningOrder is the order in which clusters are chosen to run: the oldest first; while stale ones are replaced, their successors come before them.
func (f *fleet) runningOrder() []member {
	var order []member
	for _, m := range f.members {
		if runnable(m) {
			order = append(order, m)
		}
	}
	slices.SortStableFunc(order, func(a, b member) int {
		return cmp.Or(boolsFirst(!f.stale(a), !f.stale(b)), boolsFirst(!a.planned, !b.planned), byAge(a, b))
	})
	return order
}

// surplusOrder is the order in which clusters beyond the target go: broken ones first, then the newest that installs, then the oldest on standby, then the oldest that is ready; of
// these, stale ones first.
func (f *fleet) surplusOrder() []int {
	rank := map[state]int{broken: 0, installing: 1, standby: 2, ready: 3, withheld: 4}
	var order []int
	for i, m := range f.members {
		if m.unclaimed() && !m.planned {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := f.members[i], f.members[j]
		if byRank := cmp.Compare(rank[a.state], rank[b.state]); byRank != 0 {
			return byRank
		}
		if a.state == installing {
			return byAge(b, a)
		}
		return cmp.Or(boolsFirst(f.stale(a), f.stale(b)), byAge(a, b))
	})
	return order
}

// staleOrder is the order in which stale clusters go: those that sleep, then those that install, then those that run; of these, the ones that do not say their version first, then by age.
func (f *fleet) staleOrder() []int {
	rank := map[state]int{standby: 0, installing: 1, ready: 2, withheld: 3}
	var order []int
	for i, m := range f.members {
		if f.stale(m) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := f.members[i], f.members[j]
		return cmp.Or(cmp.Compare(rank[a.state], rank[b.state]), boolsFirst(a.Version == "", b.Version == ""), byAge(a, b))
	})
	return order
}

// byAge orders members by age, oldest first, with a total order.
func byAge(a, b member) int { return poolview.ByAge(a.Cluster, b.Cluster) }

// boolsFirst orders what holds before what does not.
func boolsFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
