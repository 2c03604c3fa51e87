// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/muster-io/muster/apis/controlplanetest"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/controller/clusterdeployment"
	"github.com/muster-io/muster/pool-operator/internal/controlplane"
	"github.com/muster-io/muster/pool-operator/internal/provision"
	"github.com/muster-io/muster/pool-operator/internal/provision/contract"
	"github.com/muster-io/muster/pool-operator/internal/provision/process"
)

// patience bounds the waits for a real cluster.
const patience = 2 * time.Minute

// TestADeathAtAnyWriteToARealServerIsMadeGood is the crash tier with the real rules for schema, apply and preconditions.
func TestADeathAtAnyWriteToARealServerIsMadeGood(t *testing.T) {
	admin := newAdmin(t, controlplanetest.Start(t))
	crashAtEveryWrite(t, func(t *testing.T) *shell {
		t.Helper()
		cluster := createCluster(t, admin, asleep)
		s := &shell{T: t, writes: &writes{}, key: client.ObjectKeyFromObject(cluster), uid: cluster.UID}
		s.client = interceptor.NewClient(admin, s.writes.intercept())
		return s.begin()
	})
}

func newAdmin(t *testing.T, config *rest.Config) client.WithWatch {
	t.Helper()
	admin, err := client.NewWithWatch(config, client.Options{Scheme: scheme(t)})
	require.NoError(t, err)
	return admin
}

// createCluster makes a cluster in a namespace of its own.
func createCluster(t *testing.T, admin client.Client, change ...func(*hivev1.ClusterDeployment)) *hivev1.ClusterDeployment {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "cluster-"}}
	require.NoError(t, admin.Create(t.Context(), namespace))
	cluster := newCluster(namespace.Name, change...)
	require.NoError(t, admin.Create(t.Context(), cluster))
	return cluster
}

// operator is the controller with its caches and watches, over real processes.
type operator struct {
	*testing.T
	config *rest.Config
	admin  client.WithWatch
	root   string
	// binaries are the programs of clusters; nil for those that were built.
	binaries func() (controlplane.Binaries, error)
	writes   atomic.Int32
	clock    heldClock
	crash    func()
}

// start runs an operator until crash or the end of the test. A crash ends it without a farewell to its clusters, as far as a living process can.
func (o *operator) start() {
	o.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(o.Context()))
	clusters, err := process.New(ctx, process.Options{Root: o.root, UnsafeNoFsync: true, Binaries: o.binaries})
	require.NoError(o, err)
	mgr, err := ctrl.NewManager(o.config, ctrl.Options{
		Scheme: scheme(o.T), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	require.NoError(o, err)
	counted := interceptor.NewClient(o.admin, o.count())
	cached := interceptor.NewClient(counted, interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			return mgr.GetCache().Get(ctx, key, object, opts...)
		},
	})
	require.NoError(o, clusterdeployment.New(clusterdeployment.Deps{
		Client: cached, Metadata: mgr.GetCache(), Live: mgr.GetAPIReader(), Runtime: clusters,
		Recorder: mgr.GetEventRecorder("test"), Clock: &o.clock, Metrics: clusterdeployment.NewMetrics(),
	}).SetupWithManager(mgr))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	o.crash = func() {
		cancel()
		require.NoError(o, <-done)
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = clusters.Close(closing)
		o.crash = func() {}
	}
}

// heldClock is the wall clock until a test stops it. Work of a later time waits until it goes on.
type heldClock struct {
	mu sync.Mutex
	at time.Time
}

func (c *heldClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return time.Now()
	}
	return c.at
}

func (c *heldClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c *heldClock) hold() { c.set(time.Now()) }

func (c *heldClock) goOn() { c.set(time.Time{}) }

func (c *heldClock) set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
}

func (o *operator) count() interceptor.Funcs {
	return interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, p client.Patch, opts ...client.PatchOption) error {
			o.writes.Add(1)
			return c.Patch(ctx, object, p, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			o.writes.Add(1)
			return c.Apply(ctx, object, opts...)
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, object runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			o.writes.Add(1)
			return c.SubResource(sub).Apply(ctx, object, opts...)
		},
	}
}

