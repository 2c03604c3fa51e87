// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/muster-io/muster/apis/controlplanetest"
	"github.com/muster-io/muster/apis/faultinject"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/membership"
)

// patience is how long a test waits for what takes milliseconds on an idle machine.
const patience = 3 * time.Minute

func init() { ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr), zap.Level(zapLevel()))) }

// operatorUser is the user of the tests' replicas: it has the rights of the markers above Reconcile and no others.
const operatorUser = "system:serviceaccount:muster:claims"

type suite struct {
	t         *testing.T
	config    *rest.Config
	client    client.Client
	namespace string
}

func newScheme(t testing.TB) *runtime.Scheme {
	s := runtime.NewScheme()
	require.NoError(t, scheme.AddToScheme(s))
	require.NoError(t, hivev1.AddToScheme(s))
	return s
}

func newSuite(t *testing.T) *suite {
	t.Helper()
	return newSuiteAt(t, controlplanetest.Start(t))
}

// newSuiteAt is newSuite at an API server.
func newSuiteAt(t *testing.T, cfg *rest.Config) *suite {
	t.Helper()
	c, err := client.New(cfg, client.Options{Scheme: newScheme(t)})
	require.NoError(t, err)
	s := &suite{t: t, config: cfg, client: c}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "team-"}}
	require.NoError(t, c.Create(t.Context(), ns))
	s.namespace = ns.Name
	s.authorize()
	t.Cleanup(s.clear)
	return s
}

// clear deletes what the test made, so that replicas of later tests do not watch more and more objects.
func (s *suite) clear() {
	ctx := context.Background()
	claims := &hivev1.ClusterClaimList{}
	require.NoError(s.t, s.client.List(ctx, claims, client.InNamespace(s.namespace)))
	for i := range claims.Items {
		s.discard(ctx, &claims.Items[i])
	}
	for _, cd := range s.clusters() {
		s.discard(ctx, &cd)
	}
}

func (s *suite) discard(ctx context.Context, object client.Object) {
	_ = s.client.Patch(ctx, object, mergePatchOf(`{"metadata":{"finalizers":null}}`))
	_ = s.client.Delete(ctx, object)
}

var marker = regexp.MustCompile(`(?m)^// \+kubebuilder:rbac:groups=(\S*),resources=(\S+),verbs=(\S+)$`)

// authorize gives operatorUser the rights of the markers.
func (s *suite) authorize() {
	source, err := os.ReadFile("controller.go")
	require.NoError(s.t, err)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "claims"}}
	for _, m := range marker.FindAllStringSubmatch(string(source), -1) {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{
			APIGroups: []string{strings.Trim(m[1], `"`)}, Resources: strings.Split(m[2], ";"), Verbs: strings.Split(m[3], ";"),
		})
	}
	require.Greater(s.t, len(role.Rules), 5)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "claims"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "claims"},
		Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: operatorUser}},
	}
	for _, obj := range []client.Object{role, binding} {
		if err := s.client.Create(s.t.Context(), obj); !apierrors.IsAlreadyExists(err) {
			require.NoError(s.t, err)
		}
	}
}

func (s *suite) pool(name string, change ...func(*hivev1.ClusterPool)) *hivev1.ClusterPool {
	pool := &hivev1.ClusterPool{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	pool.Spec.BaseDomain, pool.Spec.ImageSetRef.Name = "example.com", "release"
	pool.Spec.Platform = hivev1.Platform{Hosted: &hivev1.HostedPlatform{}}
	for _, f := range change {
		f(pool)
	}
	require.NoError(s.t, s.client.Create(s.t.Context(), pool))
	return pool
}

// cluster creates an installed cluster of the pool that runs.
func (s *suite) cluster(pool string, change ...func(*hivev1.ClusterDeployment)) *hivev1.ClusterDeployment {
	s.t.Helper()
	return s.clusterIn(s.clusterNamespace(pool, membership.Labels(types.NamespacedName{Namespace: s.namespace, Name: pool})), pool, change...)
}

// clusterNamespace creates the namespace of a cluster.
func (s *suite) clusterNamespace(pool string, labels map[string]string) string {
	s.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: s.namespace + "-" + pool + "-", Labels: labels}}
	require.NoError(s.t, s.client.Create(s.t.Context(), ns))
	return ns.Name
}

