// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/membership"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

// sleeping is an installed, unclaimed cluster of the pool that hibernates.
func sleeping(pool *hivev1.ClusterPool, namespace string) *hivev1.ClusterDeployment {
	return &hivev1.ClusterDeployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: namespace, UID: types.UID("uid-of-" + namespace),
			Labels:      map[string]string{hivev1.LabelClusterPoolNamespace: pool.Namespace, hivev1.LabelClusterPoolName: pool.Name},
			Annotations: map[string]string{hivev1.AnnotationClusterPoolSpecHash: poolplan.Version(pool.Spec)},
		},
		Spec: hivev1.ClusterDeploymentSpec{
			ClusterName: namespace, Installed: true, PowerState: hivev1.PowerStateHibernating,
			ClusterPoolRef: &hivev1.ClusterPoolReference{Namespace: pool.Namespace, PoolName: pool.Name},
		},
		Status: hivev1.ClusterDeploymentStatus{PowerState: hivev1.PowerStateHibernating},
	}
}

// namespaceOf is the namespace of a cluster of the pool.
func namespaceOf(pool *hivev1.ClusterPool, name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: membership.Labels(client.ObjectKeyFromObject(pool))}}
}

// conflicts makes changes of ClusterDeployments lose against another writer as long as lose says so.
func conflicts(lose func() bool) interceptor.Funcs {
	return interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
		if _, isCluster := o.(*hivev1.ClusterDeployment); isCluster && lose() {
			return apierrors.NewConflict(schema.GroupResource{Resource: "clusterdeployments"}, o.GetName(), errors.New("another writer annotated it"))
		}
		return c.Patch(ctx, o, p, options...)
	}}
}

func TestAPowerChangeThatLostAConflictIsMadeLater(t *testing.T) {
	pool := testobj.Pool("p", testobj.Size(1), testobj.RunningCount(1), testobj.Held())
	annotating := true
	s := newShell(t, conflicts(func() bool { return annotating }), pool, testobj.ClusterImageSet(testobj.ImageSetName), sleeping(pool, "p-bbbbb"), namespaceOf(pool, "p-bbbbb"))
	for range 5 {
		result, err := s.reconcile("p")
		require.NoError(t, err)
		require.NotZero(t, result.RequeueAfter, "the cache is behind what was lost, and the annotation that brings it up to date causes no pass")
	}
	annotating = false
	cd := &hivev1.ClusterDeployment{}
	key := client.ObjectKey{Namespace: "p-bbbbb", Name: "p-bbbbb"}
	require.NoError(t, s.client.Patch(t.Context(), sleeping(pool, "p-bbbbb"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"other-client":"was here"}}}`))))
	_, err := s.reconcile("p")
	require.NoError(t, err)
	require.NoError(t, s.client.Get(t.Context(), key, cd))
	require.Equal(t, hivev1.PowerStateRunning, cd.Spec.PowerState)
}

func TestAChangeThatNoDecisionIsMadeFromDoesNotKeepPowerFromBeingSet(t *testing.T) {
	pool := testobj.Pool("p", testobj.Size(1), testobj.RunningCount(1), testobj.Held())
	lost := 0
	s := newShell(t, conflicts(func() bool { lost++; return lost <= 2 }), pool, testobj.ClusterImageSet(testobj.ImageSetName), sleeping(pool, "p-bbbbb"), namespaceOf(pool, "p-bbbbb"))
	_, err := s.reconcile("p")
	require.NoError(t, err)
	cd := &hivev1.ClusterDeployment{}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Namespace: "p-bbbbb", Name: "p-bbbbb"}, cd))
	require.Equal(t, hivev1.PowerStateRunning, cd.Spec.PowerState, "the same pass reads what is there now, and tries again")
}

func TestMarkedClustersOfAPoolThatIsGoneAreDeleted(t *testing.T) {
	pool := testobj.Pool("p")
	marked := func(name, value string) *hivev1.ClusterDeployment {
		cd := sleeping(pool, name)
		cd.Annotations[hivev1.AnnotationRemoveFromPool] = value
		return cd
	}
	kept, forged := marked("p-ddddd", "true"), marked("p-fffff", "true")
	kept.Annotations[hivev1.AnnotationProtectedDelete] = "True"
	s := newShell(t, interceptor.Funcs{}, namespaceOf(pool, "p-bbbbb"), marked("p-bbbbb", "True"), namespaceOf(pool, "p-ccccc"), marked("p-ccccc", "false"),
		namespaceOf(pool, "p-ddddd"), kept, forged)
	require.NoError(t, s.passes("p", 1))
	var left []string
	for _, cd := range s.clusters() {
		left = append(left, cd.Name)
	}
	require.Equal(t, []string{"p-ccccc", "p-ddddd", "p-fffff"}, left)
}