// await waits until the cluster's status says the power state, and returns the cluster.
func (o *operator) await(key client.ObjectKey, state hivev1.PowerState) *hivev1.ClusterDeployment {
	o.Helper()
	cluster := &hivev1.ClusterDeployment{}
	require.Eventuallyf(o, func() bool {
		return o.admin.Get(o.Context(), key, cluster) == nil && cluster.Status.PowerState == state
	}, patience, 10*time.Millisecond, "waiting for %s", state)
	return cluster
}

func (o *operator) setPower(key client.ObjectKey, state hivev1.PowerState) {
	o.Helper()
	cluster := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"powerState":"`+string(state)+`"}}`))
	require.NoError(o, o.admin.Patch(o.Context(), cluster, patch))
}

// access reads the credentials from the Secrets, as the owner of a claim does.
func (o *operator) access(cluster *hivev1.ClusterDeployment) provision.Access {
	o.Helper()
	get := func(name, key string) []byte {
		var secret corev1.Secret
		require.NoError(o, o.admin.Get(o.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: name}, &secret))
		return secret.Data[key]
	}
	metadata := cluster.Spec.ClusterMetadata
	return provision.Access{
		Kubeconfig: get(metadata.AdminKubeconfigSecretRef.Name, hivev1.SecretKeyKubeconfig),
		Password:   string(get(metadata.AdminPasswordSecretRef.Name, hivev1.SecretKeyPassword)),
	}
}

// kill ends a program of the only cluster as kill -9 does.
func (o *operator) kill(program string) {
	o.Helper()
	files, err := filepath.Glob(filepath.Join(o.root, "*", "run", program+".pid"))
	require.NoError(o, err)
	require.Len(o, files, 1)
	content, err := os.ReadFile(files[0])
	require.NoError(o, err)
	pid, err := strconv.Atoi(strings.Fields(string(content))[0])
	require.NoError(o, err)
	require.NoError(o, syscall.Kill(pid, syscall.SIGKILL))
}

func newOperator(t *testing.T, change ...func(*operator)) *operator {
	t.Helper()
	config := controlplanetest.Start(t)
	if _, err := controlplane.FindBinaries(""); err != nil {
		t.Skip(err.Error())
	}
	o := &operator{T: t, config: config, admin: newAdmin(t, config), root: t.TempDir()}
	for _, f := range change {
		f(o)
	}
	o.start()
	t.Cleanup(func() { o.crash() })
	return o
}

func TestTheLifeOfARealCluster(t *testing.T) {
	o := newOperator(t)
	began := time.Now()
	key := client.ObjectKeyFromObject(createCluster(t, o.admin))
	cluster := o.await(key, hivev1.PowerStateRunning)
	t.Logf("created → usable: %v, %d writes", time.Since(began).Round(10*time.Millisecond), o.writes.Load())
	access := o.access(cluster)
	require.NoError(t, contract.Kubernetes{}.Use(t.Context(), access))
	require.NoError(t, contract.Kubernetes{}.Remember(t.Context(), access, "kept"))

	o.setPower(key, hivev1.PowerStateHibernating)
	o.await(key, hivev1.PowerStateHibernating)
	require.Error(t, contract.Kubernetes{}.Use(t.Context(), access))
	o.writes.Store(0)
	began = time.Now()
	o.setPower(key, hivev1.PowerStateRunning)
	o.await(key, hivev1.PowerStateRunning)
	t.Logf("hibernating → running: %v, %d writes", time.Since(began).Round(10*time.Millisecond), o.writes.Load())
	require.NoError(t, contract.Kubernetes{}.Use(t.Context(), access), "running means that it can be used")

	for _, program := range []string{"etcd", "kube-apiserver", "kube-controller-manager"} {
		o.clock.hold() // else the pause before the next start may be over before it is reported
		o.kill(program)
		dead := o.await(key, hivev1.PowerStateFailedToStartMachines)
		unreachable := hivev1.FindCondition(dead.Status.Conditions, hivev1.ClusterDeploymentUnreachable)
		assert.Equal(t, string(provision.ReasonProcessDied), unreachable.Reason)
		assert.Contains(t, unreachable.Message, program)
		o.clock.goOn()
		o.await(key, hivev1.PowerStateRunning)
	}

	o.crash()
	o.start()
	require.Eventually(t, func() bool { return contract.Kubernetes{}.Use(t.Context(), access) == nil }, patience, 100*time.Millisecond,
		"the next operator brings the cluster back")
	mark, err := contract.Kubernetes{}.Recall(t.Context(), access)
	require.NoError(t, err)
	assert.Equal(t, "kept", mark)
	assert.Equal(t, access, o.access(o.await(key, hivev1.PowerStateRunning)), "credentials were never rotated")

	require.NoError(t, o.admin.Delete(t.Context(), cluster))
	o.awaitGone(key)
	o.requireNothingLeft()
}

func (o *operator) awaitGone(key client.ObjectKey) {
	o.Helper()
	require.Eventually(o, func() bool {
		return apierrors.IsNotFound(o.admin.Get(o.Context(), key, &hivev1.ClusterDeployment{}))
	}, patience, 20*time.Millisecond, "waiting for the cluster to be gone")
}

// requireNothingLeft checks that no directory of a cluster, or of one that is being laid down or removed, is left.
func (o *operator) requireNothingLeft() {
	o.Helper()
	require.EventuallyWithT(o, func(t *assert.CollectT) {
		entries, err := os.ReadDir(o.root)
		require.NoError(t, err)
		for _, entry := range entries {
			assert.False(t, entry.IsDir(), entry.Name())
		}
	}, patience, 50*time.Millisecond)
}

func TestAnOrphanIsRemovedWhenTheOperatorStarts(t *testing.T) {
	o := newOperator(t)
	cluster := createCluster(t, o.admin)
	key := client.ObjectKeyFromObject(cluster)
	o.await(key, hivev1.PowerStateRunning)
	o.crash()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	require.NoError(t, o.admin.Patch(t.Context(), cluster, patch))
	require.NoError(t, o.admin.Delete(t.Context(), cluster))
	o.awaitGone(key)
	o.start()
	o.requireNothingLeft()
}

// A ClusterDeployment that was restored from its object has another UID. It is not started from nothing, and the data of its former life stays until it is deleted.
func TestARestoredClusterKeepsItsDataAndSaysWhereItIs(t *testing.T) {
	o := newOperator(t)
	cluster := createCluster(t, o.admin)
	key := client.ObjectKeyFromObject(cluster)
	o.await(key, hivev1.PowerStateRunning)
	o.crash()
	saved := &hivev1.ClusterDeployment{}
	require.NoError(t, o.admin.Get(t.Context(), key, saved))
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	require.NoError(t, o.admin.Patch(t.Context(), cluster, patch))
	require.NoError(t, o.admin.Delete(t.Context(), cluster))
	o.awaitGone(key)
	before := o.directories()
	require.Len(t, before, 1)

	restored := saved.DeepCopy()
	restored.UID, restored.ResourceVersion = "", ""
	require.NoError(t, o.admin.Create(t.Context(), restored))
	restored.Status = saved.Status
	require.NoError(t, o.admin.Status().Update(t.Context(), restored))
	o.start()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.NoError(c, o.admin.Get(t.Context(), key, restored))
		condition := hivev1.FindCondition(restored.Status.Conditions, hivev1.ClusterDeploymentUnreachable)
		require.NotNil(c, condition)
		assert.Equal(c, hivev1.ReasonDataMissing, condition.Reason)
		assert.Contains(c, condition.Message, string(saved.UID))
	}, patience, 50*time.Millisecond)
	assert.Equal(t, before, o.directories())

	require.NoError(t, o.admin.Delete(t.Context(), restored))
	o.awaitGone(key)
	o.requireNothingLeft()
}

// directories are those of clusters.
func (o *operator) directories() []string {
	o.Helper()
	entries, err := os.ReadDir(o.root)
	require.NoError(o, err)
	var out []string
	for _, entry := range entries {
		if entry.IsDir() {
			out = append(out, entry.Name())
		}
	}
	return out
}
