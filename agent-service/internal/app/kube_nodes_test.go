// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/diskimage"
	"github.com/muster-io/muster/agent-service/internal/join"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/apis/controlplanetest"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
)

// installed keeps the first-boot data that a generated machine got.
type installed struct {
	mu   sync.Mutex
	data []byte
}

func (i *installed) keep(job diskimage.Job) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.data = job.FirstBoot
}

// erase is what a wipe leaves.
func (i *installed) erase() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.data = nil
}

// join reads what the machine joins its cluster with; nil before it was written, or where there is nothing.
func (i *installed) join(t *testing.T) *join.Values {
	t.Helper()
	content := i.file(t, join.Path)
	if content == nil {
		return nil
	}
	values, err := join.Read(content)
	require.NoError(t, err)
	return &values
}

// file reads a file of the first-boot data; nil where it has none.
func (i *installed) file(t *testing.T, path string) []byte {
	t.Helper()
	content, found := i.files(t)[path]
	if !found {
		return nil
	}
	return []byte(content)
}

// takesNodes is a ClusterDeployment as pool-operator leaves one whose cluster takes nodes, with the AgentClusterInstall that lets hosts join it. The API server of
// the test stands for the cluster.
func (c *cluster) takesNodes() (*hivev1.ClusterDeployment, *corev1.Secret) {
	c.Helper()
	return c.takesNodesIn(c.newNamespace())
}

func (c *cluster) takesNodesIn(namespace string) (*hivev1.ClusterDeployment, *corev1.Secret) {
	c.Helper()
	deployment, secret := hostedIn(c, namespace)
	c.create(&hiveextv1.AgentClusterInstall{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "blue"},
		Spec:       hiveextv1.AgentClusterInstallSpec{ClusterDeploymentRef: hivev1.LocalObjectReference{Name: "blue"}},
	})
	return deployment, secret
}

// hostedIn makes a cluster that takes nodes, which the service does not know before there is an AgentClusterInstall.
func hostedIn(c *cluster, namespace string) (*hivev1.ClusterDeployment, *corev1.Secret) {
	c.Helper()
	kubeconfig, err := os.ReadFile(controlplanetest.Kubeconfig(c.T))
	require.NoError(c, err)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "blue-node-access"}, Type: hivev1.SecretTypeNodeAccess,
		Data: map[string][]byte{
			hivev1.SecretKeyKubeconfig: kubeconfig, hivev1.NodeAccessKeyServer: []byte("https://192.0.2.1:6443"), hivev1.NodeAccessKeyCA: controlplanetest.Start(c.T).CAData,
			hivev1.NodeAccessKeyPodCIDR: []byte("10.244.0.0/16"), hivev1.NodeAccessKeyNetwork: []byte(hivev1.NodeNetworkHostGateway),
			hivev1.NodeAccessKeyKubernetesVersion: []byte("v1.37.2"), hivev1.NodeAccessKeyClusterDNS: []byte("10.96.0.10"),
		},
	}
	c.create(secret)
	deployment := &hivev1.ClusterDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "blue"},
		Spec: hivev1.ClusterDeploymentSpec{
			ClusterName: "blue", BaseDomain: "example.org", Installed: true, Platform: hivev1.Platform{Hosted: &hivev1.HostedPlatform{Nodes: &hivev1.HostedNodes{}}},
			ClusterMetadata: &hivev1.ClusterMetadata{
				ClusterID: "c", InfraID: "i", AdminKubeconfigSecretRef: hivev1.LocalObjectReference{Name: "admin"}, NodeAccessSecretRef: &hivev1.LocalObjectReference{Name: secret.Name},
			},
		},
	}
	c.create(deployment)
	return deployment, secret
}

// asks sends the request of a kubelet that has the token, for a node of that name.
func (c *cluster) asks(token, node string) *certificatesv1.CertificateSigningRequest {
	c.Helper()
	id, _, _ := strings.Cut(token, ".")
	return c.requests("system:bootstrap:"+id, hivev1.NodeBootstrapGroup, certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.UsageClientAuth, x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
	})
}

