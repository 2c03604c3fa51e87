// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/controller/ippool"
	"github.com/muster-io/muster/ipam-operator/internal/engine"
	"github.com/muster-io/muster/ipam-operator/internal/externalipam"
	"github.com/muster-io/muster/ipam-operator/internal/metrics"
	"github.com/muster-io/muster/ipam-operator/internal/space"
)

// addInventory follows an inventory outside of the cluster, if there is one.
func addInventory(mgr ctrl.Manager, o Options, index *space.Index, claims *engine.Reconciler, pools *ippool.Reconciler, registry prometheus.Registerer) error {
	if o.InventoryURL == "" {
		return nil
	}
	c := externalipam.NewClient(o.InventoryURL, o.InventoryTokenFile, metrics.NewInventory(registry).Asked)
	follower := externalipam.New(externalipam.Deps{
		Client: c, Index: index, Freed: claims.FreedBy, Changed: pools.Look, Selects: selectsPool(mgr.GetCache(), o.filter()), Interval: o.InventoryInterval, Clock: clock.RealClock{},
	})
	claims.Wait = follower.Wait
	if err := mgr.Add(follower); err != nil {
		return fmt.Errorf("adding the inventory: %w", err)
	}
	teller := &externalipam.Teller{Reader: mgr.GetCache(), Client: c, Filter: o.filter()}
	return teller.SetupWithManager(mgr, "inventory")
}

// selectsPool reports whether a filter selects a pool of the cache.
func selectsPool(reader client.Reader, filter capi.WatchFilter) func(context.Context, types.NamespacedName) bool {
	return func(ctx context.Context, name types.NamespacedName) bool {
		pool := &ipamv1.IPPool{}
		return reader.Get(ctx, name, pool) == nil && filter.Selects(pool)
	}
}
