// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"math"
	"slices"
	"strings"
)

// addClusters records the creations that are missing, as far as budget, capacity, names and failures allow.
func (p *pass) addClusters() {
	lacking := p.target() - p.countUnclaimed()
	if len(p.in.Missing) > 0 || lacking <= 0 {
		return
	}
	p.refusedByBudget = p.refusedByBudget || p.budget() < lacking
	p.create(min(lacking, p.budget(), p.capacity(), p.slice(), p.allowedByFailures()), WhyBelowTarget)
}

// create records n creations, or as many as there are names.
func (p *pass) create(n int, why Why) {
	p.sortSlugs(max(0, n))
	for range max(0, n) {
		name, clusterName, ok := p.nextName()
		if !ok {
			return
		}
		p.recordCreation(name, clusterName, p.countCurrentRunnable() < p.runningTarget(), why)
	}
}

// sortSlugs sorts the slugs that are used next. Clusters of one pass are created in the order of their names, which is also how clusters of one age are ordered: so those that
// are created running are those that are to run.
func (p *pass) sortSlugs(n int) {
	p.slugs = slices.Clone(p.slugs)
	slices.Sort(p.slugs[:min(n, len(p.slugs))])
}

// capacity is how many clusters may be added before the pool has maxSize, claimed and deleting ones included.
func (p *pass) capacity() int {
	if p.spec.MaxSize == nil {
		return math.MaxInt
	}
	return max(0, int(*p.spec.MaxSize)-len(p.members))
}

// attainable is how many unclaimed clusters there can be: the target, unless maxSize or the inventory allow fewer.
func (p *pass) attainable() int {
	room := p.capacity()
	if p.spec.Inventory != nil {
		room = min(room, len(p.freeNames()))
	}
	if room > p.target() {
		return p.target()
	}
	return min(p.target(), p.countUnclaimed()+room)
}

// nextName makes the name of a new cluster, which is that of its namespace too, and its short name.
func (p *pass) nextName() (namespace, clusterName string, ok bool) {
	prefix := p.pool.Name
	if p.spec.Inventory != nil {
		free := p.freeNames()
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
		p.names[prefix] = namespace
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
	for _, m := range p.members {
		if m.Namespace == namespace {
			return true
		}
	}
	for _, n := range p.in.Namespaces {
		if n.Name == namespace {
			return true
		}
	}
	for _, op := range p.ops {
		if op.Namespace == namespace {
			return true
		}
	}
	return false
}
