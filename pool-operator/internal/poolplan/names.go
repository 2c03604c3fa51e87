// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"maps"
	"slices"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// syncNames brings the usage of inventory names up to date: a name is taken from before its cluster is created until its cluster is gone. A name that was removed from
// the inventory stays as long as it is taken.
func (p *pass) syncNames() {
	p.names = map[string]string{}
	listed := p.listedNames()
	for name := range listed {
		p.names[name] = ""
	}
	for _, m := range p.members {
		_, known := p.pool.Status.ClusterNameUsage[m.ClusterName]
		if (listed[m.ClusterName] || known) && p.names[m.ClusterName] == "" {
			p.names[m.ClusterName] = m.Namespace
		}
	}
	for _, op := range p.ops {
		if op.Kind == hivev1.OperationDelete && op.UID == "" && listed[op.ClusterName] && p.names[op.ClusterName] == "" {
			p.names[op.ClusterName] = op.Namespace
		}
	}
}

func (p *pass) listedNames() map[string]bool {
	listed := map[string]bool{}
	if p.spec.Inventory != nil {
		for _, entry := range p.spec.Inventory.ClusterDeployments {
			listed[entry.Name] = true
		}
	}
	return listed
}

// freeNames are the names of the inventory that no cluster has, sorted.
func (p *pass) freeNames() []string {
	var free []string
	for _, name := range slices.Sorted(maps.Keys(p.listedNames())) {
		if p.names[name] == "" {
			free = append(free, name)
		}
	}
	return free
}

// entryRemoved says whether the member was made with a name that the inventory does not list any more. Clusters from before there was an inventory are stale instead.
func (p *pass) entryRemoved(m member, listed map[string]bool) bool {
	if p.spec.Inventory == nil || listed[m.ClusterName] {
		return false
	}
	return p.pool.Status.ClusterNameUsage[m.ClusterName] == m.Namespace || m.Version == p.version
}
