// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/controller/ipaddressclaim"
	"github.com/muster-io/muster/ipam-operator/internal/engine"
	"github.com/muster-io/muster/ipam-operator/internal/space"
)

// clusterFollower is a controller whose objects Clusters hold up.
type clusterFollower interface {
	WatchClusters(c cache.Cache, kind schema.GroupVersionKind) error
}

// followers are the controllers that follow Clusters, as soon as there are any.
type followers struct {
	mgr      ctrl.Manager
	clusters *capi.Clusters

	mu   sync.Mutex
	kind *schema.GroupVersionKind
	all  []clusterFollower
}

// add makes one more controller follow Clusters.
func (f *followers) add(follower clusterFollower) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kind != nil {
		return follower.WatchClusters(f.mgr.GetCache(), *f.kind)
	}
	f.all = append(f.all, follower)
	return nil
}

// start is called when Clusters are served.
func (f *followers) start(kind schema.GroupVersionKind) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clusters.Serve(kind)
	for len(f.all) > 0 {
		if err := f.all[0].WatchClusters(f.mgr.GetCache(), kind); err != nil {
			return err
		}
		f.all = f.all[1:]
	}
	f.kind = &kind
	return nil
}

// contract serves the kinds of Cluster API's contract, as soon as they are there.
type contract struct {
	mgr       ctrl.Manager
	options   Options
	claims    *engine.Reconciler
	index     *space.Index
	waiting   *waitingClaims
	followers *followers
	running   atomic.Pointer[ipaddressclaim.Controller]
}

// freed makes waiting claims of the contract look again.
func (c *contract) freed(pool types.NamespacedName, addresses map[netip.Addr]bool) {
	if running := c.running.Load(); running != nil {
		running.PoolFreed(pool, addresses)
	}
}

// hasAddresses reports whether an address of the contract is one of a pool.
func (c *contract) hasAddresses(ctx context.Context, pool types.NamespacedName) (bool, error) {
	running := c.running.Load()
	if running == nil {
		return false, nil
	}
	return running.HasAddresses(ctx, pool)
}

// discover starts the contract, and what network data needs of it, as soon as the kinds are served.
func (c *contract) discover(ctx context.Context, network *networkData) error {
	kind := schema.GroupKind{Group: ipaddressclaim.Group, Kind: ipaddressclaim.ClaimKind}
	start := func(kind schema.GroupVersionKind) error {
		if err := network.prepareContract(ctx, kind); err != nil {
			return err
		}
		if err := c.start(ctx, kind); err != nil {
			return err
		}
		return network.startContract(kind)
	}
	if err := capi.Discover(c.mgr, kind, "ipaddressclaims."+ipaddressclaim.Group, start); err != nil {
		return fmt.Errorf("looking for IPAddressClaims: %w", err)
	}
	return nil
}

// start is called when the kinds are served.
func (c *contract) start(ctx context.Context, claimKind schema.GroupVersionKind) error {
	mapping, err := c.mgr.GetRESTMapper().RESTMapping(schema.GroupKind{Group: ipaddressclaim.Group, Kind: ipaddressclaim.AddressKind}, claimKind.Version)
	if err != nil {
		return fmt.Errorf("looking for the addresses of the contract: %w", err)
	}
	kinds := ipaddressclaim.Kinds{Claim: claimKind, Address: mapping.GroupVersionKind}
	deps := *c.claims.Deps
	deps.Kind = ipaddressclaim.Claims(kinds, c.mgr.GetCache(), c.mgr.GetAPIReader(), c.mgr.GetClient())
	deps.WakeWaiting = c.claims.Freed
	claims := engine.New(deps)
	controller := ipaddressclaim.New(kinds, claims, c.mgr.GetCache())
	if err := controller.Index(ctx, c.mgr.GetFieldIndexer()); err != nil {
		return err
	}
	feed := ipaddressclaim.Feed(c.index, c.claims.FreedBy)
	if err := c.claims.WatchForeign(c.mgr.GetCache(), kinds.Address, feed); err != nil {
		return err
	}
	c.running.Store(controller) // before a claim waits
	if err := controller.SetupWithManager(c.mgr, "ipaddressclaim", c.options.ClaimWorkers); err != nil {
		return err
	}
	locks := addressesOf(claims, controller.Claim())
	if err := locks.SetupWithManager(c.mgr, "ipaddress-ipaddressclaim"); err != nil {
		return err
	}
	c.waiting.add(claims)
	if err := c.followers.add(locks); err != nil {
		return err
	}
	return c.followers.add(controller)
}
