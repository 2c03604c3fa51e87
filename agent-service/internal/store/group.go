// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/uptrace/bun"
)

// groupSize is how many updates share a commit at most, so that the first of them does not wait for long.
const groupSize = 32

// group gives updates of SQLite, which has one writer, their turn. Those that wait share the transaction of the one before them, and its commit: each is undone
// alone where it fails, and none returns before the commit.
type group struct {
	db *bun.DB

	mu      sync.Mutex
	busy    bool
	waiting []chan struct{}

	// What follows is of the update whose turn it is.
	tx      bun.Tx
	updates int
	end     *ending
}

// ending is how a transaction ended, once it has, and what follows its commit.
type ending struct {
	done  chan struct{}
	after []func()
	err   error
}

// update runs do in its turn. A caller who goes away undoes it: statements are never interrupted, because that would undo those of others.
func (g *group) update(ctx context.Context, do func(context.Context, bun.Tx) (after []func(), err error)) error {
	if err := g.turn(ctx); err != nil {
		return err
	}
	if err := g.begin(context.WithoutCancel(ctx)); err != nil {
		g.leave()
		return err
	}
	end := g.end
	err := g.one(ctx, do)
	<-end.done
	if err == nil {
		err = end.err
	}
	return err
}

// turn waits until nobody else writes.
func (g *group) turn(ctx context.Context) error {
	g.mu.Lock()
	if !g.busy {
		g.busy = true
		g.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	g.waiting = append(g.waiting, mine)
	g.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	at := slices.Index(g.waiting, mine)
	if at >= 0 {
		g.waiting = slices.Delete(g.waiting, at, at+1)
	}
	g.mu.Unlock()
	if at < 0 {
		g.leave()
	}
	return ctx.Err()
}

func (g *group) begin(ctx context.Context) (err error) {
	if g.end != nil {
		return nil
	}
	if g.tx, err = g.db.BeginTx(ctx, nil); err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	g.updates, g.end = 0, &ending{done: make(chan struct{})}
	return nil
}

// one runs an update, undoes it if it fails or does not return, and gives the turn away.
func (g *group) one(ctx context.Context, do func(context.Context, bun.Tx) (after []func(), err error)) (err error) {
	quiet := context.WithoutCancel(ctx)
	g.updates++
	kept := false
	defer func() {
		var failed error
		if !kept {
			failed = g.say(quiet, "ROLLBACK TO one")
		}
		if g.end.err = errors.Join(failed, g.say(quiet, "RELEASE one")); g.end.err != nil {
			err = g.end.err
		}
		g.leave()
	}()
	if err := g.say(quiet, "SAVEPOINT one"); err != nil {
		return err
	}
	after, err := do(quiet, g.tx)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	kept = true
	g.end.after = append(g.end.after, after...)
	return nil
}

func (g *group) say(ctx context.Context, statement string) error {
	if _, err := g.tx.Tx.ExecContext(ctx, statement); err != nil {
		return fmt.Errorf("in a transaction: %s: %w", statement, err)
	}
	return nil
}

// leave gives the turn to the next update, after the end of the transaction where that one is not to be part of it.
func (g *group) leave() {
	g.mu.Lock()
	last := len(g.waiting) == 0 || g.updates >= groupSize
	g.mu.Unlock()
	if end := g.end; end != nil && (last || end.err != nil) {
		g.end = nil
		if end.err != nil {
			end.err = errors.Join(end.err, ignoreDone(g.tx.Rollback()))
		} else if err := g.tx.Commit(); err != nil {
			end.err = fmt.Errorf("committing a transaction: %w", err)
		} else {
			for _, do := range end.after {
				do()
			}
		}
		close(end.done)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.busy = false
		return
	}
	close(g.waiting[0])
	g.waiting = g.waiting[1:]
}
