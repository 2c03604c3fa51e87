// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lockorder lets tests check that transactions take their locks in the order that service.Tx states. It needs no database that has these locks: a transaction that
// takes one out of order panics on any store.
package lockorder

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// Check is a store whose transactions panic when they take a lock out of order, or write what they have not locked.
func Check(s transaction.Store) transaction.Store { return store{s} }

type store struct{ transaction.Store }

// Update implements transaction.Store.
func (s store) Update(ctx context.Context, do func(context.Context, transaction.Tx) error) error {
	return s.Store.Update(ctx, func(ctx context.Context, tx transaction.Tx) error {
		return do(ctx, &checkedTx{Tx: tx, hosts: map[domain.HostKey]bool{}})
	})
}

// checkedTx remembers what it has locked.
type checkedTx struct {
	transaction.Tx
	// begun is set by the first lock, and infraEnv by the first write of an InfraEnv: no other lock but that of the events follows.
	begun, infraEnv bool
	clusters        []string
	// hosts may be written: they are new, locked, or members of a locked cluster.
	hosts map[domain.HostKey]bool
	// last is the free host that was locked last.
	last domain.HostKey
	// ended is a host that turned out to be bound to a cluster that is not locked.
	ended *domain.HostKey
}

func (t *checkedTx) lock(what string, may bool) {
	switch {
	case t.ended != nil:
		panic(fmt.Sprintf("lock order: %s after host %s, whose cluster is not locked: the transaction has to end", what, t.ended))
	case t.infraEnv:
		panic(fmt.Sprintf("lock order: %s after an InfraEnv was written", what))
	case !may:
		panic(fmt.Sprintf("lock order: %s is not locked", what))
	}
	t.begun = true
}

// LockClusters implements transaction.Tx.
func (t *checkedTx) LockClusters(ctx context.Context, ids ...string) error {
	if t.begun {
		panic("lock order: clusters are locked once and first")
	}
	t.begun, t.clusters = true, slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == "" })
	return t.Tx.LockClusters(ctx, ids...)
}

// Host implements transaction.Reader.
func (t *checkedTx) Host(ctx context.Context, key domain.HostKey) (*domain.Host, error) {
	t.lock("host "+key.String(), true)
	h, err := t.Tx.Host(ctx, key)
	if err == nil && h != nil {
		t.locked(h)
	}
	return h, err
}

// LockHosts implements transaction.Tx.
func (t *checkedTx) LockHosts(ctx context.Context, keys []domain.HostKey) ([]domain.Host, error) {
	t.lock("hosts", true)
	hosts, err := t.Tx.LockHosts(ctx, keys)
	for i := range hosts {
		t.locked(&hosts[i])
	}
	return hosts, err
}

func (t *checkedTx) locked(h *domain.Host) {
	key := h.HostKey
	switch {
	case slices.Contains(t.clusters, h.ClusterID) || t.hosts[key]:
	case h.ClusterID != "":
		t.ended = &key
		return
	case compare(key, t.last) <= 0:
		panic(fmt.Sprintf("lock order: host %s after host %s", key, t.last))
	default:
		t.last = key
	}
	t.hosts[key] = true
}

func compare(a, b domain.HostKey) int {
	return cmp.Or(cmp.Compare(a.InfraEnvID, b.InfraEnvID), cmp.Compare(a.HostID, b.HostID))
}

// HostsOfCluster implements transaction.Reader.
func (t *checkedTx) HostsOfCluster(ctx context.Context, id string) ([]*domain.Host, error) {
	members, err := t.Tx.HostsOfCluster(ctx, id)
	for i := range members {
		if slices.Contains(t.clusters, id) {
			t.hosts[members[i].HostKey] = true
		}
	}
	return members, err
}

func (t *checkedTx) cluster(id string) { t.lock("cluster "+id, slices.Contains(t.clusters, id)) }

func (t *checkedTx) host(key domain.HostKey) { t.lock("host "+key.String(), t.hosts[key]) }

// PutCluster implements transaction.Tx.
func (t *checkedTx) PutCluster(ctx context.Context, c *domain.Cluster) error {
	t.cluster(c.ID)
	return t.Tx.PutCluster(ctx, c)
}

// DeleteCluster implements transaction.Tx.
func (t *checkedTx) DeleteCluster(ctx context.Context, id string) error {
	t.cluster(id)
	return t.Tx.DeleteCluster(ctx, id)
}

// PutFile implements transaction.Tx.
func (t *checkedTx) PutFile(ctx context.Context, clusterID, name string, body []byte, at time.Time) error {
	t.cluster(clusterID)
	return t.Tx.PutFile(ctx, clusterID, name, body, at)
}

// DeleteFile implements transaction.Tx.
func (t *checkedTx) DeleteFile(ctx context.Context, clusterID, name string) error {
	t.cluster(clusterID)
	return t.Tx.DeleteFile(ctx, clusterID, name)
}

// PutHost implements transaction.Tx.
func (t *checkedTx) PutHost(ctx context.Context, h *domain.Host) error {
	if h.Revision == 0 {
		t.hosts[h.HostKey] = true
	}
	t.host(h.HostKey)
	if h.ClusterID != "" {
		t.cluster(h.ClusterID)
	}
	return t.Tx.PutHost(ctx, h)
}

// PutInventory implements transaction.Tx.
func (t *checkedTx) PutInventory(ctx context.Context, key domain.HostKey, inventory []byte) error {
	t.host(key)
	return t.Tx.PutInventory(ctx, key, inventory)
}

// DeleteHosts implements transaction.Tx.
func (t *checkedTx) DeleteHosts(ctx context.Context, keys ...domain.HostKey) error {
	for _, key := range keys {
		t.host(key)
	}
	return t.Tx.DeleteHosts(ctx, keys...)
}

// PutInfraEnv implements transaction.Tx.
func (t *checkedTx) PutInfraEnv(ctx context.Context, e *domain.InfraEnv) error {
	t.infraEnv = true
	return t.Tx.PutInfraEnv(ctx, e)
}

// DeleteInfraEnv implements transaction.Tx.
func (t *checkedTx) DeleteInfraEnv(ctx context.Context, id string) error {
	t.infraEnv = true
	return t.Tx.DeleteInfraEnv(ctx, id)
}
