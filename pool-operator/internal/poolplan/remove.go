// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"strings"
	"time"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// deleteReleased deletes clusters whose claim is gone or that are marked for removal.
func (p *pass) deleteReleased() { p.deleteAll(released, WhyReleased) }

// deleteBroken deletes clusters that will never be usable.
func (p *pass) deleteBroken() {
	for i := range p.fleet.members {
		if m := p.fleet.members[i]; m.state == broken && (m.failure.Reason != hivev1.ReasonDataMissing || p.lost(m)) {
			p.deleteMember(i, WhyBroken)
		}
	}
}

// dataReturns is how long data may be missing before it counts as lost: a volume that was not mounted, or is being restored, comes back.
const dataReturns = 10 * time.Minute

// lost says whether the data of a cluster counts as lost now. Where many clusters miss theirs, one thing is wrong with all of them, such as the directory of the operator, and may be mended
// meanwhile: the next one is given up when the cluster in place of the one before is installed, and none while the pool cannot create that.
func (p *pass) lost(m member) bool {
	due := m.DataMissingSince.Add(dataReturns)
	if left := due.Sub(p.now); left > 0 && left <= dataReturns {
		p.wakeAt(due)
		return false
	}
	given := p.fleet.countIf(func(other member) bool { return other.state == deleting && other.DataMissing })
	return given == 0 && p.fleet.count(installing) == 0 && p.fleet.countUnclaimed() >= p.quota.attainable()
}

// deleteUnclaimed deletes unclaimed clusters, because the pool is being deleted.
func (p *pass) deleteUnclaimed() {
	for i := range p.fleet.members {
		if !p.fleet.members[i].unclaimed() {
			continue
		}
		p.deleteMember(i, WhyPoolDeleted)
	}
}

func (p *pass) deleteAll(s state, why Why) {
	for i := range p.fleet.members {
		if p.fleet.members[i].state != s {
			continue
		}
		p.deleteMember(i, why)
	}
}

// deleteMember records the deletion of the member if that is possible now, and otherwise what stands in its way.
func (p *pass) deleteMember(i int, why Why) bool {
	switch {
	case p.fleet.members[i].Kept():
		p.kept = append(p.kept, p.fleet.members[i])
		return false
	case !p.deletable(i):
		p.refusedByBudget = p.refusedByBudget || p.quota.budget() == 0
		return false
	}
	p.recordDeletion(i, why)
	return true
}

// deleteRemovedEntries deletes unclaimed clusters whose name was removed from the inventory.
func (p *pass) deleteRemovedEntries() {
	for i, m := range p.fleet.members {
		if m.unclaimed() && p.inventory.removed(m, p.fleet.version) {
			p.deleteMember(i, WhyEntryRemoved)
		}
	}
}

// deleteSurplus deletes clusters beyond the target. The successor of a stale cluster may exist beside it for a while.
func (p *pass) deleteSurplus() {
	surplus := p.fleet.countUnclaimed() - p.quota.target() - p.quota.surging()
	for _, i := range p.fleet.surplusOrder() {
		if surplus <= 0 {
			return
		}
		if p.deleteMember(i, WhyAboveTarget) {
			surplus--
		}
	}
}

// reapNamespaces deletes namespaces whose cluster is gone. It needs no ticket: no operation creates a cluster of that name any more, so deleting twice is deleting once.
func (p *pass) reapNamespaces() {
	busy := map[string]bool{}
	for _, op := range p.ticket.ops {
		busy[op.Namespace] = true
	}
	for _, m := range p.fleet.members {
		busy[m.Namespace] = true
	}
	n := 0
	for _, ns := range p.in.Namespaces {
		if ns.Deleting || ns.Occupied || busy[ns.Name] || !generated(ns.Name) || n >= SliceOfPass {
			continue
		}
		p.ticket.act(DeleteNamespace{Name: ns.Name, UID: ns.UID, Why: WhyNamespaceEmpty})
		n++
	}
}

// namespacesGone says that no namespace of a cluster is left to be deleted.
func (p *pass) namespacesGone() bool {
	for _, ns := range p.in.Namespaces {
		if !ns.Deleting && !ns.Occupied && generated(ns.Name) {
			return false
		}
	}
	return true
}

// generated says whether a namespace's name ends as the names of clusters do. One that does not was not made for a cluster, whatever its labels say.
func generated(name string) bool {
	i := strings.LastIndexByte(name, '-')
	return i > 0 && len(name)-i-1 == SlugLength && strings.Trim(name[i+1:], SlugAlphabet) == ""
}

// Shape of slugs.
const (
	// SlugLength is the length of a slug.
	SlugLength = 5
	// SlugAlphabet holds the characters of a slug: no vowels, so that no words come out, and nothing that looks like something else.
	SlugAlphabet = "bcdfghjklmnpqrstvwxz2456789"
)

// Orphans are the deletions of namespaces of a pool that is gone. The caller checks once more that the namespace is empty before it deletes it.
func Orphans(namespaces []Namespace) []DeleteNamespace {
	var out []DeleteNamespace
	for _, ns := range namespaces {
		if !ns.Deleting && !ns.Occupied && generated(ns.Name) {
			out = append(out, DeleteNamespace{Name: ns.Name, UID: ns.UID, Why: WhyNamespaceEmpty})
		}
	}
	return out
}
