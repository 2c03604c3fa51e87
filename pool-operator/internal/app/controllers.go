// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/muster-io/muster/apis/buildinfo"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/controller/clusterclaim"
	"github.com/muster-io/muster/pool-operator/internal/controller/clusterdeployment"
	"github.com/muster-io/muster/pool-operator/internal/controller/clusterpool"
	"github.com/muster-io/muster/pool-operator/internal/metrics"
)

// addMetrics registers what is measured of the operator as a whole.
func addMetrics(mgr ctrl.Manager, requests prometheus.Collector) error {
	return register(requests, buildinfo.Metric("pool-operator"), metrics.NewPools(mgr.GetCache()))
}

func register(collectors ...prometheus.Collector) error {
	for _, c := range collectors {
		if err := ctrlmetrics.Registry.Register(c); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}

func addControllers(ctx context.Context, mgr ctrl.Manager, o Options, claims *clusterclaim.Service) error {
	if err := addPools(ctx, mgr, o, claims); err != nil {
		return err
	}
	if err := addClaims(ctx, mgr, claims); err != nil {
		return err
	}
	if err := addHibernation(mgr); err != nil {
		return err
	}
	if err := addPoolAdmins(ctx, mgr); err != nil {
		return err
	}
	if err := addInstalls(mgr); err != nil {
		return err
	}
	return addHostedClusters(ctx, mgr, o)
}

func addPools(ctx context.Context, mgr ctrl.Manager, o Options, claims clusterpool.Priority) error {
	actions := metrics.NewPoolActions()
	if err := register(actions); err != nil {
		return err
	}
	return clusterpool.New(clusterpool.Deps{
		Client:   mgr.GetClient(),
		Metadata: mgr.GetCache(),
		Live:     mgr.GetAPIReader(),
		Progress: clusterpool.CacheProgress{Informers: mgr.GetCache()},
		Recorder: mgr.GetEventRecorder("clusterpool"),
		Clock:    clock.RealClock{},
		Meter:    actions,
		Claims:   claims,
		Workers:  o.PoolWorkers,
		Writers:  o.PoolWriters,
	}).SetupWithManager(ctx, mgr)
}

func addClaims(ctx context.Context, mgr ctrl.Manager, service *clusterclaim.Service) error {
	counts := clusterclaim.NewMetrics()
	if err := register(counts, clusterclaim.NewQueues(mgr.GetCache(), clock.RealClock{})); err != nil {
		return err
	}
	if err := clusterclaim.AddIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	err := clusterclaim.New(clusterclaim.Deps{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("clusterclaim"), Clock: clock.RealClock{}, Metrics: counts,
		Service: service,
	}).SetupWithManager(mgr)
	if err != nil {
		return fmt.Errorf("setting up the controller of claims: %w", err)
	}
	return nil
}

// addInstalls has install objects of any kind speak through the ClusterDeployments that name them.
func addInstalls(mgr ctrl.Manager) error {
	watched, err := cache.New(mgr.GetConfig(), cache.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("preparing to watch install objects: %w", err)
	}
	if err := mgr.Add(watched); err != nil {
		return fmt.Errorf("registering the watch of install objects: %w", err)
	}
	err = clusterdeployment.NewInstall(clusterdeployment.InstallDeps{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Informers: watched,
		Recorder: mgr.GetEventRecorder("clusterdeployment"), Clock: clock.RealClock{},
	}).SetupWithManager(mgr)
	if err != nil {
		return fmt.Errorf("setting up the controller of install objects: %w", err)
	}
	return nil
}

// machinePoolReader reads MachinePools from the cache; nil where the API server does not serve them. Their definition is not installed by all who have pools.
func machinePoolReader(mgr ctrl.Manager) (client.Reader, error) {
	_, err := mgr.GetRESTMapper().RESTMapping(hivev1.GroupVersion.WithKind("MachinePool").GroupKind(), hivev1.GroupVersion.Version)
	if meta.IsNoMatchError(err) {
		ctrl.Log.Info("clusters do not wait for their machines: deploy/crds/machine-pool is not installed; restart the operator when it is")
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for MachinePools: %w", err)
	}
	return mgr.GetClient(), nil
}

func addHostedClusters(ctx context.Context, mgr ctrl.Manager, o Options) error {
	runtime, err := newRuntime(ctx, mgr, o)
	if err != nil || runtime == nil {
		return err
	}
	machinePools, err := machinePoolReader(mgr)
	if err != nil {
		return err
	}
	counts := clusterdeployment.NewMetrics()
	if err := register(counts); err != nil {
		return err
	}
	err = clusterdeployment.New(clusterdeployment.Deps{
		Client: mgr.GetClient(), Metadata: mgr.GetCache(), Live: mgr.GetAPIReader(), MachinePools: machinePools, Runtime: runtime, DNSImage: o.HostedDNSImage,
		Recorder: mgr.GetEventRecorder("clusterdeployment"), Clock: clock.RealClock{}, Metrics: counts,
	}).SetupWithManager(mgr)
	if err != nil {
		return fmt.Errorf("setting up the controller of hosted clusters: %w", err)
	}
	return nil
}
