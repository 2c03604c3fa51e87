// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package externalipam

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/tracing"
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
	// Freed is called when a pool has an address more to give.
	Freed func(pool types.NamespacedName)
	// Changed is called when an inventory says something else of a pool.
	Changed func(ctx context.Context, pool types.NamespacedName)
	// Interval is how far apart two questions about a pool are.
	Interval time.Duration
	// Clock tells the time.
	Clock clock.WithTicker
}

// Follower keeps the index of what is free up with an inventory, and holds claims back until the first answer about their pool, for a limited time.
type Follower struct {
	Deps

	mu    sync.Mutex
	known map[types.NamespacedName]map[space.Key]bool // what others have taken, by pool
	asked map[types.NamespacedName]time.Time          // pools without an answer, and since when
	ask   chan types.NamespacedName
}

// New returns a Follower.
func New(deps Deps) *Follower {
	return &Follower{
		Deps: deps, known: map[types.NamespacedName]map[space.Key]bool{}, asked: map[types.NamespacedName]time.Time{},
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

// Start implements manager.Runnable.
func (f *Follower) Start(ctx context.Context) error {
	ticker := f.Clock.NewTicker(f.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case pool := <-f.ask:
			go f.follow(ctx, pool)
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
		f.follow(ctx, pool)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for pool, keys := range f.known {
		if !there[pool] {
			for key := range keys {
				f.Index.Forget(key)
			}
			delete(f.known, pool)
		}
	}
	for pool := range f.asked {
		if !there[pool] {
			delete(f.asked, pool)
		}
	}
}

// follow asks about a pool. Without an answer what is known stays.
func (f *Follower) follow(ctx context.Context, pool types.NamespacedName) {
	taken, err := f.Client.Taken(ctx, pool)
	if err != nil {
		if ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "Reading the taken addresses of the inventory failed", "IPPool", pool)
		}
		return
	}
	gained, changed := f.learn(pool, taken)
	if gained {
		f.Freed(pool)
	}
	if changed {
		f.Changed(ctx, pool)
	}
}

// learn takes over what others have taken and reports whether the pool has an address more to give, and whether anything is new.
func (f *Follower) learn(pool types.NamespacedName, taken []netip.Prefix) (gained, changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, now := f.known[pool], map[space.Key]bool{}
	for _, prefix := range taken {
		record := recordOf(pool, prefix)
		now[record.Key] = true
		if !before[record.Key] {
			f.Index.Observe(record)
			changed = true
		}
	}
	for key := range before {
		if !now[key] {
			gained = len(f.Index.Forget(key)) > 0 || gained
			changed = true
		}
	}
	f.known[pool] = now
	delete(f.asked, pool)
	return gained, changed
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
	return ctrl.Result{}, t.Client.Give(ctx, address)
}

// SetupWithManager starts the controller with the manager.
func (t *Teller) SetupWithManager(mgr ctrl.Manager, name string) error {
	if err := ctrl.NewControllerManagedBy(mgr).Named(name).For(&ipamv1.IPAddress{}).Complete(tracing.Reconciler(name, t)); err != nil {
		return fmt.Errorf("building the controller %s: %w", name, err)
	}
	return nil
}
