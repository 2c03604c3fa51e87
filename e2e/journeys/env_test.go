// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package journeys_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

const (
	// patience is for whole control planes that start on a busy machine.
	patience = 4 * time.Minute
	// moment is for what should happen at once.
	moment   = 30 * time.Second
	interval = 100 * time.Millisecond
)

// session is a user's access to the namespace of a journey: what is created, read and waited for there, pools and their clusters, and kubectl.
type session struct {
	t         *testing.T
	ctx       context.Context
	admin     client.Client
	namespace string
}

// testEnv is a namespace of its own for one journey, seen by an administrator. It is emptied at the journey's end.
type testEnv struct {
	session
}

// newTestEnv lets the journey go beside the others: most of the time it waits for control planes to start and to end.
func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	if !testing.Short() {
		t.Parallel()
	}
	return newTestEnvAlone(t)
}

// newTestEnvAlone is for a journey that disturbs the others. Those begin when it is over.
func newTestEnvAlone(t *testing.T) *testEnv {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a cluster in which Muster runs")
	}
	w := &testEnv{session{t: t, ctx: t.Context(), admin: newClient(t, administrator)}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "journey-"}}
	require.NoError(t, w.admin.Create(w.ctx, namespace))
	w.namespace = namespace.Name
	t.Cleanup(w.empty)
	return w
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, hivev1.AddToScheme(scheme))
	require.NoError(t, ipamv1.AddToScheme(scheme))
	require.NoError(t, infrav1.AddToScheme(scheme))
	require.NoError(t, metal3v1.AddToScheme(scheme))
	require.NoError(t, agentv1.AddToScheme(scheme))
	require.NoError(t, hiveextv1.AddToScheme(scheme))
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return c
}

// empty deletes what the journey made, and says what was left of its clusters.
func (s *session) empty() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), patience)
	defer cancel()
	s.ctx = ctx
	if s.t.Failed() {
		s.report()
	}
	in := client.InNamespace(s.namespace)
	require.NoError(s.t, s.admin.DeleteAllOf(ctx, &hivev1.ClusterPool{}, in))
	require.NoError(s.t, s.admin.DeleteAllOf(ctx, &hivev1.ClusterClaim{}, in))
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		assert.Empty(c, s.clusters(c, ""))
		assert.Empty(c, s.clusterNamespaces(c))
	}, patience, interval, "clusters of the journey are still there")
	require.NoError(s.t, s.admin.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}))
}

// report prints how things stand.
func (s *session) report() {
	pools, claims := &hivev1.ClusterPoolList{}, &hivev1.ClusterClaimList{}
	if s.admin.List(s.ctx, pools, client.InNamespace(s.namespace)) != nil || s.admin.List(s.ctx, claims, client.InNamespace(s.namespace)) != nil {
		return
	}
	for _, pool := range pools.Items {
		s.t.Logf("pool %s: %+v", pool.Name, pool.Status)
	}
	for _, claim := range claims.Items {
		s.t.Logf("claim %s: %q %+v", claim.Name, claim.Spec.Namespace, claim.Status)
	}
	for _, cluster := range s.clusters(s.t, "") {
		s.t.Logf("cluster %s: wanted %s, is %s, installed %t: %+v", cluster.Name, cluster.Spec.PowerState, cluster.Status.PowerState, cluster.Spec.Installed, cluster.Status.Conditions)
	}
}

// hostedPool returns a pool of hosted clusters; its image set exists.
func (s *session) hostedPool(name string, size, running int32) *hivev1.ClusterPool {
	s.t.Helper()
	s.imageSet("hosted")
	return &hivev1.ClusterPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: hivev1.ClusterPoolSpec{
			Size: size, RunningCount: running, BaseDomain: "clusters.example.com",
			ImageSetRef: hivev1.ClusterImageSetReference{Name: "hosted"},
			Platform:    hivev1.Platform{Hosted: &hivev1.HostedPlatform{}},
		},
	}
}

func (s *session) imageSet(name string) {
	s.t.Helper()
	set := &hivev1.ClusterImageSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: hivev1.ClusterImageSetSpec{ReleaseImage: "muster.local/control-plane:v1"}}
	require.NoError(s.t, client.IgnoreAlreadyExists(s.admin.Create(s.ctx, set)))
}

func (s *session) create(object client.Object) {
	s.t.Helper()
	require.NoError(s.t, s.admin.Create(s.ctx, object))
}

