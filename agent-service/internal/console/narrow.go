// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-io/muster/agent-service/internal/console/words"
)

// narrowed are the filters that a click takes away.
func (f machineFilter) narrowed(envs, clusters names) []choice {
	var list []choice
	if f.infraEnv != nil {
		without := f.of(f.group)
		without.infraEnv = nil
		list = append(list, choice{Label: t("machines.of_infra_env", envs.link(*f.infraEnv).Name), URL: without.URL()})
	}
	if f.cluster != nil {
		without := f.of(f.group)
		without.cluster = nil
		list = append(list, choice{Label: t("machines.of_cluster", clusters.link(*f.cluster).Name), URL: without.URL()})
	}
	if f.role != "" {
		without := f.of(f.group)
		without.role = ""
		list = append(list, choice{Label: t("machines.of_role", words.Named("role", f.role)), URL: without.URL()})
	}
	requirements := f.requirements()
	for i, one := range requirements {
		without := f.of(f.group)
		without.labels = strings.Join(slices.Delete(slices.Clone(requirements), i, i+1), ",")
		list = append(list, choice{Label: one, URL: without.URL()})
	}
	if f.search != "" {
		without := f.of(f.group)
		without.search = ""
		list = append(list, choice{Label: t("machines.of_search", f.search), URL: without.URL()})
	}
	return list
}

// requirements are the parts of the selector, none for one that the API refuses.
func (f machineFilter) requirements() []string {
	parsed, err := labels.ParseToRequirements(f.labels)
	if err != nil {
		return nil
	}
	list := make([]string, 0, len(parsed))
	for i := range parsed {
		list = append(list, parsed[i].String())
	}
	return list
}

// with is the filter for machines that have a label as well.
func (f machineFilter) with(key, value string) machineFilter {
	one := key + "=" + value
	if f.page = 0; !slices.Contains(f.requirements(), one) {
		f.labels = strings.Trim(f.labels+","+one, ",")
	}
	return f
}

// narrow makes the links of a machine that narrow a list down: by its labels, its InfraEnv and its cluster.
func (m *machine) narrow(f machineFilter, ofInfraEnv map[string]string) {
	m.OnlyInfraEnv, m.OnlyCluster = "", ""
	if env := f.of(f.group); m.InfraEnv.URL != "" && f.infraEnv == nil {
		env.infraEnv = &m.InfraEnvID
		m.OnlyInfraEnv = env.URL()
	}
	if cluster := f.of(f.group); m.Cluster.URL != "" && f.cluster == nil {
		cluster.cluster = &m.ClusterID
		m.OnlyCluster = cluster.URL()
	}
	set := maps.Clone(ofInfraEnv)
	if set == nil {
		set = map[string]string{}
	}
	_ = json.Unmarshal([]byte(m.NodeLabels), &set) // a machine without labels has no text
	m.Labels = nil
	for _, key := range slices.SortedFunc(maps.Keys(set), func(a, b string) int { return cmp.Or(rackFirst(a, b), cmp.Compare(a, b)) }) {
		m.Labels = append(m.Labels, link{key + "=" + set[key], f.with(key, set[key]).URL()})
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
