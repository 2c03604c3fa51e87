// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package machinepool

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	agentctl "github.com/muster-io/muster/agent-service/internal/controller/agent"
	"github.com/muster-io/muster/agent-service/internal/controller/infraenv"
	"github.com/muster-io/muster/agent-service/internal/controller/precedence"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/apis/controlplanetest"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// patience is how long anything may take on a busy machine before it counts as stuck.
const patience = 4 * time.Minute

// rack is a namespace with Agents of the real API server, and a namespace with clusters. Agents are generated: no service is behind them.
type rack struct {
	*testing.T
	config   *rest.Config
	user     client.WithWatch
	metal    string
	clusters string
	infraEnv *agentv1.InfraEnv
	// clock is that of replicas.
	clock *clocktesting.FakePassiveClock
	// service is what replicas ask.
	service *service
}

// service knows all clusters, which are of one version, and for each Agent a host that can join them.
type service struct {
	mu sync.Mutex
	// forgot is set while it knows no cluster.
	forgot bool
	// hosts are those that are not as others, by id.
	hosts map[string]domain.Host
}

// images are of the version of clusters, for one architecture.
var images = []agentproto.OSImage{{Version: "1.2.3", CPUArchitecture: "x86_64"}}

func (s *service) GetCluster(_ context.Context, _ domain.Principal, id string) (*domain.Cluster, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forgot {
		return nil, domain.RefuseUnknown("Cluster", id)
	}
	return &domain.Cluster{ID: id, ClusterSettings: domain.ClusterSettings{OpenshiftVersion: "1.2.3", CPUArchitecture: hardware.Mixed}}, nil
}

func (s *service) GetHost(_ context.Context, _ domain.Principal, key domain.HostKey) (*domain.Host, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	host, other := s.hosts[key.HostID]
	if !other {
		host.Summary.CPUArchitecture = "x86_64"
	}
	host.HostKey = key
	return &host, nil
}

// is changes a host, or what is known of clusters.
func (s *service) is(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, agentv1.AddToScheme, hivev1.AddToScheme, hiveextv1.AddToScheme, ipamv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	return scheme
}

func newRack(t *testing.T) *rack {
	t.Helper()
	r := &rack{T: t, config: rest.CopyConfig(controlplanetest.Start(t)), clock: clocktesting.NewFakePassiveClock(time.Now()), service: &service{hosts: map[string]domain.Host{}}}
	r.config.QPS = -1
	var err error
	r.user, err = client.NewWithWatch(r.config, client.Options{Scheme: newScheme(t)})
	require.NoError(t, err)
	for _, name := range []*string{&r.metal, &r.clusters} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "rack-", Labels: map[string]string{"team": "blue"}}}
		require.NoError(t, r.user.Create(t.Context(), namespace))
		*name = namespace.Name
	}
	r.infraEnv = &agentv1.InfraEnv{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.metal, Name: "rack"},
		Spec: agentv1.InfraEnvSpec{PullSecretRef: agentv1.SecretReference{Name: "pull"}, AllowedClusters: &agentv1.AllowedClusters{Namespaces: &agentv1.ClusterNamespaces{
			From: agentv1.FromSelector, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}},
		}}},
	}
	require.NoError(t, r.user.Create(t.Context(), r.infraEnv))
	return r
}

// agent makes an Agent as the controller of Agents leaves one of a machine that is free.
func (r *rack) agent(name string, change ...func(*agentv1.Agent)) *agentv1.Agent {
	r.Helper()
	agent := &agentv1.Agent{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.metal, Name: name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: agentv1.GroupVersion.String(), Kind: "InfraEnv", Name: r.infraEnv.Name, UID: r.infraEnv.UID,
		}}},
		Spec: agentv1.AgentSpec{Approved: true, Role: "auto-assign"},
	}
	isFree(agent)
	for _, one := range change {
		one(agent)
	}
	status := agent.Status
	require.NoError(r, r.user.Create(r.Context(), agent))
	agent.Status = status
	require.NoError(r, r.user.Status().Update(r.Context(), agent))
	return agent
}

