// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/uptrace/bun"
)

// groupSize is how many updates share a commit at most, so that the first of them does not wait for long.
const groupSize = 64

// group carries out the updates of SQLite, which has one writer. Those that wait share the transaction of the one before them, and its commit: each is undone alone
// where it fails, and none returns before the commit. One goroutine carries out all that wait: it does not stand in line with those that asked, of which there may be
// a thousand.
type group struct {
	db       *bun.DB
	prepared *prepared
	// versions are for the updates, and for the goroutine that carries them out.
	versions *versions
	// checkpoints follow the updates.
	checkpoints checkpoints

	mu      sync.Mutex
	busy    bool
	waiting []*turn
}

// turn is an update from when it is asked for until it is done.
type turn struct {
	ctx context.Context //nolint:containedctx // of who asks, for the goroutine that answers
	do  func(context.Context, bun.Tx) (after []func(), err error)
	// done is closed once what follows is known.
	done    chan struct{}
	after   []func()
	err     error
	crashed any
}

var errNoReturn = errors.New("an update ended its goroutine")

// update runs do in its turn. A caller who goes away undoes it: statements are never interrupted, because that would undo those of others.
func (g *group) update(ctx context.Context, do func(context.Context, bun.Tx) (after []func(), err error)) error {
	u := &turn{ctx: ctx, do: do, done: make(chan struct{}), err: errNoReturn}
	g.mu.Lock()
	g.waiting = append(g.waiting, u)
	if !g.busy {
		g.busy = true
		go g.work() //nolint:contextcheck // it works for all who wait
	}
	g.mu.Unlock()
	select {
	case <-u.done:
	case <-ctx.Done():
		if g.withdraw(u) {
			return ctx.Err()
		}
		<-u.done
	}
	if u.crashed != nil {
		panic(u.crashed)
	}
	return u.err
}

// withdraw is true where the update has not begun.
func (g *group) withdraw(u *turn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := slices.Index(g.waiting, u)
	if at >= 0 {
		g.waiting = slices.Delete(g.waiting, at, at+1)
	}
	return at >= 0
}

// next is the update whose turn it is, nil where none waits.
func (g *group) next() *turn {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		return nil
	}
	u := g.waiting[0]
	g.waiting = g.waiting[1:]
	return u
}

// work carries out updates until none waits.
func (g *group) work() {
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.busy = len(g.waiting) > 0; g.busy {
			go g.work()
		}
	}()
	var last context.Context
	for u := g.next(); u != nil; u = g.next() {
		last = u.ctx
		g.together(u)
	}
	if last != nil {
		g.checkpoints.begin(last)
	}
}

// together carries out an update and those that wait with it in one transaction.
func (g *group) together(u *turn) {
	tx, err := g.db.BeginTx(context.WithoutCancel(u.ctx), nil)
	if err != nil {
		u.err = fmt.Errorf("beginning a transaction: %w", err)
		close(u.done)
		return
	}
	var done []*turn
	defer func() { g.end(tx, err, done) }()
	for ; u != nil; u = g.next() {
		done = append(done, u)
		if err = g.one(tx, u); err != nil || len(done) == groupSize {
			return
		}
	}
}

// end commits what was done together, or says to all why it is undone. All of it is shown before the first of those who asked goes on: agents that wait for it come before
// the answers, which read the file again.
func (g *group) end(tx bun.Tx, err error, done []*turn) {
	if err != nil {
		err = errors.Join(err, ignoreDone(tx.Rollback()))
	} else if err = tx.Commit(); err != nil {
		err = fmt.Errorf("committing a transaction: %w", err)
	}
	if err != nil {
		g.versions.forget()
	}
	g.checkpoints.wrote(pagesOfUpdate * len(done))
	for _, u := range done {
		switch {
		case u.err != nil:
		case err != nil:
			u.err = err
		default:
			u.show()
		}
	}
	for _, u := range done {
		close(u.done)
	}
}

// show does what comes after the commit. If it panics, that is for who asked: the others have been committed, too.
func (u *turn) show() {
	defer u.caught()
	for _, do := range u.after {
		do()
	}
}

func (u *turn) caught() {
	if crash := recover(); crash != nil {
		u.crashed = fmt.Sprintf("%v\n\n%s", crash, debug.Stack())
	}
}

// one runs an update, and undoes it if it fails or does not return. Its error is that of the transaction.
func (g *group) one(tx bun.Tx, u *turn) (err error) {
	ctx := context.WithoutCancel(u.ctx)
	say := func(statement string) error {
		if _, err := g.prepared.carryOut(ctx, tx.Tx, statement); err != nil {
			return fmt.Errorf("in a transaction: %s: %w", statement, err)
		}
		return nil
	}
	if err := say(beginOne); err != nil {
		u.err = nil // it is not its own
		return err
	}
	defer func() {
		if u.err != nil {
			err = say(undoOne)
		}
		err = errors.Join(err, say(endOne))
		g.versions.end(u.err != nil)
		if errors.Is(u.err, errStale) {
			g.versions.forget() // the update runs again, and reads what is stored
		}
	}()
	defer u.caught()
	u.after, u.err = u.do(ctx, tx)
	if u.err == nil {
		u.err = u.ctx.Err()
	}
	return nil
}
