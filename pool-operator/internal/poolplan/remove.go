// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"cmp"
	"slices"
	"strings"
)

// deleteReleased deletes clusters whose claim is gone or that somebody marked.
func (p *pass) deleteReleased() { p.deleteAll(released, WhyReleased) }

// deleteBroken deletes clusters that nobody will be able to use.
func (p *pass) deleteBroken() { p.deleteAll(broken, WhyBroken) }

// deleteUnclaimed deletes what nobody has claimed, because the pool is being deleted.
func (p *pass) deleteUnclaimed() {
	for i := range p.members {
		if p.members[i].unclaimed() && p.deletable(i) {
			p.recordDeletion(i, WhyPoolDeleted)
		}
	}
}

func (p *pass) deleteAll(s state, why Why) {
	for i := range p.members {
		if p.members[i].state == s && p.deletable(i) {
			p.recordDeletion(i, why)
		}
	}
}

// deleteRemovedEntries deletes unclaimed clusters whose name was removed from the inventory.
func (p *pass) deleteRemovedEntries() {
	listed := p.listedNames()
	for i := range p.members {
		if p.members[i].unclaimed() && p.entryRemoved(p.members[i], listed) && p.deletable(i) {
			p.recordDeletion(i, WhyEntryRemoved)
		}
	}
}

// deleteSurplus deletes clusters beyond the target: broken ones first, then the newest that installs, then the oldest on standby, then the oldest that is ready.
func (p *pass) deleteSurplus() {
	surplus := p.countUnclaimed() - p.target()
	for _, i := range p.surplusOrder() {
		if surplus <= 0 {
			return
		}
		if p.deletable(i) {
			p.recordDeletion(i, WhyAboveTarget)
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
		return byAge(a, b)
	})
	return order
}

// replaceStale deletes clusters of earlier versions, once the pool is as full as it can be: those that do not say their version first, then the oldest. At most half of the unclaimed
// clusters are away at a time, and a single one if the pool does not say how many may be (maxConcurrent).
func (p *pass) replaceStale() {
	if p.countUnclaimed() < p.attainable() || len(p.in.Missing) > 0 || p.allowedByFailures() == 0 {
		return
	}
	away := p.count(installing, deleting)
	allowance := 1
	if p.spec.MaxConcurrent != nil {
		allowance = max(1, p.target()/2)
	}
	for _, i := range p.staleOrder() {
		if away >= allowance {
			return
		}
		if p.deletable(i) {
			p.recordDeletion(i, WhyStale)
			away++
		}
	}
}

func (p *pass) staleOrder() []int {
	var order []int
	for i, m := range p.members {
		if m.unclaimed() && !m.planned && m.state != broken && m.Version != p.version {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := p.members[i], p.members[j]
		return cmp.Or(cmp.Compare(min(1, len(a.Version)), min(1, len(b.Version))), byAge(a, b))
	})
	return order
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

// Orphans are the deletions of namespaces of a pool that is gone. Whoever carries them out looks once more whether the namespace is empty.
func Orphans(namespaces []Namespace) []DeleteNamespace {
	var out []DeleteNamespace
	for _, ns := range namespaces {
		if !ns.Deleting && !ns.Occupied && generated(ns.Name) {
			out = append(out, DeleteNamespace{Name: ns.Name, UID: ns.UID, Why: WhyNamespaceEmpty})
		}
	}
	return out
}