// isFree makes the status that of a machine that is free.
func isFree(agent *agentv1.Agent) {
	agent.Status.DebugInfo.State = "known-unbound"
	agent.Status.Inventory = agentv1.HostInventory{
		CPU: agentv1.CPU{Count: 8}, Memory: agentv1.Memory{PhysicalBytes: 32 << 30},
		Disks: []agentv1.Disk{{SizeBytes: 200e9, InstallationEligibility: agentv1.InstallationEligibility{Eligible: true, NotEligibleReasons: []string{}}}},
	}
	for _, kind := range []string{agentv1.ConditionConnected, agentv1.ConditionValidated} {
		agentv1.SetCondition(&agent.Status.Conditions, agentv1.Condition{Type: kind, Status: corev1.ConditionTrue, Reason: "Test"}, metav1.Now())
	}
}

// cluster makes an installed cluster that takes nodes.
func (r *rack) cluster(name string, change ...func(*hivev1.ClusterDeployment)) *hivev1.ClusterDeployment {
	r.Helper()
	deployment := &hivev1.ClusterDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.clusters, Name: name},
		Spec: hivev1.ClusterDeploymentSpec{
			ClusterName: name, BaseDomain: "example.org", Installed: true, Platform: hivev1.Platform{Hosted: &hivev1.HostedPlatform{Nodes: &hivev1.HostedNodes{}}},
			ClusterMetadata: &hivev1.ClusterMetadata{
				ClusterID: "c", InfraID: "i", AdminKubeconfigSecretRef: hivev1.LocalObjectReference{Name: "admin"}, NodeAccessSecretRef: &hivev1.LocalObjectReference{Name: "nodes"},
			},
		},
	}
	for _, one := range change {
		one(deployment)
	}
	require.NoError(r, r.user.Create(r.Context(), deployment))
	return deployment
}

// pool makes a MachinePool.
func (r *rack) pool(cluster string, replicas int64, change ...func(*hivev1.MachinePool)) *hivev1.MachinePool {
	r.Helper()
	pool := &hivev1.MachinePool{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.clusters, Name: cluster + "-worker"},
		Spec: hivev1.MachinePoolSpec{
			ClusterDeploymentRef: hivev1.LocalObjectReference{Name: cluster}, Name: "worker", Replicas: &replicas,
			Platform: hivev1.MachinePoolPlatform{AgentBareMetal: &hivev1.AgentBareMetalMachinePool{AgentNamespace: r.metal}},
		},
	}
	for _, one := range change {
		one(pool)
	}
	require.NoError(r, r.user.Create(r.Context(), pool))
	return pool
}

// nodes says which nodes are Ready.
type nodes struct{ ready sync.Map }

func (n *nodes) NodeReady(_ types.NamespacedName, node string) (ready, known bool) {
	_, ready = n.ready.Load(node)
	return ready, true
}

