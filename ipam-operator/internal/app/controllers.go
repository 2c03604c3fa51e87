// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/operator"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/controller/ipaddress"
	"github.com/muster-io/muster/ipam-operator/internal/controller/ippool"
	"github.com/muster-io/muster/ipam-operator/internal/engine"
	"github.com/muster-io/muster/ipam-operator/internal/metrics"
	"github.com/muster-io/muster/ipam-operator/internal/space"
)

// reporter is the operator's name in events.
const reporter = "ipam-operator"

func addControllers(ctx context.Context, mgr ctrl.Manager, o Options, registry prometheus.Registerer) error {
	if err := engine.Indexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	clusters := capi.NewClusters(mgr.GetCache())
	index, layouts := space.New(), space.NewLayouts(ipamv1.AllocationStrategy(o.DefaultStrategy))
	waiting := &waitingClaims{}
	instruments := metrics.New(registry, index, waiting)
	recorder := operator.Recorder(mgr.GetEventRecorder(reporter))

	claims := engine.New(engine.Deps{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Kind: engine.IPClaims(mgr.GetClient(), mgr.GetAPIReader(), o.Namespace), Index: index, Line: space.NewLine(),
		Clusters: clusters, Filter: o.filter(), Recorder: recorder, Metrics: instruments, Clock: clock.RealClock{},
		Layouts: layouts, Namespace: o.Namespace, Workers: o.ClaimWorkers,
	})
	waiting.add(claims)
	contract := &contract{mgr: mgr, options: o, claims: claims, index: index, waiting: waiting}
	pools := ippool.New(ippool.Deps{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clusters: clusters, Filter: o.filter(), Verifier: claims, HasForeign: contract.hasAddresses, External: index.External, Recorder: recorder, Clock: clock.RealClock{},
		Layouts: layouts, StatusInterval: o.PoolStatusInterval, Workers: o.PoolWorkers,
	})
	if err := addInventory(mgr, o, index, claims, pools, registry); err != nil {
		return err
	}
	addresses := addressesOf(claims, &ipamv1.IPClaim{})
	sets, err := newSets(ctx, mgr, o, clusters)
	if err != nil {
		return err
	}
	for name, controller := range map[string]interface {
		SetupWithManager(mgr ctrl.Manager, name string) error
	}{"ipclaim": claims, "ippool": pools, "ipaddress": addresses, "ipclaimset": sets} {
		if err := controller.SetupWithManager(mgr, name); err != nil {
			return err
		}
	}
	followers := &followers{mgr: mgr, clusters: clusters}
	for _, follower := range []clusterFollower{claims, pools, addresses, sets} {
		if err := followers.add(follower); err != nil {
			return err
		}
	}
	network, err := addNetworkData(ctx, mgr, o, clusters, layouts, followers, registry)
	if err != nil {
		return err
	}
	contract.followers = followers
	claims.OnFree(contract.freed)
	if err := capi.Discover(mgr, capi.ClusterKind, "clusters.cluster.x-k8s.io", followers.start); err != nil {
		return fmt.Errorf("looking for Clusters: %w", err)
	}
	return contract.discover(ctx, network)
}

// addressesOf looks after the addresses of a kind of claim.
func addressesOf(claims *engine.Reconciler, claim client.Object) *ipaddress.Reconciler {
	return ipaddress.New(ipaddress.Deps{
		Client: claims.Client, Kind: claims.Kind, Claim: claim, Namespace: claims.Namespace, Clusters: claims.Clusters, Filter: claims.Filter, Releaser: claims.Releaser, Clock: claims.Clock,
	})
}

// registry is where metrics are registered: that of the process, unless there are several operators in it.
func (o Options) registry() prometheus.Registerer {
	if o.registerer != nil {
		return o.registerer
	}
	return ctrlmetrics.Registry
}

// waitingClaims adds up the claims that wait.
type waitingClaims struct {
	mu     sync.Mutex
	claims []metrics.Waiting
}

func (w *waitingClaims) add(claims metrics.Waiting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.claims = append(w.claims, claims)
}

// Waiting implements metrics.Waiting.
func (w *waitingClaims) Waiting() map[allocate.Why]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[allocate.Why]int{}
	for _, claims := range w.claims {
		for why, n := range claims.Waiting() {
			out[why] += n
		}
	}
	return out
}
