// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// In each state, a host that knows of no installation so late comes from a database of before, but for one that is installed.
func TestAnAgentKnowsOfAnInstallationThatItsHostMissed(t *testing.T) {
	done := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	agent := &agentv1.Agent{Status: agentv1.AgentStatus{
		DebugInfo: agentv1.AgentDebugInfo{EventsURL: "https://s/v2/events?cluster_id=c&host_id=h"},
		Progress:  agentv1.HostProgress{CurrentStage: string(lifecycle.StageDone), StageUpdateTime: &metav1.Time{Time: done}},
	}}
	assert.True(t, InstalledBefore(agent, nil))
	for _, state := range lifecycle.States {
		h := &domain.Host{State: state}
		if !lifecycle.Unbound(state) {
			h.ClusterID = "c"
		}
		assert.Equal(t, !lifecycle.WasInstalled(state), InstalledBefore(agent, h), "%s", state)
		h.InstalledAt = done
		assert.False(t, InstalledBefore(agent, h), "%s: it is what became of it since", state)
		h.InstalledAt, h.ClusterID = time.Time{}, "other"
		assert.False(t, InstalledBefore(agent, h), "%s", state)
	}
}

// Objects of assisted-service stay where this service takes its place: the address of events in their status names the host alone.
func TestAnAgentOfAssistedServiceKnowsOfItsInstallation(t *testing.T) {
	done := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	agent := &agentv1.Agent{
		Spec: agentv1.AgentSpec{ClusterDeploymentName: &agentv1.ClusterReference{Namespace: "tenant", Name: "blue"}},
		Status: agentv1.AgentStatus{
			DebugInfo: agentv1.AgentDebugInfo{EventsURL: "https://assisted/api/assisted-install/v2/events?host_id=h"},
			Progress:  agentv1.HostProgress{CurrentStage: string(lifecycle.StageDone), StageUpdateTime: &metav1.Time{Time: done}},
		},
	}
	assert.True(t, InstalledBefore(agent, nil))
	assert.True(t, InstalledBefore(agent, &domain.Host{State: lifecycle.Known, ClusterID: "c"}), "its machine booted the discovery image")
	assert.False(t, InstalledBefore(agent, &domain.Host{State: lifecycle.Installed, ClusterID: "c"}))
	assert.False(t, InstalledBefore(agent, &domain.Host{State: lifecycle.Known, ClusterID: "c", InstalledAt: done}), "it is what became of it since")
	free := agent.DeepCopy()
	free.Spec.ClusterDeploymentName = nil
	assert.False(t, InstalledBefore(free, nil), "its user frees it")
	agent.Status.DebugInfo.EventsURL = "https://muster/api/assisted-install/v2/events?host_id=h&infra_env_id=e"
	assert.False(t, InstalledBefore(agent, nil), "this service says that it is in no cluster")
}

// The name and the addresses that certificates of a Node are approved for are those of the inventory that the status keeps.
func TestAnAgentKnowsTheAddressesOfItsHost(t *testing.T) {
	interfaces := []agentv1.Interface{
		{MacAddress: "52:54:00:AA:00:01", IPV4Addresses: []string{"192.0.2.7/24"}, IPV6Addresses: []string{"2001:db8::7/64"}}, {}, {IPV4Addresses: []string{"198.51.100.7/24"}},
	}
	assert.Equal(t, []string{"192.0.2.7/24", "2001:db8::7/64", "198.51.100.7/24"}, addressesOf(interfaces))
	for range maxAddresses {
		interfaces = append(interfaces, interfaces[0])
	}
	assert.Len(t, addressesOf(interfaces), maxAddresses)
}
