// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/muster-io/muster/apis/faultinject"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

// sizeWithMachines is how many clusters with machines the pool has; all of them are stale once.
const sizeWithMachines = 1

// machinePoolNames are those of the pool's clusters.
var machinePoolNames = []string{"gpu", "worker"}

// withMachines gives each cluster a MachinePool that binds machines at once, and one that binds them at the claim.
func withMachines(replicas int64) testobj.PoolOption {
	return func(p *hivev1.ClusterPool) {
		p.Spec.Platform.Hosted.Nodes = &hivev1.HostedNodes{}
		p.Spec.MachinePools = nil
		for _, name := range machinePoolNames {
			machines := &hivev1.AgentBareMetalMachinePool{}
			if name == "gpu" {
				machines.BindAt = hivev1.BindAtClaim
			}
			p.Spec.MachinePools = append(p.Spec.MachinePools, hivev1.ClusterPoolMachinePool{
				Name: name, Replicas: replicas, Platform: hivev1.MachinePoolPlatform{AgentBareMetal: machines},
			})
		}
	}
}

// TestADeathAtEveryWriteOfClustersWithMachines kills the operator at the n-th write, for every n of the life of a pool whose clusters have MachinePools, before the write or after it, or lets
// that write fail; every second time beside another replica. A cluster is never seen without its MachinePools, none is made twice, and none is left.
func TestADeathAtEveryWriteOfClustersWithMachines(t *testing.T) {
	clean := faultinject.Never()
	t.Run("without a fault", func(t *testing.T) {
		w := newTestEnv(t)
		w.lifeWithMachines(func() { w.replica(through(clean)) })
		require.GreaterOrEqual(t, summary(clean)["POST machinepools"], 2*sizeWithMachines*len(machinePoolNames))
	})
	if testing.Short() {
		t.Skip("the rest takes a minute")
	}
	kinds := []faultinject.Fault{faultinject.CrashBefore, faultinject.CrashAfter, faultinject.FailOnce}
	for n := 1; n <= clean.Calls(); n++ {
		for i, kind := range kinds {
			if os.Getenv("MUSTER_CRASH_ALL") == "" && i != n%len(kinds) {
				continue
			}
			second := n%2 == 0
			t.Run(fmt.Sprintf("%s write %d, second replica %v", kind, n, second), func(t *testing.T) {
				t.Parallel()
				w := newTestEnv(t)
				w.lifeWithMachines(func() { w.restarting(faultinject.New(n, kind), second) })
			})
		}
	}
}

// lifeWithMachines fills a pool, changes its MachinePools, and deletes it.
func (w *testEnv) lifeWithMachines(operate func()) {
	w.t.Helper()
	w.apart = true
	made := w.machineController()
	w.installer()
	w.create(testobj.Pool("p", testobj.In(w.ns), testobj.Size(sizeWithMachines), withMachines(1)))
	operate()
	w.settled("p", sizeWithMachines)
	w.machinesAre(sizeWithMachines, 1)
	w.editPool("p", withMachines(2))
	w.eventually("all clusters are replaced", func() bool {
		pool := w.pool("p")
		return hivev1.IsConditionTrue(pool.Status.Conditions, hivev1.ClusterPoolAllClustersCurrent) && pool.Status.ObservedGeneration == pool.Generation
	})
	w.settled("p", sizeWithMachines)
	w.machinesAre(sizeWithMachines, 2)
	w.remove("p")
	w.machinesAre(0, 0)
	made.mu.Lock()
	defer made.mu.Unlock()
	require.Empty(w.t, made.without, "clusters that were seen without all their MachinePools")
	require.LessOrEqual(w.t, len(made.uids), 2*sizeWithMachines*len(machinePoolNames), "a MachinePool was made twice")
}

// machinePools are all MachinePools of the environment's pool, of clusters that are being deleted, too.
func (w *testEnv) machinePools() []hivev1.MachinePool {
	w.t.Helper()
	list := &hivev1.MachinePoolList{}
	require.NoError(w.t, w.client.List(w.t.Context(), list, client.MatchingLabels{hivev1.LabelClusterPoolNamespace: w.ns}))
	return list.Items
}