// clusterIn creates an installed cluster that names the pool and runs.
func (s *suite) clusterIn(namespace, pool string, change ...func(*hivev1.ClusterDeployment)) *hivev1.ClusterDeployment {
	s.t.Helper()
	cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: namespace}}
	cd.Spec = hivev1.ClusterDeploymentSpec{
		ClusterName: namespace, BaseDomain: "example.com", Platform: hivev1.Platform{Hosted: &hivev1.HostedPlatform{}}, Installed: true,
		PowerState:     hivev1.PowerStateHibernating,
		ClusterPoolRef: &hivev1.ClusterPoolReference{Namespace: s.namespace, PoolName: pool},
		ClusterMetadata: &hivev1.ClusterMetadata{
			ClusterID: "id", InfraID: "infra", AdminKubeconfigSecretRef: hivev1.LocalObjectReference{Name: "admin-kubeconfig"},
			AdminPasswordSecretRef: &hivev1.LocalObjectReference{Name: "admin-password"},
		},
	}
	for _, f := range change {
		f(cd)
	}
	require.NoError(s.t, s.client.Create(s.t.Context(), cd))
	created := cd.DeepCopy()
	cd.Status.PowerState = hivev1.PowerStateRunning
	require.NoError(s.t, s.client.Status().Patch(s.t.Context(), cd, client.MergeFrom(created)), "a claim may have it already")
	return cd
}

func (s *suite) claim(name, pool string, change ...func(*hivev1.ClusterClaim)) *hivev1.ClusterClaim {
	s.t.Helper()
	claim := &hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	claim.Spec.ClusterPoolName = pool
	claim.Spec.Subjects = []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "user-of-" + name}}
	for _, f := range change {
		f(claim)
	}
	require.NoError(s.t, s.client.Create(s.t.Context(), claim))
	return claim
}

func (s *suite) get(name string) *hivev1.ClusterClaim {
	s.t.Helper()
	claim := &hivev1.ClusterClaim{}
	require.NoError(s.t, s.client.Get(s.t.Context(), types.NamespacedName{Namespace: s.namespace, Name: name}, claim))
	return claim
}

// waitFor waits until the claim's condition has the reason.
func (s *suite) waitFor(name, conditionType, reason string) *hivev1.ClusterClaim {
	s.t.Helper()
	var claim *hivev1.ClusterClaim
	if !s.eventually(func() bool {
		claim = s.get(name)
		c := hivev1.FindCondition(claim.Status.Conditions, conditionType)
		return c != nil && c.Reason == reason
	}) {
		require.Failf(s.t, "the claim does not get there", "%s is not %s: %+v", conditionType, reason, claim)
	}
	return claim
}

func (s *suite) eventually(condition func() bool) bool {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if condition() {
			return true
		}
		select {
		case <-deadline.C:
			return false
		case <-tick.C:
		}
	}
}

// movingClock is the wall clock, some time ahead.
type movingClock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *movingClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *movingClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c *movingClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// replica is one operator with its own caches.
type replica struct {
	stop     func()
	clock    *movingClock
	injector *faultinject.Injector
}

func resourceOf(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if p == "namespaces" && i+2 < len(parts) {
			if last := parts[len(parts)-1]; last == "status" {
				return parts[i+2] + "/status"
			}
			return parts[i+2]
		}
	}
	return path
}

// writes counts a replica's writes by verb and resource, events left out.
func (r *replica) writes() map[string]int {
	counts := map[string]int{}
	for _, write := range r.injector.Writes() {
		method, path, _ := strings.Cut(write, " ")
		counts[method+" "+resourceOf(path)]++
	}
	return counts
}

// start runs a replica until the test ends or it is stopped.
func (s *suite) start() *replica {
	s.t.Helper()
	return s.startWith(faultinject.Never())
}

