// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/service"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

func TestASlowDiskKeepsAHostFromInstallingUnlessItIsIgnored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, keys := w.ready(1)
	install := func() {
		w.pass(time.Second)
		_, err := w.InstallCluster(t.Context(), alice, c.ID)
		require.NoError(t, err)
		require.Contains(t, w.steps(keys[0]), service.StepDiskSpeed)
		w.reply(keys[0], service.StepDiskSpeed, 0, `{"io_sync_duration":51}`)
		w.reply(keys[0], service.StepImageAvailability, 0, `{"images":[{"name":"x","result":"success"}]}`)
	}
	install()
	assert.Equal(t, lifecycle.ClusterInsufficient, w.clusterState(c.ID))
	assert.Equal(t, lifecycle.Insufficient, w.state(keys[0]))

	_, err := w.UpdateCluster(t.Context(), alice, c.ID, func(s *service.ClusterSettings) error {
		s.IgnoredValidations = []string{validate.DiskSpeed}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, lifecycle.ClusterReady, w.clusterState(c.ID))
	install()
	assert.Equal(t, lifecycle.ClusterInstalling, w.clusterState(c.ID))
	assert.Equal(t, lifecycle.Installing, w.state(keys[0]))
}

func TestAnAgentThatKeepsEndingFailsItsInstallation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, keys := w.ready(1)
	w.install(c, keys)
	again := func() {
		_, err := w.RegisterHost(t.Context(), keys[0].InfraEnvID, service.NewHost{HostID: keys[0].HostID, BootID: "1"})
		require.NoError(t, err)
	}
	for range lifecycle.MostAttempts {
		w.progress(keys[0], lifecycle.StageStarting, lifecycle.StageInstalling, lifecycle.StageWriting)
		again()
		require.Equal(t, lifecycle.Installing, w.state(keys[0]))
	}
	w.progress(keys[0], lifecycle.StageStarting)
	again()
	assert.Equal(t, lifecycle.Failed, w.state(keys[0]))
	assert.Equal(t, lifecycle.ClusterFailed, w.clusterState(c.ID))
	h, err := w.GetHost(t.Context(), admin, keys[0])
	require.NoError(t, err)
	assert.Contains(t, h.StateInfo, "ended again and again")

	// What comes after a reset begins with all its attempts.
	_, err = w.ResetCluster(t.Context(), alice, c.ID)
	require.NoError(t, err)
	h, err = w.GetHost(t.Context(), admin, keys[0])
	require.NoError(t, err)
	assert.Zero(t, h.Attempts)
}

// TestAHostThatIsDeletedWhileItChangesIsGone is a change and a deletion at once: whichever comes first, nothing remembers the host.
func TestAHostThatIsDeletedWhileItChangesIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.infraEnv(alice)
	var keys []service.HostKey
	for i := range 100 {
		keys = append(keys, w.register(e, "n"+strconv.Itoa(i)))
	}
	var wait sync.WaitGroup
	for _, key := range keys {
		wait.Go(func() {
			_, err := w.UpdateHost(t.Context(), alice, key, func(s *service.HostSettings) error { s.RequestedHostname = "other"; return nil })
			if err != nil {
				assert.Equal(t, service.NotFound, service.KindOf(err))
			}
		})
		wait.Go(func() { assert.NoError(t, w.DeleteHost(t.Context(), alice, key)) })
	}
	wait.Wait()
	for _, key := range keys {
		_, err := w.NextInstructions(t.Context(), key, 0)
		assert.Equal(t, service.NotFound, service.KindOf(err), "the agent registers again")
	}
}
