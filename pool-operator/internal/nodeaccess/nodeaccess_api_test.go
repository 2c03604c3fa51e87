// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeaccess_test

import (
	"context"
	"crypto/x509/pkix"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"

	"github.com/muster-io/muster/apis/addresstest"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/apis/pki"
	"github.com/muster-io/muster/pool-operator/internal/controlplane"
	"github.com/muster-io/muster/pool-operator/internal/nodeaccess"
	"github.com/muster-io/muster/pool-operator/internal/provision"
	"github.com/muster-io/muster/pool-operator/internal/provision/process"
)

// patience bounds the waits for controllers of the cluster.
const patience = 2 * time.Minute

// tick is how often a wait asks.
const tick = 100 * time.Millisecond

var settings = nodeaccess.Settings{
	Network: provision.NodeNetwork{
		PodCIDR: netip.MustParsePrefix("10.200.0.0/16"), ServiceCIDR: netip.MustParsePrefix("10.100.0.0/16"), ClusterDNS: netip.MustParseAddr("10.100.0.10"),
	},
	DNSImage: nodeaccess.DefaultDNSImage,
}

// reachable returns an address of this machine that other machines reach.
func reachable(t *testing.T) netip.Addr {
	t.Helper()
	address := addresstest.Reachable()
	needtest.Part(t, address != "", "this machine has no address but loopback: nodes could not reach a cluster on it")
	return netip.MustParseAddr(address)
}

// start runs a hosted cluster that takes nodes, and returns how to get into it.
func start(t *testing.T) provision.Access {
	t.Helper()
	programs, err := controlplane.FindBinaries("")
	if err == nil && programs.Scheduler == "" {
		err = &controlplane.MissingBinaryError{Name: "kube-scheduler"}
	}
	needtest.NoError(t, err)
	runtime, err := process.New(t.Context(), process.Options{Root: t.TempDir(), Host: reachable(t), UnsafeNoFsync: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, runtime.Close(context.WithoutCancel(t.Context()))) })
	ref := provision.ClusterRef{Namespace: "ns", Name: "blue", UID: "4a3e2c1b-0000-4000-8000-000000000001"}
	require.NoError(t, runtime.Start(t.Context(), ref, provision.Spec{ClusterName: "blue", Nodes: &settings.Network}))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		seen, err := runtime.Observe(t.Context(), ref)
		require.NoError(c, err)
		assert.Equal(c, provision.StateReady, seen.State, "%v", seen.Problem)
	}, patience, 100*time.Millisecond)
	access, err := runtime.Access(t.Context(), ref)
	require.NoError(t, err)
	return access
}

func connect(t *testing.T, kubeconfig []byte) (*rest.Config, kubernetes.Interface) {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	require.NoError(t, err)
	config.QPS = -1
	return config, clientset(t, config)
}

func clientset(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return c
}

// anonymous is the configuration without credentials.
func anonymous(config *rest.Config) *rest.Config { return rest.AnonymousClientConfig(config) }

func token(id string, change func(*corev1.Secret)) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
			"auth-extra-groups": hivev1.NodeBootstrapGroup, "expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
		},
	}
	if change != nil {
		change(secret)
	}
	return secret
}

// request makes a key and a request for the certificate of a node.
func request(t *testing.T, node string) (key, csr []byte) {
	t.Helper()
	private, err := pki.NewKey()
	require.NoError(t, err)
	key, err = pki.EncodeKey(private)
	require.NoError(t, err)
	csr, err = certutil.MakeCSR(private, &pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}, nil, nil)
	require.NoError(t, err)
	return key, csr
}

