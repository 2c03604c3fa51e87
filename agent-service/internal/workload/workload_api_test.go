// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/join"
	"github.com/muster-io/muster/apis/controlplanetest"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// patience bounds the waits for watches and controllers.
const patience = time.Minute

func host(name string) *domain.Host {
	h := &domain.Host{HostKey: domain.HostKey{InfraEnvID: "env", HostID: "id-of-" + name}, ClusterID: "cluster"}
	h.RequestedHostname, h.Stamps.Binding = name, "first"
	return h
}

// testEnv is one API server that stands for both: where the ClusterDeployment is, and the cluster that takes nodes.
type testEnv struct {
	client.Client
	config     *rest.Config
	deployment *hivev1.ClusterDeployment
	cluster    *domain.Cluster
	tokens     Tokens
}

func newTestEnv(t *testing.T, change func(*corev1.Secret)) *testEnv {
	t.Helper()
	w := &testEnv{config: controlplanetest.Start(t)}
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, hivev1.AddToScheme(scheme))
	var err error
	w.Client, err = client.New(w.config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	w.tokens, err = NewTokens([]byte(t.Name()))
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "workload-"}}
	require.NoError(t, w.Create(t.Context(), namespace))
	kubeconfig, err := os.ReadFile(controlplanetest.Kubeconfig(t))
	require.NoError(t, err)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "access"}, Type: hivev1.SecretTypeNodeAccess,
		Data: map[string][]byte{
			hivev1.SecretKeyKubeconfig: kubeconfig, hivev1.NodeAccessKeyServer: []byte("https://192.0.2.1:6443"), hivev1.NodeAccessKeyCA: w.config.CAData,
			hivev1.NodeAccessKeyPodCIDR: []byte("10.244.0.0/16"), hivev1.NodeAccessKeyNetwork: []byte("host-gw"), hivev1.NodeAccessKeyKubernetesVersion: []byte("v1.37.2"),
			hivev1.NodeAccessKeyClusterDNS: []byte("10.96.0.10, 10.96.0.11"),
		},
	}
	if change != nil {
		change(secret)
	}
	require.NoError(t, w.Create(t.Context(), secret))
	w.deployment = &hivev1.ClusterDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "blue"},
		Spec: hivev1.ClusterDeploymentSpec{
			ClusterName: "blue", BaseDomain: "example.com", Platform: hivev1.Platform{Hosted: &hivev1.HostedPlatform{Nodes: &hivev1.HostedNodes{}}},
			ClusterMetadata: &hivev1.ClusterMetadata{
				ClusterID: "c", InfraID: "i", AdminKubeconfigSecretRef: hivev1.LocalObjectReference{Name: "admin"}, NodeAccessSecretRef: &hivev1.LocalObjectReference{Name: "access"},
			},
		},
	}
	require.NoError(t, w.Create(t.Context(), w.deployment))
	w.cluster = &domain.Cluster{ID: string(w.deployment.UID), Kube: domain.KubeRef{Namespace: namespace.Name, Name: "blue"}}
	return w
}

func (w *testEnv) joiner() *Joiner {
	return &Joiner{Reader: w, Tokens: w.tokens, Now: time.Now, NoteNode: func(context.Context, domain.HostKey, string, domain.Node) error { return nil }}
}

// The release of a host deletes its token where it knows of its Node: the service may end once the token is there.
func TestANodeIsNotedBeforeItsTokenIsMade(t *testing.T) {
	w := newTestEnv(t, nil)
	h, j := host("Worker-1"), w.joiner()
	h.ClusterID = w.cluster.ID
	var noted []string
	j.NoteNode = func(_ context.Context, key domain.HostKey, clusterID string, node domain.Node) error {
		noted = append(noted, key.String(), clusterID, node.Name)
		return errors.New("the database is away")
	}
	_, err := j.Values(t.Context(), h, w.cluster)
	require.ErrorContains(t, err, "the database is away")
	assert.Equal(t, []string{h.String(), h.ClusterID, "worker-1"}, noted)
	err = w.Get(t.Context(), types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + w.tokens.ID(h)}, &corev1.Secret{})
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
}