// machinesAre waits until there are the MachinePools of so many clusters and no others, each with so many machines.
func (w *testEnv) machinesAre(clusters int, replicas int64) {
	w.t.Helper()
	w.eventually("MachinePools are missing or left", func() bool {
		pools := w.machinePools()
		for i := range pools {
			if pools[i].DeletionTimestamp != nil {
				return false
			}
		}
		return len(pools) == clusters*len(machinePoolNames)
	})
	names := map[string][]string{}
	for _, pool := range w.machinePools() {
		require.Equal(w.t, replicas, *pool.Spec.Replicas)
		require.Equal(w.t, pool.Namespace, pool.Spec.ClusterDeploymentRef.Name)
		require.Equal(w.t, pool.Namespace+"-"+pool.Spec.Name, pool.Name)
		names[pool.Namespace] = append(names[pool.Namespace], pool.Spec.Name)
	}
	for _, cluster := range w.clusters("p") {
		slices.Sort(names[cluster.Namespace])
		require.Equal(w.t, machinePoolNames, names[cluster.Namespace], "MachinePools of cluster %s", cluster.Name)
	}
}

// machineController writes to MachinePools what their controller writes: it keeps each until its machines are free. It notes which there ever were, and clusters that it sees without theirs.
type machineController struct {
	client client.Client
	pools  string

	mu      sync.Mutex
	uids    map[types.UID]bool
	without map[string]int
}

func (w *testEnv) machineController() *machineController {
	w.t.Helper()
	mgr, err := ctrl.NewManager(w.config, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
		Cache:          cache.Options{ByObject: map[client.Object]cache.ByObject{&hivev1.MachinePool{}: w.ofPools(), &hivev1.ClusterDeployment{}: w.ofPools()}},
		MapperProvider: w.mapper,
	})
	require.NoError(w.t, err)
	m := &machineController{client: w.client, pools: w.ns, uids: map[types.UID]bool{}, without: map[string]int{}}
	require.NoError(w.t, ctrl.NewControllerManagedBy(mgr).Named("machines").For(&hivev1.MachinePool{}).Complete(m))
	require.NoError(w.t, ctrl.NewControllerManagedBy(mgr).Named("completeness").For(&hivev1.ClusterDeployment{}).Complete(completeness{m}))
	run(w.t, mgr)
	return m
}

// Reconcile looks after one MachinePool.
func (m *machineController) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	pool := &hivev1.MachinePool{}
	if err := m.client.Get(ctx, request.NamespacedName, pool); err != nil || pool.Labels[hivev1.LabelClusterPoolNamespace] != m.pools {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	m.mu.Lock()
	m.uids[pool.UID] = true
	m.mu.Unlock()
	before := pool.DeepCopy()
	changed := false
	if pool.DeletionTimestamp == nil {
		changed = controllerutil.AddFinalizer(pool, hivev1.FinalizerMachinePool)
	} else {
		changed = controllerutil.RemoveFinalizer(pool, hivev1.FinalizerMachinePool)
	}
	if !changed {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(m.client.Patch(ctx, pool, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

// completeness looks at each cluster.
type completeness struct{ *machineController }

func (m completeness) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var pools hivev1.MachinePoolList
	cluster := &hivev1.ClusterDeployment{}
	// The cluster is read after its MachinePools: what is deleted between the two is deleted with the cluster.
	err := errors.Join(m.client.List(ctx, &pools, client.InNamespace(request.Namespace)), m.client.Get(ctx, request.NamespacedName, cluster))
	ref := cluster.Spec.ClusterPoolRef
	if err != nil || ref == nil || ref.Namespace != m.pools || cluster.DeletionTimestamp != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if len(pools.Items) != len(machinePoolNames) {
		m.mu.Lock()
		m.without[cluster.Name] = len(pools.Items)
		m.mu.Unlock()
	}
	return ctrl.Result{}, nil
}
