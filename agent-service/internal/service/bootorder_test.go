// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/service"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

const (
	// cardOfMachine is the MAC of each machine of these tests.
	cardOfMachine = "52:54:00:00:00:01"
	foreignCard   = "52:54:00:ff:ff:ff"
)

// watched is a store that calls before each transaction that reads, and reads nothing where that is an error.
type watched struct {
	transaction.Store
	before func() error
}

// View implements transaction.Store.
func (s watched) View(ctx context.Context, do func(context.Context, transaction.Reader) error) error {
	if err := s.before(); err != nil {
		return err
	}
	return s.Store.View(ctx, do)
}

// boots checks what a service answers to a machine that asks what to boot.
func boots(t *testing.T, s *service.Service, infraEnvID, mac string, disk bool) {
	t.Helper()
	found, err := s.BootsFromDisk(t.Context(), infraEnvID, mac)
	require.NoError(t, err)
	assert.Equal(t, disk, found)
}

// cannotSay checks that a service does not answer.
func cannotSay(t *testing.T, s *service.Service, infraEnvID, mac string) {
	t.Helper()
	disk, err := s.BootsFromDisk(t.Context(), infraEnvID, mac)
	assert.Equal(t, domain.Unavailable, domain.KindOf(err), "%v", err)
	assert.False(t, disk)
}

// writesDisk installs hosts as far as their restart from the disk.
func (w *testEnv) writesDisk(c *domain.Cluster, keys []domain.HostKey) {
	w.t.Helper()
	w.install(c, keys)
	for _, key := range keys {
		w.progress(key, lifecycle.StageStarting, lifecycle.StageInstalling, lifecycle.StageWriting, lifecycle.StageRebooting)
	}
}

func TestNoMachineIsSentAnywhereBeforeAllHostsAreRead(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, keys := w.ready(1)
	w.writesDisk(c, keys)
	env := keys[0].InfraEnvID
	boots(t, w.Service, env, cardOfMachine, true)

	var s *service.Service
	reads := 0
	s = service.New(watched{w.store, func() error {
		if reads++; reads == 1 {
			return domain.Refuse(domain.Unavailable, "StoreAway", "the database is away")
		}
		if reads == 2 { // those that follow are of a service that has loaded
			cannotSay(t, s, env, cardOfMachine)
			assert.Equal(t, domain.Unavailable, domain.KindOf(s.Ready(t.Context())), "it is not ready while it reads")
		}
		return nil
	}}, service.Options{Now: w.clock})
	cannotSay(t, s, env, cardOfMachine)
	service.Tick(t.Context(), s)
	cannotSay(t, s, env, cardOfMachine)
	require.Equal(t, 1, reads, "the load failed")
	service.Tick(t.Context(), s)
	require.Greater(t, reads, 1)
	require.NoError(t, s.Ready(t.Context()))
	boots(t, s, env, cardOfMachine, true)
	boots(t, s, env, foreignCard, false)
}

// A replica is notified of a host that it has not read again yet.
func TestAMachineBootsItsDiskAtAReplicaThatHasNotReadItYet(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	before := w.restart()
	c, keys := w.ready(1)
	known := w.restart()
	w.writesDisk(c, keys)
	for name, s := range map[string]*service.Service{"a host that was there": known, "a new host": before} {
		t.Run(name, func(t *testing.T) {
			service.Notify(s, domain.Change{Kind: domain.HostChanged, Host: keys[0]})
			boots(t, s, keys[0].InfraEnvID, cardOfMachine, true)
			boots(t, s, keys[0].InfraEnvID, foreignCard, false)
		})
	}
}

// Replicas that are not notified of each other's changes read them.
func TestAMachineBootsItsDiskAtAReplicaThatIsNotNotified(t *testing.T) {
	t.Parallel()
	one, two := replicas(t, new(atomic.Int64))
	one.Service = one.restart() // with images that are installed
	var away atomic.Bool
	three := service.New(watched{two.store, func() error {
		if away.Load() {
			return domain.Refuse(domain.Unavailable, "StoreAway", "the database is away")
		}
		return nil
	}}, service.Options{Now: one.clock})
	service.Tick(t.Context(), three)
	c, keys := one.ready(1)
	env := keys[0].InfraEnvID
	boots(t, three, env, cardOfMachine, false)
	one.writesDisk(c, keys)
	away.Store(true)
	cannotSay(t, three, env, cardOfMachine)
	cannotSay(t, three, env, foreignCard)
	away.Store(false)
	boots(t, two.Service, env, cardOfMachine, true)
	boots(t, three, env, cardOfMachine, true)
	boots(t, three, env, foreignCard, false)
	away.Store(true)
	boots(t, three, env, cardOfMachine, true)
	away.Store(false)
	one.progress(keys[0], lifecycle.StageConfiguring, lifecycle.StageJoined, lifecycle.StageDone)
	_, err := one.UnbindHost(t.Context(), alice, keys[0])
	require.NoError(t, err)
	boots(t, three, env, cardOfMachine, false)
}

func TestMachinesWaitForHostsThatMayComeBack(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.Service = service.New(w.store, service.Options{Now: w.clock, RestoreTime: time.Minute})
	service.Tick(t.Context(), w.Service)
	made := w.infraEnv(domain.Kubernetes)
	boots(t, w.Service, made.ID, foreignCard, false)

	e, err := w.CreateInfraEnv(t.Context(), domain.Kubernetes, domain.NewInfraEnv{Name: "lost", Restored: true, InfraEnvSettings: domain.InfraEnvSettings{PullSecret: `{"auths":{}}`}})
	require.NoError(t, err)
	_, err = w.BootsFromDisk(t.Context(), e.ID, cardOfMachine)
	refusal := &domain.Error{}
	require.ErrorAs(t, err, &refusal)
	assert.Equal(t, domain.Unavailable, refusal.Kind)
	assert.Positive(t, refusal.RetryAfter)
	w.register(e, "back") // it runs the image, and may be restored as installed yet
	cannotSay(t, w.Service, e.ID, cardOfMachine)
	c := w.cluster(domain.Kubernetes)
	_, err = w.RestoreCluster(t.Context(), domain.Kubernetes, c.ID, domain.Restored{InstalledAt: w.clock()})
	require.NoError(t, err)
	h, err := w.RestoreHost(t.Context(), domain.Kubernetes, domain.HostKey{InfraEnvID: e.ID, HostID: uuid.NewString()}, domain.RestoredHost{
		ClusterID: c.ID, InstalledAt: w.clock(), MACAddresses: []string{cardOfMachine},
	})
	require.NoError(t, err)
	require.Equal(t, lifecycle.Installed, h.State)
	boots(t, w.Service, e.ID, cardOfMachine, true)
	cannotSay(t, w.Service, e.ID, foreignCard)
	w.pass(61 * time.Second)
	boots(t, w.Service, e.ID, foreignCard, false)
	boots(t, w.Service, e.ID, cardOfMachine, true)
}
