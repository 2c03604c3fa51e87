// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeinit

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/muster-io/muster/agent-service/internal/join"
)

// ofKubelet writes the kubeconfig that a kubelet makes of its bootstrap kubeconfig when it asks for a certificate: it takes over the server, whether it is verified, and the authority.
func ofKubelet(t *testing.T, path string, v join.Values) {
	t.Helper()
	bootstrap, err := clientcmd.RESTConfigFromKubeConfig([]byte(v.BootstrapKubeconfig()))
	require.NoError(t, err)
	pem := filepath.Join(filepath.Dir(path), filepath.Base(join.ClientCertificatePath))
	require.NoError(t, os.WriteFile(pem, certificate(t, time.Now().Add(time.Hour)), 0o600))
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"default-cluster": {
			Server: bootstrap.Host, InsecureSkipTLSVerify: bootstrap.Insecure, CertificateAuthority: bootstrap.CAFile, CertificateAuthorityData: bootstrap.CAData,
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"default-auth": {ClientCertificate: pem, ClientKey: pem}},
		Contexts:       map[string]*clientcmdapi.Context{"default-context": {Cluster: "default-cluster", AuthInfo: "default-auth", Namespace: "default"}},
		CurrentContext: "default-context",
	}, path))
}

func read(t *testing.T, path string) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", path)
	require.NoError(t, err)
	return config
}

// With the name in the bootstrap kubeconfig alone, kube-proxy and pod-network never reach the API server, and the kubelet does not after it was started again.
func TestTheProgramsOfANodeVerifyTheServerForItsName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubelet.conf")
	v := values()
	v.Server, v.TLSServerName, v.CA = "https://192.0.2.1:6443", "api.blue.example.com", "-----BEGIN CERTIFICATE-----\nQUFB\n-----END CERTIFICATE-----\n"
	require.NoError(t, keepServerName(path, v.TLSServerName), "the kubelet has not asked yet")
	assert.NoFileExists(t, path)
	ofKubelet(t, path, v)
	before := read(t, path)
	require.Empty(t, before.ServerName)
	require.NoError(t, keepServerName(path, v.TLSServerName))
	after := read(t, path)
	assert.Equal(t, v.TLSServerName, after.ServerName)
	after.ServerName = ""
	assert.Equal(t, before, after, "nothing else changes")
	state, err := os.Stat(path)
	require.NoError(t, err)
	assert.EqualValues(t, 0o600, state.Mode().Perm())
	require.NoError(t, keepServerName(path, v.TLSServerName))
	again, err := os.Stat(path)
	require.NoError(t, err)
	assert.True(t, os.SameFile(state, again), "it is written once")

	ofKubelet(t, path, v) // as after the loss of its certificate
	require.NoError(t, keepServerName(path, ""))
	assert.Empty(t, read(t, path).ServerName)
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	require.ErrorContains(t, keepServerName(path, v.TLSServerName), "no kubeconfig")
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, left, 2, "the kubeconfig and the certificate")
}
