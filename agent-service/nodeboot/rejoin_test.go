// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeboot_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/join"
	"github.com/muster-io/muster/agent-service/internal/kubelet"
	"github.com/muster-io/muster/agent-service/internal/workload"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/machinetest"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/apis/pki"
)

const kubeletProgram = "../../bin/node/parts/programs/kubelet"

// slept is the system of a node whose machine was off until the certificate of its kubelet had expired.
type slept struct {
	*kubelet.Files
	// containers is a socket that accepts connections and never answers: the kubelet goes no further than to its certificate.
	containers string
}

func newSlept(t *testing.T, p *plane) slept {
	t.Helper()
	s := slept{Files: &kubelet.Files{Root: t.TempDir()}}
	past := pki.Period{From: time.Now().Add(-48 * time.Hour), Until: time.Now().Add(-time.Hour)}
	authority, err := pki.NewAuthority(pki.ClusterAuthority, past)
	require.NoError(t, err)
	pair, err := authority.Issue(pki.Admin(), past)
	require.NoError(t, err)
	certificate, key, err := pair.Encode()
	require.NoError(t, err)
	const first = "kubelet-client-2026-01-01-00-00-00.pem" // the kubelet replaces links only
	current := filepath.Join(s.Root, join.ClientCertificatePath)
	for path, content := range map[string]string{
		join.CertificatesPath + "/" + first: string(certificate) + string(key),
		join.KubeconfigPath: `{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:` + p.port + `"}}],
			"users":[{"name":"u","user":{"client-certificate":"` + current + `","client-key":"` + current + `"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}]}`,
	} {
		path = filepath.Join(s.Root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	require.NoError(t, os.Symlink(first, current))
	s.containers = filepath.Join(p.dir, "containers.sock")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", s.containers)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	settings, err := json.Marshal(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "rotateCertificates": true, "failSwapOn": false, "failCgroupV1": false, "containerRuntimeEndpoint": "unix://" + s.containers,
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true}}, "authorization": map[string]any{"mode": "Webhook"},
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.config(), settings, 0o600))
	return s
}

// kubelet is the command of a kubelet as node-init starts it, of the image that is built.
func (s slept) kubelet(ctx context.Context) *exec.Cmd {
	return exec.CommandContext(ctx, kubeletProgram, "--config="+s.config(), "--bootstrap-kubeconfig="+filepath.Join(s.Root, join.BootstrapKubeconfigPath), "--kubeconfig="+filepath.Join(s.Root, join.KubeconfigPath),
		"--cert-dir="+filepath.Join(s.Root, join.CertificatesPath), "--root-dir="+filepath.Join(s.Root, "root"), "--hostname-override=worker-1")
}

func (s slept) config() string { return filepath.Join(s.Root, "config.yaml") }

// supervise starts the kubelet again and again until the test ends, as node-init does: without containers it ends after some seconds.
func (s slept) supervise(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = s.kubelet(ctx).Run()
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// access is the node access of a control plane, and what reads it.
func (p *plane) access(t *testing.T, tokens workload.Tokens) (*workload.Access, *workload.Joiner, *domain.Cluster) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "access"}, Type: hivev1.SecretTypeNodeAccess, Data: map[string][]byte{
		hivev1.SecretKeyKubeconfig: p.inlined(t), hivev1.NodeAccessKeyServer: []byte("https://127.0.0.1:" + p.port), hivev1.NodeAccessKeyCA: p.ca, hivev1.NodeAccessKeyKubernetesVersion: []byte("v1.37.2"),
	}}
	deployment := &hivev1.ClusterDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "blue", UID: "c"},
		Spec:       hivev1.ClusterDeploymentSpec{ClusterMetadata: &hivev1.ClusterMetadata{NodeAccessSecretRef: &hivev1.LocalObjectReference{Name: "access"}}},
	}
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	require.NoError(t, hivev1.AddToScheme(scheme))
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(secret, deployment).Build()
	access, err := workload.ReadAccess(t.Context(), reader, deployment)
	require.NoError(t, err)
	return access, &workload.Joiner{Reader: reader, Tokens: tokens, Now: time.Now}, &domain.Cluster{ID: "c", Kube: domain.KubeRef{Namespace: "n", Name: "blue"}}
}

