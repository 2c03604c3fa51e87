// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// Subject is the verb and the table of a statement.
var Subject = subject

// Wipe drops all rows.
func (s *Store) Wipe(ctx context.Context) error {
	for _, table := range []string{"events", "heartbeats", "inventories", "hosts", "clusters", "infra_envs"} {
		if _, err := s.write.ExecContext(ctx, "DELETE FROM "+table); err != nil {
			return err
		}
	}
	return nil
}

// RollBack ends the transaction of an update from inside, as SQLite does when its disk is full.
func RollBack(ctx context.Context, tx transaction.Tx) error {
	_, err := tx.(*sqlTx).tx.ExecContext(ctx, "ROLLBACK")
	return err
}

// Waiting is how many updates wait for their turn.
func Waiting(s *Store) int {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	return len(s.group.waiting)
}

// ChangeAsLaterVersion says in the database that programs which do not know a migration cannot read it.
func (s *Store) ChangeAsLaterVersion(ctx context.Context, migration int64) error {
	_, err := s.write.ExecContext(ctx, "UPDATE oldest_reader SET version = ?", migration)
	return err
}
