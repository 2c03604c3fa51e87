// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// Credentials of a registry are rotated while clusters hibernate, and a node that has not the image pulls it with them.
func TestRotatedCredentialsReachAClusterWhoseImageCannotBePulled(t *testing.T) {
	const key = hivev1.SecretKeyDockerConfigJSON
	for name, c := range map[string]struct {
		labels map[string]string
		reason provision.Reason
		want   string
	}{
		"they reach it":                    {map[string]string{"hive.openshift.io/cluster-pool-namespace": "pools", "hive.openshift.io/cluster-pool-name": "p"}, provision.ReasonImageUnavailable, "new"},
		"of no pool":                       {nil, provision.ReasonImageUnavailable, "old"},
		"those by which it is pulled stay": {map[string]string{"hive.openshift.io/cluster-pool-namespace": "pools", "hive.openshift.io/cluster-pool-name": "p"}, provision.ReasonProcessDied, "old"},
		"those of a pool of the same name": {map[string]string{"hive.openshift.io/cluster-pool-namespace": "other", "hive.openshift.io/cluster-pool-name": "p"}, provision.ReasonImageUnavailable, "old"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShell(t, func(cd *hivev1.ClusterDeployment) {
				cd.Spec.PullSecretRef = &hivev1.LocalObjectReference{Name: "blue-x-pull-secret"}
				cd.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{Namespace: "pools", PoolName: "p"}
			})
			pool := &hivev1.ClusterPool{ObjectMeta: metav1.ObjectMeta{Namespace: "pools", Name: "p"}}
			pool.Spec.PullSecretRef = &hivev1.LocalObjectReference{Name: "registry"}
			copied := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "blue-x", Name: "blue-x-pull-secret"}, Data: map[string][]byte{key: []byte("old"), "install-config.yaml": []byte("kept")}}
			for _, object := range []client.Object{
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "blue-x", Labels: c.labels}}, pool, copied,
				&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "pools", Name: "registry"}, Data: map[string][]byte{key: []byte("new")}},
			} {
				require.NoError(t, s.client.Create(t.Context(), object))
			}
			s.run()
			require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(copied), copied))
			require.Equal(t, "old", string(copied.Data[key]), "its images are pulled")

			s.backend.Fail(s.ref(), provision.Problem{Reason: c.reason, Component: "etcd", Message: "the image cannot be pulled"})
			s.clock.now = s.clock.now.Add(time.Minute)
			s.run()
			require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(copied), copied))
			require.Equal(t, c.want, string(copied.Data[key]))
			require.Equal(t, "kept", string(copied.Data["install-config.yaml"]))
		})
	}
}

// As kubectl delete secret --all deletes it. A node that has the image does not miss it.
func TestACopyOfAPullSecretThatWasDeletedIsMadeAgain(t *testing.T) {
	const key = hivev1.SecretKeyDockerConfigJSON
	s := newShell(t, func(cd *hivev1.ClusterDeployment) {
		cd.Spec.PullSecretRef = &hivev1.LocalObjectReference{Name: "blue-x-pull-secret"}
		cd.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{Namespace: "pools", PoolName: "p"}
	})
	pool := &hivev1.ClusterPool{ObjectMeta: metav1.ObjectMeta{Namespace: "pools", Name: "p"}}
	pool.Spec.PullSecretRef = &hivev1.LocalObjectReference{Name: "registry"}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "blue-x", Labels: map[string]string{"hive.openshift.io/cluster-pool-namespace": "pools", "hive.openshift.io/cluster-pool-name": "p"}}}, pool,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "pools", Name: "registry"}, Data: map[string][]byte{key: []byte("new")}},
	} {
		require.NoError(t, s.client.Create(t.Context(), object))
	}
	s.run()
	s.backend.Fail(s.ref(), provision.Problem{Reason: provision.ReasonImageUnavailable, Component: "etcd", Message: "the image cannot be pulled"})
	s.clock.now = s.clock.now.Add(time.Minute)
	s.run()
	copied := &corev1.Secret{}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Namespace: "blue-x", Name: "blue-x-pull-secret"}, copied))
	require.Equal(t, corev1.SecretTypeDockerConfigJson, copied.Type)
	require.Equal(t, map[string][]byte{key: []byte("new")}, copied.Data)
}