// replica runs a controller with a cache of its own until the test ends. Before each write, write is asked; what it returns is done instead, or after it. What is sent to the channel are
// clusters whose nodes changed.
func (r *rack) replica(n *nodes, write func(do func() error) error) chan<- event.GenericEvent {
	r.Helper()
	mgr, err := ctrl.NewManager(r.config, ctrl.Options{
		Scheme: newScheme(r.T), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
	})
	require.NoError(r, err)
	for _, index := range []func(context.Context, client.FieldIndexer) error{Index, infraenv.Index, agentctl.Index} {
		require.NoError(r, index(r.Context(), mgr.GetFieldIndexer()))
	}
	direct, err := client.NewWithWatch(r.config, client.Options{Scheme: mgr.GetScheme(), Cache: &client.CacheOptions{Reader: mgr.GetCache()}})
	require.NoError(r, err)
	faulty := interceptor.NewClient(direct, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			return write(func() error { return c.Patch(ctx, object, patch, options...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return write(func() error { return c.Create(ctx, object, options...) })
		},
	})
	reconciler := New(Deps{
		Client: faulty, Live: mgr.GetAPIReader(), Nodes: n, Service: r.service, Rules: &hostplan.Rules{OSImages: images}, Recorder: &events.FakeRecorder{},
		Order: &precedence.Order{Clock: clock.RealClock{}}, Clock: r.clock,
	})
	changed := make(chan event.GenericEvent)
	require.NoError(r, reconciler.SetupWithManager(mgr, changed))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	r.Cleanup(func() { cancel(); assert.NoError(r, <-done) })
	return changed
}

// checker watches all Agents, and says where a machine went from one pool to another without being released.
type checker struct {
	binds atomic.Int64
	mu    sync.Mutex
	wrong []string
}

func (r *rack) check() *checker {
	r.Helper()
	c := &checker{}
	watcher, err := r.user.Watch(r.Context(), &agentv1.AgentList{}, client.InNamespace(r.metal))
	require.NoError(r, err)
	r.Cleanup(watcher.Stop)
	go func() {
		was := map[string]client.ObjectKey{}
		for e := range watcher.ResultChan() {
			agent, ok := e.Object.(*agentv1.Agent)
			if !ok || e.Type == watch.Bookmark {
				continue
			}
			is, before := agentctl.ClusterKey(agent), was[agent.Name]
			was[agent.Name] = is
			if is == before {
				continue
			}
			c.mu.Lock()
			if before.Name != "" && is.Name != "" {
				c.wrong = append(c.wrong, fmt.Sprintf("Agent %s went from %s to %s", agent.Name, before, is))
			}
			if pool := takenBy(agent); is.Name != "" && pool.Name != is.Name+"-worker" {
				c.wrong = append(c.wrong, fmt.Sprintf("Agent %s is for %s with the labels of %s", agent.Name, is, pool))
			}
			c.mu.Unlock()
			if is.Name != "" {
				c.binds.Add(1)
			}
		}
	}()
	return c
}

// has counts the machines of each cluster.
func (r *rack) has() map[string]int64 {
	r.Helper()
	var agents agentv1.AgentList
	require.NoError(r, r.user.List(r.Context(), &agents, client.InNamespace(r.metal)))
	has := map[string]int64{}
	for i := range agents.Items {
		if key := agentctl.ClusterKey(&agents.Items[i]); key.Name != "" {
			has[key.Name]++
		}
	}
	return has
}

var errCrash = errors.New("the process died here")

// Three replicas that all believe to lead bind many machines to many pools. Each write may be the last of a process: it is not done, or its answer is lost.
func TestNoMachineIsInTwoPools(t *testing.T) {
	pools, agents := fleetPools, fleetAgents
	if testing.Short() {
		t.Skip("many objects are made")
	}
	r := newRack(t)
	parallel := func(n int, do func(i int)) {
		var group sync.WaitGroup
		next := atomic.Int64{}
		for range 16 {
			group.Go(func() {
				for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
					do(int(i))
				}
			})
		}
		group.Wait()
	}
	parallel(agents, func(i int) { r.agent(fmt.Sprintf("agent-%03d", i)) })
	check := r.check()
	var crashes atomic.Int64
	n := &nodes{}
	for range 3 {
		r.replica(n, func(do func() error) error {
			switch rand.IntN(20) {
			case 0:
				crashes.Add(1)
				return errCrash
			case 1:
				crashes.Add(1)
				return errors.Join(do(), errCrash)
			}
			return do()
		})
	}
	started := time.Now()
	parallel(pools, func(i int) { r.pool(r.cluster(fmt.Sprintf("c%03d", i)).Name, int64(1+i%4)) })
	made := time.Since(started)
	wanted := func(per func(i int) int64) func(collect *assert.CollectT) {
		return func(collect *assert.CollectT) {
			has := r.has()
			for i := range pools {
				assert.Equal(collect, per(i), has[fmt.Sprintf("c%03d", i)], "machines of pool %d", i)
			}
		}
	}
	require.EventuallyWithT(t, wanted(func(i int) int64 { return int64(1 + i%4) }), patience, 200*time.Millisecond)
	t.Logf("%d pools have their machines %.1f s after the first was made (made in %.1f s), %d binds, %d crashes", pools, time.Since(started).Seconds(), made.Seconds(), check.binds.Load(), crashes.Load())

	// Each pool gives up all but one, and half of them are deleted.
	parallel(pools, func(i int) {
		pool := &hivev1.MachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: r.clusters, Name: fmt.Sprintf("c%03d-worker", i)}}
		if i%2 == 0 {
			require.NoError(t, r.user.Delete(t.Context(), pool))
			return
		}
		require.NoError(t, r.user.Patch(t.Context(), pool, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":1}}`))))
	})
	require.EventuallyWithT(t, wanted(func(i int) int64 { return int64(i % 2) }), patience, 200*time.Millisecond)
	check.mu.Lock()
	defer check.mu.Unlock()
	assert.Empty(t, check.wrong)
}
