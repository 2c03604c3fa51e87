// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplanetest_test

import (
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/muster-io/muster/apis/controlplanetest"
)

// patience bounds waits for what takes well under a second on an idle machine.
const patience = time.Minute

func startClient(t *testing.T) (*rest.Config, *kubernetes.Clientset) {
	t.Helper()
	config := controlplanetest.Start(t)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return config, client
}

func newNamespace(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	require.NoError(t, err)
}

func TestKindsOfMusterAreServed(t *testing.T) {
	_, client := startClient(t)
	resources, err := client.Discovery().ServerResourcesForGroupVersion("hive.openshift.io/v1")
	require.NoError(t, err)
	var kinds []string
	for _, resource := range resources.APIResources {
		kinds = append(kinds, resource.Kind)
	}
	require.Subset(t, kinds, []string{"ClusterPool", "ClusterClaim", "ClusterDeployment", "ClusterImageSet"})
}

const moons = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: moons.example.org}
spec:
  group: example.org
  names: {kind: Moon, plural: moons}
  scope: Cluster
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`

func TestFurtherKindsAreServedOnRequest(t *testing.T) {
	dir := fstest.MapFS{"moons.yaml": {Data: []byte(moons)}, "kustomization.yaml": {Data: []byte("kind: Kustomization\n")}}
	for range 2 {
		client, err := kubernetes.NewForConfig(controlplanetest.Start(t, controlplanetest.WithCRDs(dir)))
		require.NoError(t, err)
		resources, err := client.Discovery().ServerResourcesForGroupVersion("example.org/v1")
		require.NoError(t, err)
		require.Len(t, resources.APIResources, 1)
	}
}

func TestServiceAccountHasATokenAndOnlyItsRights(t *testing.T) {
	config, client := startClient(t)
	newNamespace(t, client, "rights")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "without-rights"}}
	_, err := client.CoreV1().ServiceAccounts("rights").Create(t.Context(), account, metav1.CreateOptions{})
	require.NoError(t, err)
	token, err := client.CoreV1().ServiceAccounts("rights").CreateToken(t.Context(), "without-rights",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)

	limited := rest.AnonymousClientConfig(config)
	limited.BearerToken = token.Status.Token
	asNobody, err := kubernetes.NewForConfig(limited)
	require.NoError(t, err)
	self, err := asNobody.AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, "system:serviceaccount:rights:without-rights", self.Status.UserInfo.Username)
	_, err = asNobody.CoreV1().Secrets("rights").List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "got: %v", err)
}

func TestDeletedNamespaceGoesAwayWithItsContent(t *testing.T) {
	_, client := startClient(t)
	newNamespace(t, client, "leaving")
	_, err := client.CoreV1().ConfigMaps("leaving").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "content"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, client.CoreV1().Namespaces().Delete(t.Context(), "leaving", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		_, err := client.CoreV1().Namespaces().Get(t.Context(), "leaving", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, patience, 50*time.Millisecond)
}

func TestDependentsAreCollected(t *testing.T) {
	_, client := startClient(t)
	newNamespace(t, client, "collected")
	maps := client.CoreV1().ConfigMaps("collected")
	owner, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name:            "dependent",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID}},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, maps.Delete(t.Context(), "owner", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		_, err := maps.Get(t.Context(), "dependent", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, patience, 50*time.Millisecond)
}