// inlined is the administrator's kubeconfig with its certificates.
func (p *plane) inlined(t *testing.T) []byte {
	t.Helper()
	file := func(name string) []byte {
		content, err := os.ReadFile(filepath.Join(p.dir, name))
		require.NoError(t, err)
		return content
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c", "user": "u"}}},
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": "https://127.0.0.1:" + p.port, "certificate-authority-data": p.ca}}},
		"users":    []any{map[string]any{"name": "u", "user": map[string]any{"client-certificate-data": file("admin.crt"), "client-key-data": file("admin.key")}}},
	})
	require.NoError(t, err)
	return text
}

// The kubelet of the image, on a control plane that accepts bootstrap tokens: without a token a node whose certificate expired comes to nothing, and with the one that its agent brings it gets another
// certificate. The token of its installation opens nothing.
func TestAKubeletWhoseCertificateExpiredGetsAnother(t *testing.T) {
	needNodes(t)
	needtest.File(t, kubeletProgram, "there is no kubelet: make node-image builds it")
	p := startPlane(t)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "muster:node-bootstrapper"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: hivev1.NodeBootstrapGroup}},
	}
	_, err := p.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = p.admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}, metav1.CreateOptions{})
	require.NoError(t, err)

	s := newSlept(t, p)
	assert.Equal(t, agentproto.CertificateExpired, s.KubeletCertificate())
	said, err := s.kubelet(t.Context()).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(said), "unable to load bootstrap kubeconfig", "it does not use what expired")

	tokens, err := workload.NewTokens([]byte("key"))
	require.NoError(t, err)
	h := &domain.Host{HostKey: domain.HostKey{InfraEnvID: "e", HostID: "h"}, ClusterID: "c"}
	h.RequestedHostname, h.Stamps.Binding = "worker-1", "b"
	access, joiner, cluster := p.access(t, tokens)
	joiner.NoteNode = func(_ context.Context, _ domain.HostKey, _ string, node domain.Node) error {
		h.Node = node
		return nil
	}
	installation, err := joiner.Values(t.Context(), h, cluster)
	require.NoError(t, err)
	assert.Equal(t, "worker-1", h.Node.Name)
	require.NoError(t, p.admin.CoreV1().Secrets(metav1.NamespaceSystem).Delete(t.Context(), "bootstrap-token-"+tokens.ID(h), metav1.DeleteOptions{}), "it had joined")

	h.Node.Rejoin.Stamp = "lost"
	values, err := joiner.Rejoin(t.Context(), h, cluster)
	require.NoError(t, err)
	watcher, err := workload.Watch(t.Context(), access, testr.New(t), func() {}, func(context.Context, workload.Machine, domain.Certificate) {})
	require.NoError(t, err)
	watcher.Expect([]workload.Machine{{
		NodeName: "worker-1", TokenID: tokens.ID(h), Joining: true, Rejoins: true, Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
		MakeToken: func(ctx context.Context, cluster kubernetes.Interface) error {
			return tokens.Make(ctx, cluster, h, time.Now())
		},
	}})
	require.NoError(t, s.GiveKubeconfig(values.BootstrapKubeconfig()))
	s.supervise(t)
	require.Eventually(t, func() bool { return s.KubeletCertificate() == agentproto.CertificateValid }, machinetest.Patience, 100*time.Millisecond, "the kubelet has no certificate")
	assert.NoFileExists(t, filepath.Join(s.Root, join.BootstrapKubeconfigPath), "the token is not needed any more")

	current := filepath.Join(s.Root, join.ClientCertificatePath)
	pair, err := tls.LoadX509KeyPair(current, current)
	require.NoError(t, err)
	assert.Equal(t, "system:node:worker-1", pair.Leaf.Subject.CommonName)
	as := func(config rest.Config) error {
		config.Host, config.CAData = "https://127.0.0.1:"+p.port, p.ca
		c, err := kubernetes.NewForConfig(&config)
		require.NoError(t, err)
		_, err = c.CoreV1().Nodes().Get(t.Context(), "worker-1", metav1.GetOptions{})
		return err
	}
	require.NoError(t, as(rest.Config{TLSClientConfig: rest.TLSClientConfig{CertFile: current, KeyFile: current}}))
	require.True(t, apierrors.IsUnauthorized(as(rest.Config{BearerToken: installation.Token})), "a token that ended is not good again")
	require.True(t, apierrors.IsForbidden(as(rest.Config{BearerToken: values.Token})), "the other one requests a certificate, and reads nothing")
}
