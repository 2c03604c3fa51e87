// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package apis_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestKeysAndDataOfAHostedClusterAreNotDeletedByHand: the one is gone at once, the other as soon as the pod ends, and neither comes back.
func TestKeysAndDataOfAHostedClusterAreNotDeletedByHand(t *testing.T) {
	a := newAPI(t)
	a.installPolicies(t, "../deploy/base/pool-operator/data.yaml")
	named := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: a.namespace, Name: name, Labels: map[string]string{"hosted.muster.io/uid": "u"}, Annotations: map[string]string{"hosted.muster.io/cluster-deployment": "blue"}}
	}
	claim := func() client.Object {
		return &corev1.PersistentVolumeClaim{ObjectMeta: named("data-hosted-u-0"), Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}}
	}
	keys := func() client.Object { return &corev1.Secret{ObjectMeta: named("hosted-u"), Immutable: new(true)} }
	require.NoError(t, a.Create(t.Context(), keys()))
	require.NoError(t, a.Create(t.Context(), claim()))
	require.Eventually(t, func() bool { return a.Delete(t.Context(), keys(), client.DryRunAll) != nil }, time.Minute, 50*time.Millisecond, "the policy is not in force")

	for sentence, made := range map[string]func() client.Object{
		"the Secret has the keys of the hosted cluster blue, which is lost without: delete the ClusterDeployment instead":       keys,
		"the volume claim has the data of the hosted cluster blue, which is lost without: delete the ClusterDeployment instead": claim,
	} {
		assertRefused(t, a.Delete(t.Context(), made()), sentence)
		require.Error(t, a.as(t, "system:serviceaccount:team:pool-operator", "system:serviceaccounts").Delete(t.Context(), made()), "a namesake is not the operator")
		for _, may := range []string{operatorName, "system:serviceaccount:kube-system:namespace-controller", "system:kube-controller-manager"} {
			require.NoError(t, a.as(t, may, "system:masters").Delete(t.Context(), made(), client.DryRunAll), may)
		}
		require.NoError(t, a.Patch(t.Context(), made(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"hosted.muster.io/deletable":"true"}}}`))))
		require.NoError(t, a.Delete(t.Context(), made()), "who saved it may replace it")
	}
	serving, others := &corev1.Secret{ObjectMeta: named("hosted-u-serving")}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: "other"}}
	for _, object := range []client.Object{serving, others} {
		require.NoError(t, a.Create(t.Context(), object))
		require.NoError(t, a.Delete(t.Context(), object), "it is made again, or another's")
	}
}
