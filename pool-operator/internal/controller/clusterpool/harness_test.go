// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/muster-io/muster/apis/controlplanetest"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/controller/clusterpool"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

const (
	patience = 3 * time.Minute
	tick     = 100 * time.Millisecond
	// terminating is for how long a deleted namespace is there at least.
	terminating = time.Second
)

var scheme = newScheme()

// newScheme makes a scheme of its own: a fake client adds kinds to the one that it is given.
func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, hivev1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}

type noMeter struct{}

func (noMeter) Action(string, poolplan.Why, bool) {}

// testEnv is one namespace of the control plane, with an administrator's client.
type testEnv struct {
	t      *testing.T
	config *rest.Config
	client client.Client
	ns     string
	// reports is how often a pool reports at most. The shorter it is, the more reports the same work takes on a slow machine.
	reports time.Duration
	// lag is by how much the caches of replicas are late.
	lag time.Duration
	// apart has replicas watch only what carries the labels of the environment's pools: tests that run at a time do not wake each other's.
	apart bool
}

// administrator is the client of all tests. Managers map kinds as it does, so that kinds are discovered once.
var administrator struct {
	sync.Once
	client client.Client
	err    error
}

func (w *testEnv) mapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	return w.client.RESTMapper(), nil
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	cfg := controlplanetest.Start(t)
	administrator.Do(func() { administrator.client, administrator.err = client.New(cfg, client.Options{Scheme: scheme}) })
	c, err := administrator.client, administrator.err
	require.NoError(t, err)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "pools-"}}
	require.NoError(t, c.Create(t.Context(), ns))
	require.NoError(t, client.IgnoreAlreadyExists(c.Create(t.Context(), testobj.ClusterImageSet(testobj.ImageSetName))))
	return &testEnv{t: t, config: cfg, client: c, ns: ns.Name, reports: 100 * time.Millisecond}
}

// replica runs the controller for pools of the environment's namespace until the test ends, or until stop is called.
func (w *testEnv) replica(change ...func(*rest.Config)) (stop func()) {
	w.t.Helper()
	cfg := rest.CopyConfig(w.config)
	cfg.Wrap(late(w.lag))
	for _, f := range change {
		f(cfg)
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:     scheme,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
		Cache:      cache.Options{ByObject: w.cacheByObject()}, MapperProvider: w.mapper,
	})
	require.NoError(w.t, err)
	r := clusterpool.New(clusterpool.Deps{
		Client: mgr.GetClient(), Metadata: mgr.GetCache(), Live: mgr.GetAPIReader(), Progress: clusterpool.CacheProgress{Informers: mgr.GetCache()},
		Recorder: mgr.GetEventRecorder("clusterpool"), Clock: clock.RealClock{}, Meter: noMeter{}, Workers: 4, Writers: 10, ReportInterval: w.reports,
	})
	require.NoError(w.t, r.SetupWithManager(context.WithoutCancel(w.t.Context()), mgr))
	return run(w.t, mgr)
}

// cacheByObject keeps tests apart that share a control plane: a replica sees the pools of its environment only.
func (w *testEnv) cacheByObject() map[client.Object]cache.ByObject {
	byObject := clusterpool.CacheByObject()
	if w.apart {
		byObject = map[client.Object]cache.ByObject{&hivev1.ClusterDeployment{}: w.ofPools(), &corev1.Namespace{}: w.namespacesOfPools()}
	}
	byObject[&hivev1.ClusterPool{}] = cache.ByObject{Namespaces: map[string]cache.Config{w.ns: {}}}
	return byObject
}

// ofPools selects what was made for clusters of the environment's pools.
func (w *testEnv) ofPools() cache.ByObject {
	return cache.ByObject{Label: labels.SelectorFromSet(labels.Set{hivev1.LabelClusterPoolNamespace: w.ns})}
}

// namespacesOfPools selects the namespaces of clusters of the environment's pools.
func (w *testEnv) namespacesOfPools() cache.ByObject {
	return cache.ByObject{Label: labels.SelectorFromSet(labels.Set{hivev1.LabelNamespaceClusterPoolNamespace: w.ns})}
}

func run(t *testing.T, mgr ctrl.Manager) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

// installer is a fake installer of clusters: it writes only what an installer writes. It also ends the namespaces that pools delete.
func (w *testEnv) installer() {
	w.t.Helper()
	mgr, err := ctrl.NewManager(w.config, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
		Cache:          cache.Options{ByObject: map[client.Object]cache.ByObject{&hivev1.ClusterDeployment{}: w.ofPools(), &corev1.Namespace{}: w.namespacesOfPools()}},
		MapperProvider: w.mapper,
	})
	require.NoError(w.t, err)
	err = ctrl.NewControllerManagedBy(mgr).Named("installer").For(&hivev1.ClusterDeployment{}).
		Complete(&standIn{client: mgr.GetClient(), pools: w.ns})
	require.NoError(w.t, err)
	err = ctrl.NewControllerManagedBy(mgr).Named("namespaces").For(&corev1.Namespace{}).Complete(namespaceEnder{client: w.client})
	require.NoError(w.t, err)
	run(w.t, mgr)
}

// namespaceEnder deletes what pools put into deleted namespaces, and ends them when that is gone. kube-controller-manager does so after five seconds with two requests for each kind that there is.
type namespaceEnder struct{ client client.Client }

