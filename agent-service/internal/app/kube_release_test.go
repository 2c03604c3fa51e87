// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/muster-io/muster/agent-service/api"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// bind binds the machine of an Agent and waits until it is installed.
func (c *cluster) bind(agent *agentv1.Agent, deployment *hivev1.ClusterDeployment) {
	c.Helper()
	change(c, agent, func(a *agentv1.Agent) {
		a.Spec.ClusterDeploymentName, a.Spec.Approved, a.Spec.Hostname, a.Spec.Role = reference(deployment), true, "worker-1", "worker"
	})
	c.until(agent, "the machine is installed", func() bool { return agent.Status.DebugInfo.State == "added-to-existing-cluster" })
}

// A machine whose installed system asks for instructions comes back without hands: it restarts into the discovery image, is wiped, and is free.
func TestAReleasedMachineComesBackByItself(t *testing.T) {
	c := newCluster(t, withSystem(t))
	c.reside = true
	c.bootstrappers()
	m := c.boot(c.infraEnv("rack", func(s *agentv1.InfraEnvSpec) { s.OnRelease = &agentv1.ReleasePolicy{Wipe: agentv1.WipeInstalledDisk} }), 1, 0)
	agent := c.agent(m)
	deployment, _ := c.takesNodes()
	for round := 1; round <= 2; round++ {
		c.bind(agent, deployment)
		assert.Nil(t, agentv1.FindCondition(agent.Status.Conditions, agentv1.ConditionReleased), "it is bound")
		change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = nil })
		c.until(agent, "the machine is free", func() bool {
			return agentv1.IsConditionTrue(agent.Status.Conditions, agentv1.ConditionReleased) && agent.Status.DebugInfo.State == "known-unbound"
		})
		assert.Equal(t, round, m.told(api.StepTypeRebootForReclaim))
		assert.Equal(t, round, m.told(api.StepTypeWipeDisk))
		assert.Equal(t, deployment.Name, agent.Status.DeprovisionInfo.ClusterName)
		assert.Equal(t, deployment.Namespace, agent.Status.DeprovisionInfo.ClusterNamespace)
	}
}

// A machine whose system does not ask says what its user has to do, and keeps no cluster from being deleted.
func TestAMachineThatCannotComeBackSaysWhatToDo(t *testing.T) {
	c := newCluster(t, withSystem(t))
	c.bootstrappers()
	m := c.boot(c.infraEnv("rack"), 1, 0)
	agent := c.agent(m)
	deployment, _ := c.takesNodes()
	c.bind(agent, deployment)
	assert.NoError(t, c.user.Delete(t.Context(), deployment))
	c.gone(deployment)
	c.says(agent, agentv1.ConditionReleased, agentv1.ReasonWaitingForUser)
	c.says(agent, agentv1.ConditionBound, agentv1.ReasonUnbindingPendingUserAction)
}
