// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-io/muster/agent-service/internal/agent"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
)

// synced waits until SpecSynced of an AgentClusterInstall has a reason, and returns its message.
func (c *cluster) synced(install *hiveextv1.AgentClusterInstall, reason string) string {
	c.Helper()
	var found *hivev1.Condition
	c.until(install, "SpecSynced is "+reason, func() bool {
		found = hivev1.FindCondition(install.Status.Conditions, agentv1.ConditionSpecSynced)
		return found != nil && found.Reason == reason
	})
	return found.Message
}

func (c *cluster) rest(path string) (int, map[string]any) {
	c.Helper()
	return call(c.T, http.MethodGet, c.base+"/api/assisted-install/v2"+path, "")
}

// TestASecondAgentClusterInstallChangesNothing whatever it copied from the one that the ClusterDeployment names.
func TestASecondAgentClusterInstallChangesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	deployment, install := c.deployment(func(s *hiveextv1.AgentClusterInstallSpec) { s.SSHPublicKey = "ssh-ed25519 REAL" })
	c.synced(install, agentv1.ReasonSyncOK)
	other := install.DeepCopy()
	other.ObjectMeta = metav1.ObjectMeta{Namespace: install.Namespace, Name: "zulu", OwnerReferences: install.OwnerReferences, Finalizers: install.Finalizers}
	other.Spec.SSHPublicKey = "ssh-ed25519 COPY"
	c.create(other)
	assert.Contains(t, c.synced(other, agentv1.ReasonInputError), "names AgentClusterInstall blue")
	cluster := "/clusters/" + string(deployment.UID)
	code, answer := c.rest(cluster)
	require.Equal(t, http.StatusOK, code)
	assert.Equal(t, "ssh-ed25519 REAL", answer["ssh_public_key"])
	require.NoError(t, c.user.Delete(t.Context(), other))
	c.gone(other)
	code, _ = c.rest(cluster)
	assert.Equal(t, http.StatusOK, code, "the cluster is still there")

	// The one that is named instead takes the cluster over.
	other.ResourceVersion, other.UID = "", ""
	c.create(other)
	change(c, deployment, func(d *hivev1.ClusterDeployment) { d.Spec.ClusterInstallRef.Name = "zulu" })
	c.synced(other, agentv1.ReasonSyncOK)
	assert.Contains(t, c.synced(install, agentv1.ReasonInputError), "names AgentClusterInstall zulu")
	_, answer = c.rest(cluster)
	assert.Equal(t, "ssh-ed25519 COPY", answer["ssh_public_key"])

	// Without a name the oldest one counts.
	change(c, deployment, func(d *hivev1.ClusterDeployment) { d.Spec.ClusterInstallRef = nil })
	c.synced(install, agentv1.ReasonSyncOK)
	assert.Contains(t, c.synced(other, agentv1.ReasonInputError), "which is older")
}

func TestAnInfraEnvFollowsAClusterDeploymentThatIsMadeAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	deployment, install := c.deployment()
	c.synced(install, agentv1.ReasonSyncOK)
	infraEnv := c.infraEnv("rack", func(s *agentv1.InfraEnvSpec) {
		s.ClusterRef = &agentv1.ClusterReference{Namespace: deployment.Namespace, Name: deployment.Name}
	})
	image := c.token(infraEnv)
	agent := c.agent(c.bootWith(string(infraEnv.UID), image, 1, 0))
	c.says(agent, agentv1.ConditionBound, agentv1.ReasonBound)
	require.NoError(t, c.user.Delete(t.Context(), deployment))
	require.NoError(t, c.user.Delete(t.Context(), install))
	c.gone(install)
	c.gone(deployment)

	again := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: deployment.Namespace, Name: deployment.Name}, Spec: deployment.Spec}
	c.create(again)
	c.create(&hiveextv1.AgentClusterInstall{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: install.Name}, Spec: install.Spec})
	c.until(infraEnv, "the InfraEnv is of the new cluster", func() bool {
		_, answer := c.rest("/infra-envs/" + string(infraEnv.UID))
		return answer["cluster_id"] == string(again.UID) && agentv1.IsConditionTrue(infraEnv.Status.Conditions, agentv1.ConditionImageCreated)
	})
	for _, one := range []*agentv1.Agent{agent, c.agent(c.bootWith(string(infraEnv.UID), image, 2, 0))} {
		c.until(one, "the host is in the new cluster", func() bool {
			return strings.Contains(one.Status.DebugInfo.EventsURL, string(again.UID)) && is(one, agentv1.ConditionBound, agentv1.ReasonBound)
		})
	}
}

// A machine that runs the image registers again as soon as its Agent is deleted. It would be bound again, without an Agent by which a user could free it.
func TestAnInfraEnvWithAClusterGoesWhenItsAgentsAreDeleted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	deployment, install := c.deployment()
	c.synced(install, agentv1.ReasonSyncOK)
	infraEnv := c.infraEnv("rack", func(s *agentv1.InfraEnvSpec) { s.ClusterRef = reference(deployment) })
	image := c.token(infraEnv)
	bound := c.agent(c.boot(infraEnv, 1, 0))
	c.says(bound, agentv1.ConditionBound, agentv1.ReasonBound)
	require.NoError(t, c.user.Delete(t.Context(), infraEnv))
	c.until(infraEnv, "it waits for its hosts", func() bool {
		said := agentv1.FindCondition(infraEnv.Status.Conditions, agentv1.ConditionImageCreated)
		return said != nil && said.Reason == "HostsBound"
	})
	connection, err := agent.NewConnection(c.base, uuid.MustParse(string(infraEnv.UID)), image, http.DefaultClient)
	require.NoError(t, err)
	_, err = connection.Register(t.Context(), agent.Identity{HostID: uuid.New()}, "test")
	require.ErrorContains(t, err, "is being deleted")
	require.NoError(t, c.user.Delete(t.Context(), bound))
	c.gone(bound)
	c.gone(infraEnv)
}
