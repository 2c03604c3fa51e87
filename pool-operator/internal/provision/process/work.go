// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/muster-io/muster/pool-operator/internal/controlplane"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// steadyAfter is how long a cluster has to run before its earlier failures are forgotten. One that comes up and dies again and again is started with growing pauses.
const steadyAfter = 2 * time.Minute

// drive makes work bring about what is wanted. c.mu is held.
func (c *cluster) drive(want provision.State) {
	c.want = want
	if c.cancel != nil {
		c.cancel()
	}
	if !c.working && !c.closed {
		c.working = true
		go c.work()
	}
}

// work acts until the state is the wanted one or an action failed. The wanted state may change meanwhile.
func (c *cluster) work() {
	for {
		c.mu.Lock()
		want := c.want
		if c.closed {
			c.working = false
			c.mu.Unlock()
			return
		}
		var done bool
		switch want {
		case provision.StateReady:
			done = c.bringUp()
		case provision.StateAbsent:
			c.remove()
			done = true
		default:
			done = c.bringDown()
		}
		if done {
			c.working = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
	}
}

// bringUp starts the control plane. It is called with c.mu held, gives it up meanwhile, and reports whether work is done.
func (c *cluster) bringUp() (done bool) {
	if c.state != provision.StateStarting {
		c.move(provision.StateStarting)
	}
	ctx, cancel := context.WithCancel(c.runtime.life)
	defer cancel()
	plane := c.plane
	c.cancel = cancel
	c.mu.Unlock()
	err := c.runtime.startInTurn(ctx, plane)
	c.mu.Lock()
	c.cancel = nil
	switch {
	case c.want != provision.StateReady || c.closed:
		return false
	case err != nil:
		c.fail(explain(err))
		return true
	}
	c.before, c.failures, c.problem = c.failures, 0, nil
	c.move(provision.StateReady)
	go c.watch(plane, plane.Done())
	return true
}

// startInTurn waits until not too many others are starting: together they would all be slow, and some too slow.
func (r *Runtime) startInTurn(ctx context.Context, plane *controlplane.Plane) error {
	select {
	case r.starting <- struct{}{}:
		defer func() { <-r.starting }()
		return plane.Start(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// bringDown stops the control plane; see bringUp.
func (c *cluster) bringDown() (done bool) {
	plane := c.plane
	c.mu.Unlock()
	plane.Stop(c.runtime.life)
	c.mu.Lock()
	if c.want != provision.StateStopped || c.closed {
		return false
	}
	c.before, c.failures, c.problem = 0, 0, nil
	c.move(provision.StateStopped)
	return true
}

// remove ends the control plane and removes what the rename has put aside; see bringUp.
func (c *cluster) remove() {
	plane := c.plane
	c.mu.Unlock()
	var err error
	if plane != nil {
		err = plane.Close()
	}
	dir := c.runtime.gone(c.ref)
	err = errors.Join(err, controlplane.Reap(c.runtime.life, dir), os.RemoveAll(dir))
	c.mu.Lock()
	c.plane = nil
	if err != nil {
		c.failures++
		c.problem = explain(err)
		c.move(provision.StateDeleting)
		return
	}
	c.failures, c.problem = 0, nil
	c.move(provision.StateAbsent)
	c.runtime.forget(c)
}

// watch notices that a running control plane has ended by itself.
func (c *cluster) watch(plane *controlplane.Plane, ended <-chan struct{}) {
	<-ended
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == provision.StateReady && c.plane == plane && !c.closed {
		if time.Since(c.since) < steadyAfter {
			c.failures = c.before
		}
		c.fail(explain(plane.Err()))
	}
}

// close stops the control plane because the operator ends; the state stays as it was.
func (c *cluster) close(ctx context.Context) {
	c.mu.Lock()
	c.closed = true
	if c.cancel != nil {
		c.cancel()
	}
	plane := c.plane
	c.mu.Unlock()
	if plane == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, closeGrace)
	defer cancel()
	plane.Stop(ctx)
	_ = plane.Close()
}
