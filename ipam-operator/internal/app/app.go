// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app wires ipam-operator: options, caches, controllers, metrics and probes.
package app

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/muster-io/muster/apis/buildinfo"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/metricsauth"
	"github.com/muster-io/muster/apis/probes"
	"github.com/muster-io/muster/apis/servedkinds"
	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/ipam-operator/internal/metrics"
)

// leaderElectionID is the name of the lease. It is the one that users' present manager takes, so that in one namespace
// only one of the two ever acts.
const leaderElectionID = "controller-leader-election-ipam-capm3"

// shutdownTimeout is how long what runs may take to end.
const shutdownTimeout = 20 * time.Second

// Run runs the operator until ctx ends.
func Run(ctx context.Context, o Options) error {
	if err := setLogger(o.LogLevel); err != nil {
		return err
	}
	defer tracing.Start(ctx, reporter, ctrl.Log)()
	config, err := loadConfig(o.Kubeconfig)
	if err != nil {
		return err
	}
	return RunWith(ctx, o, config)
}

// RunWith runs the operator with a client configuration until ctx ends.
func RunWith(ctx context.Context, o Options, config *rest.Config) error {
	requests := metrics.NewRequests()
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

// setLogger makes all logging JSON.
func setLogger(level string) error {
	config := zap.NewProductionConfig()
	parsed, err := zapcore.ParseLevel(level)
	if err != nil {
		return fmt.Errorf("reading the log level: %w", err)
	}
	config.Level = zap.NewAtomicLevelAt(parsed)
	config.Sampling = nil
	config.DisableCaller = true
	config.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	logger, err := config.Build()
	if err != nil {
		return fmt.Errorf("building the logger: %w", err)
	}
	ctrl.SetLogger(zapr.NewLogger(logger))
	klog.SetLogger(zapr.NewLogger(logger))
	return nil
}

// loadConfig returns the configuration of the client. Its rate is not limited here: priority and fairness in the API
// server do that for all clients together.
func loadConfig(kubeconfig string) (*rest.Config, error) {
	config, err := ctrl.GetConfig()
	if kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS = -1
	config.UserAgent = buildinfo.UserAgent("ipam-operator")
	return config, nil
}

func newManager(o Options, config *rest.Config, server webhook.Server) (ctrl.Manager, error) {
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:     scheme,
		Cache:      cacheOptions(o),
		Controller: ctrlconfig.Controller{SkipNameValidation: new(o.registerer != nil)},
		Metrics: metricsserver.Options{
			BindAddress: o.MetricsBindAddress, SecureServing: true, FilterProvider: metricsauth.RefuseUnknownTokens(filters.WithAuthenticationAndAuthorization),
		},
		HealthProbeBindAddress:        o.HealthProbeBindAddress,
		WebhookServer:                 server,
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              leaderElectionID,
		LeaderElectionNamespace:       o.LeaderElectionNamespace,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       new(shutdownTimeout),
	})
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
