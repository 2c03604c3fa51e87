// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"sync"
)

const (
	// checkpointPages is after about how many written pages the log of SQLite is copied to its file: what SQLite does by itself.
	checkpointPages = 1000
	// mostLogPages is when a commit copies the log itself, because the copies beside it do not follow: 64 MiB.
	mostLogPages = 16_000
	// pagesOfUpdate and rowsOfPage are about what an update writes, and how many heartbeats fit into a page.
	pagesOfUpdate = 8
	rowsOfPage    = 10
)

// checkpoints copy the log of SQLite to its file while no update waits, on a connection that does not write: an update that follows goes on beside it. SQLite would copy in the
// commit that makes the log too long, and wait twice for the disk there, many times in a burst of updates.
type checkpoints struct {
	// db is nil where there is no log.
	db *sql.DB

	mu      sync.Mutex
	pages   int
	running bool
	closed  bool
	wait    sync.WaitGroup
}

// wrote counts pages.
func (c *checkpoints) wrote(pages int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pages += pages
}

// begin copies the log where enough was written since the last time. It goes on when ctx ends.
func (c *checkpoints) begin(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.db == nil || c.closed || c.running || c.pages < checkpointPages {
		return
	}
	c.running, c.pages = true, 0
	c.wait.Go(func() {
		// An error is that of the disk, which updates meet, too. The log is copied the next time.
		_, _ = c.db.ExecContext(context.WithoutCancel(ctx), "PRAGMA wal_checkpoint(PASSIVE)")
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running = false
	})
}

// close waits for the checkpoint that runs, and starts no other.
func (c *checkpoints) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.wait.Wait()
}
