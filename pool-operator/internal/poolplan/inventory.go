// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"maps"
	"slices"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// inventory is the names that a pool's spec lists for its clusters, and which of them are taken.
type inventory struct {
	// spec is nil when the pool has no inventory.
	spec *hivev1.ClusterPoolInventory
	// listed are the names that the spec lists.
	listed map[string]bool
	// last is the usage that the pool's status has.
	last map[string]string
	// usage has the namespace of the cluster that has a name, by name, empty for a free name; nil before sync.
	usage map[string]string
	// longest is how long the names of clusters may be.
	longest int
	ticket  *ticket
	health  *health
}

func inventoryOf(pool *hivev1.ClusterPool, ticket *ticket, health *health) inventory {
	v := inventory{spec: pool.Spec.Inventory, listed: map[string]bool{}, last: pool.Status.ClusterNameUsage, longest: longestName(pool.Spec), ticket: ticket, health: health}
	if v.spec != nil {
		for _, entry := range v.spec.ClusterDeployments {
			if entry.Name != "" {
				v.listed[entry.Name] = true
			}
		}
	}
	return v
}

// sync brings the usage of names up to date: a name is taken from before its cluster is created until its cluster is gone. A name that was removed from the inventory stays as
// long as it is taken.
func (v *inventory) sync(members []member) {
	v.usage = map[string]string{}
	for name := range v.listed {
		v.usage[name] = ""
	}
	for _, m := range members {
		_, known := v.last[m.ClusterName]
		if (v.listed[m.ClusterName] || known) && v.usage[m.ClusterName] == "" {
			v.usage[m.ClusterName] = m.Namespace
		}
	}
	for _, op := range v.ticket.withdrawals() {
		if v.listed[op.ClusterName] && v.usage[op.ClusterName] == "" {
			v.usage[op.ClusterName] = op.Namespace
		}
	}
}

// unusable says what to write instead of an inventory that is no object, such as a list that was stored before Muster; empty for all others. Until it is rewritten, the pool neither creates
// clusters nor replaces any.
func (v *inventory) unusable() string {
	if v.spec == nil || v.spec.Unusable == nil {
		return ""
	}
	return "spec.inventory is no object that lists names of clusters; write 'inventory: {clusterDeployments: [{name: blue}]}'. " +
		"A list of ClusterDeploymentCustomizations has no effect here: what they change goes into the template that installConfigSecretTemplateRef names"
}

// nameless counts the entries of the inventory that have no name: what was stored before the schema refused them. They are not used.
func (v *inventory) nameless() int {
	n := 0
	for _, entry := range v.spec.ClusterDeployments {
		if entry.Name == "" {
			n++
		}
	}
	return n
}

// free are the names of the inventory that no cluster has, sorted; a name whose last cluster the API server refused comes last, so that it does not block the others.
func (v *inventory) free() []string {
	var free, refused []string
	for _, name := range slices.Sorted(maps.Keys(v.listed)) {
		switch {
		case v.usage[name] != "":
		case v.refusedName(name):
			refused = append(refused, name)
		default:
			free = append(free, name)
		}
	}
	return append(free, refused...)
}

// refusedName says whether the API server refused the last cluster of the name, as far as the pool's status knows: while that is being withdrawn, and as long as it is the pool's
// last failure.
func (v *inventory) refusedName(name string) bool {
	withdrawn := func(op hivev1.ClusterPoolOperation) bool { return op.ClusterName == name }
	last := v.health.LastFailureCluster
	return slices.ContainsFunc(v.ticket.withdrawals(), withdrawn) ||
		v.health.LastFailureReason == string(WhyCreationRefused) && len(last) > SlugLength && last == withSlug(name, last[len(last)-SlugLength:], v.longest)
}

// refusedNames are the names of the inventory whose last cluster the API server refused, sorted.
func (v *inventory) refusedNames() []string {
	var refused []string
	for _, name := range slices.Sorted(maps.Keys(v.listed)) {
		if v.refusedName(name) {
			refused = append(refused, name)
		}
	}
	return refused
}

// removed says whether the member was made with a name that the inventory does not list any more. Clusters from before there was an inventory are stale instead.
func (v *inventory) removed(m member, version string) bool {
	if v.spec == nil || v.unusable() != "" || v.listed[m.ClusterName] {
		return false
	}
	return v.last[m.ClusterName] == m.Namespace || m.Version == version
}

// exhausted says that the inventory has no name left.
func (v *inventory) exhausted() bool {
	return v.spec != nil && v.usage != nil && len(v.free()) == 0
}

// status is the usage of names for the pool's status; nil when there are none.
func (v *inventory) status() map[string]string {
	if v.usage == nil {
		return v.last
	}
	if len(v.usage) == 0 {
		return nil
	}
	return v.usage
}