// The join credentials of a host are complete, and the same at each request; their token is in the cluster each time.
func TestAHostGetsATokenOfItsOwn(t *testing.T) {
	w := newTestEnv(t, nil)
	h := host("Worker-1")
	h.NodeLabels = map[string]string{"rack": "a", "node-role.kubernetes.io/worker": "", "node.kubernetes.io/pool": "a"}
	h.NodeTaints = []domain.Taint{{Key: "dedicated", Value: "a", Effect: "NoSchedule"}}
	first, err := w.joiner().Values(t.Context(), h, w.cluster)
	require.NoError(t, err)
	require.NotNil(t, first)
	assert.Equal(t, "worker-1", first.NodeName)
	assert.Equal(t, map[string]string{"rack": "a", "node.kubernetes.io/pool": "a"}, first.Labels, "a kubelet that is started with the other one ends")
	assert.Equal(t, []join.Taint{{Key: "dedicated", Value: "a", Effect: "NoSchedule"}}, first.Taints)
	assert.Len(t, first.ClusterDNS, 2)
	id, secret, _ := strings.Cut(first.Token, ".")
	stored := &corev1.Secret{}
	key := types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id}
	require.NoError(t, w.Get(t.Context(), key, stored))
	assert.Equal(t, corev1.SecretTypeBootstrapToken, stored.Type)
	assert.Equal(t, secret, string(stored.Data["token-secret"]))
	assert.Equal(t, hivev1.NodeBootstrapGroup, string(stored.Data["auth-extra-groups"]))
	assert.NotContains(t, stored.Data, "usage-bootstrap-signing")
	until, err := time.Parse(time.RFC3339, string(stored.Data["expiration"]))
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now().Add(2*time.Hour), until, 5*time.Minute)

	require.NoError(t, w.Delete(t.Context(), stored))
	again, err := w.joiner().Values(t.Context(), h, w.cluster)
	require.NoError(t, err)
	assert.Equal(t, first, again)
	require.NoError(t, w.Get(t.Context(), key, stored))

	other, err := w.joiner().Values(t.Context(), host("worker-2"), w.cluster)
	require.NoError(t, err)
	assert.NotEqual(t, first.Token, other.Token)
}

func TestAClusterWithoutNodesGivesNothing(t *testing.T) {
	w := newTestEnv(t, nil)
	values, err := w.joiner().Values(t.Context(), host("a"), &domain.Cluster{ID: "of-rest"})
	require.NoError(t, err)
	assert.Nil(t, values, "a cluster of REST")
	_, err = w.joiner().Values(t.Context(), host("a"), &domain.Cluster{ID: "of-a-former-one", Kube: w.cluster.Kube})
	require.ErrorContains(t, err, "was deleted and made again")
}

// A Secret that cannot be used is a refusal that says which key is wrong and quotes no credential.
func TestNodeAccessThatCannotBeUsedIsRefused(t *testing.T) {
	const hidden = "hidden-credential"
	for name, c := range map[string]struct {
		change func(*corev1.Secret)
		says   string
	}{
		"an ordinary Secret": {func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }, `its type is "Opaque", not hive.openshift.io/node-access`},
		"no kubeconfig":      {func(s *corev1.Secret) { s.Data["kubeconfig"] = []byte(hidden) }, "kubeconfig is no kubeconfig"},
		"a server without TLS": {
			func(s *corev1.Secret) { s.Data["server"] = []byte("http://" + hidden) }, "server is not a URL of the form https://host:port"},
		"a network that is none":  {func(s *corev1.Secret) { s.Data["pod-cidr"] = []byte("10.244.0.0/16,pods") }, "pod-cidr: "},
		"no version":              {func(s *corev1.Secret) { delete(s.Data, "kubernetes-version") }, "is not of the form v1.2.3"},
		"routes without networks": {func(s *corev1.Secret) { delete(s.Data, "pod-cidr") }, "network host-gw needs podCIDRs"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv(t, c.change)
			_, err := w.joiner().Values(t.Context(), host("a"), w.cluster)
			require.ErrorContains(t, err, c.says)
			assert.Equal(t, domain.Conflict, domain.KindOf(err))
			assert.NotContains(t, err.Error(), hidden)
		})
	}
	w := newTestEnv(t, func(s *corev1.Secret) { s.Name = "elsewhere" })
	_, err := w.joiner().Values(t.Context(), host("a"), w.cluster)
	require.ErrorContains(t, err, "which spec.clusterMetadata.nodeAccessSecretRef names, is not there")
}

