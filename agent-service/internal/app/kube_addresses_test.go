// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/base64"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/internal/controller/nodeaddress"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// fromPool makes the machines of an InfraEnv get addresses of an IPPool.
func fromPool(name string) func(*agentv1.InfraEnvSpec) {
	return func(s *agentv1.InfraEnvSpec) { s.NodeAddresses = []agentv1.NodeAddressPool{{Name: name}} }
}

// ipClaim waits for the claim of an Agent, other than those of these names.
func (c *cluster) ipClaim(agent *agentv1.Agent, but ...string) *ipamv1.IPClaim {
	c.Helper()
	var found *ipamv1.IPClaim
	require.Eventually(c, func() bool {
		var claims ipamv1.IPClaimList
		require.NoError(c, c.user.List(c.Context(), &claims, client.InNamespace(agent.Namespace), client.MatchingLabels{agentv1.ClaimOwnerLabel: agent.Name}))
		for i := range claims.Items {
			if one := &claims.Items[i]; one.DeletionTimestamp == nil && !strings.Contains(strings.Join(but, " "), one.Name) {
				found = one
			}
		}
		return found != nil
	}, kubePatience, 50*time.Millisecond, "there is no claim")
	return found
}

// gives answers a claim as ipam-operator does.
func (c *cluster) gives(claim *ipamv1.IPClaim, address string, change ...func(*ipamv1.IPAddress)) *ipamv1.IPAddress {
	c.Helper()
	gateway := ipamv1.IPAddressStr("10.0.0.1")
	made := &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: "p-" + strings.ReplaceAll(address, ".", "-")},
		Spec: ipamv1.IPAddressSpec{
			Claim: ipamv1.ObjectReference{Name: claim.Name, Namespace: claim.Namespace}, Pool: ipamv1.ObjectReference{Name: claim.Spec.Pool.Name, Namespace: claim.Namespace},
			Address: ipamv1.IPAddressStr(address), Prefix: 8, Gateway: &gateway, DNSServers: []ipamv1.IPAddressStr{"10.0.0.53"},
		},
	}
	for _, one := range change {
		one(made)
	}
	c.create(made)
	before := claim.DeepCopy()
	claim.Status.Address, claim.Status.ErrorMessage = &ipamv1.ObjectReference{Name: made.Name, Namespace: made.Namespace}, nil
	require.NoError(c, c.user.Status().Patch(c.Context(), claim, client.MergeFrom(before)))
	return made
}

// bound binds the machine of an Agent.
func (c *cluster) bound(agent *agentv1.Agent, deployment *hivev1.ClusterDeployment) {
	c.Helper()
	change(c, agent, func(a *agentv1.Agent) {
		a.Spec.ClusterDeploymentName, a.Spec.Approved, a.Spec.Hostname, a.Spec.Role = reference(deployment), true, worker(c.namespace), "worker"
	})
}

// waits boots a machine whose addresses are of an IPPool, and binds it: its Agent waits for the claim.
func (c *cluster) waits(pool func(*agentv1.InfraEnvSpec)) (*machine, *agentv1.Agent) {
	c.Helper()
	bootstrappers(c)
	m := c.boot(c.infraEnv("rack", pool), 1, 0)
	agent := c.agent(m)
	deployment, _ := c.takesNodes()
	c.bound(agent, deployment)
	return m, agent
}

// missing waits until an Agent says why its machine has no address.
func (c *cluster) missing(agent *agentv1.Agent, why string) {
	c.Helper()
	c.until(agent, why, func() bool {
		said := agentv1.FindCondition(agent.Status.Conditions, agentv1.ConditionAddressesAssigned)
		return said != nil && said.Reason == agentv1.ReasonAddressesMissing && strings.Contains(said.Message, why)
	})
}

// profiles are those of NetworkManager in the first-boot data of a machine.
func (m *machine) profiles(t *testing.T) string {
	t.Helper()
	m.installed.mu.Lock()
	defer m.installed.mu.Unlock()
	var ignition struct {
		Storage struct {
			Files []struct {
				Path     string
				Contents struct{ Source string }
			}
		}
	}
	require.NoError(t, json.Unmarshal(m.installed.data, &ignition))
	var all strings.Builder
	for _, file := range ignition.Storage.Files {
		if strings.Contains(file.Path, "NetworkManager") {
			content, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(file.Contents.Source, "data:;base64,"))
			require.NoError(t, err)
			all.Write(content)
		}
	}
	return all.String()
}

