// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package machinepool

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// addresses has the machines of the InfraEnv get addresses of a new IPPool, of which so many are free.
func (r *rack) addresses(free int64) *ipamv1.IPPool {
	r.Helper()
	change(r, r.infraEnv, func(e *agentv1.InfraEnv) { e.Spec.NodeAddresses = []agentv1.NodeAddressPool{{Name: "rack-a"}} })
	pool := &ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: r.metal, Name: "rack-a"}, Spec: ipamv1.IPPoolSpec{
		NamePrefix: "a", Pools: []ipamv1.Pool{{Start: new(ipamv1.IPAddressStr("192.0.2.10")), End: new(ipamv1.IPAddressStr("192.0.2.30"))}}, Prefix: 24,
	}}
	require.NoError(r, r.user.Create(r.Context(), pool))
	pool.Status.Free = &free
	require.NoError(r, r.user.Status().Update(r.Context(), pool))
	return pool
}

// A machine without an address would wait in its cluster for ever: it stays free, and a machine of an InfraEnv with addresses is taken, however they sort.
func TestAMachineWithoutAnAddressStaysFree(t *testing.T) {
	r := newRack(t)
	addresses := r.addresses(2)
	r.replica(&nodes{}, always)
	agents := []*agentv1.Agent{r.agent("one"), r.agent("two"), r.agent("three")}
	pool := r.pool(r.cluster("blue").Name, 3)
	r.until(pool, "it says which addresses are missing", func() bool {
		c := hivev1.FindCondition(pool.Status.Conditions, hivev1.MachinePoolMachinesAvailable)
		return c != nil && c.Reason == hivev1.ReasonNoSuitableAgents && c.Message == fmt.Sprintf(
			"2 of 3 machines are bound. In namespace %s, 3 Agents match; 2 bound, 1 without an address: IPPool rack-a has none free", r.metal)
	})
	assert.Equal(t, map[string]int64{"blue": 2}, r.has())

	other := &agentv1.InfraEnv{ObjectMeta: metav1.ObjectMeta{Namespace: r.metal, Name: "other"}, Spec: r.infraEnv.Spec}
	other.Spec.NodeAddresses = nil
	require.NoError(t, r.user.Create(t.Context(), other))
	four := r.agent("four", func(a *agentv1.Agent) { a.OwnerReferences[0].Name, a.OwnerReferences[0].UID = other.Name, other.UID })
	r.until(four, "it is taken", func() bool { return takenBy(four) == client.ObjectKeyFromObject(pool) })
	r.until(pool, "it has its machines", func() bool { return says(pool, hivev1.MachinePoolMachinesAvailable, hivev1.ReasonMachinesBound) })
	free := slices.IndexFunc(agents, func(a *agentv1.Agent) bool {
		require.NoError(t, r.user.Get(t.Context(), client.ObjectKeyFromObject(a), a))
		return a.Spec.ClusterDeploymentName == nil
	})
	require.GreaterOrEqual(t, free, 0)

	require.NoError(t, r.user.Get(t.Context(), client.ObjectKeyFromObject(addresses), addresses))
	addresses.Status.Free = new(int64(3))
	require.NoError(t, r.user.Status().Update(t.Context(), addresses))
	r.clock.SetTime(r.clock.Now().Add(countAge))
	change(r, pool, func(p *hivev1.MachinePool) { p.Spec.Replicas = new(int64(4)) })
	r.until(agents[free], "it is taken", func() bool { return takenBy(agents[free]) == client.ObjectKeyFromObject(pool) })
}

// MachinePools that are looked at beside each other do not both take the last address.
func TestPoolsShareTheAddressesThatAreLeft(t *testing.T) {
	const pools, addresses = 8, 11
	r := newRack(t)
	r.addresses(addresses)
	var all []*hivev1.MachinePool
	for i := range pools {
		all = append(all, r.pool(r.cluster(fmt.Sprintf("c%d", i)).Name, 2))
	}
	for i := range 2 * pools {
		r.agent(fmt.Sprintf("machine-%d", i))
	}
	r.replica(&nodes{}, always)
	for _, pool := range all {
		r.until(pool, "it says what it has", func() bool {
			c := hivev1.FindCondition(pool.Status.Conditions, hivev1.MachinePoolMachinesAvailable)
			return c != nil && (c.Reason == hivev1.ReasonMachinesBound || strings.Contains(c.Message, "without an address"))
		})
	}
	bound := int64(0)
	for _, of := range r.has() {
		bound += of
	}
	assert.EqualValues(t, addresses, bound)
}

