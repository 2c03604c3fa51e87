// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package journeys_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/addresstest"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/e2e/environment"
	"github.com/muster-io/muster/e2e/fleet"
)

// rackOfOneAddress is a cluster that wants two machines, whose InfraEnv gives its machines addresses of an IPPool with one address.
type rackOfOneAddress struct {
	*testEnv
	addresses *ipamv1.IPPool
	image     fleet.Image
	machines  *fleet.Fleet
}

// addressOfRack is the only one of the pool.
const addressOfRack = "10.40.0.10"

func newRackOfOneAddress(t *testing.T) (*rackOfOneAddress, []agentv1.Agent) {
	t.Helper()
	if nodes || foreign {
		t.Skip("hosted clusters that run as pods take no nodes")
	}
	needtest.Part(t, addresstest.Reachable() != "", "this machine has no address but loopback: nodes could not reach a cluster on it")
	needLiveImage(t)
	r := &rackOfOneAddress{testEnv: newTestEnv(t)}
	r.pullSecret()
	r.addresses = r.addressPool("rack", func(s *ipamv1.IPPoolSpec) {
		s.Prefix, s.Gateway, s.DNSServers = 8, new(ipamv1.IPAddressStr("10.255.255.254")), []ipamv1.IPAddressStr{"10.255.0.53"}
		s.Pools = []ipamv1.Pool{addressSpan(addressOfRack, addressOfRack)}
	})
	const clusters = "metal"
	env := r.infraEnv("rack", func(s *agentv1.InfraEnvSpec) {
		s.AgentApproval = &agentv1.AgentApproval{AutoApprove: true}
		s.NodeAddresses = []agentv1.NodeAddressPool{{Name: r.addresses.Name}}
		s.OnRelease = &agentv1.ReleasePolicy{Wipe: agentv1.WipeInstalledDisk}
		s.AllowedClusters = &agentv1.AllowedClusters{Namespaces: &agentv1.ClusterNamespaces{From: agentv1.FromSelector, Selector: &metav1.LabelSelector{
			MatchLabels: map[string]string{hivev1.LabelNamespaceClusterPoolName: clusters, hivev1.LabelNamespaceClusterPoolNamespace: r.namespace},
		}}}
	})
	r.image = r.testEnv.image(env)
	r.machines = r.boot(r.image, "rack", 2)
	agents := r.untilAgents(env, 2)
	set := &hivev1.ClusterImageSet{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}, Spec: hivev1.ClusterImageSetSpec{ReleaseImage: "muster.local/control-plane:" + environment.SystemVersion}}
	r.create(set)
	pool := r.hostedPool(clusters, 1, 1)
	pool.Spec.ImageSetRef.Name = set.Name
	pool.Spec.Platform.Hosted.Nodes = &hivev1.HostedNodes{}
	pool.Spec.MachinePools = []hivev1.ClusterPoolMachinePool{{
		Name: "worker", Replicas: 2, Platform: hivev1.MachinePoolPlatform{AgentBareMetal: &hivev1.AgentBareMetalMachinePool{}},
	}}
	r.create(pool)
	t.Cleanup(func() { // machines of a cluster keep their InfraEnv
		ctx := context.WithoutCancel(r.ctx)
		assert.NoError(t, r.admin.Delete(ctx, pool))
		assert.NoError(t, r.admin.Delete(ctx, set))
		assert.NoError(t, r.admin.DeleteAllOf(ctx, &agentv1.Agent{}, client.InNamespace(r.namespace)))
	})
	return r, agents
}

// reboot switches the machines off, and on again: they boot the discovery image.
func (r *rackOfOneAddress) reboot() {
	r.t.Helper()
	r.machines.Stop()
	r.machines = r.boot(r.image, "rack", 2)
}

// machinePool is the one that an Agent is of.
func machinePool(agent *agentv1.Agent) *hivev1.MachinePool {
	return &hivev1.MachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: agent.Labels[agentv1.MachinePoolNamespaceLabel], Name: agent.Labels[agentv1.MachinePoolLabel]}}
}

// scale sets the machines of the MachinePool that an Agent is of.
func (r *rackOfOneAddress) scale(agent *agentv1.Agent, replicas int32) {
	r.t.Helper()
	pool := machinePool(agent)
	require.NoError(r.t, r.admin.SubResource("scale").Update(r.ctx, pool, client.WithSubResourceBody(&autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Namespace: pool.Namespace, Name: pool.Name}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas},
	})))
}

// untilInstalled waits until an Agent's machine is installed, and looks at its first-boot data.
func (r *rackOfOneAddress) untilInstalled(agent *agentv1.Agent) {
	r.t.Helper()
	require.EventuallyWithT(r.t, func(c *assert.CollectT) {
		r.refresh(c, agent)
		requireAgent(c, agent, agentv1.ConditionAddressesAssigned, agentv1.ReasonAddressesAssigned)
		require.Equal(c, "added-to-existing-cluster", agent.Status.DebugInfo.State, agent.Status.DebugInfo.StateInfo)
	}, patience, interval, "the machine of %s is not installed", agent.Name)
	files, err := r.machines.FirstBoot(agent.Name)
	require.NoError(r.t, err)
	var join struct{ NodeIPs []netip.Addr }
	require.NoError(r.t, json.Unmarshal(files["/etc/muster/join.json"], &join))
	assert.Equal(r.t, []netip.Addr{netip.MustParseAddr(addressOfRack)}, join.NodeIPs, "the InternalIP of its Node")
	var network strings.Builder
	for path, content := range files {
		if strings.HasPrefix(path, "/etc/NetworkManager/") {
			network.Write(content)
		}
	}
	for _, line := range []string{"address1=" + addressOfRack + "/8", "10.255.255.254", "dns=10.255.0.53;"} {
		assert.Contains(r.t, network.String(), line)
	}
}

