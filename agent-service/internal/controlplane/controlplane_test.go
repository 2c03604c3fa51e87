// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-io/muster/agent-service/internal/join"
	"github.com/muster-io/muster/apis/nodeobjects"
)

var noon = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// newMachine is one whose control plane was made at noon.
func newMachine(t *testing.T) (Machine, Secrets) {
	t.Helper()
	ca, secrets, err := New(noon, "blue", "https://192.0.2.7:6443")
	require.NoError(t, err)
	return Machine{Dir: filepath.Join(t.TempDir(), "plane"), ControlPlane: &join.ControlPlane{
		Cluster: "blue", Server: "https://192.0.2.7:6443", Names: []string{"api.blue.example.org", "192.0.2.8"}, CA: ca, CAKey: secrets.CAKey,
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")},
	}}, secrets
}

func certificate(t *testing.T, content []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(content)
	require.NotNil(t, block)
	parsed, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return parsed
}

func TestTheServiceKeepsTwoCredentials(t *testing.T) {
	m, secrets := newMachine(t)
	for user, content := range map[string]string{"system:admin": secrets.Admin, nodeobjects.NodeManagerUser: secrets.NodeManager} {
		config, err := clientcmd.RESTConfigFromKubeConfig([]byte(content))
		require.NoError(t, err)
		assert.Equal(t, m.Server, config.Host)
		assert.Equal(t, m.CA, string(config.CAData))
		_, err = tls.X509KeyPair(config.CertData, config.KeyData)
		require.NoError(t, err)
		own := certificate(t, config.CertData)
		assert.Equal(t, user, own.Subject.CommonName)
		require.NoError(t, own.CheckSignatureFrom(certificate(t, []byte(m.CA))))
		assert.False(t, own.IsCA)
	}
	assert.Empty(t, certificate(t, mustConfig(t, secrets.NodeManager)).Subject.Organization, "the node manager is no administrator")
	for _, shown := range []string{fmt.Sprint(secrets), fmt.Sprintf("%+v", secrets), fmt.Sprintf("%#v", secrets), fmt.Sprint(m.ControlPlane), fmt.Sprintf("%+v", m.ControlPlane)} {
		assert.NotContains(t, shown, "PRIVATE")
		assert.NotContains(t, shown, "client-key-data")
	}
}

func mustConfig(t *testing.T, kubeconfig string) []byte {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig))
	require.NoError(t, err)
	return config.CertData
}

// read is a file of the directory; other users cannot read it.
func (m Machine) read(t *testing.T, name string) []byte {
	t.Helper()
	info, err := os.Stat(m.path(name))
	require.NoError(t, err)
	assert.Zero(t, info.Mode().Perm()&0o077, name)
	content, err := os.ReadFile(m.path(name))
	require.NoError(t, err)
	return content
}

func TestCertificatesAreRenewedAndKeysOfAuthoritiesStay(t *testing.T) {
	m, _ := newMachine(t)
	require.NoError(t, m.write(noon))
	stay := []string{"pki/ca.crt", "pki/ca.key", "pki/front-proxy-ca.crt", "pki/front-proxy-ca.key", "pki/sa.key", "pki/sa.pub", "kube-scheduler.conf", "kube-controller-manager.conf"}
	renewed := []string{"apiserver", "kubelet-client", admin, controllerManager, scheduler, frontProxy}
	before := map[string]string{}
	for _, name := range stay {
		before[name] = string(m.read(t, name))
	}
	for _, name := range renewed {
		before[name] = string(m.read(t, "pki/"+name+".crt"))
	}
	later := noon.Add(leafLifetime - time.Hour)
	require.NoError(t, m.write(later))
	for _, name := range stay {
		assert.Equal(t, before[name], string(m.read(t, name)), name)
	}
	for _, name := range renewed {
		content := m.read(t, "pki/"+name+".crt")
		assert.NotEqual(t, before[name], string(content), name)
		_, err := tls.X509KeyPair(content, m.read(t, "pki/"+name+".key"))
		require.NoError(t, err, name)
		assert.True(t, certificate(t, content).NotAfter.After(later.Add(renewInterval)), name)
	}
	serving := certificate(t, m.read(t, "pki/apiserver.crt"))
	for _, name := range []string{"192.0.2.7", "192.0.2.8", "10.96.0.1", "fd00:96::1", "api.blue.example.org", "kubernetes.default.svc"} {
		require.NoError(t, serving.VerifyHostname(name))
	}
	require.NoError(t, certificate(t, m.read(t, "pki/"+frontProxy+".crt")).CheckSignatureFrom(certificate(t, m.read(t, "pki/front-proxy-ca.crt"))))
	require.Error(t, certificate(t, m.read(t, "pki/"+frontProxy+".crt")).CheckSignatureFrom(serving), "the cluster's authority makes no proxies")
}

func TestAKeyThatIsNotTheAuthoritysIsRefused(t *testing.T) {
	m, _ := newMachine(t)
	_, other := newMachine(t)
	m.CAKey = other.CAKey
	err := m.write(noon)
	require.ErrorContains(t, err, "the key of the authority is not that of its certificate")
	assert.NotContains(t, err.Error(), strings.Split(other.CAKey, "\n")[1])
}

func TestTheDataOfAControlPlaneIsChecked(t *testing.T) {
	for wanted, data := range map[string]string{
		"is not a JSON object": `{"caKey": "SECRET`, "server is not a URL": `{"server":"http://192.0.2.7:6443","caKey":"SECRET"}`,
		"server names no address": `{"server":"https://host:6443","caKey":"SECRET"}`, "caKey holds no PEM block": `{"server":"https://192.0.2.7:6443","caKey":"SECRET"}`,
		"podCIDRs and serviceCIDRs are needed":                                                   `{"server":"https://192.0.2.7:6443","caKey":"SECRET"}`,
		"group.members needs three machines":                                                     `{"server":"https://192.0.2.7:6443","group":{"name":"a","members":[{"name":"a","address":"192.0.2.7"},{"name":"b","address":"192.0.2.8"}],"serviceAccountKey":"SECRET"}}`,
		"group.members needs three machines or more, each with a name and an address of its own": `{"server":"https://192.0.2.7:6443","group":{"name":"a","members":[{"name":"a","address":"192.0.2.7"},{"name":"b","address":"192.0.2.8"},{"name":"c","address":"192.0.2.8"}],"etcd":{"caKey":"SECRET"}}}`,
		"group.name is none of group.members":                                                    `{"server":"https://192.0.2.7:6443","group":{"name":"d","members":[{"name":"a","address":"192.0.2.7"}],"frontProxy":{"caKey":"SECRET"}}}`,
		"group.etcd.caKey holds no PEM block":                                                    `{"server":"https://192.0.2.7:6443","group":{"name":"d","etcd":{"caKey":"SECRET"}}}`,
	} {
		_, err := join.ReadControlPlane([]byte(data))
		require.ErrorContains(t, err, wanted)
		assert.NotContains(t, err.Error(), "SECRET")
	}
}
