// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpower

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// hosts are those that the service knows, by their names.
type hosts map[string]domain.Host

func (h hosts) GetHost(_ context.Context, _ domain.Principal, key domain.HostKey) (*domain.Host, error) {
	if host, known := h[key.HostID]; known {
		return &host, nil
	}
	return nil, domain.RefuseUnknown("Host", key.HostID)
}

// A user states another name for a machine that is a node, which is refused, and stays in the spec of its Agent. Its cluster waited for a Node of that name.
func TestAMachineIsTheNodeThatItWasInstalledAs(t *testing.T) {
	cluster := types.NamespacedName{Namespace: "n", Name: "c"}
	agent := &agentv1.Agent{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a"}, Spec: agentv1.AgentSpec{Hostname: "renamed"}}
	known := &nodes{}
	r := New(Deps{Nodes: known, Service: hosts{"a": {Node: domain.Node{Name: "worker-1"}}}})
	look := func(state lifecycle.State) (string, bool, bool) {
		m, answers, err := r.machine(t.Context(), cluster, agent, state)
		require.NoError(t, err)
		return m.Node, m.NodeReady, answers
	}
	node, ready, answers := look(lifecycle.AddedToExistingCluster)
	assert.Equal(t, "worker-1", node)
	assert.False(t, ready)
	assert.True(t, answers)
	known.ready.Store("worker-1", true)
	_, ready, _ = look(lifecycle.AddedToExistingCluster)
	assert.True(t, ready)
	node, _, _ = look(lifecycle.InstallingInProgress)
	assert.Equal(t, "renamed", node, "it is being installed as that")
	known.away.Store(true)
	_, ready, answers = look(lifecycle.AddedToExistingCluster)
	assert.False(t, ready || answers)
	r.Service = hosts{}
	known.away.Store(false)
	node, ready, _ = look(lifecycle.AddedToExistingCluster)
	assert.Equal(t, "renamed", node, "the service does not know it at the moment")
	assert.False(t, ready)
}