// A machine with a token becomes a node only by the node manager's approval; its pods are scheduled and have addresses.
func TestAMachineJoinsAHostedCluster(t *testing.T) {
	access := start(t)
	require.NoError(t, nodeaccess.Apply(t.Context(), access.Kubeconfig, settings))
	require.NoError(t, nodeaccess.Apply(t.Context(), access.Kubeconfig, settings), "applying again changes nothing")
	_, admin := connect(t, access.Kubeconfig)
	config, manager := connect(t, access.NodeManager)

	t.Run("the node manager may do what it is for, and nothing else", func(t *testing.T) { assertRights(t, admin) })
	t.Run("the node manager makes no other Secrets than bootstrap tokens", func(t *testing.T) { assertTokens(t, admin, manager) })

	_, err := manager.CoreV1().Secrets(metav1.NamespaceSystem).Create(t.Context(), token("aaaaaa", nil), metav1.CreateOptions{})
	require.NoError(t, err)
	machine := anonymous(config)
	machine.BearerToken = "aaaaaa.0123456789abcdef"
	node := join(t, machine, manager, "worker-1")

	t.Run("a bootstrap token reads nothing and approves nothing", func(t *testing.T) { assertBootstrapRights(t, admin) })
	t.Run("a node stays with its own objects", func(t *testing.T) { assertConfined(t, admin, node) })
	t.Run("the node manager sets labels that the node may not set", func(t *testing.T) { assertLabels(t, manager, node) })
	t.Run("a pod is scheduled on the node", func(t *testing.T) { assertScheduled(t, admin, node, "worker-1") })
}

// join brings a certificate for the node and registers it, as its kubelet does, and returns a client with the node's rights.
func join(t *testing.T, machine *rest.Config, manager kubernetes.Interface, name string) kubernetes.Interface {
	t.Helper()
	key, csr := request(t, name)
	asked := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "csr-" + name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: csr, SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
	var err error
	require.EventuallyWithT(t, func(c *assert.CollectT) { // the authenticator reads tokens from a cache
		asked, err = clientset(t, machine).CertificatesV1().CertificateSigningRequests().Create(t.Context(), asked, metav1.CreateOptions{})
		require.NoError(c, err)
	}, patience, 100*time.Millisecond)
	assert.Equal(t, "system:bootstrap:aaaaaa", asked.Spec.Username)
	asked.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test", LastUpdateTime: metav1.Now(),
	}}
	_, err = manager.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), asked.Name, asked, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		asked, err = manager.CertificatesV1().CertificateSigningRequests().Get(t.Context(), asked.Name, metav1.GetOptions{})
		require.NoError(c, err)
		assert.NotEmpty(c, asked.Status.Certificate)
	}, patience, 100*time.Millisecond)
	kubelet := anonymous(machine)
	kubelet.CertData, kubelet.KeyData = asked.Status.Certificate, key
	node := clientset(t, kubelet)
	_, err = node.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return node
}

func review(t *testing.T, admin kubernetes.Interface, user string, groups []string, verb, group, resource, namespace, name string) bool {
	t.Helper()
	answer, err := admin.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups, ResourceAttributes: attributes(verb, group, resource, namespace, name)},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return answer.Status.Allowed
}

func attributes(verb, group, resource, namespace, name string) *authorizationv1.ResourceAttributes {
	a := &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Namespace: namespace, Name: name}
	for i := range resource {
		if resource[i] == '/' {
			a.Resource, a.Subresource = resource[:i], resource[i+1:]
		}
	}
	return a
}

func assertRights(t *testing.T, admin kubernetes.Interface) {
	t.Helper()
	const certificates = "certificates.k8s.io"
	given := map[string]bool{}
	for _, rule := range []struct {
		group, resource, namespace, name string
		verbs                            []string
	}{
		{"", "nodes", "", "", []string{"get", "list", "watch", "patch", "delete"}},
		{"", "pods", "", "", []string{"list"}},
		{"", "pods/eviction", "", "", []string{"create"}},
		{"", "secrets", metav1.NamespaceSystem, "", []string{"create", "delete"}},
		{"", "secrets", "default", "", nil},
		{"", "configmaps", metav1.NamespaceSystem, "", nil},
		{"", "pods/exec", "", "", nil},
		{"rbac.authorization.k8s.io", "clusterrolebindings", "", "", nil},
		{certificates, "certificatesigningrequests", "", "", []string{"get", "list", "watch"}},
		{certificates, "certificatesigningrequests/approval", "", "", []string{"update"}},
		{certificates, "signers", "", "kubernetes.io/kube-apiserver-client-kubelet", []string{"approve"}},
		{certificates, "signers", "", "kubernetes.io/kubelet-serving", []string{"approve"}},
		{certificates, "signers", "", "kubernetes.io/kube-apiserver-client", nil},
	} {
		clear(given)
		for _, verb := range rule.verbs {
			given[verb] = true
		}
		for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "approve", "sign"} {
			allowed := review(t, admin, controlplane.NodeManagerUser, []string{"system:authenticated"}, verb, rule.group, rule.resource, rule.namespace, rule.name)
			assert.Equal(t, given[verb], allowed, "%s %s %s in %q", verb, rule.resource, rule.name, rule.namespace)
		}
	}
}

