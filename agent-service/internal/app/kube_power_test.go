// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// The whole service, with the rights that are deployed: a machine that was installed is off while its cluster hibernates, and the same Node afterwards.
func TestAnInstalledMachineSleepsWithItsCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t))
	bootstrappers(c)
	agent := c.agent(c.boot(c.infraEnv("rack"), 1, 0))
	c.until(agent, "the Agent has an inventory", func() bool { return len(agent.Status.Inventory.Interfaces) > 0 })
	host := &metal3v1.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "node-1", Labels: map[string]string{agentv1.InfraEnvLabel: "rack"}},
		Spec: metal3v1.BareMetalHostSpec{
			Online: true, BMC: &metal3v1.BMCDetails{Address: "ipmi://192.0.2.1", CredentialsName: "bmc"}, BootMACAddress: agent.Status.Inventory.Interfaces[0].MacAddress,
		},
	}
	c.create(host)
	c.until(agent, "the Agent is linked", func() bool { return agent.Labels[agentv1.BareMetalHostLabel] == host.Name })
	powers := func() { // as the operator of hosts does
		require.NoError(t, c.user.Get(t.Context(), client.ObjectKeyFromObject(host), host))
		host.Status.PoweredOn, host.Status.OperationalStatus, host.Status.Provisioning.State = host.Spec.Online, metal3v1.OperationalStatusOK, metal3v1.StateProvisioned
		require.NoError(t, c.user.Status().Update(t.Context(), host))
	}
	powers()
	deployment, _ := c.takesNodes()
	c.bind(agent, deployment)
	node := c.node(worker(c.namespace), corev1.ConditionTrue)
	c.says(agent, agentv1.ConditionJoined, agentv1.ReasonNodeReady)
	is := func(reason string) {
		t.Helper()
		c.until(deployment, "its machines are "+reason, func() bool {
			said := hivev1.FindCondition(deployment.Status.Conditions, hivev1.ClusterDeploymentMachinesStopped)
			return said != nil && said.Reason == reason
		})
	}
	is(hivev1.ReasonMachinesRunning)

	change(c, deployment, func(d *hivev1.ClusterDeployment) { d.Spec.PowerState = hivev1.PowerStateHibernating })
	c.until(host, "the machine is switched off", func() bool { return !host.Spec.Online })
	powers()
	is(hivev1.ReasonStoppingMachines)
	c.nodeIs(node, corev1.ConditionUnknown)
	is(hivev1.ReasonMachinesStopped)
	c.says(agent, agentv1.ConditionJoined, agentv1.ReasonNodeNotReady)

	change(c, deployment, func(d *hivev1.ClusterDeployment) { d.Spec.PowerState = hivev1.PowerStateRunning })
	c.until(host, "the machine is switched on", func() bool { return host.Spec.Online })
	powers()
	c.nodeIs(node, corev1.ConditionTrue)
	is(hivev1.ReasonMachinesRunning)
	c.says(agent, agentv1.ConditionJoined, agentv1.ReasonNodeReady)
	assert.Equal(t, "added-to-existing-cluster", agent.Status.DebugInfo.State, "it was not installed again")
}