func (s *session) claim(name, pool string, subjects ...rbacv1.Subject) *hivev1.ClusterClaim {
	s.t.Helper()
	claim := &hivev1.ClusterClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec:       hivev1.ClusterClaimSpec{ClusterPoolName: pool, Subjects: subjects},
	}
	s.create(claim)
	return claim
}

func (s *session) refresh(c require.TestingT, object client.Object) {
	require.NoError(c, s.admin.Get(s.ctx, client.ObjectKeyFromObject(object), object))
}

// update changes an object, and retries after conflicts.
func (s *session) update(object client.Object, change func()) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		s.refresh(c, object)
		change()
		require.NoError(c, s.admin.Update(s.ctx, object))
	}, moment, interval)
}

// clusters returns the clusters of the journey's pools, or of one pool, oldest first.
func (s *session) clusters(c require.TestingT, pool string) []hivev1.ClusterDeployment {
	list := &hivev1.ClusterDeploymentList{}
	require.NoError(c, s.admin.List(s.ctx, list))
	var out []hivev1.ClusterDeployment
	for _, cluster := range list.Items {
		if ref := cluster.Spec.ClusterPoolRef; ref != nil && ref.Namespace == s.namespace && (pool == "" || ref.PoolName == pool) {
			out = append(out, cluster)
		}
	}
	slices.SortFunc(out, func(a, b hivev1.ClusterDeployment) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return out
}

// clusterNamespaces returns the namespaces of the journey's clusters.
func (s *session) clusterNamespaces(c require.TestingT) []string {
	list := &corev1.NamespaceList{}
	require.NoError(c, s.admin.List(s.ctx, list, client.MatchingLabels{hivev1.LabelNamespaceClusterPoolNamespace: s.namespace}))
	var out []string
	for _, namespace := range list.Items {
		out = append(out, namespace.Name)
	}
	return out
}

// untilFilled waits until the pool has what its spec asks for.
func (s *session) untilFilled(pool *hivev1.ClusterPool) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		s.refresh(c, pool)
		assert.Equal(c, pool.Spec.Size, pool.Status.Standby+pool.Status.Ready, "installed, unclaimed clusters")
		assert.Equal(c, min(pool.Spec.RunningCount, pool.Spec.Size), pool.Status.Ready, "running, unclaimed clusters")
		assert.True(c, hivev1.IsConditionTrue(pool.Status.Conditions, hivev1.ClusterPoolReady), "%+v", hivev1.FindCondition(pool.Status.Conditions, hivev1.ClusterPoolReady))
	}, patience, interval, "pool %s does not fill", pool.Name)
}

// untilClusters waits until the pool has so many clusters, in whatever state.
func (s *session) untilClusters(pool *hivev1.ClusterPool, n int) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) { assert.Len(c, s.clusters(c, pool.Name), n) }, moment, interval)
}

// untilUsable waits until the claim has a running cluster and returns its namespace.
func (s *session) untilUsable(claim *hivev1.ClusterClaim) string {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		s.refresh(c, claim)
		assert.NotEmpty(c, claim.Spec.Namespace)
		requireCondition(c, claim.Status.Conditions, hivev1.ClusterClaimPending, corev1.ConditionFalse, hivev1.ReasonClusterClaimed)
		requireCondition(c, claim.Status.Conditions, hivev1.ClusterClaimRunning, corev1.ConditionTrue, hivev1.ReasonRunning)
	}, patience, interval, "claim %s gets no cluster", claim.Name)
	return claim.Spec.Namespace
}

func (s *session) untilGone(object client.Object, within time.Duration) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		return apierrors.IsNotFound(s.admin.Get(s.ctx, client.ObjectKeyFromObject(object), object))
	}, within, interval, "%T %s is still there", object, object.GetName())
}

func requireCondition(c require.TestingT, conditions []hivev1.Condition, kind string, status corev1.ConditionStatus, reason string) string {
	condition := hivev1.FindCondition(conditions, kind)
	require.NotNil(c, condition, "condition %s", kind)
	require.Equal(c, status, condition.Status, "condition %s: %s: %s", kind, condition.Reason, condition.Message)
	require.Equal(c, reason, condition.Reason, "condition %s: %s", kind, condition.Message)
	return condition.Message
}

// as returns a client that acts as a user who has no rights but those that were given to the user by name.
func (s *session) as(user string) client.Client {
	config := rest.CopyConfig(administrator)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	return newClient(s.t, config)
}

func user(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
}

func serviceAccount(namespace, name string) (rbacv1.Subject, string) {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}, fmt.Sprintf("system:serviceaccount:%s:%s", namespace, name)
}
