// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

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
		Client: c, Index: index, Freed: claims.Freed, Changed: pools.Look, Interval: o.InventoryInterval, Clock: clock.RealClock{},
	})
	claims.Wait = follower.Wait
	if err := mgr.Add(follower); err != nil {
		return fmt.Errorf("adding the inventory: %w", err)
	}
	teller := &externalipam.Teller{Reader: mgr.GetCache(), Client: c}
	return teller.SetupWithManager(mgr, "inventory")
}
