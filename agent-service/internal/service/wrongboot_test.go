// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

// joined is a machine that was added to an installed cluster.
func (w *testEnv) joined() (*server, *domain.InfraEnv, *domain.Cluster) {
	w.t.Helper()
	_, e, c := w.installed(domain.WipeNone)
	s := &server{testEnv: w, key: domain.HostKey{HostID: uuid.NewString()}}
	s.boot(e, func(i *hardware.Inventory) {
		i.Hostname, i.Interfaces[0].MACAddress, i.Interfaces[0].IPV4Addresses = "n2", "52:54:00:00:00:77", []string{"192.0.2.77/24"}
	})
	_, err := w.BindHost(w.t.Context(), alice, s.key, c.ID, false)
	require.NoError(w.t, err)
	_, err = w.InstallHost(w.t.Context(), alice, s.key)
	require.NoError(w.t, err)
	w.progress(s.key, lifecycle.StageWriting, lifecycle.StageRebooting, lifecycle.StageConfiguring, lifecycle.StageJoined, lifecycle.StageDone)
	require.Equal(w.t, lifecycle.AddedToExistingCluster, w.state(s.key))
	return s, e, c
}

// The node image reports its stages once. A node that its firmware booted from the discovery image, and its user from its disk again, is a node as before.
func TestANodeThatBootedTheDiscoveryImageByMistakeIsANodeAgain(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *testEnv) {
		s, e, _ := w.joined()
		carried := s.residentStamps()
		s.polls(carried)
		require.True(t, s.host().Resident)
		s.boot(e)
		require.Equal(t, lifecycle.InstallingPendingUserAction, w.state(s.key))
		s.steps(s.key)
		require.Equal(t, lifecycle.InstallingPendingUserAction, w.state(s.key), "the discovery image runs")
		s.polls(domain.Stamps{Binding: "former"})
		require.Equal(t, lifecycle.InstallingPendingUserAction, w.state(s.key), "that is no token of its system")

		w.Service = w.restart()
		s.polls(carried)
		assert.Equal(t, lifecycle.AddedToExistingCluster, w.state(s.key))
		assert.Equal(t, lifecycle.StageDone, s.host().Progress.Stage)
		revision := s.host().Revision
		w.pass(time.Second)
		s.polls(carried)
		assert.Equal(t, revision, s.host().Revision, "no news, no write")
		_, err := w.UnbindHost(t.Context(), alice, s.key)
		require.NoError(t, err)
		assert.Equal(t, lifecycle.Reclaiming, w.state(s.key), "it comes back by itself")
	})
}

// A machine whose disk was written, and which did not start from it yet, has its stages still to report.
func TestASystemThatAsksBeforeItReportsIsNotDone(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, keys := w.ready(1)
	w.install(c, keys)
	w.progress(keys[0], lifecycle.StageWriting, lifecycle.StageRebooting)
	w.pass(61 * time.Minute)
	require.Equal(t, lifecycle.InstallingPendingUserAction, w.state(keys[0]))
	s := &server{testEnv: w, key: keys[0]}
	s.polls(s.residentStamps())
	assert.Equal(t, lifecycle.InstallingPendingUserAction, w.state(keys[0]))
}
