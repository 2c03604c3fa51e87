// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/ownwrites"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

// record is what this process knows of a claim beside what the API server has. Every field is a hint that a restart loses.
type record struct {
	// waiting is what the claim waits for; nil while it waits for nothing.
	waiting *waiter
	// seen is when the claim without an address was first looked at, to measure how long it waited.
	seen time.Time
	// finalized is the UID of the claim that this process took its finalizer off at the end: the cache shows it for a moment longer.
	finalized types.UID
	// made is the UID of the address that this process made for the claim, until the claim has one.
	made types.UID
	// unsure is the claim that may have an address: its creation got no answer, and the question neither.
	unsure *Subject
}

// waiter is a claim that gets nothing for now, and why.
type waiter struct {
	uid     types.UID
	why     allocate.Why
	refusal allocate.Refuse
}

// records are those of all claims of a kind, by name. They are safe for concurrent use.
type records struct {
	mu     sync.Mutex
	claims map[types.NamespacedName]record

	// written are the claims that this process wrote: one that the cache shows in an older version is decided about when the cache has caught up.
	written ownwrites.Memory[types.NamespacedName]
}

func newRecords() *records { return &records{claims: map[types.NamespacedName]record{}} }

// of returns the record of a claim; the zero value where nothing is known.
func (r *records) of(claim types.NamespacedName) record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.claims[claim]
}

// edit changes the record of a claim, and returns what it was before. A record that says nothing is removed.
func (r *records) edit(claim types.NamespacedName, change func(*record)) (before record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before = r.claims[claim]
	after := before
	change(&after)
	if after == (record{}) {
		delete(r.claims, claim)
	} else {
		r.claims[claim] = after
	}
	return before
}

// wait notes what a claim waits for.
func (r *records) wait(claim types.NamespacedName, uid types.UID, why allocate.Why, refusal allocate.Refuse) {
	r.edit(claim, func(known *record) { known.waiting = &waiter{uid, why, refusal} })
}

// refused reports whether a claim was refused like this before.
func (r *records) refused(claim types.NamespacedName, uid types.UID, refusal allocate.Refuse) bool {
	known := r.of(claim).waiting
	return known != nil && known.uid == uid && known.refusal == refusal
}

// why returns what a claim waits for, if its status was written.
func (r *records) why(claim types.NamespacedName, uid types.UID) (allocate.Why, bool) {
	known := r.of(claim).waiting
	if known == nil {
		return "", false
	}
	return known.why, known.uid == uid
}

// position is the position in the queue that was last written to a claim; zero for none.
func (r *records) position(claim types.NamespacedName) int {
	if known := r.of(claim).waiting; known != nil {
		return known.refusal.Position
	}
	return 0
}

// serve ends the wait of a claim, and what was noted for it. It returns the UID of the claim that waited; false means that none did.
func (r *records) serve(claim types.NamespacedName) (types.UID, bool) {
	before := r.edit(claim, func(known *record) { known.waiting, known.seen, known.made = nil, time.Time{}, "" })
	if before.waiting == nil {
		return "", false
	}
	return before.waiting.uid, true
}

// former ends the wait of an earlier claim of a name, and returns its UID; false means that there was none.
func (r *records) former(claim types.NamespacedName, uid types.UID) (former types.UID, ok bool) {
	r.edit(claim, func(known *record) {
		if known.waiting != nil && known.waiting.uid != uid {
			former, ok = known.waiting.uid, true
			known.waiting, known.seen = nil, time.Time{}
		}
	})
	return former, ok
}

// count counts the claims that wait, by reason.
func (r *records) count() map[allocate.Why]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[allocate.Why]int{}
	for _, known := range r.claims {
		if known.waiting != nil {
			out[known.waiting.why]++
		}
	}
	return out
}

// mark notes when a claim was first looked at.
func (r *records) mark(claim types.NamespacedName, now time.Time) {
	r.edit(claim, func(known *record) {
		if known.seen.IsZero() {
			known.seen = now
		}
	})
}

// since returns when a claim was first looked at, once; false where that is not known.
func (r *records) since(claim types.NamespacedName) (time.Time, bool) {
	seen := r.edit(claim, func(known *record) { known.seen = time.Time{} }).seen
	return seen, !seen.IsZero()
}

// wrote notes the resourceVersion of a claim that this process wrote.
func (r *records) wrote(obj client.Object) {
	r.written.Wrote(client.ObjectKeyFromObject(obj), obj.GetResourceVersion())
}

// isAhead reports whether this process wrote a claim that the cache shows in an older version.
func (r *records) isAhead(obj client.Object) bool {
	return r.written.Ahead(client.ObjectKeyFromObject(obj), obj.GetResourceVersion())
}

// unwrite forgets what was written to a claim that is gone.
func (r *records) unwrite(claim types.NamespacedName) {
	r.written.Forget(claim)
}
