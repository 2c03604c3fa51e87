// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"cmp"
	"slices"
)

// A rollout replaces clusters of earlier versions once the pool is as full as it can be. Where there is room in maxSize, maxConcurrent and the inventory, the new cluster comes first and
// the stale one goes when it is installed; where there is none, the stale one goes first. As many clusters run throughout as runningCount says, if there is room for one more.

// replaceStale takes the next steps of a rollout. At most half of the unclaimed clusters are being replaced at a time, and a single one if the pool does not say how many may be
// (maxConcurrent).
func (p *pass) replaceStale() {
	if p.countStale() == 0 || p.countUnclaimed() < p.attainable() || len(p.in.Missing) > 0 || p.allowedByFailures() == 0 || p.unusable() != "" {
		return
	}
	p.retireStale()
	if p.surge() {
		return
	}
	for _, i := range p.staleOrder() {
		if p.countUnclaimed() > p.target() || p.count(installing, deleting) >= p.atOnce() {
			return
		}
		p.deleteMember(i, WhyStale)
	}
}

// retireStale deletes stale clusters whose replacement is installed.
func (p *pass) retireStale() {
	spare := min(p.countUnclaimed(), p.count(standby, ready)) - p.target()
	for _, i := range p.staleOrder() {
		if spare <= 0 {
			return
		}
		if p.members[i].state != installing && p.spared(i) && p.deleteMember(i, WhyStale) {
			spare--
		}
	}
}

// spared says whether as many clusters run without the member as should: a running one goes when enough others run.
func (p *pass) spared(i int) bool {
	return p.members[i].state != ready || p.count(ready) > min(p.runningTarget(), p.target())
}

// surge adds clusters that replace stale ones, as far as there is room. It says whether there is: then no stale cluster has to go first.
func (p *pass) surge() bool {
	extra := max(0, p.countUnclaimed()-p.target())
	n := min(p.atOnce()-p.count(installing, deleting), p.atOnce()-extra, p.countStale()-extra, p.slice(), p.allowedByFailures())
	room := min(p.roomForSurge(), p.budget())
	if p.budget() == 0 {
		p.refusedByBudget = true
	}
	p.create(min(n, room), WhyStale)
	return extra > 0 || p.roomForSurge() > 0
}

// roomForSurge is how many clusters there may be beyond those that there are, before this pass adds any.
func (p *pass) roomForSurge() int {
	room := p.capacity()
	if p.spec.Inventory != nil {
		room = min(room, len(p.freeNames()))
	}
	return room
}

// surging is how many unclaimed clusters beyond the target are there to replace stale ones.
func (p *pass) surging() int {
	current := 0
	for _, m := range p.members {
		if m.unclaimed() && !p.stale(m) {
			current++
		}
	}
	return max(0, min(p.countUnclaimed()-p.target(), p.countStale(), current, p.atOnce()))
}

// atOnce is how many clusters are replaced at a time.
func (p *pass) atOnce() int {
	if p.spec.MaxConcurrent == nil {
		return 1
	}
	return max(1, p.target()/2)
}

// stale says whether the cluster was made from an earlier version of the pool, and is there to be replaced.
func (p *pass) stale(m member) bool {
	return m.unclaimed() && !m.planned && m.state != broken && m.Version != p.version
}

func (p *pass) countStale() int {
	n := 0
	for _, m := range p.members {
		if p.stale(m) {
			n++
		}
	}
	return n
}

// staleOrder is the order in which stale clusters go: those that sleep, then those that install, then those that run; of these, the ones that do not say their version first, then by age.
func (p *pass) staleOrder() []int {
	rank := map[state]int{standby: 0, installing: 1, ready: 2}
	var order []int
	for i, m := range p.members {
		if p.stale(m) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := p.members[i], p.members[j]
		return cmp.Or(cmp.Compare(rank[a.state], rank[b.state]), boolsFirst(a.Version == "", b.Version == ""), byAge(a, b))
	})
	return order
}
