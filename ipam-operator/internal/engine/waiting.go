// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

// waiting is the claims that get nothing for now, and why.
type waiting struct {
	mu     sync.Mutex
	claims map[types.NamespacedName]waiter
}

type waiter struct {
	uid     types.UID
	why     allocate.Why
	refusal allocate.Refuse
}

func newWaiting() *waiting { return &waiting{claims: map[types.NamespacedName]waiter{}} }

func (w *waiting) set(claim types.NamespacedName, uid types.UID, why allocate.Why, refusal allocate.Refuse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.claims[claim] = waiter{uid, why, refusal}
}

func (w *waiting) told(claim types.NamespacedName, uid types.UID, refusal allocate.Refuse) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	known, ok := w.claims[claim]
	return ok && known.uid == uid && known.refusal == refusal
}

// why returns what a claim waits for, if its status was written.
func (w *waiting) why(claim types.NamespacedName, uid types.UID) (allocate.Why, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known, ok := w.claims[claim]
	return known.why, ok && known.uid == uid
}

// position is the position in the queue that was last written to a claim; zero for none.
func (w *waiting) position(claim types.NamespacedName) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.claims[claim].refusal.Position
}

func (w *waiting) drop(claim types.NamespacedName) (types.UID, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known, ok := w.claims[claim]
	delete(w.claims, claim)
	return known.uid, ok
}

// former removes what is known of an earlier claim of a name and returns its UID; false means that there was none.
func (w *waiting) former(claim types.NamespacedName, uid types.UID) (types.UID, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known, ok := w.claims[claim]
	if !ok || known.uid == uid {
		return "", false
	}
	delete(w.claims, claim)
	return known.uid, true
}

func (w *waiting) count() map[allocate.Why]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[allocate.Why]int{}
	for _, claim := range w.claims {
		out[claim.why]++
	}
	return out
}

// firstSeen is when claims without an address were first looked at, to measure how long they waited.
type firstSeen struct {
	mu sync.Mutex
	at map[types.NamespacedName]time.Time
}

func newFirstSeen() *firstSeen { return &firstSeen{at: map[types.NamespacedName]time.Time{}} }

func (f *firstSeen) mark(claim types.NamespacedName, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.at[claim]; !ok {
		f.at[claim] = now
	}
}

func (f *firstSeen) take(claim types.NamespacedName) (time.Time, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, ok := f.at[claim]
	delete(f.at, claim)
	return at, ok
}

// written is the resourceVersions that this process wrote: a claim that the cache shows in an older one is decided about
// when the cache has caught up.
type written struct {
	mu       sync.Mutex
	versions map[types.NamespacedName]uint64
}

func newWritten() *written { return &written{versions: map[types.NamespacedName]uint64{}} }

func (w *written) note(obj client.Object) {
	version, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.versions[client.ObjectKeyFromObject(obj)] = version
}

func (w *written) isAhead(obj client.Object) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	ours, ok := w.versions[client.ObjectKeyFromObject(obj)]
	if !ok {
		return false
	}
	version, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	if err == nil && version < ours {
		return true
	}
	delete(w.versions, client.ObjectKeyFromObject(obj))
	return false
}

func (w *written) drop(claim types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.versions, claim)
}

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
	if uid, ok := r.waiting.drop(claim); ok {
		r.leaveLine(uid)
	}
	r.seen.take(claim)
	r.made.Delete(claim)
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
