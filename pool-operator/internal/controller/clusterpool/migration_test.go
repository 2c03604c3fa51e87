// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

// legacyCluster is a cluster as Hive leaves it: its namespace does not say in which namespace its pool is, and no claim's UID is recorded.
func (w *testEnv) legacyCluster(pool, claim string) *hivev1.ClusterDeployment {
	w.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: pool + "-", Labels: map[string]string{hivev1.LabelNamespaceClusterPoolName: pool}}}
	w.create(ns)
	cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: ns.Name, Name: ns.Name,
		Labels:      map[string]string{hivev1.LabelClusterPoolNamespace: w.ns, hivev1.LabelClusterPoolName: pool},
		Annotations: map[string]string{hivev1.AnnotationClusterPoolSpecHash: "0123456789abcdef"},
	}}
	cd.Spec.ClusterName, cd.Spec.BaseDomain, cd.Spec.Installed = ns.Name, "example.com", true
	cd.Spec.Platform = hivev1.Platform{Hosted: &hivev1.HostedPlatform{}}
	cd.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{Namespace: w.ns, PoolName: pool, ClaimName: claim}
	w.create(cd)
	return cd
}

// label does what docs/migration/pool.md says about namespaces.
func (w *testEnv) label(namespace string) {
	w.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, hivev1.LabelNamespaceClusterPoolNamespace, w.ns)
	require.NoError(w.t, w.client.Patch(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, client.RawPatch(types.MergePatchType, patch)))
}

// A pool that was stored with a list of customizations waits until that is rewritten, keeps the clusters that it has, and keeps no other pool from being served.
func TestAPoolThatWasStoredWithAListWaits(t *testing.T) {
	w := newTestEnv(t)
	w.installer()
	stored := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(`
apiVersion: hive.openshift.io/v1
kind: ClusterPool
metadata: {name: listed}
spec:
  platform: {hosted: {}}
  baseDomain: example.com
  imageSetRef: {name: `+testobj.ImageSetName+`}
  size: 2
  inventory: [{kind: ClusterDeploymentCustomization, name: red}]
`), &stored.Object))
	stored.SetNamespace(w.ns)
	w.create(stored, testobj.Pool("other", testobj.In(w.ns), testobj.Size(1)))
	before := w.legacyCluster("listed", "")
	w.label(before.Namespace)
	w.replica()
	w.settled("other", 1)
	w.eventually("the pool says what to write", func() bool {
		c := w.condition("listed", hivev1.ClusterPoolReady)
		return c.Reason == hivev1.ReasonInvalid && strings.Contains(c.Message, "write 'inventory: {clusterDeployments: [{name: blue}]}'")
	})
	pool := w.pool("listed")
	require.JSONEq(t, `[{"kind":"ClusterDeploymentCustomization","name":"red"}]`, string(pool.Spec.Inventory.Unusable), "what was stored is left as it is")
	require.Contains(t, pool.Finalizers, hivev1.FinalizerClusterPool)
	clusters := w.clusters("listed")
	require.Len(t, clusters, 1)
	require.Equal(t, before.Name, clusters[0].Name)

	w.editPool("listed", testobj.Inventory("blue", "red"))
	w.settled("listed", 2)
	require.Equal(t, []string{"blue", "red"}, slices.Sorted(maps.Keys(w.pool("listed").Status.ClusterNameUsage)))
}

func TestClustersOfHiveAreTakenOver(t *testing.T) {
	w := newTestEnv(t)
	w.installer()
	w.create(testobj.Pool("p", testobj.In(w.ns), testobj.Size(1)))
	claimed, unclaimed := w.legacyCluster("p", "c"), w.legacyCluster("p", "")
	unlabelled := w.legacyCluster("p", "")
	w.label(claimed.Namespace)
	w.label(unclaimed.Namespace)
	w.replica()
	is := func(cd *hivev1.ClusterDeployment) bool {
		err := w.client.Get(t.Context(), client.ObjectKeyFromObject(cd), &hivev1.ClusterDeployment{})
		return !apierrors.IsNotFound(err)
	}
	w.eventually("the unclaimed cluster, of another version, is replaced", func() bool {
		return !is(unclaimed) && len(w.clusters("p")) == 3 && hivev1.IsConditionTrue(w.pool("p").Status.Conditions, hivev1.ClusterPoolReady)
	})
	require.True(t, is(claimed), "a claimed one stays, whatever its version")

	reaped := func(namespace string) bool {
		ns := &corev1.Namespace{}
		err := w.client.Get(t.Context(), client.ObjectKey{Name: namespace}, ns)
		return apierrors.IsNotFound(err) || !ns.DeletionTimestamp.IsZero()
	}
	w.eventually("so does its namespace", func() bool { return reaped(unclaimed.Namespace) })
	require.True(t, is(unlabelled), "the name of the pool alone does not say whose it is")
	w.label(unlabelled.Namespace)
	w.eventually("it is known to be the pool's now", func() bool { return !is(unlabelled) && reaped(unlabelled.Namespace) })

	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, hivev1.AnnotationRemoveFromPool)
	require.NoError(t, w.client.Patch(t.Context(), claimed, client.RawPatch(types.MergePatchType, patch)))
	w.eventually("a released cluster goes with its namespace", func() bool { return !is(claimed) && reaped(claimed.Namespace) })
}
