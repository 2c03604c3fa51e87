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
			if entry.Name != "" {
				listed[entry.Name] = true
			}
		}
	}
	return listed
}

// unusable says what to write instead of an inventory that is no object, such as a list that was stored before Muster; empty for all others. Until it is rewritten, the pool neither creates
// clusters nor replaces any.
func (p *pass) unusable() string {
	if p.spec.Inventory == nil || p.spec.Inventory.Unusable == nil {
		return ""
	}
	return "spec.inventory is no object that lists names of clusters; write 'inventory: {clusterDeployments: [{name: blue}]}'. " +
		"A list of ClusterDeploymentCustomizations has no effect here: what they change goes into the template that installConfigSecretTemplateRef names"
}

// nameless counts the entries of the inventory that have no name: what was stored before the schema refused them. They are not used.
func (p *pass) nameless() int {
	n := 0
	for _, entry := range p.spec.Inventory.ClusterDeployments {
		if entry.Name == "" {
			n++
		}
	}
	return n
}

// freeNames are the names of the inventory that no cluster has, sorted; a name whose last cluster the API server refused comes last, so that it does not block the others.
func (p *pass) freeNames() []string {
	var free, refused []string
	for _, name := range slices.Sorted(maps.Keys(p.listedNames())) {
		switch {
		case p.names[name] != "":
		case p.refusedName(name):
			refused = append(refused, name)
		default:
			free = append(free, name)
		}
	}
	return append(free, refused...)
}

// refusedName says whether the API server refused the last cluster of the name, as far as the pool's status knows: while that is being withdrawn, and as long as it is the pool's
// last failure.
func (p *pass) refusedName(name string) bool {
	withdrawn := func(op hivev1.ClusterPoolOperation) bool {
		return op.Kind == hivev1.OperationDelete && op.UID == "" && op.ClusterName == name
	}
	last := p.health.LastFailureCluster
	return slices.ContainsFunc(p.ops, withdrawn) ||
		p.health.LastFailureReason == string(WhyCreationRefused) && len(last) > SlugLength && last == withSlug(name, last[len(last)-SlugLength:])
}

// refusedNames are the names of the inventory whose last cluster the API server refused, sorted.
func (p *pass) refusedNames() []string {
	var refused []string
	for _, name := range slices.Sorted(maps.Keys(p.listedNames())) {
		if p.refusedName(name) {
			refused = append(refused, name)
		}
	}
	return refused
}

// entryRemoved says whether the member was made with a name that the inventory does not list any more. Clusters from before there was an inventory are stale instead.
func (p *pass) entryRemoved(m member, listed map[string]bool) bool {
	if p.spec.Inventory == nil || p.unusable() != "" || listed[m.ClusterName] {
		return false
	}
	return p.pool.Status.ClusterNameUsage[m.ClusterName] == m.Namespace || m.Version == p.version
}
