// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app wires ipam-operator: options, caches, controllers, metrics and probes.
package app

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/muster-io/muster/apis/buildinfo"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/logging"
	"github.com/muster-io/muster/apis/operator"
	"github.com/muster-io/muster/apis/probes"
	"github.com/muster-io/muster/apis/requestcount"
	"github.com/muster-io/muster/apis/servedkinds"
	"github.com/muster-io/muster/apis/tracing"
)

// leaderElectionID is the name of the lease. It is the one that users' present manager takes, so that in one namespace
// only one of the two ever acts.
const leaderElectionID = "controller-leader-election-ipam-capm3"

// Run runs the operator until ctx ends.
func Run(ctx context.Context, o Options) error {
	if _, err := logging.New(o.LogLevel); err != nil {
		return err
	}
	defer tracing.Start(ctx, reporter, ctrl.Log)()
	config, err := operator.ClientConfig(reporter, o.Kubeconfig)
	if err != nil {
		return err
	}
	return RunWith(ctx, o, config)
}

// RunWith runs the operator with a client configuration until ctx ends.
func RunWith(ctx context.Context, o Options, config *rest.Config) error {
	requests := requestcount.New("ipam_operator_client_requests_total")
	config = rest.CopyConfig(config)
	config.Wrap(requests.Wrap)
	if err := servedkinds.Wait(ctx, config, ctrl.Log, o.HealthProbeBindAddress, o.kinds()...); err != nil {
		return err
	}
	converter, err := newConversion(o)
	if err != nil {
		return err
	}
	mgr, err := newManager(o, config, converter.webhookServer())
	if err != nil {
		return err
	}
	registry := o.registry()
	registry.MustRegister(requests, buildinfo.Metric("ipam-operator"))
	if err := addControllers(ctx, mgr, o, registry); err != nil {
		return err
	}
	if err := converter.addTo(ctx, mgr); err != nil {
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

// kinds are those that the operator needs. The kinds of Cluster API are followed when they are there.
func (o Options) kinds() []servedkinds.Set {
	if o.NetworkData {
		return []servedkinds.Set{servedkinds.IPAMOperator, servedkinds.NetworkData}
	}
	return []servedkinds.Set{servedkinds.IPAMOperator}
}

func newManager(o Options, config *rest.Config, server webhook.Server) (ctrl.Manager, error) {
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	options := o.ManagerOptions(leaderElectionID, filters.WithAuthenticationAndAuthorization)
	options.Scheme = scheme
	options.Cache = cacheOptions(o)
	options.Controller = ctrlconfig.Controller{SkipNameValidation: new(o.registerer != nil)}
	options.WebhookServer = server
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return nil, fmt.Errorf("preparing the operator: %w", err)
	}
	return mgr, nil
}

// cacheOptions keep in memory what decisions need and no more.
func cacheOptions(o Options) cache.Options {
	options := cache.Options{
		DefaultTransform: slim,
		// The status of a pool is long and read for every claim: who changes a pool copies it.
		ByObject: map[client.Object]cache.ByObject{&ipamv1.IPPool{}: {UnsafeDisableDeepCopy: new(true)}},
	}
	o.secretCache(&options)
	if o.Namespace != "" {
		options.DefaultNamespaces = map[string]cache.Config{o.Namespace: {}}
	}
	return options
}
