// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"time"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// StatusChange says how urgently a status has to be written.
type StatusChange int

const (
	// StatusSame means that there is nothing to write.
	StatusSame StatusChange = iota
	// StatusCounts means that counts, finished operations or how full the pool is changed; the write can wait for more to come.
	StatusCounts
	// StatusReport means that something else changed that people wait for, such as another condition; the write waits a little for more to come.
	StatusReport
	// StatusTicket means that new operations are in it, so that it must be written before the actions.
	StatusTicket
)

// Decision is what a pool does next.
type Decision struct {
	// Wait says that the view is older than the one on which the last decision was made: nothing can be decided on it.
	Wait bool
	// Status is what the pool's status is to be.
	Status hivev1.ClusterPoolStatus
	// Change says whether Status differs from what was read, and how.
	Change StatusChange
	// Actions are independent of each other.
	Actions []Action
	// RequeueAfter is when to plan again even if nothing happens; 0 means that only an event can change the decision.
	RequeueAfter time.Duration
}

// Limits of a pass.
const (
	// SliceOfPass is how many operations one pass records at most, so that passes are short.
	SliceOfPass = 20
	// MaxOperations is how many operations a pool has outstanding at most.
	MaxOperations = 64
	// withdrawalTime is how long after a withdrawal the API server is asked whether the cluster exists: a replica that was about to create it has given up by then.
	withdrawalTime = time.Minute
	// lookAgain is when outstanding operations are looked at again, should no event about them come.
	lookAgain = 65 * time.Second
	// behindRetry is when a view that is too old is looked at again.
	behindRetry = 100 * time.Millisecond
)
