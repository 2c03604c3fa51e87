// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"net/url"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/console/machinefilter"
)

func TestLabelsOfAMachineLeadToTheOthers(t *testing.T) {
	env, cluster := uuid.New(), uuid.New()
	envs := names{path: "/infra-envs/", known: map[uuid.UUID]string{env: "e"}, labels: map[uuid.UUID]map[string]string{env: {"site": "north", "a": "b"}}}
	m := newMachine(api.Host{InfraEnvID: env, ClusterID: cluster, NodeLabels: `{"example.com/rack":"r7","site":"south"}`}, named{envs, noClusters()})
	assert.Equal(t, []link{
		{"example.com/rack=r7", "/console/machines?labels=example.com%2Frack%3Dr7"}, {"a=b", "/console/machines?labels=a%3Db"}, {"site=south", "/console/machines?labels=site%3Dsouth"},
	}, m.Labels)
	assert.Equal(t, "/console/machines?infra_env="+env.String(), m.OnlyInfraEnv)
	assert.Equal(t, "/console/machines?cluster="+cluster.String(), m.OnlyCluster)

	// In a list, the other filters stay.
	q, err := url.ParseQuery("state=free&labels=a%3Db,gpu&page=3&infra_env=" + env.String())
	require.NoError(t, err)
	f := machinefilter.Read(q)
	m.narrow(f, envs.labels[env])
	assert.Equal(t, "/console/machines?infra_env="+env.String()+"&labels=a%3Db%2Cgpu%2Csite%3Dsouth&state=free", m.Labels[2].URL)
	assert.Equal(t, "/console/machines?infra_env="+env.String()+"&labels=a%3Db%2Cgpu&state=free", m.Labels[1].URL, "it is there already")
	assert.Empty(t, m.OnlyInfraEnv)
	assert.Equal(t, "a=b,gpu", *f.Params(50, 0).LabelSelector)
	var chips []string
	for _, one := range narrowed(f, named{envs, noClusters()}) {
		chips = append(chips, one.Label+" "+one.URL)
	}
	assert.Equal(t, []string{
		"InfraEnv e /console/machines?labels=a%3Db%2Cgpu&state=free",
		"a=b /console/machines?infra_env=" + env.String() + "&labels=gpu&state=free", "gpu /console/machines?infra_env=" + env.String() + "&labels=a%3Db&state=free",
	}, chips)
	assert.Empty(t, machinefilter.Filter{Labels: "rack in"}.Requirements(), "the API says what is wrong with it")
}
