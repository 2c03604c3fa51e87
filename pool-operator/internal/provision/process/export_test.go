// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package process

// Crash ends the runtime the way a killed operator ends, as far as a living process can: its clusters die, and nothing
// is said or recorded.
func (r *Runtime) Crash() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.clusters {
		c.mu.Lock()
		c.closed = true
		if c.cancel != nil {
			c.cancel()
		}
		plane := c.plane
		c.mu.Unlock()
		if plane != nil {
			_ = plane.Close()
		}
	}
	_ = r.rootLock.Close()
}
