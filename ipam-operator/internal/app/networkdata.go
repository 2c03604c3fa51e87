// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	"github.com/muster-io/muster/apis/operator"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/controller/metal3data"
	"github.com/muster-io/muster/ipam-operator/internal/controller/metal3dataclaim"
	"github.com/muster-io/muster/ipam-operator/internal/controller/metal3datatemplate"
	"github.com/muster-io/muster/ipam-operator/internal/dataplan"
	"github.com/muster-io/muster/ipam-operator/internal/metrics"
	"github.com/muster-io/muster/ipam-operator/internal/space"
)

// renderedSecrets keeps of all Secrets only those in the cache that this operator writes.
var renderedSecrets = cache.ByObject{Field: fields.OneTermEqualSelector("type", string(infrav1.SecretType))}

// networkData is the controllers of network data; nil where another provider serves those kinds.
type networkData struct {
	mgr  ctrl.Manager
	data *metal3data.Reconciler

	index sync.Once
}

// addNetworkData adds the controllers of network data, if they are switched on.
func addNetworkData(ctx context.Context, mgr ctrl.Manager, o Options, clusters *capi.Clusters, layouts *space.Layouts, followers *followers,
	registry prometheus.Registerer,
) (*networkData, error) {
	if !o.NetworkData {
		return nil, nil
	}
	if err := metal3data.Indexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return nil, err
	}
	recorder := operator.Recorder(mgr.GetEventRecorder(reporter))
	instruments := metrics.NewNetworkData(registry)
	data := metal3data.New(metal3data.Deps{
		Client: mgr.GetClient(), Cache: mgr.GetCache(), Live: mgr.GetAPIReader(), Clusters: clusters, Filter: o.filter(), Recorder: recorder,
		Metrics: instruments, Clock: clock.RealClock{}, Layouts: layouts, NameByHost: o.NameByHost, Workers: o.DataWorkers,
	})
	claims := metal3dataclaim.New(metal3dataclaim.Deps{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clusters: clusters, Filter: o.filter(), Recorder: recorder, Metrics: instruments,
		Workers: o.DataWorkers,
	})
	templates := metal3datatemplate.New(metal3datatemplate.Deps{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clusters: clusters, Filter: o.filter(), Clock: clock.RealClock{}, StatusInterval: o.PoolStatusInterval,
	})
	for name, controller := range map[string]interface {
		clusterFollower
		SetupWithManager(mgr ctrl.Manager, name string) error
	}{"metal3data": data, "metal3dataclaim": claims, "metal3datatemplate": templates} {
		if err := controller.SetupWithManager(mgr, name); err != nil {
			return nil, err
		}
		if err := followers.add(controller); err != nil {
			return nil, err
		}
	}
	for crd, kind := range map[string]schema.GroupKind{
		"metal3machines." + dataplan.Metal3MachineKind.Group: dataplan.Metal3MachineKind,
		"machines." + dataplan.MachineKind.Group:             dataplan.MachineKind,
		"baremetalhosts." + dataplan.HostKind.Group:          dataplan.HostKind,
	} {
		err := capi.Discover(mgr, kind, crd, func(kind schema.GroupVersionKind) error { return data.WatchForeign(mgr.GetCache(), kind) })
		if err != nil {
			return nil, fmt.Errorf("looking for %s: %w", crd, err)
		}
	}
	return &networkData{mgr: mgr, data: data}, nil
}

// prepareContract is called before the first read of IPAddressClaims, and may be called again.
func (n *networkData) prepareContract(ctx context.Context, claimKind schema.GroupVersionKind) (err error) {
	if n != nil {
		n.index.Do(func() { err = metal3data.IndexContract(ctx, n.mgr.GetFieldIndexer(), claimKind) })
	}
	return err
}

// startContract is called when IPAddressClaims are served.
func (n *networkData) startContract(claimKind schema.GroupVersionKind) error {
	if n == nil {
		return nil
	}
	return n.data.WatchContract(n.mgr.GetCache(), claimKind)
}

// secretCache is what the cache keeps of Secrets.
func (o Options) secretCache(options *cache.Options) {
	if o.NetworkData {
		options.ByObject[&corev1.Secret{}] = renderedSecrets
	}
}
