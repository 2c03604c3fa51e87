// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeaccess_test

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"

	"github.com/muster-io/muster/apis/pki"
	"github.com/muster-io/muster/pool-operator/internal/controlplane"
	"github.com/muster-io/muster/pool-operator/internal/nodeaccess"
)

// Each part is an attack on a cluster that takes nodes: with the node manager's credentials, with a bootstrap token, with the credentials of a node, and from the network between.
func TestAttacksOnAClusterThatTakesNodes(t *testing.T) {
	access := start(t)
	require.NoError(t, nodeaccess.Apply(t.Context(), access.Kubeconfig, settings))
	_, admin := connect(t, access.Kubeconfig)
	config, manager := connect(t, access.NodeManager)
	t.Run("stolen credentials of the node manager do nothing else", func(t *testing.T) { assertOnly(t, admin) })

	for id, change := range map[string]func(*corev1.Secret){
		"aaaaaa": nil,
		"eeeeee": func(s *corev1.Secret) { s.StringData["expiration"] = "2020-01-01T00:00:00Z" },
	} {
		_, err := manager.CoreV1().Secrets(metav1.NamespaceSystem).Create(t.Context(), token(id, change), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	machine := anonymous(config)
	machine.BearerToken = "aaaaaa.0123456789abcdef"
	var stolen *certificatesv1.CertificateSigningRequest
	require.EventuallyWithT(t, func(c *assert.CollectT) { // the authenticator reads tokens from a cache
		_, asked := clientRequest(t, "victim")
		var err error
		stolen, err = clientset(t, machine).CertificatesV1().CertificateSigningRequests().Create(t.Context(), asked, metav1.CreateOptions{})
		require.NoError(c, err)
	}, patience, tick)
	node, credentials := joinAs(t, machine, manager, "worker-1")
	t.Run("a token does not become another node by itself", func(t *testing.T) { assertUndecided(t, admin, stolen) })
	t.Run("a token that ended, or was guessed, opens nothing", func(t *testing.T) {
		for _, guess := range []string{"eeeeee.0123456789abcdef", "aaaaaa.fedcba9876543210", "zzzzzz.0123456789abcdef"} {
			attacker := anonymous(config)
			attacker.BearerToken = guess
			_, asked := clientRequest(t, "worker-1")
			_, err := clientset(t, attacker).CertificatesV1().CertificateSigningRequests().Create(t.Context(), asked, metav1.CreateOptions{})
			assert.True(t, apierrors.IsUnauthorized(err), "%s: %v", guess, err)
		}
	})
	t.Run("a node renews its own certificate, and gets none of another node", func(t *testing.T) { assertRenewal(t, node) })
	t.Run("a machine in between reads no logs", func(t *testing.T) { assertVerified(t, admin, manager, node, credentials) })
}

// nodeManages is what the node manager may do, and no other authenticated user.
var nodeManages = []string{
	"approve certificates.k8s.io/signers kubernetes.io/kube-apiserver-client-kubelet", "approve certificates.k8s.io/signers kubernetes.io/kubelet-serving",
	"create /pods/eviction default", "create /pods/eviction kube-system", "create /secrets kube-system",
	"delete /nodes", "delete /secrets kube-system",
	"get /nodes", "get certificates.k8s.io/certificatesigningrequests",
	"list /nodes", "list /pods default", "list /pods kube-system", "list certificates.k8s.io/certificatesigningrequests",
	"patch /nodes",
	"update certificates.k8s.io/certificatesigningrequests/approval",
	"watch /nodes", "watch certificates.k8s.io/certificatesigningrequests",
}

// assertOnly asks the API server what the node manager may do more than any user, over every verb and kind.
func assertOnly(t *testing.T, admin kubernetes.Interface) {
	t.Helper()
	_, lists, err := admin.Discovery().ServerGroupsAndResources()
	require.NoError(t, err)
	var found []string
	ask := func(verb, group, resource, namespace, name string) {
		groups := []string{"system:authenticated"}
		if review(t, admin, controlplane.NodeManagerUser, groups, verb, group, resource, namespace, name) && !review(t, admin, "any-user", groups, verb, group, resource, namespace, name) {
			found = append(found, strings.TrimSpace(fmt.Sprintf("%s %s/%s %s%s", verb, group, resource, namespace, name)))
		}
	}
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "bind", "escalate", "impersonate", "approve", "sign", "attest"}
	for _, list := range lists {
		group, _, both := strings.Cut(list.GroupVersion, "/")
		if !both {
			group = ""
		}
		for i := range list.APIResources {
			namespaces := []string{""}
			if list.APIResources[i].Namespaced {
				namespaces = []string{"default", metav1.NamespaceSystem}
			}
			for _, namespace := range namespaces {
				for _, verb := range verbs {
					ask(verb, group, list.APIResources[i].Name, namespace, "")
				}
			}
		}
	}
	for _, verb := range verbs { // kinds that exist for authorization alone
		for _, signer := range []string{"kube-apiserver-client", "kube-apiserver-client-kubelet", "kubelet-serving", "legacy-unknown"} {
			ask(verb, "certificates.k8s.io", "signers", "", "kubernetes.io/"+signer)
		}
		for _, kind := range []string{"users", "groups", "uids"} {
			ask(verb, "", kind, "", "")
		}
	}
	slices.Sort(found)
	assert.Equal(t, nodeManages, slices.Compact(found))
}

// clientRequest asks for a client certificate of a node.
func clientRequest(t *testing.T, node string) (key []byte, asked *certificatesv1.CertificateSigningRequest) {
	t.Helper()
	key, csr := request(t, node)
	return key, signing(csr, certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.UsageClientAuth)
}

func signing(csr []byte, signer string, usage certificatesv1.KeyUsage) *certificatesv1.CertificateSigningRequest {
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: csr, SignerName: signer, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, usage},
		},
	}
}

