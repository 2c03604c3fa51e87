// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"sync"
	"time"
)

// never is the time of a poll that there was not.
const never = time.Duration(-1 << 62)

// UpClock is time that passes only while this process runs and its store can be reached: a host is not silent while its polls cannot arrive. It does not follow the clock on
// the wall.
type UpClock struct {
	mu   sync.Mutex
	sum  time.Duration
	last time.Time
}

// NewUpClock returns a clock that begins at zero.
func NewUpClock(now time.Time) *UpClock { return &UpClock{last: now} }

// Now is the time that passed.
func (c *UpClock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sum
}

// Advance counts the time since the last call, at most longest, and nothing while the store is away. It returns Now.
func (c *UpClock) Advance(now time.Time, longest time.Duration, away bool) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := min(max(now.Sub(c.last), 0), longest)
	c.last = now
	if !away {
		c.sum += passed
	}
	return c.sum
}