// What an IPPool says is of a moment ago: what was asked for, or given, since then is not free.
func TestAddressesThatMachinesWaitForAreNotFree(t *testing.T) {
	infraEnv := &agentv1.InfraEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "rack", UID: "e"}}
	infraEnv.Spec.NodeAddresses = []agentv1.NodeAddressPool{{APIGroup: "ipam.metal3.io", Kind: "IPPool", Name: "rack-a"}}
	agent := func(name string, state lifecycle.State, cluster string, change ...func(*agentv1.Agent)) *agentv1.Agent {
		made := &agentv1.Agent{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, OwnerReferences: []metav1.OwnerReference{{Kind: "InfraEnv", UID: infraEnv.UID}}}}
		made.Status.DebugInfo.State = string(state)
		if cluster != "" {
			made.Spec.ClusterDeploymentName = &agentv1.ClusterReference{Name: cluster}
		}
		for _, one := range change {
			one(made)
		}
		return made
	}
	assigned := func(status corev1.ConditionStatus, address string) func(*agentv1.Agent) {
		return func(a *agentv1.Agent) {
			agentv1.SetCondition(&a.Status.Conditions, agentv1.Condition{Type: agentv1.ConditionAddressesAssigned, Status: status}, metav1.Now())
			if address != "" {
				a.Status.Addresses = []agentv1.NodeAddress{{Pool: "IPPool rack-a", Address: address}}
			}
		}
	}
	candidate := agent("candidate", lifecycle.KnownUnbound, "")
	for name, c := range map[string]struct {
		status ipamv1.IPPoolStatus
		others []*agentv1.Agent
		lacks  bool
		// wrote is the Agent that this process changed since the cache read it.
		wrote string
	}{
		"one is free":                {status: ipamv1.IPPoolStatus{Free: new(int64(1))}},
		"none is free":               {status: ipamv1.IPPoolStatus{Free: new(int64(0))}, lacks: true},
		"it does not say":            {},
		"another machine waits":      {status: ipamv1.IPPoolStatus{Free: new(int64(1))}, others: []*agentv1.Agent{agent("a", lifecycle.Insufficient, "c", assigned(corev1.ConditionFalse, ""))}, lacks: true},
		"another was bound just now": {status: ipamv1.IPPoolStatus{Free: new(int64(1))}, others: []*agentv1.Agent{agent("a", lifecycle.KnownUnbound, "c")}, lacks: true},
		"another got it since":       {status: ipamv1.IPPoolStatus{Free: new(int64(1))}, others: []*agentv1.Agent{agent("a", lifecycle.Known, "c", assigned(corev1.ConditionTrue, "2001:db8::1/64"))}, lacks: true},
		"another was bound, which the cache does not show": {
			status: ipamv1.IPPoolStatus{Free: new(int64(1))}, others: []*agentv1.Agent{agent("a", lifecycle.KnownUnbound, "")}, lacks: true, wrote: "a",
		},
		"another that has one was changed, which the cache does not show": {
			status: ipamv1.IPPoolStatus{Free: new(int64(1)), Allocations: map[string]ipamv1.IPAddressStr{"a": "2001:db8::1"}},
			others: []*agentv1.Agent{agent("a", lifecycle.AddedToExistingCluster, "c", assigned(corev1.ConditionTrue, "2001:db8::1/64"))}, wrote: "a",
		},
		"another has one": {
			status: ipamv1.IPPoolStatus{Free: new(int64(1)), Allocations: map[string]ipamv1.IPAddressStr{"a": "2001:db8:0::1"}},
			others: []*agentv1.Agent{agent("a", lifecycle.AddedToExistingCluster, "c", assigned(corev1.ConditionTrue, "2001:db8::1/64"))},
		},
		"it names not all": {
			status: ipamv1.IPPoolStatus{Free: new(int64(1)), IndexesTruncated: true},
			others: []*agentv1.Agent{agent("a", lifecycle.AddedToExistingCluster, "c", assigned(corev1.ConditionTrue, "2001:db8::1/64"))},
		},
		"another was installed before pools were named": {status: ipamv1.IPPoolStatus{Free: new(int64(1))}, others: []*agentv1.Agent{agent("a", lifecycle.Installed, "c")}},
		"another lost its claim":                        {status: ipamv1.IPPoolStatus{Free: new(int64(1))}, others: []*agentv1.Agent{agent("a", lifecycle.Installed, "c", assigned(corev1.ConditionFalse, ""))}},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(time.Now())
			objects := []client.Object{candidate.DeepCopy(), &ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "rack-a"}, Status: c.status}}
			for _, other := range c.others {
				objects = append(objects, other.DeepCopy())
			}
			api := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(objects...).Build()
			r := New(Deps{Client: api, Live: api, Clock: clock})
			if c.wrote != "" {
				r.written.Wrote(client.ObjectKey{Namespace: "n", Name: c.wrote}, "1000")
			}
			for range 2 { // the second time from memory
				seen := &snapshot{
					pool:   &hivev1.MachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: "n"}, Spec: hivev1.MachinePoolSpec{Platform: hivev1.MachinePoolPlatform{AgentBareMetal: &hivev1.AgentBareMetalMachinePool{}}}},
					agents: map[string]*agentv1.Agent{candidate.Name: candidate}, infraEnvs: map[types.UID]*agentv1.InfraEnv{infraEnv.UID: infraEnv},
				}
				require.NoError(t, r.observeAddresses(t.Context(), seen))
				assert.Equal(t, c.lacks, seen.lacksAddress(candidate) != "")
			}
			clock.SetTime(clock.Now().Add(countAge))
			_, kept := r.addresses.known(client.ObjectKey{Namespace: "n", Name: "rack-a"}, clock.Now())
			assert.False(t, kept)
		})
	}
}