func assertTokens(t *testing.T, admin, manager kubernetes.Interface) {
	t.Helper()
	for name, change := range map[string]func(*corev1.Secret){
		"an opaque Secret":         func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque },
		"a token of another group": func(s *corev1.Secret) { s.StringData["auth-extra-groups"] = "system:bootstrappers:kubeadm:default" },
		"two groups":               func(s *corev1.Secret) { s.StringData["auth-extra-groups"] += ",system:bootstrappers:other" },
		"a token that never ends":  func(s *corev1.Secret) { delete(s.StringData, "expiration") },
		"a token that signs":       func(s *corev1.Secret) { s.StringData["usage-bootstrap-signing"] = "true" },
		"a token of a service account": func(s *corev1.Secret) {
			s.Type, s.Annotations = corev1.SecretTypeServiceAccountToken, map[string]string{corev1.ServiceAccountNameKey: "default"}
		},
	} {
		require.EventuallyWithT(t, func(c *assert.CollectT) { // the policy takes effect a moment after it was applied
			_, err := manager.CoreV1().Secrets(metav1.NamespaceSystem).Create(t.Context(), token("bbbbbb", change), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			assert.True(c, apierrors.IsForbidden(err) || apierrors.IsInvalid(err), "%s: %v", name, err)
		}, patience, 100*time.Millisecond)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "of-the-user"}}
	_, err := admin.CoreV1().Secrets(metav1.NamespaceSystem).Create(t.Context(), secret, metav1.CreateOptions{})
	require.NoError(t, err)
	err = manager.CoreV1().Secrets(metav1.NamespaceSystem).Delete(t.Context(), secret.Name, metav1.DeleteOptions{})
	assert.ErrorContains(t, err, "creates and deletes bootstrap tokens only")
}

func assertBootstrapRights(t *testing.T, admin kubernetes.Interface) {
	t.Helper()
	groups := []string{hivev1.NodeBootstrapGroup, "system:bootstrappers", "system:authenticated"}
	allowed := func(verb, group, resource string) bool {
		return review(t, admin, "system:bootstrap:aaaaaa", groups, verb, group, resource, "", "")
	}
	assert.True(t, allowed("create", "certificates.k8s.io", "certificatesigningrequests"))
	assert.False(t, allowed("create", "certificates.k8s.io", "certificatesigningrequests/nodeclient"), "its requests are not approved by themselves")
	assert.False(t, allowed("get", "", "secrets"))
	assert.False(t, allowed("list", "", "nodes"))
}

