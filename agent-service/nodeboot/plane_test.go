// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeboot_test

import (
	"fmt"
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
	"github.com/muster-io/muster/apis/pki"
	"github.com/muster-io/muster/apis/porttest"
	"github.com/muster-io/muster/apis/programtest"
)

// plane is a control plane that takes nodes, as docs/spec/node-access.md describes it.
type plane struct {
	ca    []byte
	port  string
	admin kubernetes.Interface
	dir   string
}

// startPlane starts etcd, kube-apiserver and kube-controller-manager; they end with the test.
func startPlane(t *testing.T) *plane {
	t.Helper()
	found, err := exec.CommandContext(t.Context(), "../../hack/controlplane/build", "--dir").Output()
	require.NoError(t, err)
	programs := strings.TrimSpace(string(found))
	needtest.File(t, filepath.Join(programs, "kube-apiserver"), "there is no control plane: make controlplane builds it")
	p := &plane{dir: t.TempDir(), port: porttest.Free(t)}
	p.certify(t)
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

// certify makes the authority of the cluster, the certificates that it signs, and the key of service accounts.
func (p *plane) certify(t *testing.T) {
	t.Helper()
	valid := pki.Period{From: time.Now().Add(-24 * time.Hour), Until: time.Now().Add(240 * time.Hour)}
	authority, err := pki.NewAuthority(pki.ClusterAuthority, valid)
	require.NoError(t, err)
	p.ca = p.writePair(t, "ca", authority)
	for file, leaf := range map[string]pki.Leaf{
		"apiserver": pki.APIServer("127.0.0.1", machinetest.Gateway, "10.96.0.1"), "admin": pki.Admin(), "manager": pki.ControllerManager(), "kubelet-client": pki.KubeletClient("system:masters"),
	} {
		made, err := authority.Issue(leaf, valid)
		require.NoError(t, err)
		p.writePair(t, file, made)
	}
	key, err := pki.NewKey()
	require.NoError(t, err)
	text, err := pki.EncodeKey(key)
	require.NoError(t, err)
	p.write(t, "sa.key", text)
}

func (p *plane) writePair(t *testing.T, file string, pair pki.Pair) (certificate []byte) {
	t.Helper()
	certificate, key, err := pair.Encode()
	require.NoError(t, err)
	p.write(t, file+".crt", certificate)
	p.write(t, file+".key", key)
	return certificate
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
