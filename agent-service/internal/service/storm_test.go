// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lockorder"
	"github.com/muster-io/muster/agent-service/internal/postgrestest"
	"github.com/muster-io/muster/agent-service/internal/service"
)

// TestHostsOfOneClusterRegisterAtOnceOnPostgreSQL is a rack that is switched on, and restarts: at two replicas, with replies and moves between.
func TestHostsOfOneClusterRegisterAtOnceOnPostgreSQL(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	one, two := run(t, lockorder.Check(open(t, server.URL))), run(t, lockorder.Check(open(t, server.URL)))
	w := &testEnv{t: t, Service: one, now: time.Now()}
	c, other := w.cluster(alice), w.cluster(alice)
	e, err := one.CreateInfraEnv(t.Context(), alice, domain.NewInfraEnv{Name: "env", InfraEnvSettings: domain.InfraEnvSettings{ClusterID: c.ID}})
	require.NoError(t, err)
	pool := w.infraEnv(alice)
	hosts := make([]string, 100)
	for i := range hosts {
		hosts[i] = uuid.NewString()
	}
	at := func(i int) *service.Service { return []*service.Service{one, two}[i%2] }
	for _, boot := range []string{"first", "second"} {
		var wait sync.WaitGroup
		for i, id := range hosts {
			wait.Go(func() {
				_, err := at(i).RegisterHost(t.Context(), e.ID, domain.NewHost{HostID: id, Fingerprint: id, BootID: boot, AgentVersion: "test"})
				assert.NoError(t, err)
				key := domain.HostKey{InfraEnvID: e.ID, HostID: id}
				assert.NoError(t, at(i+1).ReportStep(t.Context(), key, agentproto.StepReply{Type: agentproto.StepInventory, Output: machine(fmt.Sprintf("n%d", i))}))
			})
			if i%10 == 0 { // hosts of a pool come and go between two clusters meanwhile
				wait.Go(func() {
					key := domain.HostKey{InfraEnvID: pool.ID, HostID: uuid.NewString()}
					_, err := at(i).RegisterHost(t.Context(), pool.ID, domain.NewHost{HostID: key.HostID, Fingerprint: key.HostID, BootID: boot, AgentVersion: "test"})
					_, bindErr := at(i+1).BindHost(t.Context(), alice, key, c.ID, false)
					_, moveErr := at(i).MoveHost(t.Context(), alice, key, other.ID)
					_, unbindErr := at(i+1).UnbindHost(t.Context(), alice, key)
					assert.NoError(t, errors.Join(err, bindErr, moveErr, unbindErr))
				})
			}
		}
		wait.Wait()
	}
	bound, err := one.GetCluster(t.Context(), alice, c.ID)
	require.NoError(t, err)
	assert.Equal(t, len(hosts), bound.HostCount)
	assert.NotContains(t, server.Log(), "deadlock")
}