// signed waits for the certificate of a request that was approved.
func signed(t *testing.T, c kubernetes.Interface, asked *certificatesv1.CertificateSigningRequest) []byte {
	t.Helper()
	var certificate []byte
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		now, err := c.CertificatesV1().CertificateSigningRequests().Get(t.Context(), asked.Name, metav1.GetOptions{})
		require.NoError(collect, err)
		require.NotEmpty(collect, now.Status.Certificate)
		certificate = now.Status.Certificate
	}, patience, tick)
	return certificate
}

func approve(t *testing.T, manager kubernetes.Interface, asked *certificatesv1.CertificateSigningRequest) {
	t.Helper()
	asked.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test", LastUpdateTime: metav1.Now(),
	}}
	_, err := manager.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), asked.Name, asked, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// joinAs joins as join does, and returns the credentials, too.
func joinAs(t *testing.T, machine *rest.Config, manager kubernetes.Interface, name string) (kubernetes.Interface, tls.Certificate) {
	t.Helper()
	key, asked := clientRequest(t, name)
	asked, err := clientset(t, machine).CertificatesV1().CertificateSigningRequests().Create(t.Context(), asked, metav1.CreateOptions{})
	require.NoError(t, err)
	approve(t, manager, asked)
	kubelet := anonymous(machine)
	kubelet.CertData, kubelet.KeyData = signed(t, manager, asked), key
	node := clientset(t, kubelet)
	_, err = node.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	credentials, err := tls.X509KeyPair(kubelet.CertData, kubelet.KeyData)
	require.NoError(t, err)
	return node, credentials
}

// assertUndecided asserts that no controller approved a request, after one that was made later has been signed.
func assertUndecided(t *testing.T, admin kubernetes.Interface, asked *certificatesv1.CertificateSigningRequest) {
	t.Helper()
	now, err := admin.CertificatesV1().CertificateSigningRequests().Get(t.Context(), asked.Name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Empty(t, now.Status.Conditions)
	assert.Empty(t, now.Status.Certificate)
}

func assertRenewal(t *testing.T, node kubernetes.Interface) {
	t.Helper()
	requests := node.CertificatesV1().CertificateSigningRequests()
	_, of := clientRequest(t, "victim")
	_, err := requests.Create(t.Context(), of, metav1.CreateOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, "CN=system:node:worker-1")
	_, of = clientRequest(t, "worker-1")
	own, err := requests.Create(t.Context(), of, metav1.CreateOptions{})
	require.NoError(t, err)
	signed(t, node, own)
}

// between is a server at the address of a node that has one certificate after another.
type between struct {
	*httptest.Server
	mu          sync.Mutex
	certificate *tls.Certificate
	clients     []pkix.Name
}

func newBetween(t *testing.T, address string) *between {
	t.Helper()
	b := &between{}
	b.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, certificate := range r.TLS.PeerCertificates {
			b.clients = append(b.clients, certificate.Subject)
		}
		_, _ = io.WriteString(w, "logs of the pod")
	}))
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(address, "0"))
	require.NoError(t, err)
	require.NoError(t, b.Listener.Close())
	b.Listener = listener
	b.Config.ErrorLog = log.New(io.Discard, "", 0)
	b.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.certificate, nil
	}}
	b.StartTLS()
	b.TLS.Certificates = nil // that of httptest
	t.Cleanup(b.Close)
	return b
}