// startWith runs a replica into whose writes faults are injected. Those count that have the namespace of the suite in their path, with which the names of its clusters begin.
func (s *suite) startWith(f *faultinject.Injector) *replica {
	s.t.Helper()
	r := &replica{clock: &movingClock{}, injector: f}
	cfg := rest.CopyConfig(s.config)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: operatorUser}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return f.Transport(next, func(request *http.Request) bool {
			return request.Method != http.MethodGet && !strings.HasSuffix(request.URL.Path, "/events") && strings.Contains(request.URL.Path, s.namespace)
		})
	})
	byObject := map[client.Object]cache.ByObject{}
	CacheRoles(byObject)
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: newScheme(s.t), Metrics: metricsserver.Options{BindAddress: "0"}, Cache: cache.Options{ByObject: byObject},
		Controller: config.Controller{SkipNameValidation: new(true)}, GracefulShutdownTimeout: new(patience),
	})
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	require.NoError(s.t, AddIndexes(ctx, mgr.GetFieldIndexer()))
	reconciler := New(Deps{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("claims"), Clock: r.clock, Metrics: NewMetrics(),
	})
	require.NoError(s.t, reconciler.SetupWithManager(mgr))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil && !strings.Contains(err.Error(), "timeout") {
				s.t.Errorf("replica: %v", err)
			}
		})
	}
	s.t.Cleanup(r.stop)
	require.True(s.t, mgr.GetCache().WaitForCacheSync(ctx))
	return r
}

// clusters returns the clusters of the suite's pools, also when the test has ended.
func (s *suite) clusters() []hivev1.ClusterDeployment {
	s.t.Helper()
	var list hivev1.ClusterDeploymentList
	require.NoError(s.t, s.client.List(context.WithoutCancel(s.t.Context()), &list))
	var mine []hivev1.ClusterDeployment
	for i := range list.Items {
		if ref := list.Items[i].Spec.ClusterPoolRef; ref != nil && ref.Namespace == s.namespace {
			mine = append(mine, list.Items[i])
		}
	}
	return mine
}

// requirePairs asserts that claims and clusters name each other, one to one, and returns how many pairs there are.
func (s *suite) requirePairs() int {
	s.t.Helper()
	pairs, err := s.pairs()
	require.NoError(s.t, err)
	return pairs
}

// pairs counts the claims and clusters that name each other. The two kinds are not read at one moment: while claims are being deleted, one may be gone whose cluster was there.
func (s *suite) pairs() (int, error) {
	s.t.Helper()
	clusters := s.clusters() // before the claims: a claim names its cluster before that records it
	var claims hivev1.ClusterClaimList
	require.NoError(s.t, s.client.List(s.t.Context(), &claims, client.InNamespace(s.namespace)))
	byUID := map[types.UID]*hivev1.ClusterClaim{}
	for i := range claims.Items {
		byUID[claims.Items[i].UID] = &claims.Items[i]
	}
	pairs := map[types.UID]string{}
	for i := range clusters {
		cd := &clusters[i]
		ref := cd.Spec.ClusterPoolRef
		if ref.ClaimName == "" || !cd.DeletionTimestamp.IsZero() {
			continue
		}
		claim := byUID[ref.ClaimUID]
		if claim == nil {
			return 0, fmt.Errorf("cluster %s records a claim that is not there: %+v", cd.Name, ref)
		}
		require.Equal(s.t, claim.Name, ref.ClaimName)
		require.Equal(s.t, cd.Namespace, claim.Spec.Namespace)
		require.Empty(s.t, pairs[ref.ClaimUID], "a claim has two clusters")
		require.NotNil(s.t, ref.ClaimedTimestamp)
		require.Equal(s.t, hivev1.PowerStateRunning, cd.Spec.PowerState)
		pairs[ref.ClaimUID] = cd.Name
	}
	return len(pairs), nil
}

func claimNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("claim-%02d", i)
	}
	return names
}

// zapLevel makes tests silent unless CLAIM_LOG is set.
func zapLevel() zapcore.LevelEnabler {
	if os.Getenv("CLAIM_LOG") != "" {
		return zapcore.Level(-2)
	}
	return zapcore.FatalLevel
}

func mergePatchOf(patch string) client.Patch {
	return client.RawPatch(types.MergePatchType, []byte(patch))
}
