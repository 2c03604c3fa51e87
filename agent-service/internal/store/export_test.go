// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import "context"

// Wipe drops all rows.
func (s *Store) Wipe(ctx context.Context) error {
	for _, table := range []string{"events", "heartbeats", "inventories", "hosts", "clusters", "infra_envs"} {
		if _, err := s.write.ExecContext(ctx, "DELETE FROM "+table); err != nil {
			return err
		}
	}
	return nil
}
