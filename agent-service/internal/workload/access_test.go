// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// A user writes node access of a cluster of their own, and gets neither files of the service nor a program that runs as the service.
func TestAKubeconfigOfNodeAccessHoldsWhatItNeeds(t *testing.T) {
	dir := t.TempDir()
	own, made := filepath.Join(dir, "token"), filepath.Join(dir, "made")
	require.NoError(t, os.WriteFile(own, []byte("of-the-service"), 0o600))
	var sent string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = r.Header.Get("Authorization")
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	for name, c := range map[string]struct{ cluster, user, says string }{
		"a token":                      {user: `"token":"t"`},
		"a file with a token":          {user: `"tokenFile":"` + own + `"`, says: "names a file"},
		"a token and its file":         {user: `"token":"t","tokenFile":"` + own + `"`, says: "names a file"},
		"a file that never ends":       {user: `"tokenFile":"/dev/zero"`, says: "names a file"},
		"files with a certificate":     {user: `"client-certificate":"` + own + `","client-key":"` + own + `"`, says: "names a file"},
		"a file with authorities":      {cluster: `,"certificate-authority":"/dev/zero"`, user: `"token":"t"`, says: "names a file"},
		"a program":                    {user: `"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"touch","args":["` + made + `"],"interactiveMode":"Never"}`, says: "names a program"},
		"a provider of credentials":    {user: `"auth-provider":{"name":"oidc"}`, says: "names a program"},
		"what is not used is not read": {user: `"token":"t"}},{"name":"other","user":{"tokenFile":"/dev/zero"`},
	} {
		t.Run(name, func(t *testing.T) {
			sent = ""
			kubeconfig := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
			"users":[{"name":"u","user":{` + c.user + `}}],"clusters":[{"name":"c","cluster":{"insecure-skip-tls-verify":true,"server":"` + server.URL + `"` + c.cluster + `}}]}`
			access, err := parseAccess(&corev1.Secret{Type: hivev1.SecretTypeNodeAccess, Data: map[string][]byte{
				hivev1.SecretKeyKubeconfig: []byte(kubeconfig), hivev1.NodeAccessKeyServer: []byte("https://192.0.2.1:6443"), hivev1.NodeAccessKeyKubernetesVersion: []byte("v1.37.2"),
				hivev1.NodeAccessKeyCA: []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"),
			}})
			if c.says != "" {
				require.ErrorContains(t, err, "kubeconfig "+c.says)
				_, err = access.Client()
				require.ErrorContains(t, err, "kubeconfig of node access "+c.says)
				return
			}
			require.NoError(t, err)
			cluster, err := access.Client()
			require.NoError(t, err)
			_, err = cluster.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
			require.Error(t, err)
			assert.Equal(t, "Bearer t", sent)
			assert.NoFileExists(t, made)
		})
	}
}