// serves sends the request of a node for a certificate with which it serves at addresses.
func (c *cluster) serves(node string, addresses ...string) *certificatesv1.CertificateSigningRequest {
	c.Helper()
	asked := x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}, DNSNames: []string{node}}
	for _, address := range addresses {
		asked.IPAddresses = append(asked.IPAddresses, net.ParseIP(address))
	}
	return c.requests("system:node:"+node, "system:nodes", certificatesv1.KubeletServingSignerName, certificatesv1.UsageServerAuth, asked)
}

// requests sends a request for a certificate as a user of a group.
func (c *cluster) requests(user, group, signer string, usage certificatesv1.KeyUsage, asked x509.CertificateRequest) *certificatesv1.CertificateSigningRequest {
	c.Helper()
	config := rest.CopyConfig(controlplanetest.Start(c.T))
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{group, "system:authenticated"}}
	kubelet, err := client.New(config, client.Options{Scheme: c.user.Scheme()})
	require.NoError(c, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(c, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &asked, key)
	require.NoError(c, err)
	var request *certificatesv1.CertificateSigningRequest
	require.EventuallyWithT(c, func(collect *assert.CollectT) { // its rights are new
		request = &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: signer, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, usage},
			},
		}
		require.NoError(collect, kubelet.Create(c.Context(), request))
	}, kubePatience, 50*time.Millisecond)
	return request
}

func (c *cluster) decided(request *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) {
	c.Helper()
	c.until(request, "it is "+string(kind), func() bool {
		return len(request.Status.Conditions) == 1 && request.Status.Conditions[0].Type == kind
	})
}

// A machine that is bound to a hosted cluster gets what it joins with. Its token makes a node of this machine and of no other, and is deleted when the Node is Ready.
func TestAHostJoinsItsClusterAsANode(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t))
	bootstrappers(c)
	m := c.boot(c.infraEnv("rack"), 1, 0)
	agent := c.agent(m)
	deployment, _ := c.takesNodes()
	change(c, agent, func(a *agentv1.Agent) {
		a.Spec.ClusterDeploymentName, a.Spec.Approved, a.Spec.Hostname, a.Spec.Role = reference(deployment), true, worker(c.namespace), "worker"
	})
	var values *join.Values
	require.Eventually(t, func() bool { values = m.installed.join(t); return values != nil }, kubePatience, 50*time.Millisecond, "there are no join credentials")
	assert.Equal(t, worker(c.namespace), values.NodeName)
	assert.Equal(t, "https://192.0.2.1:6443", values.Server)
	id, _, _ := strings.Cut(values.Token, ".")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id}}
	c.until(secret, "the token is in the cluster", func() bool { return true })

	honest, attack := c.asks(values.Token, worker(c.namespace)), c.asks(values.Token, "victim")
	c.decided(honest, certificatesv1.CertificateApproved)
	c.decided(attack, certificatesv1.CertificateDenied)
	c.until(honest, "it is signed", func() bool { return len(honest.Status.Certificate) > 0 })

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: worker(c.namespace)}}
	c.create(node)
	t.Cleanup(func() { assert.NoError(t, c.user.Delete(context.WithoutCancel(t.Context()), node)) })
	before := node.DeepCopy() // the controllers of the cluster write nodes, too
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
	require.NoError(t, c.user.Status().Patch(t.Context(), node, client.MergeFrom(before)))
	c.gone(secret)
}

