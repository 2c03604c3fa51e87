// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
)

// A MachinePool takes no machine for a cluster of a version that no image has, and says so. One that a user binds does not begin to be installed, says so, and can be given to another cluster at once.
func TestAMachineWaitsForAnImageOfTheVersionOfItsCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t))
	newer := &hivev1.ClusterImageSet{ObjectMeta: metav1.ObjectMeta{Name: "newer-" + c.namespace}, Spec: hivev1.ClusterImageSetSpec{ReleaseImage: "muster.local/control-plane:9.99.1"}}
	c.create(newer)
	m := c.boot(c.infraEnv("rack", func(s *agentv1.InfraEnvSpec) {
		s.AllowedClusters = &agentv1.AllowedClusters{Namespaces: &agentv1.ClusterNamespaces{From: agentv1.FromAll}}
	}), 1, 0)
	agent := c.agent(m)
	change(c, agent, func(a *agentv1.Agent) { a.Spec.Approved = true })
	deployment, _ := hostedIn(c, c.newNamespace())
	c.create(&hiveextv1.AgentClusterInstall{ // as the MachinePool makes it of a ClusterDeployment with that image set
		ObjectMeta: metav1.ObjectMeta{Namespace: deployment.Namespace, Name: deployment.Name},
		Spec:       hiveextv1.AgentClusterInstallSpec{ClusterDeploymentRef: hivev1.LocalObjectReference{Name: deployment.Name}, ImageSetRef: &hivev1.ClusterImageSetReference{Name: newer.Name}},
	})
	pool := blueWorkers(c, deployment)
	const why = `there is no image of version "9.99.1"`
	c.until(pool, "it says why it takes no machine", func() bool {
		available := hivev1.FindCondition(pool.Status.Conditions, hivev1.MachinePoolMachinesAvailable)
		return available != nil && available.Reason == hivev1.ReasonNoSuitableAgents && strings.Contains(available.Message, why)
	})
	require.NoError(t, c.user.Get(t.Context(), client.ObjectKeyFromObject(agent), agent))
	assert.Equal(t, "known-unbound", agent.Status.DebugInfo.State, "it is free for others")
	change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = reference(deployment) })
	c.until(agent, "it says what it waits for", func() bool {
		met := agentv1.FindCondition(agent.Status.Conditions, agentv1.ConditionRequirementsMet)
		return met != nil && met.Reason == agentv1.ReasonAgentNotReady && strings.Contains(met.Message, why)
	})
	assert.Equal(t, "insufficient", agent.Status.DebugInfo.State)
	change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = nil })
	c.until(agent, "the machine is free", func() bool { return agent.Status.DebugInfo.State == "known-unbound" })
}
