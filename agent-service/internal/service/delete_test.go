// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"sync"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// deletions is a store that counts the hosts that each transaction deletes.
type deletions struct {
	transaction.Store
	mu sync.Mutex
	// rows are the hosts of each transaction that deleted some.
	rows []int
}

// deletionsTx counts those of one transaction.
type deletionsTx struct {
	transaction.Tx
	rows int
}

// DeleteHosts implements transaction.Tx.
func (tx *deletionsTx) DeleteHosts(ctx context.Context, keys ...domain.HostKey) error {
	tx.rows += len(keys)
	return tx.Tx.DeleteHosts(ctx, keys...)
}

// Update implements transaction.Store. A transaction that is run again counts once.
func (s *deletions) Update(ctx context.Context, do func(context.Context, transaction.Tx) error) error {
	rows := 0
	err := s.Store.Update(ctx, func(ctx context.Context, tx transaction.Tx) error {
		counted := &deletionsTx{Tx: tx}
		err := do(ctx, counted)
		rows = counted.rows
		return err
	})
	if err == nil && rows > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.rows = append(s.rows, rows)
	}
	return err
}
