// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faultinject ends processes of tests in the middle of what they do.
package faultinject

import (
	"errors"
	"sync"
)

// ErrCrashed is returned for each call of a process that has crashed.
var ErrCrashed = errors.New("the process has crashed")

// Crash ends a process at one of its calls: a write to the API server, or a request to Ironic. From then on, no call arrives.
type Crash struct {
	at   int
	late bool

	mu     sync.Mutex
	calls  int
	killed bool
}

// At crashes at the n-th call. With late, that call arrives and the process does not learn of it.
func At(n int, late bool) *Crash { return &Crash{at: n, late: late} }

// Never does not crash, unless Kill is called.
func Never() *Crash { return &Crash{} }

// Call makes a call, or fails with ErrCrashed.
func (c *Crash) Call(call func() error) error {
	c.mu.Lock()
	c.calls++
	n, killed := c.calls, c.killed
	c.mu.Unlock()
	switch {
	case !killed && (c.at == 0 || n < c.at):
		return call()
	case !killed && n == c.at && c.late:
		_ = call()
	}
	return ErrCrashed
}

// Kill crashes the process now.
func (c *Crash) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killed = true
}

// Crashed reports whether the process has crashed.
func (c *Crash) Crashed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.killed || c.at > 0 && c.calls >= c.at
}

// Calls is the number of calls so far, including those that failed.
func (c *Crash) Calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}
