// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
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
	attention := machinefilter.Filter{Group: "attention"}
	hosts, total, err := v.hosts(attention, mostProblems, 0)
	if err != nil {
		return err
	}
	names, err := v.namesOf(hosts, machinefilter.Filter{})
	if err != nil {
		return err
	}
	_, infraEnvs, err := page[[]api.InfraEnv](v.api.ListInfraEnvs(v.r.Context(), &api.ListInfraEnvsParams{Limit: new(1)}))
	if err != nil {
		return err
	}
	_, clusters, err := page[[]api.Cluster](v.api.ListClusters(v.r.Context(), &api.ListClustersParams{Limit: new(1)}))
	if err != nil {
		return err
	}
	wrong, _, err := page[[]api.Cluster](v.api.ListClusters(v.r.Context(), &api.ListClustersParams{
		Status: &[]api.ClusterStatus{api.ClusterStatusError, api.ClusterStatusInstallingPendingUserAction, api.ClusterStatusCancelled}, Limit: new(machinefilter.PageSize),
	}))
	if err != nil {
		return err
	}
	body := homePage{
		More: choice{URL: attention.URL(), Count: total}, InfraEnvs: choice{URL: Base + "/infra-envs", Count: infraEnvs}, All: choice{URL: Base + "/clusters", Count: clusters},
	}
	for i := range hosts {
		body.Problems = append(body.Problems, newMachine(hosts[i], names))
	}
	for i := range wrong {
		body.Clusters = append(body.Clusters, clusterRow{wrong[i], status.OfCluster(wrong[i].Status)})
	}
	if body.Machines, err = v.choices(machinefilter.Filter{}); err != nil {
		return err
	}
	body.Machines[0].Label = t("machines.title")
	return v.show("home", t("home.title"), &body)
}
