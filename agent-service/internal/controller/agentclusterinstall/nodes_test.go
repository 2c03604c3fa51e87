// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentclusterinstall

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/muster-io/muster/agent-service/internal/domain"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
)

func TestNodesAreNotNewerThanTheirAPIServer(t *testing.T) {
	for name, c := range map[string]struct {
		server string
		known  []string
		want   string
	}{
		"the first version is newer":                  {"v1.36.3", []string{"1.37.2", "1.36.3"}, "1.36.3"},
		"names with a v, the exact patch":             {"v1.36.3", []string{"v1.37.2", "v1.36.5", "v1.36.3"}, "v1.36.3"},
		"names of minors":                             {"v1.36.3", []string{"1.37", "1.36"}, "1.36"},
		"another patch of the minor":                  {"v1.36.3", []string{"1.37.2", "1.36.5"}, "1.36.3"},
		"the newest of the older minors":              {"v1.37.0", []string{"1.38.0", "1.35.9", "1.36.1", "1.36.0", "1.34.2"}, "1.36.1"},
		"three minors older":                          {"v1.37.0", []string{"1.34.2"}, "1.34.2"},
		"too old, and newer":                          {"v1.37.0", []string{"1.33.9", "1.38.1"}, "1.37.0"},
		"a release candidate is not for other minors": {"v1.37.0", []string{"1.36.0-rc.1"}, "1.37.0"},
		"the release candidate of the server":         {"v1.37.0-rc.1", []string{"1.37.0-rc.1"}, "1.37.0-rc.1"},
		"a version of a distribution":                 {"v1.37.2+k3s1", []string{"1.38.0", "1.37.1"}, "1.37.2+k3s1"},
		"versions that are not Kubernetes'":           {"v1.33.4", []string{"4.20", "4.19.1"}, "4.20"},
		"versions that are numbers of no release":     {"v1.33.4", []string{"stream9"}, "stream9"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, versionForNodes(c.server, c.known))
		})
	}
}

// A user imports a cluster with the Secret of its node access. The first version of --os-images is no default for it.
func TestAnImportedClusterHasTheVersionOfItsNodeAccess(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "access"}, Type: hivev1.SecretTypeNodeAccess, Data: map[string][]byte{
		hivev1.NodeAccessKeyServer: []byte("https://192.0.2.1:6443"), hivev1.NodeAccessKeyCA: []byte("-----BEGIN CERTIFICATE-----\nQUFB\n-----END CERTIFICATE-----\n"),
		hivev1.NodeAccessKeyKubernetesVersion: []byte("v1.36.3\n"),
		hivev1.SecretKeyKubeconfig: []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":"https://192.0.2.1:6443"}}],
			"users":[{"name":"u","user":{"token":"t"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}]}`),
	}}
	installed := func() *snapshot {
		return &snapshot{
			install: &hiveextv1.AgentClusterInstall{},
			deployment: &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}, Spec: hivev1.ClusterDeploymentSpec{
				Installed: true, ClusterMetadata: &hivev1.ClusterMetadata{NodeAccessSecretRef: &hivev1.LocalObjectReference{Name: "access"}},
			}},
		}
	}
	r := New(Deps{Live: fake.NewClientBuilder().WithScheme(scheme).WithObjects(secret).Build(), Versions: []string{"1.37.2", "1.36.3"}})
	seen := installed()
	require.NoError(t, r.named(t.Context(), seen))
	assert.Equal(t, "1.36.3", seen.version)

	seen = installed()
	seen.deployment.Spec.ClusterMetadata = nil
	require.NoError(t, r.named(t.Context(), seen))
	assert.Equal(t, "1.37.2", seen.version, "it takes no nodes")
	seen = installed()
	seen.deployment.Spec.Installed = false
	require.NoError(t, r.named(t.Context(), seen))
	assert.Equal(t, "1.37.2", seen.version, "it is to be installed")

	r = New(Deps{Live: fake.NewClientBuilder().WithScheme(scheme).Build(), Versions: []string{"1.37.2"}})
	seen = installed()
	require.NoError(t, r.named(t.Context(), seen), "its hosts say that the Secret is missing")
	assert.Equal(t, "1.37.2", seen.version)
	assert.True(t, seen.unread)
	seen.cluster = &domain.Cluster{ClusterSettings: domain.ClusterSettings{OpenshiftVersion: "1.36.3"}}
	require.NoError(t, r.named(t.Context(), seen))
	assert.Equal(t, "1.36.3", seen.version)
}
