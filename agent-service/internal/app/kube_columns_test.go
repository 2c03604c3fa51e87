// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/apis/controlplanetest"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
)

// rowOf is what kubectl get -o wide prints of an object: the value of each column.
func rowOf(c *cluster, groupVersion, namespace, resource, name string) map[string]any {
	c.Helper()
	config := controlplanetest.Start(c.T)
	api, err := rest.HTTPClientFor(config)
	require.NoError(c, err)
	request, err := http.NewRequestWithContext(c.Context(), http.MethodGet, config.Host+"/apis/"+groupVersion+"/namespaces/"+namespace+"/"+resource+"/"+name, http.NoBody)
	require.NoError(c, err)
	request.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	response, err := api.Do(request)
	require.NoError(c, err)
	defer func() { _ = response.Body.Close() }()
	require.Equal(c, http.StatusOK, response.StatusCode)
	var table metav1.Table
	require.NoError(c, json.NewDecoder(response.Body).Decode(&table))
	require.Len(c, table.Rows, 1)
	row := map[string]any{}
	for i, column := range table.ColumnDefinitions {
		row[column.Name] = table.Rows[0].Cells[i]
	}
	return row
}

// What stands in the way of a machine or a cluster is in the table, beside the name of the cluster that was asked for.
func TestColumnsShowWhatIsInTheWay(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	infraEnv := c.infraEnv("rack")
	agent := c.agent(c.boot(infraEnv, 1, 0))
	deployment, _ := hostedIn(c, c.newNamespace())
	install := &hiveextv1.AgentClusterInstall{
		ObjectMeta: metav1.ObjectMeta{Namespace: deployment.Namespace, Name: deployment.Name},
		Spec:       hiveextv1.AgentClusterInstallSpec{ClusterDeploymentRef: hivev1.LocalObjectReference{Name: deployment.Name}, ImageSetRef: &hivev1.ClusterImageSetReference{Name: "gone"}},
	}
	c.create(install)
	change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = reference(deployment) })
	c.says(agent, agentv1.ConditionSpecSynced, agentv1.ReasonInputError)
	row := rowOf(c, "agent-install.openshift.io/v1beta1", agent.Namespace, "agents", agent.Name)
	assert.Equal(t, []any{"blue", agentv1.ReasonInputError}, []any{row["Cluster"], row["Reason"]})
	assert.Contains(t, row["Message"], "ClusterDeployment "+deployment.Namespace+"/blue")
	c.until(install, "it says what is missing", func() bool {
		return hivev1.FindCondition(install.Status.Conditions, agentv1.ConditionSpecSynced) != nil
	})
	row = rowOf(c, "extensions.hive.openshift.io/v1beta1", install.Namespace, "agentclusterinstalls", install.Name)
	assert.Equal(t, agentv1.ReasonInputError, row["Reason"])
	assert.Contains(t, row["Message"], "ClusterImageSet gone is missing")

	change(c, infraEnv, func(e *agentv1.InfraEnv) { e.Spec.PullSecretRef.Name = "gone" })
	c.until(infraEnv, "it has no image", func() bool {
		made := agentv1.FindCondition(infraEnv.Status.Conditions, agentv1.ConditionImageCreated)
		return made != nil && made.Reason == agentv1.ReasonImageCreationError
	})
	row = rowOf(c, "agent-install.openshift.io/v1beta1", infraEnv.Namespace, "infraenvs", infraEnv.Name)
	assert.Contains(t, row["Message"], `"gone"`)
}
