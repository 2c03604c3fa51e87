// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/muster-io/muster/agent-service/internal/console/machinefilter"
	"github.com/muster-io/muster/agent-service/internal/console/words"
)

// narrowed are the filters that a click takes away.
func narrowed(f machinefilter.Filter, n named) []choice {
	var list []choice
	if f.InfraEnv != nil {
		without := f.Of(f.Group)
		without.InfraEnv = nil
		list = append(list, choice{Label: t("machines.of_infra_env", n.infraEnvs.link(*f.InfraEnv).Name), URL: without.URL()})
	}
	if f.Cluster != nil {
		without := f.Of(f.Group)
		without.Cluster = nil
		list = append(list, choice{Label: t("machines.of_cluster", n.clusters.link(*f.Cluster).Name), URL: without.URL()})
	}
	if f.Role != "" {
		without := f.Of(f.Group)
		without.Role = ""
		list = append(list, choice{Label: t("machines.of_role", words.Named("role", f.Role)), URL: without.URL()})
	}
	requirements := f.Requirements()
	for i, one := range requirements {
		without := f.Of(f.Group)
		without.Labels = strings.Join(slices.Delete(slices.Clone(requirements), i, i+1), ",")
		list = append(list, choice{Label: one, URL: without.URL()})
	}
	if f.Search != "" {
		without := f.Of(f.Group)
		without.Search = ""
		list = append(list, choice{Label: t("machines.of_search", f.Search), URL: without.URL()})
	}
	return list
}

// narrow makes the links of a machine that narrow a list down: by its labels, its InfraEnv and its cluster.
func (m *machine) narrow(f machinefilter.Filter, ofInfraEnv map[string]string) {
	m.OnlyInfraEnv, m.OnlyCluster = "", ""
	if env := f.Of(f.Group); m.InfraEnv.URL != "" && f.InfraEnv == nil {
		env.InfraEnv = &m.InfraEnvID
		m.OnlyInfraEnv = env.URL()
	}
	if cluster := f.Of(f.Group); m.Cluster.URL != "" && f.Cluster == nil {
		cluster.Cluster = &m.ClusterID
		m.OnlyCluster = cluster.URL()
	}
	set := maps.Clone(ofInfraEnv)
	if set == nil {
		set = map[string]string{}
	}
	_ = json.Unmarshal([]byte(m.NodeLabels), &set) // a machine without labels has no text
	m.Labels = nil
	for _, key := range slices.SortedFunc(maps.Keys(set), func(a, b string) int { return cmp.Or(rackFirst(a, b), cmp.Compare(a, b)) }) {
		m.Labels = append(m.Labels, link{key + "=" + set[key], f.With(key, set[key]).URL()})
	}
}

// rackFirst orders labels: that of the rack, with whatever prefix, is before the others.
func rackFirst(a, b string) int {
	isRack := func(key string) bool { return key[strings.LastIndex(key, "/")+1:] == "rack" }
	switch {
	case isRack(a) == isRack(b):
		return 0
	case isRack(a):
		return -1
	default:
		return 1
	}
}