// A node whose address DHCP changed gets a certificate for the new one once its system has reported it, and for the old one no more. What it reports gives it neither an address that another
// node had before nor that of the API server.
func TestANodeServesAtTheAddressThatDHCPGaveIt(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t))
	c.reside = true
	bootstrappers(c)
	infraEnv := c.infraEnv("rack")
	deployment, _ := c.takesNodes()
	var machines []*machine
	for number, name := range map[int]string{1: worker(c.namespace), 2: worker(c.namespace) + "-b"} {
		m := c.boot(infraEnv, number, 0)
		agent := c.agent(m)
		change(c, agent, func(a *agentv1.Agent) {
			a.Spec.ClusterDeploymentName, a.Spec.Approved, a.Spec.Hostname, a.Spec.Role = reference(deployment), true, name, "worker"
		})
		c.until(agent, "the machine is installed", func() bool { return agent.Status.DebugInfo.State == "added-to-existing-cluster" })
		c.asksForInstructions(agent)
		if machines = append(machines, m); number == 1 && len(machines) == 2 {
			machines[0], machines[1] = machines[1], machines[0]
		}
	}
	address := func(m *machine) string {
		at, _, _ := strings.Cut(m.Inventory().Interfaces[0].IPV4Addresses[0], "/")
		return at
	}
	node, old, others := worker(c.namespace), address(machines[0]), address(machines[1])
	denied := func(why string, addresses ...string) {
		t.Helper()
		request := c.serves(node, addresses...)
		c.decided(request, certificatesv1.CertificateDenied)
		assert.Contains(t, request.Status.Conditions[0].Message, "which is not one of its host", why)
	}
	c.decided(c.serves(node, old), certificatesv1.CertificateApproved)
	denied("it has not reported it", "10.99.0.1")

	machines[0].reports(c, "10.99.0.1/8", others+"/8", "192.0.2.1/24", "10.244.0.1/16")
	c.decided(c.approvedSoon(node, "10.99.0.1"), certificatesv1.CertificateApproved)
	denied("it left it", old)
	denied("another node has it", "10.99.0.1", others)
	denied("it is the API server's", "192.0.2.1")
	denied("pods have it", "10.244.0.1")
	c.decided(c.serves(node+"-b", others), certificatesv1.CertificateApproved)
}

// reports posts the addresses of an installed system, as its agent does when it is asked for its inventory.
func (m *machine) reports(c *cluster, addresses ...string) {
	c.Helper()
	inventory := m.Inventory()
	inventory.Interfaces[0].IPV4Addresses = addresses
	output, err := json.Marshal(inventory)
	require.NoError(c, err)
	require.NoError(c, m.Connection.Reply(c.Context(), m.HostID(), api.StepReply{StepType: api.StepTypeInventory, Output: string(output)}))
}

// approvedSoon asks for a certificate until one is approved, as a kubelet does: a request is denied while the service does not know the address.
func (c *cluster) approvedSoon(node, address string) *certificatesv1.CertificateSigningRequest {
	c.Helper()
	var request *certificatesv1.CertificateSigningRequest
	require.Eventually(c, func() bool {
		request = c.serves(node, address)
		c.until(request, "it is decided", func() bool { return len(request.Status.Conditions) == 1 })
		return request.Status.Conditions[0].Type == certificatesv1.CertificateApproved
	}, kubePatience, 50*time.Millisecond)
	return request
}

// bootstrappers lets machines with bootstrap tokens ask for certificates, as clusters that take nodes do.
func bootstrappers(c *cluster) {
	c.Helper()
	require.NoError(c, client.IgnoreAlreadyExists(c.user.Create(c.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "muster:node-bootstrapper"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: hivev1.NodeBootstrapGroup}},
	})))
}

// An installation for a cluster whose node access cannot be used fails before the disk is written, and says why.
func TestAHostIsNotInstalledWithoutNodeAccess(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t))
	m := c.boot(c.infraEnv("rack"), 1, 0)
	agent := c.agent(m)
	deployment, secret := c.takesNodes()
	change(c, secret, func(s *corev1.Secret) { delete(s.Data, hivev1.NodeAccessKeyKubernetesVersion) })
	change(c, agent, func(a *agentv1.Agent) {
		a.Spec.ClusterDeploymentName, a.Spec.Approved, a.Spec.Hostname = reference(deployment), true, worker(c.namespace)
	})
	c.until(agent, "the installation says why it cannot go on", func() bool {
		return strings.Contains(agent.Status.DebugInfo.StateInfo, "cannot be used for node access")
	})
	assert.Nil(t, m.installed.join(t))
}
