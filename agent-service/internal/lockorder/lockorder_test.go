// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package lockorder_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/lockorder"
	"github.com/muster-io/muster/agent-service/internal/store"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

func TestALockOutOfOrderPanics(t *testing.T) {
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "agents.db"))
	require.NoError(t, err)
	defer db.Close() //nolint:errcheck // the test is over
	env := &domain.InfraEnv{ID: "e", CreatedAt: time.Now()}
	one, two := &domain.Cluster{ID: "1", CreatedAt: time.Now()}, &domain.Cluster{ID: "2", CreatedAt: time.Now()}
	host := func(id, cluster string) *domain.Host {
		return &domain.Host{HostKey: domain.HostKey{InfraEnvID: "e", HostID: id}, ClusterID: cluster, State: lifecycle.Known, CreatedAt: time.Now()}
	}
	a, b, bound := host("a", ""), host("b", ""), host("c", "1")
	require.NoError(t, db.Update(t.Context(), func(ctx context.Context, tx transaction.Tx) error {
		for _, err := range []error{
			tx.PutInfraEnv(ctx, env), tx.PutCluster(ctx, one), tx.PutCluster(ctx, two), tx.PutHost(ctx, a), tx.PutHost(ctx, b), tx.PutHost(ctx, bound),
		} {
			require.NoError(t, err)
		}
		return nil
	}))
	lock := func(ids ...string) func(context.Context, transaction.Tx) error {
		return func(ctx context.Context, tx transaction.Tx) error { return tx.LockClusters(ctx, ids...) }
	}
	read := func(h *domain.Host) func(context.Context, transaction.Tx) error {
		return func(ctx context.Context, tx transaction.Tx) error { _, err := tx.Host(ctx, h.HostKey); return err }
	}
	members := func(ctx context.Context, tx transaction.Tx) error { _, err := tx.HostsOfCluster(ctx, "1"); return err }
	write := func(h *domain.Host) func(context.Context, transaction.Tx) error {
		return func(ctx context.Context, tx transaction.Tx) error { return tx.PutHost(ctx, new(*h)) }
	}
	writeCluster := func(ctx context.Context, tx transaction.Tx) error { return tx.PutCluster(ctx, new(*one)) }
	writeInfraEnv := func(ctx context.Context, tx transaction.Tx) error { return tx.PutInfraEnv(ctx, new(*env)) }
	for name, c := range map[string]struct {
		steps  []func(context.Context, transaction.Tx) error
		panics bool
	}{
		"clusters, hosts, an InfraEnv":                  {steps: []func(context.Context, transaction.Tx) error{lock("1"), read(a), read(b), read(bound), writeCluster, write(a), write(bound), writeInfraEnv}},
		"members of a locked cluster":                   {steps: []func(context.Context, transaction.Tx) error{lock("1"), read(bound), members, write(bound)}},
		"a host whose cluster is not locked, alone":     {steps: []func(context.Context, transaction.Tx) error{lock(), read(bound)}},
		"clusters after a host":                         {panics: true, steps: []func(context.Context, transaction.Tx) error{read(a), lock("1")}},
		"clusters twice":                                {panics: true, steps: []func(context.Context, transaction.Tx) error{lock("1"), lock("2")}},
		"hosts in another order":                        {panics: true, steps: []func(context.Context, transaction.Tx) error{read(b), read(a)}},
		"a cluster that is not locked":                  {panics: true, steps: []func(context.Context, transaction.Tx) error{lock("2"), writeCluster}},
		"a host that is not locked":                     {panics: true, steps: []func(context.Context, transaction.Tx) error{lock("1"), write(a)}},
		"a host of a cluster that is not locked":        {panics: true, steps: []func(context.Context, transaction.Tx) error{members, write(bound)}},
		"something after a host of an unlocked cluster": {panics: true, steps: []func(context.Context, transaction.Tx) error{lock("2"), read(bound), read(b)}},
		"a host after an InfraEnv":                      {panics: true, steps: []func(context.Context, transaction.Tx) error{writeInfraEnv, read(a)}},
	} {
		t.Run(name, func(t *testing.T) {
			run := func() {
				stop := domain.Refuse(domain.Conflict, "Stop", "roll back")
				err := lockorder.Check(db).Update(t.Context(), func(ctx context.Context, tx transaction.Tx) error {
					for _, step := range c.steps {
						if err := step(ctx, tx); err != nil {
							return err
						}
					}
					return stop
				})
				require.ErrorIs(t, err, stop)
			}
			if !c.panics {
				run()
				return
			}
			defer func() { assert.Contains(t, recover(), "lock order: ") }()
			run()
		})
	}
}
