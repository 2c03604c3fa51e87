// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"cmp"
	"net/http"

	"github.com/google/uuid"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/console/machinefilter"
)

// names are those of InfraEnvs or clusters by id. One that the person may not see, or that is gone, has an empty name.
type names struct {
	path  string
	known map[uuid.UUID]string
	// resources are those of InfraEnvs that are custom resources.
	resources map[uuid.UUID]api.CustomResource
	// labels are those of hosts of InfraEnvs.
	labels map[uuid.UUID]map[string]string
}

func (n names) link(id uuid.UUID) link {
	if id == (uuid.UUID{}) {
		return link{}
	}
	return link{cmp.Or(n.known[id], id.String()[:8]), Base + n.path + id.String()}
}

func noInfraEnvs() names {
	return names{"/infra-envs/", map[uuid.UUID]string{}, map[uuid.UUID]api.CustomResource{}, map[uuid.UUID]map[string]string{}}
}

func noClusters() names { return names{path: "/clusters/", known: map[uuid.UUID]string{}} }

// named are the InfraEnvs and the clusters of what a page shows.
type named struct{ infraEnvs, clusters names }

// read adds those of a host. The person may see a host, and not its InfraEnv, or its cluster.
func (v *visit) read(into named, infraEnv, cluster uuid.UUID) error {
	if _, asked := into.infraEnvs.known[infraEnv]; !asked && infraEnv != (uuid.UUID{}) {
		e, err := call[api.InfraEnv](v.api.GetInfraEnv(v.r.Context(), infraEnv))
		if err != nil && !isStatus(err, http.StatusNotFound) {
			return err
		}
		into.infraEnvs.known[infraEnv], into.infraEnvs.resources[infraEnv], into.infraEnvs.labels[infraEnv] = e.Name, e.CustomResource, e.AgentLabels
	}
	if _, asked := into.clusters.known[cluster]; !asked && cluster != (uuid.UUID{}) {
		c, err := call[api.Cluster](v.api.GetCluster(v.r.Context(), cluster, &api.GetClusterParams{ExcludeHosts: new(true)}))
		if err != nil && !isStatus(err, http.StatusNotFound) {
			return err
		}
		into.clusters.known[cluster] = c.Name
	}
	return nil
}

// namesOf reads those of the hosts of a page, and of the filter of a list.
func (v *visit) namesOf(hosts []api.Host, f machinefilter.Filter) (named, error) {
	found := named{noInfraEnvs(), noClusters()}
	var infraEnv, cluster uuid.UUID
	if f.InfraEnv != nil {
		infraEnv = *f.InfraEnv
	}
	if f.Cluster != nil {
		cluster = *f.Cluster
	}
	err := v.read(found, infraEnv, cluster)
	for i := 0; err == nil && i < len(hosts); i++ {
		err = v.read(found, hosts[i].InfraEnvID, hosts[i].ClusterID)
	}
	return found, err
}
