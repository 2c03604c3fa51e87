// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"math"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// quota says how many clusters a pool's spec asks for, and how many more it allows with the fleet that there is.
type quota struct {
	spec      *hivev1.ClusterPoolSpec
	fleet     *fleet
	inventory *inventory
	// pending is how many claims wait for a cluster.
	pending int
	// contested is how many clusters are named by claims and may be deleted nevertheless.
	contested int
}

// target is how many unclaimed clusters there should be: size, and one for each claim that waits.
func (q *quota) target() int { return int(q.spec.Size) + q.pending }

// runningTarget is how many unclaimed clusters run: runningCount of them, but no more than size, and one for each claim that waits.
func (q *quota) runningTarget() int {
	return int(min(q.spec.RunningCount, q.spec.Size)) + q.pending
}

// budget is how many more clusters may be installing or deleting.
func (q *quota) budget() int {
	if q.spec.MaxConcurrent == nil {
		return math.MaxInt
	}
	return max(0, int(*q.spec.MaxConcurrent)-q.fleet.count(installing, deleting)-q.contested)
}

// allowsDeletion says whether a member may be deleted within the budget. One that is being installed is part of it already, and its deletion takes its place.
func (q *quota) allowsDeletion(m member) bool {
	return q.budget() > 0 || m.state == installing && !q.frozen()
}

// frozen says that no cluster may be installing or deleting.
func (q *quota) frozen() bool { return q.spec.MaxConcurrent != nil && *q.spec.MaxConcurrent == 0 }

// capacity is how many clusters may be added before the pool has maxSize, claimed and deleting ones included.
func (q *quota) capacity() int {
	if q.spec.MaxSize == nil {
		return math.MaxInt
	}
	return max(0, int(*q.spec.MaxSize)-len(q.fleet.members))
}

// room is how many clusters maxSize and the inventory allow beyond those that there are.
func (q *quota) room() int {
	if q.spec.Inventory == nil {
		return q.capacity()
	}
	return min(q.capacity(), len(q.inventory.free()))
}

// attainable is how many unclaimed clusters there can be: the target, unless maxSize or the inventory allow fewer.
func (q *quota) attainable() int {
	room := q.room()
	if room > q.target() {
		return q.target()
	}
	return min(q.target(), q.fleet.countUnclaimed()+room)
}

// atOnce is how many clusters are replaced at a time.
func (q *quota) atOnce() int {
	if q.spec.MaxConcurrent == nil {
		return 1
	}
	return max(1, q.target()/2)
}

// surging is how many unclaimed clusters beyond the target are there to replace stale ones.
func (q *quota) surging() int {
	return max(0, min(q.fleet.countUnclaimed()-q.target(), q.fleet.countStale(), q.fleet.countCurrent(), q.atOnce()))
}