// A cluster that takes connections and never answers ends the request by its time.
func TestAClusterThatHangsIsGivenUp(t *testing.T) {
	release := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { close(release); hanging.Close() })
	config, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: hanging.URL}}, AuthInfos: map[string]*clientcmdapi.AuthInfo{"c": {}},
		Contexts: map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "c"}}, CurrentContext: "c",
	})
	require.NoError(t, err)
	w := newTestEnv(t, func(s *corev1.Secret) { s.Data["kubeconfig"] = config })
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err = w.joiner().Values(ctx, host("a"), w.cluster)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// kubelet sends a certificate request as a user.
func (w *testEnv) kubelet(t *testing.T, user string, groups []string, request *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	config := rest.CopyConfig(w.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	c, err := client.New(config, client.Options{Scheme: w.Scheme()})
	require.NoError(t, err)
	sent := &certificatesv1.CertificateSigningRequest{}
	require.EventuallyWithT(t, func(collect *assert.CollectT) { // its rights are new
		sent = &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"}, Spec: request.Spec}
		require.NoError(collect, c.Create(t.Context(), sent))
	}, patience, 50*time.Millisecond)
	return sent
}

// bootstrapGroups are those of tokens for nodes. They may ask for certificates, and no controller of Kubernetes approves them.
func (w *testEnv) bootstrapGroups(t *testing.T) []string {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "muster:node-bootstrapper"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: hivev1.NodeBootstrapGroup}},
	}
	require.NoError(t, client.IgnoreAlreadyExists(w.Create(t.Context(), binding)))
	return []string{hivev1.NodeBootstrapGroup}
}

func (w *testEnv) verdict(request *certificatesv1.CertificateSigningRequest) Verdict {
	if w.Get(context.Background(), client.ObjectKeyFromObject(request), request) == nil { //nolint:usetesting // it is asked until the end
		for _, condition := range request.Status.Conditions {
			switch condition.Type {
			case certificatesv1.CertificateApproved:
				return Approve
			case certificatesv1.CertificateDenied:
				return Deny
			case certificatesv1.CertificateFailed:
			}
		}
	}
	return Leave
}