// claimsOf are the IPClaims of an Agent.
func (r *rackOfOneAddress) claimsOf(c require.TestingT, agent *agentv1.Agent) []ipamv1.IPClaim {
	list := &ipamv1.IPClaimList{}
	require.NoError(c, r.admin.List(r.ctx, list, client.InNamespace(r.namespace), client.MatchingLabels{agentv1.ClaimOwnerLabel: agent.Name}))
	return list.Items
}

// untilPoolWaits waits until the MachinePool of an Agent says that it takes no second machine, because the IPPool has no address.
func (r *rackOfOneAddress) untilPoolWaits(agent *agentv1.Agent) {
	r.t.Helper()
	pool := machinePool(agent)
	require.EventuallyWithT(r.t, func(c *assert.CollectT) {
		r.refresh(c, pool)
		said := hivev1.FindCondition(pool.Status.Conditions, hivev1.MachinePoolMachinesAvailable)
		require.NotNil(c, said)
		require.Equal(c, hivev1.ReasonNoSuitableAgents, said.Reason, said.Message)
		require.Contains(c, said.Message, "1 of 2 machines are bound")
		require.Contains(c, said.Message, fmt.Sprintf("without an address: IPPool %s has none free", r.addresses.Name))
	}, patience, interval, "MachinePool %s does not say what it waits for", pool.Name)
}

// untilWaits waits until an Agent says that its machine is not installed, because the IPPool has no address.
func (r *rackOfOneAddress) untilWaits(agent *agentv1.Agent) {
	r.t.Helper()
	require.EventuallyWithT(r.t, func(c *assert.CollectT) {
		r.refresh(c, agent)
		requireAgent(c, agent, agentv1.ConditionAddressesAssigned, agentv1.ReasonAddressesMissing)
		waits := agentv1.FindCondition(agent.Status.Conditions, agentv1.ConditionAddressesAssigned)
		require.Contains(c, waits.Message, fmt.Sprintf("IPPool %s: Exhausted IP Pools", r.addresses.Name))
	}, patience, interval, "agent %s does not wait", agent.Name)
	_, err := r.machines.FirstBoot(agent.Name)
	assert.Error(r.t, err, "it is not installed")
}

// A MachinePool wants two machines, and the IPPool has one address: one machine is installed with it, the other stays free, and a user who binds it nevertheless is told what it waits for.
// A released machine keeps the address while its old system may live. When it has come back and is wiped, the other one gets the address and goes on by itself.
func TestMachinesHaveAddressesOfAPool(t *testing.T) {
	r, agents := newRackOfOneAddress(t)
	holder, waiting := &agents[0], &agents[1]
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		for _, agent := range []*agentv1.Agent{holder, waiting} {
			r.refresh(c, agent)
		}
		assigned := func(agent *agentv1.Agent) bool {
			return agentv1.IsConditionTrue(agent.Status.Conditions, agentv1.ConditionAddressesAssigned)
		}
		if assigned(waiting) {
			holder, waiting = waiting, holder
		}
		require.True(c, assigned(holder), "%+v", holder.Status.Conditions)
	}, patience, interval, "no machine has the address")
	r.untilInstalled(holder)
	r.untilPoolWaits(holder)
	r.refresh(t, waiting)
	require.Nil(t, waiting.Spec.ClusterDeploymentName, "it would wait for an address")
	cluster := holder.Spec.ClusterDeploymentName
	r.bind(waiting, &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name}})
	r.untilWaits(waiting)
	held := r.claimsOf(t, holder)
	require.Len(t, held, 1)
	assert.Equal(t, addressOfRack, r.untilAddressed(&held[0]))

	r.scale(holder, 0)
	r.untilAgent(holder, agentv1.ConditionReleased, agentv1.ReasonWaitingForUser)
	requireAgent(t, holder, agentv1.ConditionAddressesAssigned, agentv1.ReasonAddressesAssigned)
	r.refresh(t, &held[0])
	assert.Nil(t, held[0].DeletionTimestamp, "its system may live")
	r.untilWaits(waiting)

	r.reboot()
	r.untilGone(&held[0], patience)
	r.untilInstalled(waiting)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		r.refresh(c, holder)
		require.True(c, agentv1.IsConditionTrue(holder.Status.Conditions, agentv1.ConditionReleased), "%+v", holder.Status.Conditions)
		require.Nil(c, agentv1.FindCondition(holder.Status.Conditions, agentv1.ConditionAddressesAssigned))
		require.Empty(c, holder.Status.Addresses)
	}, patience, interval, "the machine is not free")

	// The user says that the machine is gone for good: its address can be had.
	r.bind(waiting, nil)
	r.untilAgent(waiting, agentv1.ConditionReleased, agentv1.ReasonWaitingForUser)
	r.machines.Stop()
	require.NoError(t, r.admin.Delete(t.Context(), waiting))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.Empty(c, r.claimsOf(c, waiting))
		r.refresh(c, r.addresses)
		require.Empty(c, r.addresses.Status.Allocations)
	}, patience, interval, "the address is not free")
	r.giveBack(r.addresses)
}
