// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/space"
)

// lookAgain is when a pool is looked at again that had an address more to give and claims that were not woken: one that was may have gone away.
const lookAgain = time.Second

// freed is the pools that have an address more to give, and which addresses those are, until their waiting claims are woken.
type freed struct {
	mu       sync.Mutex
	notified map[types.NamespacedName]time.Time
	pools    map[types.NamespacedName]map[netip.Addr]bool
	again    map[types.NamespacedName]bool
	// changed are the pools whose layout is another one.
	changed map[types.NamespacedName]bool
}

func newFreed() *freed {
	return &freed{
		pools: map[types.NamespacedName]map[netip.Addr]bool{}, again: map[types.NamespacedName]bool{}, changed: map[types.NamespacedName]bool{}, notified: map[types.NamespacedName]time.Time{},
	}
}

func (f *freed) change(pool types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changed[pool] = true
}

// hasChanged reports once that the layout of a pool is another one.
func (f *freed) hasChanged(pool types.NamespacedName) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer delete(f.changed, pool)
	return f.changed[pool]
}

// mayTell reports whether it is time to write to claims that they have moved up.
func (f *freed) mayTell(pool types.NamespacedName, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.notified[pool]) < tellAgain {
		return false
	}
	f.notified[pool] = now
	return true
}

func (f *freed) note(pool types.NamespacedName, ip netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pools[pool] == nil {
		f.pools[pool] = map[netip.Addr]bool{}
	}
	f.pools[pool][ip] = true
}

func (f *freed) take() map[types.NamespacedName]map[netip.Addr]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	pools := f.pools
	f.pools = map[types.NamespacedName]map[netip.Addr]bool{}
	return pools
}

// later reports whether no later look at the pool is planned yet.
func (f *freed) later(pool types.NamespacedName) (first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first = !f.again[pool]
	f.again[pool] = true
	return first
}

func (f *freed) now(pool types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.again, pool)
}

// forgetAddress takes over that an address is gone.
func (w *waitlist) forgetAddress(record space.Record) {
	for _, pool := range w.Index.Forget(record.Key) {
		w.Freed(pool, record.IP)
	}
}

// leaveAddress takes over that an address is gone that its claim has elsewhere.
func (w *waitlist) leaveAddress(record space.Record, claim types.UID) {
	for _, pool := range w.Index.Leave(record.Key, claim) {
		w.Freed(pool, record.IP)
	}
}

// giveUp ends the attempt of a claim to get an address: nothing was written, or an object stands for the address.
func (w *waitlist) giveUp(subject *Subject) {
	w.records.edit(subject.Key(), func(known *record) { known.unsure = nil })
	if ip := w.Index.GiveUp(subject.UID()); ip.IsValid() {
		w.WakeWaiting(subject.Pool, ip)
	}
}

// giveUpFormer ends what was begun for a claim that has gone since: its place in the queue, and its attempt to get an address. If that was written after
// all, the watch shows it. Where another claim has the name by now, both may have come between two passes.
func (w *waitlist) giveUpFormer(name types.NamespacedName, now *Subject) {
	if now != nil {
		if former, ok := w.records.former(name, now.UID()); ok {
			w.leaveLine(former)
		}
	}
	if former := w.records.of(name).unsure; former != nil && (now == nil || now.UID() != former.UID()) {
		w.giveUp(former)
	}
}

// Freed wakes the waiting claims of a pool that has an address more to give, soon: addresses that are given back meanwhile wake them together. The zero Addr is
// one that is not known. One signal is enough for all pools.
func (w *waitlist) Freed(pool types.NamespacedName, ip netip.Addr) {
	w.freed.note(pool, ip)
	select {
	case w.nudges <- event.GenericEvent{Object: &ipamv1.IPPool{}}:
	default: // who gets the signal that is on its way takes this pool, too
	}
}

// FreedBy is like Freed and names the addresses. They are nil where the layout of the pool changed, or more than single addresses are free: claims of another kind may have been refused
// for the former layout after they were woken by the change.
func (w *waitlist) FreedBy(pool types.NamespacedName, addresses map[netip.Addr]bool) {
	if addresses == nil {
		w.freed.change(pool)
		w.announce(pool, nil)
	}
	for ip := range addresses {
		w.freed.note(pool, ip)
	}
	w.Freed(pool, netip.Addr{})
}

// WakeSource makes the claims of a kind look again when their pool has an address more to give. Waiting returns those of a pool that have no address, oldest
// first; they are only read.
func (w *waitlist) WakeSource(waiting func(ctx context.Context, pool types.NamespacedName) []client.Object) source.Source {
	w.waiting = waiting
	return source.Channel(w.nudges, w.freedHandler())
}

func (w *waitlist) freedHandler() handler.EventHandler {
	return handler.Funcs{GenericFunc: func(ctx context.Context, _ event.GenericEvent, q Queue) {
		for pool, addresses := range w.freed.take() {
			w.wake(ctx, pool, addresses, q)
			w.announce(pool, addresses)
		}
	}}
}

