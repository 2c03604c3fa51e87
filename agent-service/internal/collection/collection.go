// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package collection chooses how much memory the process allocates between two garbage collections.
package collection

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// spare is how many bytes are allocated between two collections where less is in use: each of them reads the stacks of all held polls, so that few are worth the memory.
	spare = 96 << 20
	// least and most bound what is allocated, in percent of what is in use. Where much is in use, the memory is worth more than the time.
	least, most = 100, 400
)

// live is the metric of the memory that is in use.
const live = "/gc/heap/live:bytes"

// Adapt follows each collection with the choice for the next one, as long as the process runs. GOMEMLIMIT bounds it.
func Adapt() {
	debug.SetGCPercent(most)
	follow(&cycle{percent: most, samples: []metrics.Sample{{Name: live}}})
}

// cycle has no references, so that its finalizer runs after each collection.
type cycle struct {
	percent int
	samples []metrics.Sample
}

func follow(c *cycle) {
	runtime.SetFinalizer(c, func(c *cycle) {
		metrics.Read(c.samples)
		if p := percent(c.samples[0].Value.Uint64()); p != c.percent { // a change stops the process for a moment
			c.percent = p
			debug.SetGCPercent(p)
		}
		follow(c)
	})
}

// percent is how much is allocated in percent of what is in use, in steps of ten.
func percent(inUse uint64) int {
	if inUse == 0 {
		return most
	}
	return int(min(max(spare*10/inUse*10, least), most))
}
