// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"slices"

	"github.com/google/uuid"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/console/machinefilter"
	"github.com/muster-io/muster/agent-service/internal/console/status"
)

// mostProblems is how many things that are not fine are shown; numbers lead to all.
const mostProblems = 10

type homePage struct {
	Problems  []machine
	More      choice
	Clusters  []clusterRow
	Machines  []choice
	InfraEnvs choice
	All       choice
}

// home shows what is not fine, and then numbers that are links.
func home(v *visit) error {
	envs, list, err := v.infraEnvNames()
	if err != nil {
		return err
	}
	clusters, all, err := v.clusterNames()
	if err != nil {
		return err
	}
	attention := machinefilter.Filter{Group: "attention"}
	hosts, total, err := v.hosts(attention, mostProblems, 0)
	if err != nil {
		return err
	}
	body := homePage{
		More: choice{URL: attention.URL(), Count: total}, InfraEnvs: choice{URL: Base + "/infra-envs", Count: len(list)}, All: choice{URL: Base + "/clusters", Count: len(all)},
	}
	for i := range hosts {
		body.Problems = append(body.Problems, newMachine(hosts[i], envs, clusters))
	}
	for i := range all {
		if slices.Contains([]api.ClusterStatus{api.ClusterStatusError, api.ClusterStatusInstallingPendingUserAction, api.ClusterStatusCancelled}, all[i].Status) && all[i].ID != (uuid.UUID{}) {
			body.Clusters = append(body.Clusters, clusterRow{all[i], status.OfCluster(all[i].Status)})
		}
	}
	if body.Machines, err = v.choices(machinefilter.Filter{}); err != nil {
		return err
	}
	body.Machines[0].Label = t("machines.title")
	return v.show("home", t("home.title"), &body)
}
