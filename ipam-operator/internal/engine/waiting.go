// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"net/netip"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/muster-io/muster/ipam-operator/internal/capi"
)

// waitlist knows the claims of a kind that wait, and wakes them when what they wait for may be there: those that were held up, and those whose pool had nothing free.
type waitlist struct {
	*Deps
	records *records
	held    *capi.Held
	freed   *freed
	nudges  chan event.GenericEvent
	onFree  []func(pool types.NamespacedName, addresses map[netip.Addr]bool)
	// waiting are the claims of a pool that have no address, oldest first.
	waiting func(ctx context.Context, pool types.NamespacedName) []client.Object
}

func newWaitlist(deps *Deps) *waitlist {
	w := &waitlist{Deps: deps, records: newRecords(), held: capi.NewHeld(), freed: newFreed(), nudges: make(chan event.GenericEvent, 1)}
	w.waiting = w.waitingClaims
	return w
}

// HoldUp says that something is to be done for a claim, there or not, once WakeHeld is called.
func (w *waitlist) HoldUp(claim types.NamespacedName) {
	w.held.Expect(claim, claim.Namespace)
	w.held.Note(claim, true)
}

// WakeHeld looks again at the claims of a namespace that were held up when they were looked at last. Those that still are come back.
func (w *waitlist) WakeHeld(namespace string, q Queue) {
	for _, claim := range w.held.Wake(namespace) {
		q.Add(reconcile.Request{NamespacedName: claim})
	}
}

func (w *waitlist) forget(claim types.NamespacedName) {
	if uid, ok := w.records.serve(claim); ok {
		w.leaveLine(uid)
	}
}

// leaveLine takes a claim out of the queue of its pool. Others may have waited for nothing but this claim, and those behind it have moved up.
func (w *waitlist) leaveLine(claim types.UID) {
	queue, ok := w.Line.Leave(claim)
	if !ok {
		return
	}
	w.wakeLater(queue.Pool)
	if free, _ := w.Index.Free(queue.Pool, queue.PrefixLength); free > 0 {
		w.WakeWaiting(queue.Pool, netip.Addr{})
	}
}
