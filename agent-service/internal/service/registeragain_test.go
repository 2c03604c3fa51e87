// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

// comes registers a host, and returns it with how many registrations its events tell of.
func (w *testEnv) comes(request domain.NewHost, key domain.HostKey) (h *domain.Host, told int) {
	w.t.Helper()
	request.HostID = key.HostID
	h, err := w.RegisterHost(w.t.Context(), key.InfraEnvID, request)
	require.NoError(w.t, err)
	found, err := w.ListEvents(w.t.Context(), admin, domain.EventFilter{InfraEnvID: key.InfraEnvID, HostIDs: []string{key.HostID}, Names: []string{"host_registration_succeeded"}})
	require.NoError(w.t, err)
	return h, len(found.Items)
}

// moved is a host that registered, was bound and moved, and whose agent has not come since.
func (w *testEnv) moved() domain.HostKey {
	w.t.Helper()
	e, one, two := w.infraEnv(alice), w.cluster(alice), w.cluster(alice)
	key := w.register(e, "n1")
	_, err := w.BindHost(w.t.Context(), alice, key, one.ID, false)
	require.NoError(w.t, err)
	_, err = w.MoveHost(w.t.Context(), alice, key, two.ID)
	require.NoError(w.t, err)
	return key
}

var sameMachine = domain.NewHost{AgentVersion: "test", BootID: "1"}

// TestAMovedHostsAgentGetsItsTokenWithoutATransaction: its former token ended with the binding, and it says nothing new.
func TestAMovedHostsAgentGetsItsTokenWithoutATransaction(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	key := w.moved()
	moved, err := w.GetHost(t.Context(), admin, key)
	require.NoError(t, err)

	h, told := w.comes(sameMachine, key)
	assert.Equal(t, 1, told, "nothing is stored")
	assert.Equal(t, moved.Stamps, h.Stamps, "no agent had a token of these")
	assert.Equal(t, moved.Revision, h.Revision)
	assert.Equal(t, moved.ClusterID, h.ClusterID)
	assert.Contains(t, w.steps(key), agentproto.StepInventory, "it begins anew")

	again, told := w.comes(sameMachine, key)
	assert.Equal(t, 2, told)
	assert.NotEqual(t, h.Stamps.Registration, again.Stamps.Registration, "a token belongs to one registration")
	accepts, err := w.HoldsStamps(t.Context(), key, h.Stamps)
	require.NoError(t, err)
	assert.False(t, accepts)
}

func TestAMovedHostThatIsAnotherBootIsRegistered(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]domain.NewHost{
		"another boot":        {AgentVersion: "test", BootID: "2"},
		"another agent":       {AgentVersion: "newer", BootID: "1"},
		"a boot without name": {AgentVersion: "test"},
		"other hardware":      {AgentVersion: "test", BootID: "1", Fingerprint: "f"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			key := w.moved()
			moved, err := w.GetHost(t.Context(), admin, key)
			require.NoError(t, err)
			h, told := w.comes(request, key)
			assert.Equal(t, 2, told)
			assert.NotEqual(t, moved.Stamps.Registration, h.Stamps.Registration)
			assert.Equal(t, request.BootID, h.BootID)
		})
	}
}

func TestAMovedHostIsRegisteredWhereTheServiceCannotKnow(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *testEnv, key domain.HostKey){
		"it began anew": func(w *testEnv, _ domain.HostKey) { w.Service = w.restart() },
		"its tokens were revoked since": func(w *testEnv, key domain.HostKey) {
			_, told := w.comes(sameMachine, key)
			require.Equal(w.t, 1, told)
			_, err := w.RevokeTokens(w.t.Context(), admin, key)
			require.NoError(w.t, err)
		},
		"it was silent": func(w *testEnv, _ domain.HostKey) { w.pass(6 * time.Minute) },
		"the machine runs another image": func(w *testEnv, key domain.HostKey) {
			_, err := w.RegisterHost(w.t.Context(), w.infraEnv(alice).ID, domain.NewHost{HostID: key.HostID, AgentVersion: "test", BootID: "2"})
			require.NoError(w.t, err)
			require.True(w.t, lifecycle.Silent(w.state(key)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			key := w.moved()
			change(w, key)
			_, told := w.comes(sameMachine, key)
			assert.Equal(t, 2, told)
			w.steps(key)
			assert.False(t, lifecycle.Silent(w.state(key)))
		})
	}
}