// An installation waits for its address, goes on by itself when there is one, and the address is free again only after the machine has come back.
func TestANodeHasTheAddressOfItsPool(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t))
	c.reside = true
	bootstrappers(c)
	m := c.boot(c.infraEnv("rack", fromPool("rack-a"), func(s *agentv1.InfraEnvSpec) { s.OnRelease = &agentv1.ReleasePolicy{Wipe: agentv1.WipeInstalledDisk} }), 1, 0)
	agent := c.agent(m)
	assert.Nil(t, agentv1.FindCondition(agent.Status.Conditions, agentv1.ConditionAddressesAssigned), "it is free")
	deployment, _ := c.takesNodes()
	c.bound(agent, deployment)
	c.missing(agent, "it waits for its addresses of IPPool rack-a")
	claim := c.ipClaim(agent)
	assert.Equal(t, "rack-a", claim.Spec.Pool.Name)
	assert.True(t, metav1.IsControlledBy(claim, agent))
	before := claim.DeepCopy()
	claim.Status.ErrorMessage = new("Exhausted IP Pools")
	require.NoError(t, c.user.Status().Patch(t.Context(), claim, client.MergeFrom(before)))
	c.missing(agent, "IPPool rack-a: Exhausted IP Pools")
	c.until(agent, "the state says so, too", func() bool {
		return agent.Status.DebugInfo.State == "insufficient" && strings.Contains(agent.Status.DebugInfo.StateInfo, "IPPool rack-a: Exhausted IP Pools")
	})

	given := c.gives(claim, "10.99.0.7")
	c.until(agent, "the machine is installed", func() bool { return agent.Status.DebugInfo.State == "added-to-existing-cluster" })
	c.says(agent, agentv1.ConditionAddressesAssigned, agentv1.ReasonAddressesAssigned)
	assert.Equal(t, []netip.Addr{netip.MustParseAddr("10.99.0.7")}, m.installed.join(t).NodeIPs)
	for _, line := range []string{"method=manual\naddress1=10.99.0.7/8\n", "0.0.0.0/0,10.0.0.1", "dns=10.0.0.53;"} {
		assert.Contains(t, m.profiles(t), line)
	}
	require.Len(t, agent.Status.Addresses, 1)
	assert.Equal(t, "IPPool rack-a", agent.Status.Addresses[0].Pool)
	assert.Equal(t, "10.99.0.7/8", agent.Status.Addresses[0].Address)

	require.NoError(t, c.user.Delete(t.Context(), claim), "a user deletes it while the node lives")
	require.NoError(t, c.user.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
	assert.NotNil(t, claim.DeletionTimestamp, "it stays, and the address with it")

	c.asksForInstructions(agent)
	change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = nil })
	c.until(agent, "the machine is free", func() bool { return agent.Status.DebugInfo.State == "known-unbound" })
	c.gone(claim)
	c.until(agent, "nothing is said of addresses", func() bool {
		return agentv1.FindCondition(agent.Status.Conditions, agentv1.ConditionAddressesAssigned) == nil && len(agent.Status.Addresses) == 0
	})
	require.NoError(t, c.user.Delete(t.Context(), given))

	c.bound(agent, deployment)
	assert.NotEqual(t, claim.Name, c.ipClaim(agent, claim.Name).Name, "another installation has another claim")
}

// A machine that died keeps its address until its user says that it is gone.
func TestADeadMachineKeepsItsAddress(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t))
	m, agent := c.waits(fromPool("rack-a"))
	claim := c.ipClaim(agent)
	c.gives(claim, "10.99.0.8")
	c.until(agent, "the machine is installed", func() bool { return agent.Status.DebugInfo.State == "added-to-existing-cluster" })
	m.stop()
	change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = nil })
	c.says(agent, agentv1.ConditionReleased, agentv1.ReasonWaitingForUser)
	c.until(claim, "its claim stays", func() bool { return claim.DeletionTimestamp == nil && len(claim.Finalizers) > 0 })
	c.says(agent, agentv1.ConditionAddressesAssigned, agentv1.ReasonAddressesAssigned)
	require.NoError(t, c.user.Delete(t.Context(), agent))
	c.gone(agent)
	c.gone(claim)
}

