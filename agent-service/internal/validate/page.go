// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"strings"
)

// Page is the page of all validations, written from their list.
func Page() string {
	var b strings.Builder
	b.WriteString(`# Validations of hosts

This page is written from the lists in ` + "`agent-service/internal/validate`; `make generate`" + ` writes it again. REST shows the results in
` + "`validations_info` of a host, an `Agent` in `status.validationsInfo`" + `.

A validation that fails, or waits for something, keeps a bound host from being installed. Those that say *bind* keep a free host from being
ready to be bound, too; those that say *nothing* only warn. A cluster can ignore all but those that say *never*:
` + "`PUT /api/assisted-install/v2/clusters/{cluster_id}/ignored-validations`" + `.

`)
	for _, group := range []struct {
		title, text string
		list        []Validation
	}{
		{"The machine", "These look at the machine alone.", ofMachine},
		{"Time, registry and routes", "These look at what the machine reaches.", ofNetwork},
		{"In a cluster", "These run only while the host is bound.", inCluster},
	} {
		fmt.Fprintf(&b, "## %s\n%s\n\n| ID | Category | It passes where | Waits for the inventory | Keeps from | Can be ignored |\n|---|---|---|---|---|---|\n", group.title, group.text)
		for _, v := range group.list {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", v.ID, v.Category, v.About, yes(v.Needs&Inventory != 0), v.keepsFrom(), v.ignorable())
		}
		b.WriteString("\n")
	}
	b.WriteString(`## What hosts need
` + "`--host-minimums`" + ` changes these figures. Validations for every host use *auto-assign*.

| Role | CPU cores | Memory, GiB | Disk, GB |
|---|---|---|---|
`)
	for _, role := range []string{"auto-assign", "worker", "master", "arbiter"} {
		m := DefaultMinimums[role]
		fmt.Fprintf(&b, "| %s | %d | %d | %d |\n", role, m.CPUs, m.MemoryGiB, m.DiskGB)
	}
	return b.String()
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return ""
}

func (v *Validation) keepsFrom() string {
	switch {
	case v.Warns:
		return "nothing"
	case v.Blocks:
		return "bind, install"
	}
	return "install"
}

func (v *Validation) ignorable() string {
	if v.Mandatory {
		return "never"
	}
	return "yes"
}
