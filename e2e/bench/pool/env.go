// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pool holds the benchmarks of pool-operator.
package pool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/e2e/bench"
)

const (
	// namespace holds pools and claims.
	namespace = "bench"
	// subject is the user whom claims give rights.
	subject = "bench-user"
	// patience is how long anything may take on a busy machine before it counts as stuck.
	patience = 10 * time.Minute
	// quiet is how long the operator must not have written to count as idle: longer than a pool puts off writing its counts.
	quiet = 10 * time.Second
)

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), hivev1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("making a scheme: %w", err)
	}
	return scheme, nil
}

// testEnv is what a workload of pools happens in.
type testEnv struct {
	*bench.Run
	// user is a client of its own, for what users write; plain is another one for bare writes, with its count.
	user, plain client.Client
	plainCount  *bench.Counter
	// installer stands in for installers, unless clusters are real, and its cache shows how things stand.
	*installer
	stop  context.CancelFunc
	ended chan struct{}

	mu     sync.Mutex
	served map[string]time.Time
}

// newTestEnv prepares what pools need and starts the stand-in installer, if one is needed. Close ends it.
func newTestEnv(ctx context.Context, r *bench.Run, who installs) (*testEnv, error) {
	w := &testEnv{Run: r, plainCount: bench.NewCounter(), served: map[string]time.Time{}, ended: make(chan struct{})}
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	if w.user, err = client.New(r.Admin, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	counted := rest.CopyConfig(r.Admin)
	// Only the operator may create clusters of a pool.
	counted.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:muster-pool-operator:pool-operator", Groups: []string{"system:masters"}}
	counted.Wrap(w.plainCount.Wrap)
	if w.plain, err = client.New(counted, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	if err := w.prepare(ctx); err != nil {
		return nil, err
	}
	if w.installer, err = newInstaller(r.Admin, who); err != nil {
		return nil, err
	}
	if err := w.watchClaims(ctx); err != nil {
		return nil, err
	}
	ctx, w.stop = context.WithCancel(ctx)
	go func() {
		defer close(w.ended)
		_ = w.manager.Start(ctx) // if it cannot, nothing is installed, and the workload says so
	}()
	if !w.manager.GetCache().WaitForCacheSync(ctx) {
		return nil, errors.Join(errors.New("the cache of the stand-in installer was not filled"), ctx.Err())
	}
	return w, nil
}

// close ends the stand-in installer. It may be called again.
func (w *testEnv) close() {
	w.stop()
	<-w.ended
}

// prepare creates what pools refer to.
func (w *testEnv) prepare(ctx context.Context) error {
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&hivev1.ClusterImageSet{ObjectMeta: metav1.ObjectMeta{Name: "bench"}, Spec: hivev1.ClusterImageSetSpec{ReleaseImage: "registry.example.com/release:1"}},
		secret("credentials", corev1.SecretTypeOpaque, "token", "not a token"),
		secret("pull-secret", corev1.SecretTypeDockerConfigJson, hivev1.SecretKeyDockerConfigJSON, `{"auths":{}}`),
		secret("install-config", corev1.SecretTypeOpaque, hivev1.SecretKeyInstallConfig, "apiVersion: v1\nmetadata: {}\n"),
	} {
		if err := w.user.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

func secret(name string, kind corev1.SecretType, key, value string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: kind, Data: map[string][]byte{key: []byte(value)}}
}

// newPool is a pool as it is in production: with a pull secret, a template for install-config and credentials, installed by another controller.
func newPool(name string, size, running int) *hivev1.ClusterPool {
	return &hivev1.ClusterPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: hivev1.ClusterPoolSpec{
			Size: int32(size), RunningCount: int32(running), //nolint:gosec // sizes of this package
			BaseDomain: "example.com", ImageSetRef: hivev1.ClusterImageSetReference{Name: "bench"}, SkipMachinePools: true,
			PullSecretRef:                  &hivev1.LocalObjectReference{Name: "pull-secret"},
			InstallConfigSecretTemplateRef: &hivev1.LocalObjectReference{Name: "install-config"},
			Platform:                       hivev1.Platform{AWS: &runtime.RawExtension{Raw: []byte(`{"region":"eu-central-1","credentialsSecretRef":{"name":"credentials"}}`)}},
		},
	}
}

// clusters returns the clusters of a pool, or of all pools, from the stand-in's cache. They are not to be changed.
func (w *testEnv) clusters(ctx context.Context, pool string) []hivev1.ClusterDeployment {
	list := &hivev1.ClusterDeploymentList{}
	options := []client.ListOption{client.UnsafeDisableDeepCopy}
	if pool != "" {
		options = append(options, client.MatchingLabels{hivev1.LabelClusterPoolNamespace: namespace, hivev1.LabelClusterPoolName: pool})
	}
	if err := w.List(ctx, list, options...); err != nil {
		return nil
	}
	return list.Items
}

// count counts the unclaimed clusters of a pool that are installed, and how many of them run.
func (w *testEnv) count(ctx context.Context, pool string) (installed, running int) {
	clusters := w.clusters(ctx, pool)
	for i := range clusters {
		cd := &clusters[i]
		if cd.Spec.ClusterPoolRef.ClaimName != "" || !cd.DeletionTimestamp.IsZero() || cd.Status.PowerState == "" {
			continue
		}
		installed++
		if cd.Status.PowerState == hivev1.PowerStateRunning {
			running++
		}
	}
	return installed, running
}

// untilFilled waits until pools have as many installed clusters, and as many that run, as their specs say.
func (w *testEnv) untilFilled(ctx context.Context, pools ...*hivev1.ClusterPool) error {
	return w.Await(ctx, patience, func() string {
		for _, pool := range pools {
			installed, running := w.count(ctx, pool.Name)
			if installed < int(pool.Spec.Size) || running < int(pool.Spec.RunningCount) {
				return fmt.Sprintf("pool %s has %d of %d clusters installed, of which %d of %d run", pool.Name, installed, pool.Spec.Size, running, pool.Spec.RunningCount)
			}
		}
		return ""
	})
}

// fill creates pools and waits until they are filled and the operator has nothing more to say about it.
func (w *testEnv) fill(ctx context.Context, pools ...*hivev1.ClusterPool) (bench.Requests, error) {
	for _, pool := range pools {
		if err := w.user.Create(ctx, pool); err != nil {
			return nil, fmt.Errorf("creating a pool: %w", err)
		}
	}
	if err := w.untilFilled(ctx, pools...); err != nil {
		return nil, err
	}
	return w.Settled(ctx, quiet, patience)
}

// watchClaims notes when a claim is seen to be served: it has a running cluster.
func (w *testEnv) watchClaims(ctx context.Context) error {
	informer, err := w.manager.GetCache().GetInformer(ctx, &hivev1.ClusterClaim{})
	if err != nil {
		return fmt.Errorf("watching claims: %w", err)
	}
	note := func(object any) {
		claim, ok := object.(*hivev1.ClusterClaim)
		if !ok || !isServed(claim) {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if _, known := w.served[claim.Name]; !known {
			w.served[claim.Name] = time.Now()
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: note, UpdateFunc: func(_, object any) { note(object) }})
	return err
}

func isServed(claim *hivev1.ClusterClaim) bool {
	pending := hivev1.FindCondition(claim.Status.Conditions, hivev1.ClusterClaimPending)
	return claim.Spec.Namespace != "" && pending != nil && pending.Status == corev1.ConditionFalse &&
		hivev1.IsConditionTrue(claim.Status.Conditions, hivev1.ClusterClaimRunning)
}

func newClaim(name, pool string) *hivev1.ClusterClaim {
	return &hivev1.ClusterClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: hivev1.ClusterClaimSpec{ClusterPoolName: pool, Subjects: []rbacv1.Subject{
			{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: subject},
		}},
	}
}
