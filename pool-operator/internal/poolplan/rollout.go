// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import "time"

// A rollout replaces clusters of earlier versions once the pool is as full as it can be. Where there is room in maxSize, maxConcurrent and the inventory, the new cluster comes first and
// the stale one goes when it is installed; where there is none, the stale one goes first. As many clusters run throughout as runningCount says, if there is room for one more.

// replaceStale takes the next steps of a rollout. At most half of the unclaimed clusters are being replaced at a time, and a single one if the pool does not say how many may be
// (maxConcurrent).
func (p *pass) replaceStale() {
	if p.fleet.countStale() == 0 || p.fleet.countUnclaimed() < p.quota.attainable() || len(p.in.Missing) > 0 || p.health.allows(p.fleet.count(installing)) == 0 || p.inventory.unusable() != "" {
		return
	}
	p.retireStale()
	if p.surge() {
		return
	}
	for _, i := range p.fleet.staleOrder() {
		if p.fleet.countUnclaimed() > p.quota.target() || p.underWay() >= p.quota.atOnce() {
			return
		}
		p.deleteMember(i, WhyStale)
	}
}

// slowDeletion is for how long a rollout waits for a cluster that is being deleted.
const slowDeletion = time.Hour

// underWay counts the clusters that a rollout waits for: those that are being installed or deleted. A deletion that takes unusually long, such as one without valid credentials for its
// platform, may never end.
func (p *pass) underWay() int {
	n := p.fleet.count(installing)
	for _, m := range p.fleet.members {
		if m.state != deleting {
			continue
		}
		due := m.DeletingSince.Add(slowDeletion)
		switch {
		case m.DeletingSince.IsZero():
			n++
		case p.now.Before(due):
			p.wakeAt(due)
			n++
		}
	}
	return n
}

// retireStale deletes stale clusters whose replacement is installed.
func (p *pass) retireStale() {
	spare := min(p.fleet.countUnclaimed(), p.fleet.count(standby, ready, withheld)) - p.quota.target()
	for _, i := range p.fleet.staleOrder() {
		if spare <= 0 {
			return
		}
		if p.fleet.members[i].state != installing && p.spared(i) && p.deleteMember(i, WhyStale) {
			spare--
		}
	}
}

// spared says whether as many clusters run without the member as should: a running one goes when enough others run.
func (p *pass) spared(i int) bool {
	return p.fleet.members[i].state != ready || p.fleet.count(ready) > min(p.quota.runningTarget(), p.quota.target())
}

// surge adds clusters that replace stale ones, as far as there is room. It says whether there is: then no stale cluster has to go first.
func (p *pass) surge() bool {
	extra := max(0, p.fleet.countUnclaimed()-p.quota.target())
	n := min(p.quota.atOnce()-p.underWay(), p.quota.atOnce()-extra, p.fleet.countStale()-extra, p.ticket.slice(), p.health.allows(p.fleet.count(installing)))
	room := min(p.quota.room(), p.quota.budget())
	if p.quota.budget() == 0 {
		p.refusedByBudget = true
	}
	p.create(min(n, room), WhyStale)
	return extra > 0 || p.quota.room() > 0
}
