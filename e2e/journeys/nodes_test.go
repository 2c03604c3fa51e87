// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package journeys_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/addresstest"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/needtest"
)

// A pool's clusters take nodes: each has a Secret by which machines join, which the user of a claim does not read. The objects that the user
// removes inside the cluster comes back, and what is lost beside it too.
func TestClustersOfAPoolTakeNodes(t *testing.T) {
	if nodes || foreign {
		t.Skip("hosted clusters that run as pods take no nodes")
	}
	needtest.Part(t, addresstest.Reachable() != "", "this machine has no address but loopback: nodes could not reach a cluster on it")
	w := newTestEnv(t)
	pool := w.hostedPool("nodes", 1, 1)
	pool.Spec.Platform.Hosted.Nodes = &hivev1.HostedNodes{PodCIDR: "10.200.0.0/16"}
	w.create(pool)
	w.untilFilled(pool)
	claim := w.claim("mine", pool.Name, user("alice"))
	namespace := w.untilUsable(claim)

	key := nodeAccessOf(w, namespace)
	secret := &corev1.Secret{}
	require.NoError(t, w.admin.Get(t.Context(), key, secret))
	assert.Equal(t, corev1.SecretType(hivev1.SecretTypeNodeAccess), secret.Type)
	assert.Contains(t, string(secret.Data[hivev1.NodeAccessKeyServer]), "https://"+addresstest.Reachable()+":")
	assert.Equal(t, "10.200.0.0/16", string(secret.Data[hivev1.NodeAccessKeyPodCIDR]))
	assert.True(t, apierrors.IsForbidden(w.as("alice").Get(t.Context(), key, &corev1.Secret{})), "it is not the user's")

	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data[hivev1.SecretKeyKubeconfig])
	require.NoError(t, err)
	manager, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	_, err = manager.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	_, err = manager.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
	assert.True(t, apierrors.IsForbidden(err), "%v", err)

	alice := w.enter(w.as("alice"), namespace)
	require.NoError(t, alice.RbacV1().ClusterRoleBindings().Delete(t.Context(), "muster:node-manager", metav1.DeleteOptions{}))
	require.NoError(t, w.admin.Delete(t.Context(), secret))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.NoError(c, w.admin.Get(t.Context(), key, &corev1.Secret{}))
		_, err := manager.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		require.NoError(c, err)
	}, patience, interval, "node access does not come back")

	cluster := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: namespace}}
	err = w.admin.Patch(t.Context(), cluster, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"platform":{"hosted":{"nodes":null}}}}`)))
	assert.ErrorContains(t, err, "platform cannot change")
}

// nodeAccessOf is the key of the Secret of node access of a cluster.
func nodeAccessOf(w *testEnv, namespace string) client.ObjectKey {
	w.t.Helper()
	cluster := &hivev1.ClusterDeployment{}
	require.NoError(w.t, w.admin.Get(w.ctx, client.ObjectKey{Namespace: namespace, Name: namespace}, cluster))
	require.NotNil(w.t, cluster.Spec.ClusterMetadata)
	require.NotNil(w.t, cluster.Spec.ClusterMetadata.NodeAccessSecretRef)
	return client.ObjectKey{Namespace: namespace, Name: cluster.Spec.ClusterMetadata.NodeAccessSecretRef.Name}
}
