// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package collection chooses how much memory the process allocates between two garbage collections.
package collection

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// share is how much longer the time between two collections is than a collection: each reads the stacks of all held polls, and what is asked meanwhile waits for it.
	share = 200
	// calm is how many bytes are allocated between two collections of a process that does little, where less than four times that is in use; else a quarter of that is.
	calm = 24 << 20
	// spare bounds what is allocated between two collections while much is done, where less is in use: the memory is worth more than the time beyond that.
	spare = 96 << 20
	// most bounds what is allocated, in percent of what is in use.
	most = 400
)

// Metrics of the runtime: the memory that is in use, the memory that was allocated since the start, and the time of processors that collections took since then.
const (
	live      = "/gc/heap/live:bytes"
	allocated = "/gc/heap/allocs:bytes"
	collected = "/cpu/classes/gc/total:cpu-seconds"
)

// Adapt follows each collection with the choice for the next one, as long as the process runs. GOMEMLIMIT bounds it.
func Adapt() {
	debug.SetGCPercent(most)
	follow(&cycle{percent: most, room: spare, samples: []metrics.Sample{{Name: live}, {Name: allocated}, {Name: collected}}, at: time.Now()})
}

// cycle has no references, so that its finalizer runs after each collection.
type cycle struct {
	percent int
	// room is how many bytes were to be allocated until this collection.
	room    uint64
	samples []metrics.Sample
	// at, allocated and collected are of the last collection.
	at        time.Time
	allocated uint64
	collected float64
}

func follow(c *cycle) {
	runtime.SetFinalizer(c, func(c *cycle) {
		metrics.Read(c.samples)
		now, total, took := time.Now(), c.samples[1].Value.Uint64(), c.samples[2].Value.Float64()
		last := pace{
			inUse: c.samples[0].Value.Uint64(), allocated: total - c.allocated, in: now.Sub(c.at),
			took: time.Duration((took - c.collected) / float64(runtime.GOMAXPROCS(0)) * float64(time.Second)),
		}
		c.at, c.allocated, c.collected = now, total, took
		c.room = last.room(c.room)
		if p := percent(last.inUse, c.room); p != c.percent { // a change stops the process for a moment
			c.percent = p
			debug.SetGCPercent(p)
		}
		follow(c)
	})
}

// pace is how fast the process allocates memory, and what collecting costs.
type pace struct {
	// inUse are the bytes that are in use after a collection.
	inUse uint64
	// allocated are the bytes that were allocated in the time since the collection before it.
	allocated uint64
	in        time.Duration
	// took is the time of all processors that the collection took.
	took time.Duration
}

// room is how many bytes are allocated until the next collection, so that collections take their share of the time. It becomes less by half each time, because a burst
// is often followed by another one.
func (p pace) room(before uint64) uint64 {
	least, greatest := max(calm, p.inUse/4), max(spare, p.inUse)
	wanted := float64(p.allocated) / max(p.in.Seconds(), 0.001) * p.took.Seconds() * share
	return min(max(uint64(min(wanted, float64(greatest))), before/2, least), greatest)
}

// percent is how much is allocated in percent of what is in use, in steps of ten.
func percent(inUse, room uint64) int {
	if inUse == 0 {
		return most
	}
	return int(min(max(room*10/inUse*10, 10), most))
}
