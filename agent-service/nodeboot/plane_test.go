// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeboot_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/muster-io/muster/apis/machinetest"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/apis/porttest"
	"github.com/muster-io/muster/apis/programtest"
)

// plane is a control plane that takes nodes, as docs/spec/node-access.md describes it.
type plane struct {
	ca     []byte
	port   string
	admin  kubernetes.Interface
	caCert *x509.Certificate
	caKey  *ecdsa.PrivateKey
	dir    string
}

// startPlane starts etcd, kube-apiserver and kube-controller-manager; they end with the test.
func startPlane(t *testing.T) *plane {
	t.Helper()
	found, err := exec.CommandContext(t.Context(), "../../hack/controlplane/build", "--dir").Output()
	require.NoError(t, err)
	programs := strings.TrimSpace(string(found))
	needtest.File(t, filepath.Join(programs, "kube-apiserver"), "there is no control plane: make controlplane builds it")
	p := &plane{dir: t.TempDir(), port: porttest.Free(t)}
	p.authority(t)
	for _, leaf := range []leaf{
		{name: "apiserver", user: "kube-apiserver"}, {name: "admin", user: "admin", group: "system:masters"},
		{name: "manager", user: "system:kube-controller-manager"}, {name: "kubelet-client", user: "kubelet-client", group: "system:masters"},
	} {
		p.issue(t, leaf)
	}
	p.serviceAccountKey(t)
	run(t, p.dir, filepath.Join(programs, "etcd"), "--name=default", "--data-dir=etcd", "--listen-client-urls=unix://etcd.sock", "--advertise-client-urls=unix://etcd.sock",
		"--listen-peer-urls=unix://peer.sock", "--initial-advertise-peer-urls=http://127.0.0.1:1", "--initial-cluster=default=http://127.0.0.1:1", "--log-level=error", "--unsafe-no-fsync")
	run(t, p.dir, filepath.Join(programs, "kube-apiserver"), "--etcd-servers=unix://etcd.sock", "--bind-address=127.0.0.1", "--advertise-address="+machinetest.Gateway, "--secure-port="+p.port,
		"--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--enable-bootstrap-token-auth",
		"--client-ca-file=ca.crt", "--tls-cert-file=apiserver.crt", "--tls-private-key-file=apiserver.key", "--kubelet-certificate-authority=ca.crt",
		"--kubelet-client-certificate=kubelet-client.crt", "--kubelet-client-key=kubelet-client.key", "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=sa.key", "--service-account-signing-key-file=sa.key", "--profiling=false")
	config := &rest.Config{Host: "https://127.0.0.1:" + p.port, QPS: -1, TLSClientConfig: rest.TLSClientConfig{
		CAFile: filepath.Join(p.dir, "ca.crt"), CertFile: filepath.Join(p.dir, "admin.crt"), KeyFile: filepath.Join(p.dir, "admin.key"),
	}}
	p.admin, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return p.admin.Discovery().RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error() == nil
	}, machinetest.Patience, 100*time.Millisecond, "the API server is not ready")
	p.kubeconfig(t, "manager")
	run(t, p.dir, filepath.Join(programs, "kube-controller-manager"), "--kubeconfig=manager.conf", "--use-service-account-credentials=true", "--service-account-private-key-file=sa.key",
		"--root-ca-file=ca.crt", "--cluster-signing-cert-file=ca.crt", "--cluster-signing-key-file=ca.key", "--service-cluster-ip-range=10.96.0.0/16", "--cluster-cidr=10.244.0.0/16",
		"--allocate-node-cidrs=true", "--controllers=*,bootstrapsigner,tokencleaner", "--leader-elect=false", "--secure-port=0", "--profiling=false")
	return p
}

// run starts a program that ends with the test.
func run(t *testing.T, dir, program string, arguments ...string) {
	t.Helper()
	command := exec.Command(program, arguments...)
	command.Dir = dir
	programtest.Start(t, command)
}

// leaf is a certificate of the cluster's authority; that of the API server is for serving.
type leaf struct{ name, user, group string }

func (p *plane) authority(t *testing.T) {
	t.Helper()
	var err error
	p.caKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(240 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, p.caKey.Public(), p.caKey)
	require.NoError(t, err)
	p.caCert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	p.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	p.write(t, "ca.crt", p.ca)
	p.writeKey(t, "ca.key", p.caKey)
}

func (p *plane) issue(t *testing.T, l leaf) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: l.user}, NotBefore: p.caCert.NotBefore, NotAfter: p.caCert.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if l.group != "" {
		template.Subject.Organization = []string{l.group}
	}
	if l.name == "apiserver" {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		template.IPAddresses = []net.IP{net.ParseIP("127.0.0.1"), net.ParseIP(machinetest.Gateway), net.ParseIP("10.96.0.1")}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, p.caCert, key.Public(), p.caKey)
	require.NoError(t, err)
	p.write(t, l.name+".crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	p.writeKey(t, l.name+".key", key)
}

func (p *plane) serviceAccountKey(t *testing.T) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	p.writeKey(t, "sa.key", key)
}

func (p *plane) writeKey(t *testing.T, name string, key *ecdsa.PrivateKey) {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	p.write(t, name, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

func (p *plane) write(t *testing.T, name string, content []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, name), content, 0o600))
}

func (p *plane) kubeconfig(t *testing.T, user string) {
	t.Helper()
	p.write(t, user+".conf", fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"c",
		"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:%s","certificate-authority":"ca.crt"}}],
		"users":[{"name":"u","user":{"client-certificate":"%s.crt","client-key":"%s.key"}}],
		"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}]}`, p.port, user, user))
}
