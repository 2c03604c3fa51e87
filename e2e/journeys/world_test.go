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

// world is a namespace of its own for one journey, seen by an administrator. It is emptied at the journey's end.
type world struct {
	t         *testing.T
	ctx       context.Context
	admin     client.Client
	namespace string
}

// newWorld lets the journey go beside the others: most of the time it waits for control planes to start and to end.
func newWorld(t *testing.T) *world {
	t.Helper()
	if !testing.Short() {
		t.Parallel()
	}
	return newWorldAlone(t)
}

// newWorldAlone is for a journey that disturbs the others. Those begin when it is over.
func newWorldAlone(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a cluster in which Muster runs")
	}
	w := &world{t: t, ctx: t.Context(), admin: newClient(t, administrator)}
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
func (w *world) empty() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), patience)
	defer cancel()
	w.ctx = ctx
	if w.t.Failed() {
		w.report()
	}
	in := client.InNamespace(w.namespace)
	require.NoError(w.t, w.admin.DeleteAllOf(ctx, &hivev1.ClusterPool{}, in))
	require.NoError(w.t, w.admin.DeleteAllOf(ctx, &hivev1.ClusterClaim{}, in))
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		assert.Empty(c, w.clusters(c, ""))
		assert.Empty(c, w.clusterNamespaces(c))
	}, patience, interval, "clusters of the journey are still there")
	require.NoError(w.t, w.admin.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}))
}

// report prints how things stand.
func (w *world) report() {
	pools, claims := &hivev1.ClusterPoolList{}, &hivev1.ClusterClaimList{}
	if w.admin.List(w.ctx, pools, client.InNamespace(w.namespace)) != nil || w.admin.List(w.ctx, claims, client.InNamespace(w.namespace)) != nil {
		return
	}
	for _, pool := range pools.Items {
		w.t.Logf("pool %s: %+v", pool.Name, pool.Status)
	}
	for _, claim := range claims.Items {
		w.t.Logf("claim %s: %q %+v", claim.Name, claim.Spec.Namespace, claim.Status)
	}
	for _, cluster := range w.clusters(w.t, "") {
		w.t.Logf("cluster %s: wanted %s, is %s, installed %t: %+v", cluster.Name, cluster.Spec.PowerState, cluster.Status.PowerState, cluster.Spec.Installed, cluster.Status.Conditions)
	}
}

// hostedPool returns a pool of hosted clusters; its image set exists.
func (w *world) hostedPool(name string, size, running int32) *hivev1.ClusterPool {
	w.t.Helper()
	w.imageSet("hosted")
	return &hivev1.ClusterPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: hivev1.ClusterPoolSpec{
			Size: size, RunningCount: running, BaseDomain: "clusters.example.com",
			ImageSetRef: hivev1.ClusterImageSetReference{Name: "hosted"},
			Platform:    hivev1.Platform{Hosted: &hivev1.HostedPlatform{}},
		},
	}
}

func (w *world) imageSet(name string) {
	w.t.Helper()
	set := &hivev1.ClusterImageSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: hivev1.ClusterImageSetSpec{ReleaseImage: "muster.local/control-plane:v1"}}
	require.NoError(w.t, client.IgnoreAlreadyExists(w.admin.Create(w.ctx, set)))
}

func (w *world) create(object client.Object) {
	w.t.Helper()
	require.NoError(w.t, w.admin.Create(w.ctx, object))
}

func (w *world) claim(name, pool string, subjects ...rbacv1.Subject) *hivev1.ClusterClaim {
	w.t.Helper()
	claim := &hivev1.ClusterClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       hivev1.ClusterClaimSpec{ClusterPoolName: pool, Subjects: subjects},
	}
	w.create(claim)
	return claim
}

func (w *world) refresh(c require.TestingT, object client.Object) {
	require.NoError(c, w.admin.Get(w.ctx, client.ObjectKeyFromObject(object), object))
}

// update changes an object, and retries after conflicts.
func (w *world) update(object client.Object, change func()) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		w.refresh(c, object)
		change()
		require.NoError(c, w.admin.Update(w.ctx, object))
	}, moment, interval)
}

// clusters returns the clusters of the journey's pools, or of one pool, oldest first.
func (w *world) clusters(c require.TestingT, pool string) []hivev1.ClusterDeployment {
	list := &hivev1.ClusterDeploymentList{}
	require.NoError(c, w.admin.List(w.ctx, list))
	var out []hivev1.ClusterDeployment
	for _, cluster := range list.Items {
		if ref := cluster.Spec.ClusterPoolRef; ref != nil && ref.Namespace == w.namespace && (pool == "" || ref.PoolName == pool) {
			out = append(out, cluster)
		}
	}
	slices.SortFunc(out, func(a, b hivev1.ClusterDeployment) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return out
}

// clusterNamespaces returns the namespaces of the journey's clusters.
func (w *world) clusterNamespaces(c require.TestingT) []string {
	list := &corev1.NamespaceList{}
	require.NoError(c, w.admin.List(w.ctx, list, client.MatchingLabels{hivev1.LabelNamespaceClusterPoolNamespace: w.namespace}))
	var out []string
	for _, namespace := range list.Items {
		out = append(out, namespace.Name)
	}
	return out
}

// untilFilled waits until the pool has what its spec asks for.
func (w *world) untilFilled(pool *hivev1.ClusterPool) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		w.refresh(c, pool)
		assert.Equal(c, pool.Spec.Size, pool.Status.Standby+pool.Status.Ready, "installed, unclaimed clusters")
		assert.Equal(c, min(pool.Spec.RunningCount, pool.Spec.Size), pool.Status.Ready, "running, unclaimed clusters")
		assert.True(c, hivev1.IsConditionTrue(pool.Status.Conditions, hivev1.ClusterPoolReady), "%+v", hivev1.FindCondition(pool.Status.Conditions, hivev1.ClusterPoolReady))
	}, patience, interval, "pool %s does not fill", pool.Name)
}

// untilClusters waits until the pool has so many clusters, in whatever state.
func (w *world) untilClusters(pool *hivev1.ClusterPool, n int) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(c *assert.CollectT) { assert.Len(c, w.clusters(c, pool.Name), n) }, moment, interval)
}

// untilUsable waits until the claim has a running cluster and returns its namespace.
func (w *world) untilUsable(claim *hivev1.ClusterClaim) string {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		w.refresh(c, claim)
		assert.NotEmpty(c, claim.Spec.Namespace)
		requireCondition(c, claim.Status.Conditions, hivev1.ClusterClaimPending, corev1.ConditionFalse, hivev1.ReasonClusterClaimed)
		requireCondition(c, claim.Status.Conditions, hivev1.ClusterClaimRunning, corev1.ConditionTrue, hivev1.ReasonRunning)
	}, patience, interval, "claim %s gets no cluster", claim.Name)
	return claim.Spec.Namespace
}

func (w *world) untilGone(object client.Object, within time.Duration) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		return apierrors.IsNotFound(w.admin.Get(w.ctx, client.ObjectKeyFromObject(object), object))
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
func (w *world) as(user string) client.Client {
	config := rest.CopyConfig(administrator)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	return newClient(w.t, config)
}

func user(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
}

func serviceAccount(namespace, name string) (rbacv1.Subject, string) {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}, fmt.Sprintf("system:serviceaccount:%s:%s", namespace, name)
}
