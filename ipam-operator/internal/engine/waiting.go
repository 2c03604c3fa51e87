// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// HoldUp says that something is to be done for a claim, there or not, once WakeHeld is called.
func (r *Reconciler) HoldUp(claim types.NamespacedName) {
	r.held.Expect(claim, claim.Namespace)
	r.held.Note(claim, true)
}

// WakeHeld looks again at the claims of a namespace that were held up when they were looked at last. Those that still are come back.
func (r *Reconciler) WakeHeld(namespace string, q Queue) {
	for _, claim := range r.held.Wake(namespace) {
		q.Add(reconcile.Request{NamespacedName: claim})
	}
}

func (r *Reconciler) forget(claim types.NamespacedName) {
	if uid, ok := r.records.serve(claim); ok {
		r.leaveLine(uid)
	}
}

// leaveLine takes a claim out of the queue of its pool. Others may have waited for nothing but this claim.
func (r *Reconciler) leaveLine(claim types.UID) {
	queue, ok := r.Line.Leave(claim)
	if !ok {
		return
	}
	if free, _ := r.Index.Free(queue.Pool, queue.PrefixLength); free > 0 {
		r.Deps.Freed(queue.Pool)
	}
}
