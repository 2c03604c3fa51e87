// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"slices"
	"strings"
)

// addClusters records the creations that are missing, as far as budget, capacity, names and failures allow.
func (p *pass) addClusters() {
	lacking := p.quota.target() - p.fleet.countUnclaimed()
	if len(p.in.Missing) > 0 || lacking <= 0 {
		return
	}
	p.refusedByBudget = p.refusedByBudget || p.quota.budget() < lacking
	p.create(min(lacking, p.quota.budget(), p.quota.capacity(), p.ticket.slice(), p.health.allows(p.fleet.count(installing))), WhyBelowTarget)
}

// create records n creations, or as many as there are names.
func (p *pass) create(n int, why Why) {
	p.sortSlugs(max(0, n))
	for range max(0, n) {
		name, clusterName, ok := p.nextName()
		if !ok {
			return
		}
		p.recordCreation(name, clusterName, p.fleet.countCurrentRunnable() < p.quota.runningTarget(), why)
	}
}

// sortSlugs sorts the slugs that are used next. Clusters of one pass are created in the order of their names, which is also how clusters of one age are ordered: so those that
// are created running are those that are to run.
func (p *pass) sortSlugs(n int) {
	p.slugs = slices.Clone(p.slugs)
	slices.Sort(p.slugs[:min(n, len(p.slugs))])
}

// nextName makes the name of a new cluster, which is that of its namespace too, and its short name.
func (p *pass) nextName() (namespace, clusterName string, ok bool) {
	prefix := p.pool.Name
	if p.spec.Inventory != nil {
		free := p.inventory.free()
		if len(free) == 0 {
			return "", "", false
		}
		prefix = free[0]
	}
	for len(p.slugs) > 0 {
		namespace = withSlug(prefix, p.slugs[0])
		p.slugs = p.slugs[1:]
		if p.nameInUse(namespace) {
			continue
		}
		if p.spec.Inventory == nil {
			return namespace, namespace, true
		}
		p.inventory.usage[prefix] = namespace
		return namespace, prefix, true
	}
	return "", "", false
}

// withSlug joins prefix and slug to a name that a namespace may have, at most 63 characters.
func withSlug(prefix, slug string) string {
	prefix = strings.ReplaceAll(prefix, ".", "-")
	return strings.TrimRight(cut(prefix, 62-len(slug)), "-") + "-" + slug
}

func (p *pass) nameInUse(namespace string) bool {
	return p.fleet.has(namespace) || p.ticket.has(namespace) || slices.ContainsFunc(p.in.Namespaces, func(n Namespace) bool { return n.Name == namespace })
}
