// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/join"
	"github.com/muster-io/muster/agent-service/internal/kubelet"
)

// certificate is what a kubelet keeps: a certificate that is good until a time, and its key.
func certificate(t *testing.T, until time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "system:node:n"}, NotBefore: until.Add(-24 * time.Hour), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) + string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
}

// put writes a file of an installed system; an empty content removes it.
func put(t *testing.T, m *Real, path, content string) {
	t.Helper()
	path = filepath.Join(m.Root, path)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	if content == "" {
		require.NoError(t, os.RemoveAll(path))
		return
	}
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// bootstrapped is the kubeconfig that a kubelet made by its bootstrap kubeconfig.
const bootstrapped = `{"users":[{"user":{"client-certificate":"/var/lib/kubelet/pki/kubelet-client-current.pem"}}]}`

func TestACertificateIsWhatTheKubeletTakesItFor(t *testing.T) {
	good, old := certificate(t, time.Now().Add(time.Hour)), certificate(t, time.Now().Add(-time.Hour))
	for name, c := range map[string]struct {
		kubeconfig, certificate, values string
		want                            agentproto.KubeletCertificate
	}{
		"a node":                                  {kubeconfig: "k", certificate: good, values: "{}", want: agentproto.CertificateValid},
		"a node of another system":                {kubeconfig: bootstrapped, certificate: good, want: agentproto.CertificateValid},
		"it was off for long":                     {kubeconfig: "k", certificate: old, values: "{}", want: agentproto.CertificateExpired},
		"one of its certificates expired":         {kubeconfig: "k", certificate: good + old, values: "{}", want: agentproto.CertificateExpired},
		"its file is gone":                        {kubeconfig: "k", values: "{}", want: agentproto.CertificateMissing},
		"its file is empty after a loss of power": {kubeconfig: "k", certificate: "\n", values: "{}", want: agentproto.CertificateMissing},
		"its kubeconfig is gone":                  {certificate: good, values: "{}", want: agentproto.CertificateMissing},
		"it joins nothing":                        {},
		"it joined by other files":                {kubeconfig: "k"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &Real{Files: kubelet.Files{Root: t.TempDir()}}
			put(t, m, join.KubeconfigPath, c.kubeconfig)
			put(t, m, join.ClientCertificatePath, c.certificate)
			put(t, m, join.Path, c.values)
			assert.Equal(t, c.want, m.KubeletCertificate())
		})
	}
}

const bootstrapToken = "abcdef.0123456789abcdef"

func joinStep(kubeconfig string) api.Step {
	return api.Step{StepType: api.StepTypeJoinCluster, Args: []string{agentproto.Argument(agentproto.JoinArgs{Kubeconfig: kubeconfig})}}
}

func TestAKubeletThatLostItsCertificateGetsAToken(t *testing.T) {
	m := &Real{Files: kubelet.Files{Root: t.TempDir()}}
	put(t, m, join.KubeconfigPath, bootstrapped)
	put(t, m, join.ClientCertificatePath, certificate(t, time.Now().Add(-time.Hour)))
	a := New(Options{Machine: m, Log: zap.NewNop()})
	kubeconfig := filepath.Join(m.Root, join.BootstrapKubeconfigPath)

	require.ErrorContains(t, a.join(joinStep(bootstrapToken)), "is no node", "the discovery image")
	assert.Empty(t, a.kubeletCertificate())
	a.resident = true
	assert.Equal(t, agentproto.CertificateExpired, a.kubeletCertificate())
	for range 2 {
		require.NoError(t, a.join(joinStep(bootstrapToken)))
	}
	content, err := os.ReadFile(kubeconfig)
	require.NoError(t, err)
	assert.Equal(t, bootstrapToken, string(content))
	info, err := os.Stat(kubeconfig)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
	assert.Equal(t, agentproto.CertificateExpired, a.kubeletCertificate())
	assert.FileExists(t, kubeconfig, "the kubelet starts again until it has its certificate")

	put(t, m, join.ClientCertificatePath, certificate(t, time.Now().Add(time.Hour)))
	left := filepath.Join(t.TempDir(), "left")
	require.NoError(t, os.Link(kubeconfig, left))
	assert.Equal(t, agentproto.CertificateValid, a.kubeletCertificate())
	assert.NoFileExists(t, kubeconfig)
	content, err = os.ReadFile(left)
	require.NoError(t, err)
	assert.Equal(t, make([]byte, len(bootstrapToken)), content, "the disk does not keep it")

	require.NoError(t, a.join(joinStep(bootstrapToken)), "an order that is late")
	assert.NoFileExists(t, kubeconfig)
	put(t, m, join.BootstrapKubeconfigPath, "of a user")
	assert.Equal(t, agentproto.CertificateValid, a.kubeletCertificate())
	assert.FileExists(t, kubeconfig, "it is not from this service")
}

func TestNoErrorOfAJoinQuotesTheToken(t *testing.T) {
	m := &Real{Files: kubelet.Files{Root: t.TempDir()}}
	put(t, m, join.Path, "{}")
	put(t, m, filepath.Dir(join.BootstrapKubeconfigPath), "no directory")
	a := New(Options{Machine: m})
	a.resident = true
	for _, step := range []api.Step{joinStep(bootstrapToken), {StepType: api.StepTypeJoinCluster, Args: []string{`{"kubeconfig":["` + bootstrapToken + `"]}`}}, {StepType: api.StepTypeJoinCluster}} {
		err := a.join(step)
		require.Error(t, err)
		assert.NotContains(t, err.Error(), bootstrapToken)
	}
}

// Each poll of an installed system says what there is. A system without a kubelet, and each agent before the installation, says nothing, as older agents do.
func TestAPollSaysWhatThereIsOfTheCertificate(t *testing.T) {
	polls := make(chan []string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		polls <- r.URL.Query()["kubelet_certificate"]
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(server.Close)
	connection, err := NewConnection(server.URL, uuid.New(), "token", server.Client())
	require.NoError(t, err)
	m := &Real{Files: kubelet.Files{Root: t.TempDir()}}
	a := New(Options{Connection: connection, Machine: m, Log: zap.NewNop()})
	said := func() []string {
		require.ErrorIs(t, a.serve(t.Context()), errAgain)
		return <-polls
	}
	a.resident = true
	assert.Nil(t, said())
	put(t, m, join.Path, "{}")
	assert.Equal(t, []string{"missing"}, said())
	a.resident = false
	assert.Nil(t, said())
}