// What others write of addresses is not believed.
func TestAddressesThatAreNotTheMachinesAreNotUsed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t), func(o *Options) { o.lookInterval = 100 * time.Millisecond })
	m, agent := c.waits(fromPool("rack-a"))
	claim := c.ipClaim(agent)
	foreign := c.gives(claim, "10.99.1.1", func(a *ipamv1.IPAddress) { a.Spec.Claim.Name = "other" })
	c.missing(agent, "the IPAddress "+foreign.Name+" is not of claim "+claim.Name)
	require.NoError(t, c.user.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
	elsewhere := c.gives(claim, "10.99.1.2", func(a *ipamv1.IPAddress) { a.Spec.Pool.Name = "other" })
	c.missing(agent, "the IPAddress "+elsewhere.Name+" is not of claim "+claim.Name)
	require.NoError(t, c.user.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
	long := c.gives(claim, "10.99.1.3", func(a *ipamv1.IPAddress) { a.Spec.Prefix = 0 })
	c.missing(agent, "the IPAddress "+long.Name+" cannot be used: it has no length of a prefix: state prefix in the pool")

	require.NoError(t, c.user.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
	change(c, claim, func(o *ipamv1.IPClaim) { o.Finalizers, o.Labels, o.OwnerReferences = nil, nil, nil })
	c.missing(agent, "a claim "+claim.Name+" is there already, and does not belong to the Agent: delete it")
	assert.Equal(t, "insufficient", agent.Status.DebugInfo.State)
	require.NoError(t, c.user.Delete(t.Context(), claim))
	c.gives(c.ipClaim(agent), "10.99.1.4")
	c.until(agent, "the machine is installed", func() bool { return agent.Status.DebugInfo.State == "added-to-existing-cluster" })
	assert.Equal(t, "10.99.1.4", m.installed.join(t).NodeIPs[0].String())
}

// Pools can be changed until the installation begins; a kind that is not served is named.
func TestOtherPoolsAreChosenBeforeAnInstallation(t *testing.T) {
	c := newCluster(t, withSystem(t))
	bootstrappers(c)
	infraEnv := c.infraEnv("rack", fromPool("rack-a"))
	m := c.boot(infraEnv, 1, 0)
	agent := c.agent(m)
	deployment, _ := c.takesNodes()
	c.bound(agent, deployment)
	first := c.ipClaim(agent)
	_, err := c.user.RESTMapper().RESTMapping(nodeaddress.Contract)
	if meta.IsNoMatchError(err) {
		change(c, infraEnv, func(e *agentv1.InfraEnv) {
			e.Spec.NodeAddresses = []agentv1.NodeAddressPool{{APIGroup: "ipam.cluster.x-k8s.io", Kind: "InClusterIPPool", Name: "theirs"}}
		})
		c.missing(agent, "InClusterIPPool theirs: the API server does not serve IPAddressClaim of ipam.cluster.x-k8s.io: install its custom resource definition")
		c.gone(first)
	}
	change(c, infraEnv, func(e *agentv1.InfraEnv) { e.Spec.NodeAddresses = []agentv1.NodeAddressPool{{Name: "rack-b"}} })
	second := c.ipClaim(agent, first.Name)
	assert.Equal(t, "rack-b", second.Spec.Pool.Name)
	change(c, infraEnv, func(e *agentv1.InfraEnv) { e.Spec.NodeAddresses = nil })
	c.until(agent, "it is installed without one", func() bool { return agent.Status.DebugInfo.State == "added-to-existing-cluster" })
	c.gone(second)
	assert.Empty(t, m.installed.join(t).NodeIPs)
}

func TestPoolsAreCheckedByTheAPIServer(t *testing.T) {
	t.Parallel()
	c := unserved(t)
	for why, pools := range map[string][]agentv1.NodeAddressPool{
		"nodeAddresses names a pool twice": {{Name: "a"}, {Name: "a"}},
		"must have at most 2 items":        {{Name: "a"}, {Name: "b"}, {Name: "c"}},
		"spec.nodeAddresses[0].name":       {{}},
		"spec.nodeAddresses[0].interface":  {{Name: "a", Interface: "eth 0"}},
	} {
		err := c.user.Create(t.Context(), &agentv1.InfraEnv{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "rack"}, Spec: agentv1.InfraEnvSpec{PullSecretRef: agentv1.SecretReference{Name: "p"}, NodeAddresses: pools},
		})
		require.True(t, apierrors.IsInvalid(err), "%v", err)
		assert.Contains(t, err.Error(), why)
	}
}

// The certificate with which a node serves names the address that it was given. The one that its machine had in the discovery image may be another machine's by then.
func TestANodeServesAtItsAddressOfAPoolAlone(t *testing.T) {
	c := newCluster(t, withSystem(t))
	bootstrappers(c)
	m := c.boot(c.infraEnv("rack", fromPool("rack-a")), 1, 0)
	agent := c.agent(m)
	deployment, _ := c.takesNodes()
	c.bound(agent, deployment)
	c.gives(c.ipClaim(agent), "10.99.2.7")
	c.until(agent, "the machine is installed", func() bool { return agent.Status.DebugInfo.State == "added-to-existing-cluster" })
	c.decided(c.serves(worker(c.namespace), "10.99.2.7"), certificatesv1.CertificateApproved)
	reported, _, _ := strings.Cut(m.Inventory().Interfaces[0].IPV4Addresses[0], "/")
	for why, address := range map[string]string{
		"it left the address that it reported": reported, "an address of its pool is not its own": "10.99.2.8", "it has none of that family": "2001:db8::7",
	} {
		request := c.serves(worker(c.namespace), "10.99.2.7", address)
		c.decided(request, certificatesv1.CertificateDenied)
		assert.Contains(t, request.Status.Conditions[0].Message, "names the address "+address, why)
	}
}

// A claim that another client labels as the Agent's gives no address, and stays. One that is taken away by force while the node lives is missed, and the node keeps running.
func TestClaimsOfOthersAreLeftAlone(t *testing.T) {
	c := newCluster(t, withSystem(t))
	bootstrappers(c)
	m := c.boot(c.infraEnv("rack", fromPool("rack-a")), 1, 0)
	agent := c.agent(m)
	deployment, _ := c.takesNodes()
	foreign := &ipamv1.IPClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "foreign", Labels: map[string]string{agentv1.ClaimOwnerLabel: agent.Name}},
		Spec:       ipamv1.IPClaimSpec{Pool: ipamv1.ObjectReference{Name: "rack-a"}},
	}
	c.create(foreign)
	c.gives(foreign, "10.99.3.1")
	c.bound(agent, deployment)
	claim := c.ipClaim(agent, foreign.Name)
	c.gives(claim, "10.99.3.7")
	c.until(agent, "the machine is installed", func() bool { return agent.Status.DebugInfo.State == "added-to-existing-cluster" })
	assert.Equal(t, []netip.Addr{netip.MustParseAddr("10.99.3.7")}, m.installed.join(t).NodeIPs)

	change(c, claim, func(o *ipamv1.IPClaim) { o.Finalizers = nil })
	c.until(claim, "its finalizer is put back", func() bool { return len(claim.Finalizers) > 0 })
	require.NoError(t, c.user.Delete(t.Context(), claim))
	require.NoError(t, c.user.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
	change(c, claim, func(o *ipamv1.IPClaim) { o.Finalizers = nil })
	c.gone(claim)
	c.missing(agent, "no claim of IPPool rack-a keeps 10.99.3.7 any more: another machine may get it")
	assert.Equal(t, "added-to-existing-cluster", agent.Status.DebugInfo.State)
	c.until(foreign, "it is as it was", func() bool { return foreign.DeletionTimestamp == nil && len(foreign.Finalizers) == 0 })
}
