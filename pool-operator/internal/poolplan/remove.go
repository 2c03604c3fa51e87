// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"cmp"
	"slices"
	"strings"
)

// deleteReleased deletes clusters whose claim is gone or that are marked for removal.
func (p *pass) deleteReleased() { p.deleteAll(released, WhyReleased) }

// deleteBroken deletes clusters that will never be usable.
func (p *pass) deleteBroken() { p.deleteAll(broken, WhyBroken) }

// deleteUnclaimed deletes unclaimed clusters, because the pool is being deleted.
func (p *pass) deleteUnclaimed() {
	for i := range p.members {
		if !p.members[i].unclaimed() {
			continue
		}
		p.deleteMember(i, WhyPoolDeleted)
	}
}

func (p *pass) deleteAll(s state, why Why) {
	for i := range p.members {
		if p.members[i].state != s {
			continue
		}
		p.deleteMember(i, why)
	}
}

// deleteMember records the deletion of the member if that is possible now, and otherwise what stands in its way.
func (p *pass) deleteMember(i int, why Why) bool {
	switch {
	case p.members[i].Kept():
		p.kept = append(p.kept, p.members[i])
		return false
	case !p.deletable(i):
		p.refusedByBudget = p.refusedByBudget || p.budget() == 0
		return false
	}
	p.recordDeletion(i, why)
	return true
}

// deleteRemovedEntries deletes unclaimed clusters whose name was removed from the inventory.
func (p *pass) deleteRemovedEntries() {
	listed := p.listedNames()
	for i := range p.members {
		if !p.members[i].unclaimed() || !p.entryRemoved(p.members[i], listed) {
			continue
		}
		p.deleteMember(i, WhyEntryRemoved)
	}
}

// deleteSurplus deletes clusters beyond the target: broken ones first, then the newest that installs, then the oldest on standby, then the oldest that is ready; of these, stale ones first.
// The successor of a stale cluster may exist beside it for a while.
func (p *pass) deleteSurplus() {
	surplus := p.countUnclaimed() - p.target() - p.surging()
	for _, i := range p.surplusOrder() {
		if surplus <= 0 {
			return
		}
		if p.deleteMember(i, WhyAboveTarget) {
			surplus--
		}
	}
}

func (p *pass) surplusOrder() []int {
	rank := map[state]int{broken: 0, installing: 1, standby: 2, ready: 3}
	var order []int
	for i, m := range p.members {
		if m.unclaimed() && !m.planned {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := p.members[i], p.members[j]
		if byRank := cmp.Compare(rank[a.state], rank[b.state]); byRank != 0 {
			return byRank
		}
		if a.state == installing {
			return byAge(b, a)
		}
		return cmp.Or(boolsFirst(p.stale(a), p.stale(b)), byAge(a, b))
	})
	return order
}

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

// reapNamespaces deletes namespaces whose cluster is gone. It needs no ticket: no operation creates a cluster of that name any more, so deleting twice is deleting once.
func (p *pass) reapNamespaces() {
	busy := map[string]bool{}
	for _, op := range p.ops {
		busy[op.Namespace] = true
	}
	for _, m := range p.members {
		busy[m.Namespace] = true
	}
	n := 0
	for _, ns := range p.in.Namespaces {
		if ns.Deleting || ns.Occupied || busy[ns.Name] || !generated(ns.Name) || n >= SliceOfPass {
			continue
		}
		p.act(DeleteNamespace{Name: ns.Name, UID: ns.UID, Why: WhyNamespaceEmpty})
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
