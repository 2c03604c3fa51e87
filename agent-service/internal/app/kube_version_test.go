// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
)

// A machine does not begin to be installed for a cluster of a version that no image has: the Agent and the MachinePool say so, and it can be given to another cluster at once.
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
	c.until(agent, "it says what it waits for", func() bool {
		met := agentv1.FindCondition(agent.Status.Conditions, agentv1.ConditionRequirementsMet)
		return met != nil && met.Reason == agentv1.ReasonAgentNotReady && strings.Contains(met.Message, why)
	})
	assert.Equal(t, "insufficient", agent.Status.DebugInfo.State)
	c.until(pool, "it says what its machine waits for", func() bool {
		ready := hivev1.FindCondition(pool.Status.Conditions, hivev1.MachinePoolReady)
		return len(pool.Status.Machines) == 1 && pool.Status.Machines[0].Phase == hivev1.MachinePhaseBinding && strings.Contains(pool.Status.Machines[0].Message, why) &&
			ready != nil && strings.Contains(ready.Message, "not being installed yet")
	})
	change(c, pool, func(p *hivev1.MachinePool) { p.Spec.Replicas = new(int64(0)) })
	c.until(agent, "the machine is free", func() bool { return agent.Status.DebugInfo.State == "known-unbound" })
}
