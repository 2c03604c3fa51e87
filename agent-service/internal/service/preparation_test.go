// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
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
