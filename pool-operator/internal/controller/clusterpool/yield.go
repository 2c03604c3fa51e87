// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool

import (
	"context"
	"sync"
	"time"
)

// longestYield is for how long a pass lets claims go first, from when it first does. Where claims come all the time, pools still fill.
const longestYield = 3 * time.Second

// yieldTime is the time until which a pass lets claims go first.
type yieldTime struct {
	mu    sync.Mutex
	until time.Time
}

// left is how long a pass still lets claims go first; 0 or less when it does no more.
func (c *yieldTime) left() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until.IsZero() {
		c.until = time.Now().Add(longestYield)
	}
	return time.Until(c.until)
}

// yield lets claims that are being served go first: a pool that fills would take its share of the API server from them.
func (r *Reconciler) yield(ctx context.Context, p *pass) {
	idle := r.idle()
	if idle == nil {
		return
	}
	enough := time.NewTimer(p.yieldTime.left())
	defer enough.Stop()
	select {
	case <-idle:
	case <-enough.C:
	case <-ctx.Done():
	}
}

// yieldWriter yields between two writes of an action that has a writer, which others can have meanwhile.
func (r *Reconciler) yieldWriter(ctx context.Context, p *pass) {
	if r.idle() == nil {
		return
	}
	<-r.free
	r.yield(ctx, p)
	r.free <- struct{}{} // those that have it give it back in time: their context ends
}

// idle returns a channel that is closed when no claim is being served any more; nil if none is now.
func (r *Reconciler) idle() <-chan struct{} {
	if r.Claims == nil {
		return nil
	}
	idle := r.Claims.Idle()
	select {
	case <-idle:
		return nil
	default:
		return idle
	}
}
