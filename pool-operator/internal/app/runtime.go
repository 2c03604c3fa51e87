// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/api/resource"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/operator"
	"github.com/muster-io/muster/pool-operator/internal/controller/clusterdeployment"
	"github.com/muster-io/muster/pool-operator/internal/controlplane"
	"github.com/muster-io/muster/pool-operator/internal/provision/pod"
	"github.com/muster-io/muster/pool-operator/internal/provision/process"
)

// newRuntime returns what runs hosted clusters; nil when they are left alone.
func newRuntime(ctx context.Context, mgr ctrl.Manager, o Options) (clusterdeployment.Runtime, error) {
	switch o.HostedRuntime {
	case runtimeProcess:
		if err := claimDataDir(ctx, mgr.GetAPIReader(), o.HostedDataDir); err != nil {
			return nil, err
		}
		host, err := netip.ParseAddr(o.HostedListenAddress)
		if err != nil {
			return nil, fmt.Errorf("reading --hosted-listen-address: %w", err)
		}
		runtime, err := process.New(ctx, process.Options{
			Root:     o.HostedDataDir,
			Host:     host,
			Binaries: func() (controlplane.Binaries, error) { return controlplane.FindBinaries(o.HostedBinDir) },
		})
		if err != nil {
			return nil, fmt.Errorf("preparing hosted clusters in %s: %w", o.HostedDataDir, err)
		}
		if err := mgr.Add(closer{runtime}); err != nil {
			return nil, fmt.Errorf("registering the end of hosted clusters: %w", err)
		}
		return runtime, nil
	case runtimePod:
		return newPodRuntime(mgr, o)
	}
	return nil, nil //nolint:nilnil // no runtime is an answer
}

// newPodRuntime returns the runtime of pods. It reads without a cache; only its watch, on the leader, holds pods.
func newPodRuntime(mgr ctrl.Manager, o Options) (clusterdeployment.Runtime, error) {
	size, err := resource.ParseQuantity(o.HostedStorageSize)
	if err != nil {
		return nil, fmt.Errorf("reading --hosted-storage-size: %w", err)
	}
	direct, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("preparing hosted clusters in pods: %w", err)
	}
	reopen := func() (client.Client, error) {
		return client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme()})
	}
	options := pod.Options{
		Client: direct, Reopen: reopen, Images: pod.OneImage(o.HostedImage), VolumeSize: size, StorageClass: o.HostedStorageClass,
		Expose: pod.Exposure(o.HostedExpose), Address: o.HostedAddress, NodeAddress: o.HostedNodeAddress,
	}
	if options.Expose == pod.ExposeGateway {
		if options.Gateway, err = pod.ParseGateway(o.HostedGateway); err != nil {
			return nil, fmt.Errorf("reading --hosted-gateway: %w", err)
		}
	}
	runtime := pod.New(options)
	watcher, err := runtime.Watch(mgr.GetConfig(), mgr.GetScheme())
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(watcher); err != nil {
		return nil, fmt.Errorf("registering the watch of hosted clusters: %w", err)
	}
	return runtime, nil
}

// closer ends the processes of hosted clusters when the operator ends, after the controllers have stopped. Their data stays.
type closer struct {
	runtime *process.Runtime
}

// NeedLeaderElection makes it end after everything that only the leader does.
func (closer) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (c closer) Start(ctx context.Context) error {
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), operator.ShutdownTimeout)
	defer cancel()
	if err := c.runtime.Close(ctx); err != nil {
		return fmt.Errorf("ending hosted clusters: %w", err)
	}
	return nil
}
