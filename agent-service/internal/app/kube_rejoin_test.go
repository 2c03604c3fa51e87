// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/join"
	kubeletfiles "github.com/muster-io/muster/agent-service/internal/kubelet"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// KubeletCertificate implements agent.Node.
func (m *machine) KubeletCertificate() agentproto.KubeletCertificate {
	if files := m.files.Load(); files != nil {
		return files.KubeletCertificate()
	}
	return ""
}

// GiveKubeconfig implements agent.Node.
func (m *machine) GiveKubeconfig(kubeconfig string) error {
	return m.files.Load().GiveKubeconfig(kubeconfig)
}

// certifies gives the kubelet of a machine a certificate that is good until a time.
func (m *machine) certifies(t *testing.T, until time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: until.Add(-24 * time.Hour), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	content := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	files := m.files.Load()
	if files == nil {
		files = &kubeletfiles.Files{Root: t.TempDir()}
	}
	for path, content := range map[string][]byte{join.ClientCertificatePath: content, join.KubeconfigPath: []byte(join.ClientCertificatePath)} {
		path = filepath.Join(files.Root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path+".next", content, 0o600))
		require.NoError(t, os.Rename(path+".next", path))
	}
	m.files.Store(files)
}

// bootstraps is the token that the kubelet of a machine can ask for a certificate with; empty for none.
func (m *machine) bootstraps(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(m.files.Load().Root, join.BootstrapKubeconfigPath))
	if err != nil {
		require.ErrorIs(t, err, os.ErrNotExist)
		return ""
	}
	config, err := clientcmd.Load(content)
	require.NoError(t, err)
	assert.Equal(t, "https://192.0.2.1:6443", config.Clusters[config.Contexts[config.CurrentContext].Cluster].Server)
	return config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo].Token
}

// leaver is a node of which a test takes the certificate away.
type leaver struct {
	*machine
	agent *agentv1.Agent
	node  *corev1.Node
	// first is the token of its installation.
	first string
}

// loses makes a node of a machine whose certificate expired while the machine was off.
func loses(c *cluster) *leaver {
	c.Helper()
	c.reside = true
	bootstrappers(c)
	l := &leaver{machine: c.boot(c.infraEnv("rack"), 1, 100*time.Millisecond)}
	l.agent = c.agent(l.machine)
	deployment, _ := c.takesNodes()
	c.bind(l.agent, deployment)
	l.first = l.installed.join(c.T).Token
	l.node = c.node(worker(c.namespace), corev1.ConditionTrue)
	c.says(l.agent, agentv1.ConditionJoined, agentv1.ReasonNodeReady)
	c.gone(tokenSecret(l.first))
	l.certifies(c.T, time.Now().Add(-time.Minute))
	c.nodeIs(l.node, corev1.ConditionUnknown)
	return l
}

// tokenSecret is the Secret of a bootstrap token.
func tokenSecret(token string) *corev1.Secret {
	id, _, _ := strings.Cut(token, ".")
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id}}
}

// given waits for the token that the kubelet is given.
func (l *leaver) given(c *cluster) (token string) {
	c.Helper()
	require.Eventually(c, func() bool { token = l.bootstraps(c.T); return token != "" }, kubePatience, 50*time.Millisecond, "the kubelet has no token")
	assert.NotEqual(c, l.first, token)
	return token
}

// joined waits until the condition Joined has a message.
func (l *leaver) joined(c *cluster, message string) {
	c.Helper()
	c.until(l.agent, "Joined says "+message, func() bool {
		said := agentv1.FindCondition(l.agent.Status.Conditions, agentv1.ConditionJoined)
		return said != nil && strings.Contains(said.Message, message)
	})
}

// The whole service: a node whose certificate expired while its machine was off gets another one, for itself alone, and with another token than that of its installation.
func TestANodeWhoseCertificateExpiredJoinsItsClusterAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t))
	l := loses(c)
	token := l.given(c)
	secret := tokenSecret(token)
	c.until(secret, "the token is in the cluster", func() bool { return true })
	assert.Equal(t, token, string(secret.Data["token-id"])+"."+string(secret.Data["token-secret"]))
	honest, attack, old := c.asks(token, l.node.Name), c.asks(token, "victim"), c.asks(l.first, l.node.Name)
	c.decided(honest, certificatesv1.CertificateApproved)
	c.decided(attack, certificatesv1.CertificateDenied)
	c.until(honest, "it is signed", func() bool { return len(honest.Status.Certificate) > 0 })
	l.joined(c, "no valid client certificate: the machine is given another bootstrap token")

	l.certifies(t, time.Now().Add(time.Hour))
	c.nodeIs(l.node, corev1.ConditionTrue)
	c.gone(secret)
	require.Eventually(t, func() bool { return l.bootstraps(t) == "" }, kubePatience, 50*time.Millisecond, "the machine keeps the token")
	c.says(l.agent, agentv1.ConditionJoined, agentv1.ReasonNodeReady)
	c.until(old, "the token of the installation joins nothing", func() bool { return len(old.Status.Conditions) == 0 })
	_, hidden, _ := strings.Cut(token, ".")
	for _, file := range []string{c.options.Database, c.options.Database + "-wal"} {
		if stored, err := os.ReadFile(file); err == nil {
			assert.NotContains(t, string(stored), hidden)
		}
	}
}

// A Node that a user deletes does not come back.
func TestANodeThatWasDeletedDoesNotJoinItsClusterAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t))
	l := loses(c)
	token := l.given(c)
	secret := tokenSecret(token)
	c.until(secret, "the token is in the cluster", func() bool { return true })
	require.NoError(t, c.user.Delete(t.Context(), l.node))
	c.gone(secret)
	late := c.asks(token, l.node.Name)
	c.decided(late, certificatesv1.CertificateDenied)
	assert.Contains(t, late.Status.Conditions[0].Message, "was deleted")
	l.joined(c, "was deleted")
	require.NoError(t, os.Remove(filepath.Join(l.files.Load().Root, join.BootstrapKubeconfigPath)))
	polled := l.polled()
	require.Eventually(t, func() bool { return l.polled() > polled+5 }, kubePatience, 50*time.Millisecond)
	assert.Empty(t, l.bootstraps(t), "it is given no other")
}