func assertConfined(t *testing.T, admin, node kubernetes.Interface) {
	t.Helper()
	_, err := admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "victim"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = node.CoreV1().Nodes().Patch(t.Context(), "victim", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	assert.True(t, apierrors.IsForbidden(err), "%v", err)
	_, err = node.CoreV1().Nodes().Patch(t.Context(), "worker-1", types.MergePatchType, []byte(`{"metadata":{"labels":{"node-restriction.kubernetes.io/a":"b"}}}`), metav1.PatchOptions{})
	assert.True(t, apierrors.IsForbidden(err), "%v", err)
	_, err = node.CoreV1().Secrets(metav1.NamespaceSystem).Get(t.Context(), "of-the-user", metav1.GetOptions{})
	assert.True(t, apierrors.IsForbidden(err), "%v", err)
	require.NoError(t, admin.CoreV1().Nodes().Delete(t.Context(), "victim", metav1.DeleteOptions{}))
}

func assertLabels(t *testing.T, manager, node kubernetes.Interface) {
	t.Helper()
	for _, label := range []string{"node-role.kubernetes.io/worker", "node-restriction.kubernetes.io/dedicated", "topology.kubernetes.io/rack"} {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:""}}}`, label)
		_, err := node.CoreV1().Nodes().Patch(t.Context(), "worker-1", types.MergePatchType, patch, metav1.PatchOptions{})
		assert.True(t, apierrors.IsForbidden(err), "%s: %v", label, err)
		labelled, err := manager.CoreV1().Nodes().Patch(t.Context(), "worker-1", types.MergePatchType, patch, metav1.PatchOptions{})
		require.NoError(t, err)
		assert.Contains(t, labelled.Labels, label)
	}
}

func assertScheduled(t *testing.T, admin, node kubernetes.Interface, name string) {
	t.Helper()
	status := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","lastHeartbeatTime":%q}],
		"allocatable":{"cpu":"4","memory":"8Gi","pods":"110"},"capacity":{"cpu":"4","memory":"8Gi","pods":"110"}}}`, time.Now().UTC().Format(time.RFC3339))
	_, err := node.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example.com/web"}}},
	}
	_, err = admin.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		pod, err := admin.CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{})
		require.NoError(c, err)
		assert.Equal(c, name, pod.Spec.NodeName, "%v", pod.Status.Conditions)
		registered, err := admin.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(c, err)
		assert.Regexp(c, `^10\.200\.\d+\.0/24$`, registered.Spec.PodCIDR)
	}, patience, 200*time.Millisecond)
	service, err := admin.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "10.100.0.1", service.Spec.ClusterIP)
	slice, err := admin.DiscoveryV1().EndpointSlices("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, []string{reachable(t).String()}, slice.Endpoints[0].Addresses, "pods reach the API server")
}

// The Secret says what a machine needs, and another version or network makes it another.
func TestTheSecretSaysHowMachinesJoin(t *testing.T) {
	config := []byte("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n" +
		"clusters: [{name: c, cluster: {server: 'https://192.0.2.1:6443', certificate-authority-data: Y2E=}}]\nusers: [{name: u, user: {}}]\n")
	access := provision.Access{NodeManager: config}
	content, err := nodeaccess.Secret(access, "v1.37.2", settings)
	require.NoError(t, err)
	text := map[string]string{}
	for key, value := range content {
		text[key] = string(value)
	}
	delete(text, hivev1.SecretKeyKubeconfig)
	assert.Equal(t, map[string]string{
		hivev1.NodeAccessKeyServer: "https://192.0.2.1:6443", hivev1.NodeAccessKeyCA: "ca", hivev1.NodeAccessKeyClusterDNS: "10.100.0.10",
		hivev1.NodeAccessKeyClusterDomain: "cluster.local", hivev1.NodeAccessKeyPodCIDR: "10.200.0.0/16", hivev1.NodeAccessKeyServiceCIDR: "10.100.0.0/16",
		hivev1.NodeAccessKeyKubernetesVersion: "v1.37.2", hivev1.NodeAccessKeyNetwork: hivev1.NodeNetworkHostGateway,
	}, text)

	ids := map[string]bool{}
	other := settings
	other.Network.PodCIDR = netip.MustParsePrefix("10.201.0.0/16")
	for _, given := range []struct {
		access, version string
		settings        nodeaccess.Settings
	}{{"a", "v1", settings}, {"b", "v1", settings}, {"a", "v2", settings}, {"a", "v1", other}} {
		id, err := nodeaccess.ID(given.access, given.version, given.settings)
		require.NoError(t, err)
		ids[id] = true
	}
	assert.Len(t, ids, 4)
}