// wake makes claims of a pool look again: of those that any address helps as many as addresses are free, the oldest first, and those that one
// of these addresses is for. The others wait for something else; another layout wakes all. A claim that an address is on its way to needs no other.
func (w *waitlist) wake(ctx context.Context, pool types.NamespacedName, addresses map[netip.Addr]bool, q Queue) {
	layout := w.Index.Layout(pool)
	changed := w.freed.hasChanged(pool)
	woken, left, moved, tell := 0, 0, false, w.freed.mayTell(pool, w.Clock.Now())
	room := map[string]int64{}
	for _, claim := range w.waiting(ctx, pool) {
		key := client.ObjectKeyFromObject(claim)
		request := reconcile.Request{NamespacedName: key}
		switch why, known := w.records.why(key, claim.GetUID()); {
		case !claim.GetDeletionTimestamp().IsZero(): // it gives an address back and needs none
		case w.Index.IsServed(claim.GetUID()):
		case !known || changed || isFor(claim, layout, addresses):
			q.Add(request)
		case why == allocate.WhyQuota:
			tenant := claim.GetNamespace()
			if _, counted := room[tenant]; !counted {
				room[tenant] = w.Index.Room(pool, tenant)
			}
			if room[tenant] > 0 {
				room[tenant]--
				q.Add(request)
			}
		case why != allocate.WhyExhausted:
		case w.isNext(pool, claim):
			woken++
			q.Add(request)
		case tell && w.hasMoved(pool, claim):
			q.Add(request)
		default:
			moved = moved || w.hasMoved(pool, claim)
			left++
		}
	}
	if woken > 0 && left > 0 || moved {
		w.wakeLater(pool)
	}
}

// tellAgain is the least time between two writes of a claim's position.
const tellAgain = 5 * time.Second

// hasMoved reports whether a waiting claim stands at another position of the queue than its status says.
func (w *waitlist) hasMoved(pool types.NamespacedName, claim client.Object) bool {
	written := w.records.position(client.ObjectKeyFromObject(claim))
	return written > 0 && written != min(w.Line.Ahead(queueOf(pool, claim), waiterOf(claim)), allocate.ReportedPositions)+1
}

// queueOf is what a claim of a pool waits for where any will do.
func queueOf(pool types.NamespacedName, claim client.Object) space.Queue {
	queue := space.Queue{Pool: pool}
	if ours, ok := claim.(*ipamv1.IPClaim); ok {
		queue.PrefixLength = ours.Spec.PrefixLength
	} else {
		queue.PrefixLength = AskedPrefixLength(claim)
	}
	return queue
}

// AskedPrefixLength is the length of the prefix that an annotation of a claim asks for: zero for a single address, -1 where the annotation holds something else.
func AskedPrefixLength(claim client.Object) int {
	value, ok := claim.GetAnnotations()[ipamv1.PrefixLengthAnnotation]
	if !ok {
		return 0
	}
	if length, err := strconv.Atoi(value); err == nil && length >= 1 && length <= 128 {
		return length
	}
	return -1
}

// isNext reports whether enough is free for a waiting claim and all older ones.
func (w *waitlist) isNext(pool types.NamespacedName, claim client.Object) bool {
	queue := queueOf(pool, claim)
	free, _ := w.Index.Free(pool, queue.PrefixLength)
	return int64(w.Line.Ahead(queue, waiterOf(claim))) < free
}

// wakeLater looks at the claims of all kinds of a pool again, in case that a claim that was woken took no address, or for those that have moved up in the queue.
func (w *waitlist) wakeLater(pool types.NamespacedName) {
	if !w.freed.later(pool) {
		return
	}
	time.AfterFunc(lookAgain, func() {
		w.freed.now(pool)
		w.WakeWaiting(pool, netip.Addr{})
	})
}

// isFor reports whether one of the addresses is preallocated to a claim, or asked for by it.
func isFor(claim client.Object, layout *allocate.Layout, addresses map[netip.Addr]bool) bool {
	if layout != nil {
		name := claim.GetName()
		if ours, ok := claim.(*ipamv1.IPClaim); ok {
			name = ours.NameInPool()
		}
		if ip, ok := layout.Reserved(name); ok && addresses[ip] {
			return true
		}
	}
	ip, err := allocate.ParseAddr(claim.GetAnnotations()[ipamv1.RequestedAddressAnnotation])
	return err == nil && addresses[ip]
}

// OnFree calls follow whenever a pool has an address more to give, or gives them otherwise; addresses are those that are known to be free, nil where the layout changed. It is called
// before the manager starts.
func (w *waitlist) OnFree(follow func(pool types.NamespacedName, addresses map[netip.Addr]bool)) {
	w.onFree = append(w.onFree, follow)
}

func (w *waitlist) announce(pool types.NamespacedName, addresses map[netip.Addr]bool) {
	for _, follow := range w.onFree {
		follow(pool, addresses)
	}
}
