// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/muster-io/muster/agent-service/api"
)

// mostOffered is how many clusters are offered at once: all in a list where there are no more, else those whose name contains what a person writes.
const mostOffered = 100

// clusterChoice offers the clusters that machines can be taken to.
type clusterChoice struct {
	// Offered are the first ones.
	Offered []api.Cluster
	// Total counts all.
	Total int
}

// Listed is true where all of them are offered.
func (c clusterChoice) Listed() bool { return c.Total <= len(c.Offered) }

// clusterOption is a cluster as a field offers it: by its name, or by its id where another one that is offered has its name.
type clusterOption struct{ Value, Label string }

// Options are those of the field.
func (c clusterChoice) Options() []clusterOption {
	count := map[string]int{}
	for i := range c.Offered {
		count[c.Offered[i].Name]++
	}
	list := make([]clusterOption, 0, len(c.Offered))
	for i := range c.Offered {
		one := clusterOption{c.Offered[i].Name, ""}
		if count[one.Value] > 1 {
			one = clusterOption{c.Offered[i].ID.String(), one.Value}
		}
		list = append(list, one)
	}
	return list
}

// clustersToChoose reads the first clusters whose name contains a text.
func (v *visit) clustersToChoose(text string) (c clusterChoice, err error) {
	p := &api.ListClustersParams{Limit: new(mostOffered)}
	if text != "" {
		p.Search = new(text)
	}
	c.Offered, c.Total, err = page[[]api.Cluster](v.api.ListClusters(v.r.Context(), p))
	c.Total = max(c.Total, len(c.Offered))
	return c, err
}

// offerClusters answers with the options for what a person wrote into the field.
func offerClusters(v *visit) error {
	c, err := v.clustersToChoose(strings.TrimSpace(v.r.URL.Query().Get("cluster")))
	if err != nil {
		return err
	}
	v.pages.renderPart(v.w, "options", c.Options())
	return nil
}

// chosenCluster is the cluster of an id, or the only one of a name.
func (v *visit) chosenCluster(chosen string) (api.Cluster, error) {
	chosen = strings.TrimSpace(chosen)
	if id, err := uuid.Parse(chosen); err == nil {
		return call[api.Cluster](v.api.GetCluster(v.r.Context(), id, &api.GetClusterParams{ExcludeHosts: new(true)}))
	}
	if chosen == "" {
		return api.Cluster{}, &refusal{http.StatusBadRequest, t("action.cluster")}
	}
	found, err := call[[]api.Cluster](v.api.ListClusters(v.r.Context(), &api.ListClustersParams{Search: new(chosen)}))
	if err != nil {
		return api.Cluster{}, err
	}
	switch found = slices.DeleteFunc(found, func(c api.Cluster) bool { return c.Name != chosen }); len(found) {
	case 0:
		return api.Cluster{}, &refusal{http.StatusBadRequest, t("action.cluster_unknown", chosen)}
	case 1:
		return found[0], nil
	default:
		return api.Cluster{}, &refusal{http.StatusBadRequest, t("action.cluster_several", chosen)}
	}
}
