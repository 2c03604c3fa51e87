// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"slices"
	"strings"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
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
		namespace = withSlug(prefix, p.slugs[0], p.inventory.longest)
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

// maxName is how long a name of a namespace may be, and one of a MachinePool, which becomes a label.
const maxName = 63

// longestName is how long the names of a pool's clusters may be. A MachinePool is named <cluster>-<name>.
func longestName(spec hivev1.ClusterPoolSpec) int {
	longest := maxName
	for _, machines := range MachinePools(spec) {
		longest = min(longest, maxName-len("-")-len(machines.Name))
	}
	return longest
}

// withSlug joins prefix and slug to a name that a namespace may have, at most that long.
func withSlug(prefix, slug string, longest int) string {
	prefix = strings.ReplaceAll(prefix, ".", "-")
	return strings.TrimRight(cut(prefix, longest-len("-")-len(slug)), "-") + "-" + slug
}

func (p *pass) nameInUse(namespace string) bool {
	return p.fleet.has(namespace) || p.ticket.has(namespace) || slices.ContainsFunc(p.in.Namespaces, func(n Namespace) bool { return n.Name == namespace })
}