// Two replicas watch one cluster: an honest machine gets its certificate, an attacker with its token does not, and the token goes when the
// Node is Ready.
func TestWatchersDecideOnce(t *testing.T) {
	w := newTestEnv(t, nil)
	h := host("joins-here")
	values, err := w.joiner().Values(t.Context(), h, w.cluster)
	require.NoError(t, err)
	id, _, _ := strings.Cut(values.Token, ".")
	access, err := ReadAccess(t.Context(), w, w.deployment)
	require.NoError(t, err)
	var watchers []*Watcher
	for range 2 {
		watcher, err := Watch(t.Context(), access, testr.New(t), func() {}, func(context.Context, Machine, domain.Certificate) {})
		require.NoError(t, err)
		watchers = append(watchers, watcher)
	}
	bootstrap := w.bootstrapGroups(t)
	named := func(name string) *certificatesv1.CertificateSigningRequest {
		request := joins(nil)(t)
		request.Spec.Request = encoded(t, subject("system:node:"+name))
		return request
	}
	early := w.kubelet(t, "system:bootstrap:"+id, bootstrap, named("joins-here"))
	attack := w.kubelet(t, "system:bootstrap:"+id, bootstrap, named("victim"))
	foreign := w.kubelet(t, "system:bootstrap:zzzzzz", bootstrap, named("joins-here"))
	for _, watcher := range watchers { // the host becomes known after its request
		watcher.Expect([]Machine{{NodeName: "joins-here", TokenID: id, Joining: true}})
	}
	require.Eventually(t, func() bool { return w.verdict(early) == Approve && w.verdict(attack) == Deny }, patience, 50*time.Millisecond)
	assert.Len(t, early.Status.Conditions, 1)
	assert.Equal(t, Leave, w.verdict(foreign), "it stays unapproved")
	require.Eventually(t, func() bool {
		return w.verdict(early) == Approve && len(early.Status.Certificate) > 0
	}, patience, 50*time.Millisecond, "the cluster signs what was approved")

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "joins-here"}}
	require.NoError(t, w.Create(t.Context(), node))
	t.Cleanup(func() { assert.NoError(t, w.Delete(context.WithoutCancel(t.Context()), node)) })
	key := types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id}
	require.NoError(t, w.Get(t.Context(), key, &corev1.Secret{}), "a Node that is not Ready may still need its token")
	before := node.DeepCopy() // the controllers of the cluster write nodes, too
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
	require.NoError(t, w.Status().Patch(t.Context(), node, client.MergeFrom(before)))
	require.Eventually(t, func() bool {
		return client.IgnoreNotFound(w.Get(t.Context(), key, &corev1.Secret{})) == nil && w.Get(t.Context(), key, &corev1.Secret{}) != nil
	},
		patience, 50*time.Millisecond, "the token is still there")
	assert.True(t, slices.ContainsFunc(watchers, func(w *Watcher) bool { ready, known := w.Ready("joins-here"); return ready && known }))
	late := w.kubelet(t, "system:bootstrap:"+id, bootstrap, named("joins-here"))
	require.Eventually(t, func() bool { return w.verdict(late) == Deny }, patience, 50*time.Millisecond, "the name is taken")
}

// Labels that a kubelet may not set are set for it, as soon as its Node is there and whenever they are missing. A Node that is not the machine's stays as it is.
func TestANodeGetsTheLabelsThatItsKubeletMayNotSet(t *testing.T) {
	w := newTestEnv(t, nil)
	access, err := ReadAccess(t.Context(), w, w.deployment)
	require.NoError(t, err)
	watcher, err := Watch(t.Context(), access, testr.New(t), func() {}, func(context.Context, Machine, domain.Certificate) {})
	require.NoError(t, err)
	const role = "node-role.kubernetes.io/worker"
	wanted := map[string]string{role: "", "topology.kubernetes.io/rack": "a"}
	watcher.Expect([]Machine{{NodeName: "is-labelled", Labels: wanted, Joined: true, Joining: true}, {NodeName: "is-foreign", Labels: wanted, TokenID: "unused", Joining: true}})
	made := func(name string) *corev1.Node {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"rack": "a"}}}
		require.NoError(t, w.Create(t.Context(), node))
		t.Cleanup(func() { assert.NoError(t, w.Delete(context.WithoutCancel(t.Context()), node)) })
		return node
	}
	foreign, node := made("is-foreign"), made("is-labelled")
	has := func() bool {
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(node), node))
		return labelled(node, wanted)
	}
	require.Eventually(t, has, patience, 50*time.Millisecond)
	assert.Equal(t, "a", node.Labels["rack"])
	before := node.DeepCopy()
	delete(node.Labels, role)
	require.NoError(t, w.Patch(t.Context(), node, client.MergeFrom(before)))
	require.Eventually(t, has, patience, 50*time.Millisecond, "the label is missing")
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign))
	assert.NotContains(t, foreign.Labels, role, "no certificate was approved for it")
}