func (b *between) shows(certificate tls.Certificate) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.certificate = &certificate
}

func (b *between) served() []pkix.Name {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.clients)
}

// servingRequest makes a key and the request of worker-1 for a certificate that serves at an address; own is the certificate that it signs itself.
func servingRequest(t *testing.T, address string) (key, csr []byte, own tls.Certificate) {
	t.Helper()
	private, err := pki.NewKey()
	require.NoError(t, err)
	key, err = pki.EncodeKey(private)
	require.NoError(t, err)
	name := pkix.Name{CommonName: "system:node:worker-1", Organization: []string{"system:nodes"}}
	names, addresses := []string{"worker-1"}, []net.IP{net.ParseIP(address)}
	csr, err = certutil.MakeCSR(private, &name, names, addresses)
	require.NoError(t, err)
	template := &x509.Certificate{Subject: name, DNSNames: names, IPAddresses: addresses, NotAfter: metav1.Now().AddDate(1, 0, 0)}
	self, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	return key, csr, tls.Certificate{Certificate: [][]byte{self}, PrivateKey: private}
}

// certified is a serving certificate of worker-1 that the cluster signed for the address.
func certified(t *testing.T, manager, node kubernetes.Interface, address string) tls.Certificate {
	t.Helper()
	key, csr, _ := servingRequest(t, address)
	asked, err := node.CertificatesV1().CertificateSigningRequests().Create(t.Context(), signing(csr, certificatesv1.KubeletServingSignerName, certificatesv1.UsageServerAuth), metav1.CreateOptions{})
	require.NoError(t, err)
	approve(t, manager, asked)
	pair, err := tls.X509KeyPair(signed(t, manager, asked), key)
	require.NoError(t, err)
	return pair
}

// assertVerified has the API server read logs from the address of a node: it speaks with a certificate of the cluster for that address alone, and as no administrator.
func assertVerified(t *testing.T, admin, manager, node kubernetes.Interface, credentials tls.Certificate) {
	t.Helper()
	address := reachable(t).String()
	b := newBetween(t, address)
	status := fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":%q}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`, address, b.Listener.Addr().(*net.TCPAddr).Port)
	_, err := node.CoreV1().Nodes().Patch(t.Context(), "worker-1", types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.PodSpec{
			NodeName: "worker-1", AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "web", Image: "registry.example.com/web"}},
		},
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) { // its service account is made by a controller
		_, err := admin.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
		require.NoError(c, err)
	}, patience, tick)
	logs := func() (string, error) {
		text, err := admin.CoreV1().Pods("default").GetLogs("web", &corev1.PodLogOptions{}).Do(t.Context()).Raw()
		return string(text), err
	}
	_, _, self := servingRequest(t, address)
	for name, certificate := range map[string]tls.Certificate{
		"signed by itself":                          self,
		"of the cluster, for another address":       certified(t, manager, node, "192.0.2.99"),
		"the node's own, with which it is a client": credentials,
	} {
		b.shows(certificate)
		answer, err := logs()
		require.Error(t, err, name)
		require.Contains(t, answer, "x509", name)
		require.Empty(t, b.served(), "the API server said nothing to it: %s", name)
	}
	b.shows(certified(t, manager, node, address))
	text, err := logs()
	require.NoError(t, err)
	assert.Equal(t, "logs of the pod", text)
	clients := b.served()
	require.Len(t, clients, 1)
	assert.Equal(t, []string{controlplane.KubeletClientsGroup}, clients[0].Organization, "it is an administrator of kubelets and of nothing else")
}
