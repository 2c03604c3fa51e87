// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

// bootstrapToken is what each token of a node begins with.
const bootstrapToken = "abcdef."

// nodeIs is what the cluster knows of the machine's Node.
func (s *server) nodeIs(clusterID string, node domain.Node) {
	s.t.Helper()
	node.Name = "n1"
	require.NoError(s.t, s.NoteNode(s.t.Context(), s.key, clusterID, node))
}

// loses is a poll of a system that says that its kubelet has no certificate. It returns the kubeconfig that it is answered with, empty for none.
func (s *server) loses(carried domain.Stamps) string {
	s.t.Helper()
	got, err := s.NextInstructionsWith(s.t.Context(), s.key, carried, agentproto.CertificateExpired, 0)
	require.NoError(s.t, err)
	return kubeconfigIn(s.t, got.Steps)
}

func kubeconfigIn(t *testing.T, steps []agentproto.Step) string {
	t.Helper()
	i := slices.IndexFunc(steps, func(s agentproto.Step) bool { return s.Type == agentproto.StepJoinCluster })
	if i < 0 {
		return ""
	}
	var args agentproto.JoinArgs
	require.NoError(t, json.Unmarshal([]byte(steps[i].Args[0]), &args))
	return args.Kubeconfig
}

func TestANodeThatLostItsCertificateIsGivenAToken(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *testEnv) {
		s, _, c := w.installed(domain.WipeNone)
		carried := s.residentStamps()
		s.nodeIs(c.ID, domain.Node{Seen: true, Ready: true})
		assert.Empty(t, kubeconfigIn(t, s.polls(carried)))
		assert.Empty(t, s.loses(carried), "its Node is Ready as far as is known")
		stamp := s.host().Node.Rejoin.Stamp
		require.NotEmpty(t, stamp)
		s.nodeIs(c.ID, domain.Node{Seen: true})
		given := s.loses(carried)
		require.Contains(t, given, bootstrapToken+stamp, "what the cluster says of the Node is no other loss")
		assert.Contains(t, given, "https://192.0.2.1:6443")

		w.Service = w.restart()
		assert.Equal(t, given, s.loses(carried), "the same loss has the same token")
		revision := s.host().Revision
		w.pass(61 * time.Second)
		assert.Equal(t, given, s.loses(carried), "the answer may have been lost")
		assert.Equal(t, revision, s.host().Revision, "no news, no write")
		require.NoError(t, s.ReportStep(t.Context(), s.key, agentproto.StepReply{Type: agentproto.StepJoinCluster, ExitCode: 1, Error: "read-only file system"}))
		assert.Contains(t, w.events(domain.EventFilter{ClusterID: c.ID}), "host_node_join_failed")

		s.nodeIs(c.ID, domain.Node{})
		w.pass(61 * time.Second)
		assert.Empty(t, s.loses(carried), "a user deleted the Node")
		s.nodeIs(c.ID, domain.Node{Seen: true})
		require.NoError(t, s.NoteKubelet(t.Context(), s.key, carried, agentproto.CertificateValid))
		assert.Empty(t, kubeconfigIn(t, s.polls(carried)))
		w.pass(10 * time.Minute)
		again := s.loses(carried)
		require.NotEmpty(t, again)
		assert.NotEqual(t, given, again, "a former token is not good again")

		found, err := w.ListEvents(t.Context(), admin, domain.EventFilter{ClusterID: c.ID})
		require.NoError(t, err)
		for _, event := range found.Items {
			assert.NotContains(t, event.Message, bootstrapToken)
		}
	})
}

// A poll that is held is answered as soon as the cluster says that the Node is not Ready.
func TestAHeldPollOfANodeThatLostItsCertificateIsAnswered(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s, _, c := w.installed(domain.WipeNone)
	carried := s.residentStamps()
	s.nodeIs(c.ID, domain.Node{Seen: true, Ready: true})
	s.polls(carried)
	require.Empty(t, s.loses(carried))
	answered := make(chan []agentproto.Step, 1)
	go func() {
		got, err := s.NextInstructionsWith(t.Context(), s.key, carried, "", time.Minute)
		assert.NoError(t, err)
		answered <- got.Steps
	}()
	require.Eventually(t, func() bool { return w.Held.Load() == 1 }, patience, time.Millisecond)
	s.nodeIs(c.ID, domain.Node{Seen: true})
	select {
	case steps := <-answered:
		assert.Contains(t, kubeconfigIn(t, steps), bootstrapToken)
	case <-time.After(patience):
		t.Fatal("the poll is held")
	}
}

// Each case is an attempt to get the token of a node.
func TestOtherMachinesAreNotGivenTheTokenOfANode(t *testing.T) {
	t.Parallel()
	for name, attempt := range map[string]func(s *server) domain.Stamps{
		"the agent of the discovery image": func(s *server) domain.Stamps { return s.host().Stamps },
		"a former installation":            func(*server) domain.Stamps { return domain.Stamps{Binding: "former"} },
		"a token without stamps":           func(*server) domain.Stamps { return domain.Stamps{} },
		"the system of another host": func(s *server) domain.Stamps {
			other, err := s.GetHost(s.t.Context(), admin, s.register(s.infraEnv(alice), "n2"))
			require.NoError(s.t, err)
			return domain.Stamps{Binding: other.Stamps.Binding}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			s, _, c := w.installed(domain.WipeNone)
			honest := s.residentStamps()
			s.nodeIs(c.ID, domain.Node{Seen: true})
			carried := attempt(s)
			assert.Empty(t, s.loses(carried))
			assert.Equal(t, domain.Rejoin{}, s.host().Node.Rejoin, "it says nothing of this node")
			require.NotEmpty(t, s.loses(honest))
			w.pass(61 * time.Second)
			assert.Empty(t, s.loses(carried), "while the node gets one")
			for _, step := range w.steps(s.key) { // as a user who may see the host
				assert.NotEqual(t, agentproto.StepJoinCluster, step)
			}
		})
	}
}

// A host that was released, or is bound elsewhere, is no node of its former cluster.
func TestAReleasedHostIsGivenNoToken(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s, e, c := w.installed(domain.WipeNone)
	carried := s.residentStamps()
	s.nodeIs(c.ID, domain.Node{Seen: true})
	require.NotEmpty(t, s.loses(carried))
	stamp := s.host().Node.Rejoin.Stamp
	_, err := w.UnbindHost(t.Context(), alice, s.key)
	require.NoError(t, err)
	require.Equal(t, lifecycle.Reclaiming, w.state(s.key), "its token is good until it restarts")
	assert.Equal(t, stamp, s.host().Release.Rejoin)
	for range 2 {
		assert.Empty(t, s.loses(carried))
		w.pass(61 * time.Second)
	}
	require.NoError(t, w.LeaveCluster(t.Context(), s.key, s.host().Release.StartedAt, ""))
	assert.Empty(t, s.loses(carried))
	s.boot(e)
	next := w.cluster(alice)
	_, err = w.BindHost(t.Context(), alice, s.key, next.ID, false)
	require.NoError(t, err)
	got, err := w.NextInstructionsWith(t.Context(), s.key, carried, "", 0)
	require.NoError(t, err)
	assert.True(t, got.Ended)
	assert.Empty(t, s.loses(carried))
}
