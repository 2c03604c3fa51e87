// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/store"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// TestAPanicAfterTheCommitReachesItsCaller is an update that panics when others that share its transaction are committed, too: they are not kept waiting.
func TestAPanicAfterTheCommitReachesItsCaller(t *testing.T) {
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "a.db"))
	require.NoError(t, err)
	defer s.Close() //nolint:errcheck // the test is over
	first, second := infraEnv(domain.Owner{}), infraEnv(domain.Owner{})
	var wait sync.WaitGroup
	begun := make(chan struct{})
	wait.Go(func() {
		assert.Panics(t, func() {
			_ = s.Update(t.Context(), func(ctx context.Context, tx transaction.Tx) error {
				close(begun)
				assert.Eventually(t, func() bool { return store.Waiting(s) == 1 }, time.Minute, time.Millisecond)
				tx.AfterCommit(func() { panic("after the commit") })
				return tx.PutInfraEnv(ctx, first)
			})
		})
	})
	<-begun
	update(t, s, func(ctx context.Context, tx transaction.Tx) { require.NoError(t, tx.PutInfraEnv(ctx, second)) })
	wait.Wait()
	isThere(t, s, true, first, second)
}

// TestUpdatesOfALostTransactionFail is a transaction that ends in the turn of one update: those that share it are told that they are undone, and later ones work.
func TestUpdatesOfALostTransactionFail(t *testing.T) {
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "a.db"))
	require.NoError(t, err)
	defer s.Close() //nolint:errcheck // the test is over
	first, second, later := infraEnv(domain.Owner{}), infraEnv(domain.Owner{}), infraEnv(domain.Owner{})
	var wait sync.WaitGroup
	begun := make(chan struct{})
	wait.Go(func() {
		assert.Error(t, s.Update(t.Context(), func(ctx context.Context, tx transaction.Tx) error {
			close(begun)
			assert.Eventually(t, func() bool { return store.Waiting(s) == 1 }, time.Minute, time.Millisecond)
			return tx.PutInfraEnv(ctx, first)
		}))
	})
	<-begun
	err = s.Update(t.Context(), func(ctx context.Context, tx transaction.Tx) error {
		require.NoError(t, tx.PutInfraEnv(ctx, second))
		return store.RollBack(ctx, tx)
	})
	require.Error(t, err)
	wait.Wait()
	isThere(t, s, false, first, second)
	update(t, s, func(ctx context.Context, tx transaction.Tx) { require.NoError(t, tx.PutInfraEnv(ctx, later)) })
	isThere(t, s, true, later)
}

// TestWhatALostTransactionWroteIsNotKnown is a host that would have left its cluster.
func TestWhatALostTransactionWroteIsNotKnown(t *testing.T) {
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "a.db"))
	require.NoError(t, err)
	defer s.Close() //nolint:errcheck // the test is over
	m := memory{infraEnv: infraEnv(domain.Owner{}), cluster: &domain.Cluster{ID: uuid.NewString(), Name: "c", CreatedAt: time.Now()}}
	m.host = host(m.infraEnv)
	m.host.ClusterID = m.cluster.ID
	update(t, s, func(ctx context.Context, tx transaction.Tx) {
		require.NoError(t, tx.PutInfraEnv(ctx, m.infraEnv))
		require.NoError(t, tx.PutCluster(ctx, m.cluster))
		require.NoError(t, tx.PutHost(ctx, m.host))
	})
	require.Error(t, s.Update(t.Context(), func(ctx context.Context, tx transaction.Tx) error {
		left := *m.host
		left.ClusterID = ""
		require.NoError(t, tx.PutHost(ctx, &left))
		return store.RollBack(ctx, tx)
	}))
	update(t, s, func(ctx context.Context, tx transaction.Tx) {
		tx.Recall(m)
		members, err := tx.HostsOfCluster(ctx, m.cluster.ID)
		require.NoError(t, err)
		assert.Len(t, members, 1)
	})
}

// TestTheLogIsCopiedBesideUpdates is fewer pages than a commit copies itself.
func TestTheLogIsCopiedBesideUpdates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	s, err := store.Open(t.Context(), path)
	require.NoError(t, err)
	defer s.Close() //nolint:errcheck // the test is over
	for range 150 {
		e := infraEnv(domain.Owner{})
		e.PullSecret = strings.Repeat("s", 4<<10)
		update(t, s, func(ctx context.Context, tx transaction.Tx) { require.NoError(t, tx.PutInfraEnv(ctx, e)) })
	}
	require.Eventually(t, func() bool {
		info, err := os.Stat(path)
		return err == nil && info.Size() > 400<<10
	}, time.Minute, time.Millisecond)
}

// TestAFullDiskIsAway is a file system that has no room left, and has some again.
func TestAFullDiskIsAway(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root mounts a small file system")
	}
	disk := t.TempDir()
	require.NoError(t, syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { assert.NoError(t, syscall.Unmount(disk, 0)) })
	s, err := store.Open(t.Context(), filepath.Join(disk, "a.db"))
	require.NoError(t, err)
	defer s.Close() //nolint:errcheck // the test is over
	require.NoError(t, s.Ping(t.Context()))
	filler := filepath.Join(disk, "filler")
	require.Error(t, os.WriteFile(filler, make([]byte, 1<<20), 0o600))
	assert.Equal(t, domain.Unavailable, domain.KindOf(s.Ping(t.Context())))
	assert.Equal(t, domain.Unavailable, domain.KindOf(s.Update(t.Context(), func(ctx context.Context, tx transaction.Tx) error {
		return tx.PutInfraEnv(ctx, infraEnv(domain.Owner{}))
	})))
	require.NoError(t, os.Remove(filler))
	require.NoError(t, s.Ping(t.Context()))
	update(t, s, func(ctx context.Context, tx transaction.Tx) {
		require.NoError(t, tx.PutInfraEnv(ctx, infraEnv(domain.Owner{})))
	})
}
