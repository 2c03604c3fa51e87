// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fate lets processes of tests die in the middle of what they do.
package fate

import (
	"errors"
	"sync"
)

// ErrDead is what a dead process gets of everything that it tries.
var ErrDead = errors.New("the process is dead")

// Fate ends a process at one of its acts: a write to the API server, or a call of Ironic. From then on, no act arrives.
type Fate struct {
	at   int
	late bool

	mu     sync.Mutex
	acts   int
	killed bool
}

// At is a death at the n-th act. With late, that act arrives and the process does not learn of it.
func At(n int, late bool) *Fate { return &Fate{at: n, late: late} }

// Never is the fate of a process that does not die.
func Never() *Fate { return &Fate{} }

// Act lets an act happen, or not.
func (f *Fate) Act(what func() error) error {
	f.mu.Lock()
	f.acts++
	n, killed := f.acts, f.killed
	f.mu.Unlock()
	switch {
	case !killed && (f.at == 0 || n < f.at):
		return what()
	case !killed && n == f.at && f.late:
		_ = what()
	}
	return ErrDead
}

// Kill is a death at any time.
func (f *Fate) Kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.killed = true
}

// Dead reports whether the process is dead.
func (f *Fate) Dead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.killed || f.at > 0 && f.acts >= f.at
}

// Acts are those that happened or were asked for so far.
func (f *Fate) Acts() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.acts
}
