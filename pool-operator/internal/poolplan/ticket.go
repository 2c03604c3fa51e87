// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// ticket is what a pass decides: actions, and the operations that stand in the pool's status before they are carried out.
type ticket struct {
	// ops are the operations that are outstanding after the pass.
	ops []hivev1.ClusterPoolOperation
	// recorded is how many of them are new.
	recorded int
	actions  []Action
}

func (t *ticket) act(a Action) { t.actions = append(t.actions, a) }

// keep leaves an operation of an earlier pass in the ticket.
func (t *ticket) keep(op hivev1.ClusterPoolOperation) { t.ops = append(t.ops, op) }

// record puts a new operation into the ticket.
func (t *ticket) record(now time.Time, op hivev1.ClusterPoolOperation) {
	op.RecordedAt = metav1.NewTime(now)
	t.ops = append(t.ops, op)
	t.recorded++
}

// slice is how many more operations this pass may record.
func (t *ticket) slice() int {
	return max(0, min(SliceOfPass-t.recorded, MaxOperations-len(t.ops)))
}

// has says whether an operation about the namespace is outstanding.
func (t *ticket) has(namespace string) bool {
	return slices.ContainsFunc(t.ops, func(op hivev1.ClusterPoolOperation) bool { return op.Namespace == namespace })
}

// withdrawals are the operations that take back the creation of a cluster.
func (t *ticket) withdrawals() []hivev1.ClusterPoolOperation {
	var out []hivev1.ClusterPoolOperation
	for _, op := range t.ops {
		if op.Kind == hivev1.OperationDelete && op.UID == "" {
			out = append(out, op)
		}
	}
	return out
}

// timer is when a pass takes place, and when the next one is due.
type timer struct {
	now time.Time
	// wake is zero as long as only an event can change the decision.
	wake time.Time
}

// wakeAt asks for another pass at t, or earlier.
func (c *timer) wakeAt(t time.Time) {
	if c.wake.IsZero() || t.Before(c.wake) {
		c.wake = t
	}
}
