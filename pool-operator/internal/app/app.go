// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app wires pool-operator: options, caches, controllers, metrics and probes.
package app

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"

	"github.com/muster-io/muster/apis/logging"
	"github.com/muster-io/muster/apis/operator"
	"github.com/muster-io/muster/apis/probes"
	"github.com/muster-io/muster/apis/requestcount"
	"github.com/muster-io/muster/apis/servedkinds"
	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/pool-operator/internal/controller/clusterclaim"
	"github.com/muster-io/muster/pool-operator/internal/controller/clusterpool"
	"github.com/muster-io/muster/pool-operator/internal/controller/pooladmin"
)

// leaderElectionID is the name of the lease.
const leaderElectionID = "pool-operator"

// Run runs the operator until ctx ends.
func Run(ctx context.Context, o Options) error {
	if _, err := logging.New(o.LogLevel); err != nil {
		return err
	}
	return run(ctx, o)
}

// run is Run with the logger that the process has.
func run(ctx context.Context, o Options) error {
	defer tracing.Start(ctx, "pool-operator", ctrl.Log)()
	requests, claims := requestcount.New("pool_operator_client_requests_total"), clusterclaim.NewService()
	config, err := operator.ClientConfig("pool-operator", o.Kubeconfig, requests.Wrap, eventsAfter(claims))
	if err != nil {
		return err
	}
	if err := servedkinds.Wait(ctx, config, ctrl.Log, o.HealthProbeBindAddress, servedkinds.Clusters, servedkinds.PoolOperator); err != nil {
		return err
	}
	mgr, err := newManager(o, config)
	if err != nil {
		return err
	}
	if err := addMetrics(mgr, requests); err != nil {
		return err
	}
	if err := addControllers(ctx, mgr, o, claims); err != nil {
		return err
	}
	if err := probes.Add(mgr, mgr.GetCache()); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the operator: %w", err)
	}
	return nil
}

func newManager(o Options, config *rest.Config) (ctrl.Manager, error) {
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	options := o.ManagerOptions(leaderElectionID, filters.WithAuthenticationAndAuthorization)
	options.Scheme = scheme
	options.Cache = cache.Options{ByObject: cacheByObject()}
	// The content of Secrets is read when it is needed and never cached; what is watched is their metadata.
	options.Client = client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}}
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return nil, fmt.Errorf("preparing the operator: %w", err)
	}
	return mgr, nil
}

func cacheByObject() map[client.Object]cache.ByObject {
	byObject := clusterpool.CacheByObject()
	clusterclaim.CacheRoles(byObject)
	pooladmin.CacheBindings(byObject)
	return byObject
}