func (e namespaceEnder) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ns := &corev1.Namespace{}
	if err := e.client.Get(ctx, req.NamespacedName, ns); err != nil || ns.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if left := time.Until(ns.DeletionTimestamp.Add(terminating)); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	for kind, inside := range map[client.Object]client.ObjectList{
		&hivev1.ClusterDeployment{}: &hivev1.ClusterDeploymentList{}, &hivev1.MachinePool{}: &hivev1.MachinePoolList{}, &corev1.Secret{}: &corev1.SecretList{},
	} {
		if err := e.client.List(ctx, inside, client.InNamespace(ns.Name)); err != nil {
			return ctrl.Result{}, err
		}
		if meta.LenList(inside) > 0 {
			return ctrl.Result{RequeueAfter: tick}, e.client.DeleteAllOf(ctx, kind, client.InNamespace(ns.Name))
		}
	}
	ns.Spec.Finalizers = nil
	return ctrl.Result{}, client.IgnoreNotFound(e.client.SubResource("finalize").Update(ctx, ns))
}

type standIn struct {
	client client.Client
	pools  string
}

func (s *standIn) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cd := &hivev1.ClusterDeployment{}
	if err := s.client.Get(ctx, req.NamespacedName, cd); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if cd.Spec.ClusterPoolRef == nil || cd.Spec.ClusterPoolRef.Namespace != s.pools || !cd.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	if !cd.Spec.Installed {
		before := cd.DeepCopy()
		cd.Spec.Installed = true
		if err := s.client.Patch(ctx, cd, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	want := cd.Spec.PowerState
	if cd.Status.InstalledTimestamp == nil || cd.Status.PowerState != want {
		before := cd.DeepCopy()
		if cd.Status.InstalledTimestamp == nil {
			cd.Status.InstalledTimestamp = new(metav1.Now())
		}
		cd.Status.PowerState = want
		if err := s.client.Status().Patch(ctx, cd, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	return ctrl.Result{}, nil
}

func (w *testEnv) create(objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		require.NoError(w.t, w.client.Create(w.t.Context(), o))
	}
}

func (w *testEnv) pool(name string) *hivev1.ClusterPool {
	w.t.Helper()
	pool := &hivev1.ClusterPool{}
	require.NoError(w.t, w.client.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, pool))
	return pool
}

// editPool changes a pool's spec.
func (w *testEnv) editPool(name string, change func(*hivev1.ClusterPool)) {
	w.t.Helper()
	pool := w.pool(name)
	before := pool.DeepCopy()
	change(pool)
	require.NoError(w.t, w.client.Patch(w.t.Context(), pool, client.MergeFrom(before)))
}

// clusters are the ClusterDeployments of the environment's pool that are not being deleted.
func (w *testEnv) clusters(pool string) []hivev1.ClusterDeployment {
	w.t.Helper()
	list := &hivev1.ClusterDeploymentList{}
	require.NoError(w.t, w.client.List(w.t.Context(), list, client.MatchingLabels{
		hivev1.LabelClusterPoolNamespace: w.ns, hivev1.LabelClusterPoolName: pool,
	}))
	var out []hivev1.ClusterDeployment
	for _, cd := range list.Items {
		if cd.DeletionTimestamp.IsZero() {
			out = append(out, cd)
		}
	}
	return out
}

// namespaces are the names of the namespaces of the pool's clusters that are not being deleted.
func (w *testEnv) namespaces(pool string) []string {
	w.t.Helper()
	list := &corev1.NamespaceList{}
	require.NoError(w.t, w.client.List(w.t.Context(), list, client.MatchingLabels{
		hivev1.LabelNamespaceClusterPoolNamespace: w.ns, hivev1.LabelNamespaceClusterPoolName: pool,
	}))
	var out []string
	for _, ns := range list.Items {
		if ns.DeletionTimestamp.IsZero() {
			out = append(out, ns.Name)
		}
	}
	return out
}

func (w *testEnv) eventually(what string, holds func() bool) {
	w.t.Helper()
	require.Eventually(w.t, holds, patience, tick, what)
}

// settled waits until the pool says that it is filled, has that many clusters, and has nothing left to do.
func (w *testEnv) settled(name string, size int) {
	w.t.Helper()
	var last string
	holds := func() bool {
		pool := w.pool(name)
		last = fmt.Sprintf("status %+v", pool.Status)
		if !hivev1.IsConditionTrue(pool.Status.Conditions, hivev1.ClusterPoolReady) || len(pool.Status.Operations) > 0 {
			return false
		}
		clusters, namespaces := w.clusters(name), w.namespaces(name)
		last = fmt.Sprintf("%d clusters, %d namespaces, %s", len(clusters), len(namespaces), last)
		return len(clusters) == size && len(namespaces) == size
	}
	deadline := time.Now().Add(patience)
	for !holds() {
		require.True(w.t, time.Now().Before(deadline), "pool %s did not settle at %d: %s", name, size, last)
		select {
		case <-w.t.Context().Done():
			w.t.FailNow()
		case <-time.After(tick):
		}
	}
	for _, cd := range w.clusters(name) {
		require.True(w.t, strings.HasSuffix(cd.Name, cd.Namespace), "cluster and namespace have one name")
	}
}
