// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package externalipam

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/space"
)

// patience is how long the claims of a pool wait for the first answer about it.
const patience = 2 * timeout

// again is when a claim that waits for the first answer is looked at again.
const again = 200 * time.Millisecond

// Deps is what a Follower works with.
type Deps struct {
	// Client asks the inventory.
	Client *Client
	// Index is what is free.
	Index *space.Index
	// Freed is called when a pool has addresses more to give: those, or nil where others have given a whole network back.
	Freed func(pool types.NamespacedName, addresses map[netip.Addr]bool)
	// Changed is called when an inventory says something else of a pool.
	Changed func(ctx context.Context, pool types.NamespacedName)
	// Selects reports whether a pool is one that this instance serves; nil for all. Others are asked about only if a claim waits for them.
	Selects func(ctx context.Context, pool types.NamespacedName) bool
	// Interval is how far apart two questions about a pool are.
	Interval time.Duration
	// Clock tells the time.
	Clock clock.WithTicker
}

// Follower keeps the index of what is free up with an inventory, and holds claims back until the first answer about their pool, for a limited time.
type Follower struct {
	Deps

	questions atomic.Uint64 // numbers the questions in the order in which they are asked

	mu       sync.Mutex
	known    map[types.NamespacedName]map[space.Key]netip.Prefix // what others have taken, by pool
	answered map[types.NamespacedName]uint64                     // the question whose answer is known, by pool
	asked    map[types.NamespacedName]time.Time                  // pools without an answer, and since when
	ask      chan types.NamespacedName
}

// New returns a Follower.
func New(deps Deps) *Follower {
	if deps.Selects == nil {
		deps.Selects = func(context.Context, types.NamespacedName) bool { return true }
	}
	return &Follower{
		Deps: deps, known: map[types.NamespacedName]map[space.Key]netip.Prefix{}, answered: map[types.NamespacedName]uint64{}, asked: map[types.NamespacedName]time.Time{},
		ask: make(chan types.NamespacedName, 1024),
	}
}

// Wait is how long a claim of a pool has to wait before it is looked at again: for the first answer about the pool, or until that has taken too long. Zero means that
// it is served.
func (f *Follower) Wait(pool types.NamespacedName) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.known[pool]; ok {
		return 0
	}
	since, ok := f.asked[pool]
	if !ok {
		since = f.Clock.Now()
		f.asked[pool] = since
		select {
		case f.ask <- pool:
		default: // the next round asks
		}
	}
	if f.Clock.Since(since) < patience {
		return again
	}
	return 0
}

// Start implements manager.Runnable. Pools that claims wait for are asked about at once, whatever a round waits for.
func (f *Follower) Start(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { f.rounds(ctx) })
	for {
		select {
		case <-ctx.Done():
			return nil
		case pool := <-f.ask:
			running.Go(func() { f.follow(ctx, pool) })
		}
	}
}

// rounds asks about all pools again and again. A round that takes longer than the interval delays the next one.
func (f *Follower) rounds(ctx context.Context) {
	ticker := f.Clock.NewTicker(f.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			f.round(ctx)
		}
	}
}

// round asks about all pools, one after the other.
func (f *Follower) round(ctx context.Context) {
	pools := f.Index.Pools()
	there := map[types.NamespacedName]bool{}
	for _, pool := range pools {
		there[pool] = true
		if f.isWanted(pool) || f.Selects(ctx, pool) {
			f.follow(ctx, pool)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for pool, keys := range f.known {
		if !there[pool] {
			for key := range keys {
				f.Index.Forget(key)
			}
			delete(f.known, pool)
			delete(f.answered, pool)
		}
	}
	for pool := range f.asked {
		if !there[pool] {
			delete(f.asked, pool)
		}
	}
}

// isWanted reports whether a claim asked for a pool before.
func (f *Follower) isWanted(pool types.NamespacedName) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, known := f.known[pool]
	_, asked := f.asked[pool]
	return known || asked
}

// follow asks about a pool. Without an answer what is known stays.
func (f *Follower) follow(ctx context.Context, pool types.NamespacedName) {
	question := f.questions.Add(1)
	taken, err := f.Client.Taken(ctx, pool)
	if err != nil {
		if ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "Reading the taken addresses of the inventory failed", "IPPool", pool)
		}
		return
	}
	freed, changed := f.learn(pool, question, taken)
	if len(freed) > 0 {
		f.Freed(pool, addressesOf(freed))
	}
	if changed {
		f.Changed(ctx, pool)
	}
}

// learn takes over what others have taken and returns what the pool has more to give, and whether anything is new. An answer to an earlier question
// than the one whose answer is known is out of date.
func (f *Follower) learn(pool types.NamespacedName, question uint64, taken []netip.Prefix) (freed []netip.Prefix, changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if question < f.answered[pool] {
		return nil, false
	}
	f.answered[pool] = question
	before, now := f.known[pool], map[space.Key]netip.Prefix{}
	for _, prefix := range taken {
		record := recordOf(pool, prefix)
		now[record.Key] = prefix
		if _, was := before[record.Key]; !was {
			f.Index.Observe(record)
			changed = true
		}
	}
	for key, prefix := range before {
		if _, still := now[key]; still {
			continue
		}
		if len(f.Index.Forget(key)) > 0 {
			freed = append(freed, prefix)
		}
		changed = true
	}
	f.known[pool] = now
	delete(f.asked, pool)
	return freed, changed
}

// addressesOf are the addresses that others have given back; nil where a whole network is among them.
func addressesOf(freed []netip.Prefix) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, prefix := range freed {
		if !prefix.IsSingleIP() {
			return nil
		}
		out[prefix.Addr()] = true
	}
	return out
}

// recordOf is what others have taken, as the index knows it. Its name is none that an IPAddress can have.
func recordOf(pool types.NamespacedName, prefix netip.Prefix) space.Record {
	key := types.NamespacedName{Namespace: pool.Namespace, Name: pool.Name + "|" + prefix.String()}
	record := space.Record{Key: space.Key{Group: space.Inventory, NamespacedName: key}, Pool: pool, IP: prefix.Addr(), UID: "inventory"}
	if !prefix.IsSingleIP() {
		record.PrefixLength = prefix.Bits()
	}
	return record
}

// Teller reports to an inventory which addresses were given and which are free again. It repeats a report until the inventory has confirmed it.
type Teller struct {
	// Reader reads from the cache.
	Reader client.Reader
	// Client asks the inventory.
	Client *Client
	// Filter selects the addresses that are reported.
	Filter capi.WatchFilter
}

// Reconcile reports one address to the inventory.
func (t *Teller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	address := &ipamv1.IPAddress{}
	err := t.Reader.Get(ctx, req.NamespacedName, address)
	switch {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, t.Client.Return(ctx, req.NamespacedName)
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading IPAddress %s: %w", req, err)
	}
	if !t.Filter.Selects(address) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, t.Client.Give(ctx, address)
}

// SetupWithManager starts the controller with the manager. An address that is gone is selected by the labels that it had.
func (t *Teller) SetupWithManager(mgr ctrl.Manager, name string) error {
	selected := builder.WithPredicates(predicate.NewPredicateFuncs(t.Filter.Selects))
	if err := ctrl.NewControllerManagedBy(mgr).Named(name).For(&ipamv1.IPAddress{}, selected).Complete(tracing.Reconciler(name, outcome.Reconciler[ctrl.Request](t))); err != nil {
		return fmt.Errorf("building the controller %s: %w", name, err)
	}
	return nil
}
