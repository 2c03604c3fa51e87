// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app wires pool-operator: options, caches, controllers, metrics and probes.
package app

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/muster-io/muster/apis/buildinfo"
	"github.com/muster-io/muster/apis/metricsauth"
	"github.com/muster-io/muster/apis/probes"
	"github.com/muster-io/muster/apis/servedkinds"
	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/pool-operator/internal/controller/clusterclaim"
	"github.com/muster-io/muster/pool-operator/internal/controller/clusterpool"
	"github.com/muster-io/muster/pool-operator/internal/controller/pooladmin"
	"github.com/muster-io/muster/pool-operator/internal/metrics"
)

// leaderElectionID is the name of the lease.
const leaderElectionID = "pool-operator"

// shutdownTimeout is how long what runs may take to end.
const shutdownTimeout = 20 * time.Second

// wallClock tells the time of the machine.
type wallClock struct{}

// Now returns the time of the machine.
func (wallClock) Now() time.Time { return time.Now() }

// Run runs the operator until ctx ends.
func Run(ctx context.Context, o Options) error {
	if err := setLogger(o.LogLevel); err != nil {
		return err
	}
	return run(ctx, o)
}

// run is Run with the logger that the process has.
func run(ctx context.Context, o Options) error {
	defer tracing.Start(ctx, "pool-operator", ctrl.Log)()
	requests, claims := metrics.NewRequests(), clusterclaim.NewService()
	config, err := loadConfig(o, requests.Wrap, eventsAfter(claims))
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

// loadConfig returns the configuration of the client. Its rate is not limited here: priority and fairness in the API server do that for all clients together.
func loadConfig(o Options, wrappers ...transport.WrapperFunc) (*rest.Config, error) {
	config, err := ctrl.GetConfig()
	if o.Kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS = -1
	config.UserAgent = buildinfo.UserAgent("pool-operator")
	for _, wrap := range wrappers {
		config.Wrap(wrap)
	}
	return config, nil
}

func newManager(o Options, config *rest.Config) (ctrl.Manager, error) {
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme,
		Cache:  cache.Options{ByObject: cacheByObject()},
		// The content of Secrets is read when it is needed and never cached; what is watched is their metadata.
		Client:                        client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
		Metrics:                       metricsOptions(o),
		HealthProbeBindAddress:        o.HealthProbeBindAddress,
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

// metricsOptions serves metrics to users whom the API server knows and allows to get them.
func metricsOptions(o Options) metricsserver.Options {
	return metricsserver.Options{
		BindAddress: o.MetricsBindAddress, SecureServing: true, FilterProvider: metricsauth.RefuseUnknownTokens(filters.WithAuthenticationAndAuthorization),
	}
}

func cacheByObject() map[client.Object]cache.ByObject {
	byObject := clusterpool.CacheByObject()
	clusterclaim.CacheRoles(byObject)
	pooladmin.CacheBindings(byObject)
	return byObject
}
