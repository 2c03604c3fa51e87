// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package journeys_test

import (
	"context"
	"net"
	"net/url"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/e2e/access"
	"github.com/muster-io/muster/e2e/checkout"
)

// poolOperator is the Deployment of the operator.
var poolOperator = client.ObjectKey{Namespace: "muster-pool-operator", Name: "pool-operator"}

// exposeAtNodePorts changes the operator as the component hosted-nodeport does, until the test ends.
func exposeAtNodePorts(t *testing.T) {
	t.Helper()
	path, err := checkout.Path("deploy", "components", "hosted-nodeport", "kustomization.yaml")
	require.NoError(t, err)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	var component struct {
		Patches []struct {
			Patch string `json:"patch"`
		} `json:"patches"`
	}
	require.NoError(t, yaml.Unmarshal(content, &component))
	require.Len(t, component.Patches, 1)
	patch, err := yaml.YAMLToJSON([]byte(component.Patches[0].Patch))
	require.NoError(t, err)

	admin := newClient(t, administrator)
	before := &appsv1.Deployment{}
	require.NoError(t, admin.Get(t.Context(), poolOperator, before))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		after := &appsv1.Deployment{}
		require.NoError(t, admin.Get(ctx, poolOperator, after))
		after.Spec.Template.Spec = before.Spec.Template.Spec
		require.NoError(t, admin.Update(ctx, after))
		untilRolledOut(ctx, t, admin)
	})
	require.NoError(t, admin.Patch(t.Context(), before.DeepCopy(), client.RawPatch(types.JSONPatchType, patch)))
	untilRolledOut(t.Context(), t, admin)
}

// untilRolledOut waits until the operator runs as its Deployment says, and no earlier one does.
func untilRolledOut(ctx context.Context, t *testing.T, admin client.Client) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		deployment := &appsv1.Deployment{}
		require.NoError(c, admin.Get(ctx, poolOperator, deployment))
		status := deployment.Status
		assert.GreaterOrEqual(c, status.ObservedGeneration, deployment.Generation)
		assert.Equal(c, *deployment.Spec.Replicas, status.UpdatedReplicas)
		assert.Equal(c, *deployment.Spec.Replicas, status.AvailableReplicas)
		assert.Equal(c, *deployment.Spec.Replicas, status.Replicas)
	}, patience, interval, "the operator is not rolled out")
}

// outsideOf is the configuration of a client that knows the kubeconfig of a claim and nothing else: it goes through no tunnel.
func outsideOf(w *testEnv, as client.Client, namespace string) *rest.Config {
	w.t.Helper()
	kubeconfig, err := access.Kubeconfig(w.ctx, as, namespace)
	require.NoError(w.t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	require.NoError(w.t, err)
	return config
}

// A claimed cluster is used from a workstation, with the kubeconfig as it is handed out; its port stays while it sleeps.
func TestAClaimedClusterIsReachedAtAPortOfTheNode(t *testing.T) {
	if !testing.Short() && !nodes {
		t.Skip("hosted clusters have ports of nodes in kind only: E2E_ENVIRONMENT=kind")
	}
	if !testing.Short() {
		exposeAtNodePorts(t)
	}
	w := newTestEnvAlone(t)
	list := &corev1.NodeList{}
	require.NoError(t, w.admin.List(t.Context(), list))
	addresses := map[string]bool{}
	for _, node := range list.Items {
		for _, address := range node.Status.Addresses {
			addresses[address.Address] = true
		}
	}
	pool := w.hostedPool("outside", 1, 1)
	w.create(pool)
	w.untilFilled(pool)
	claim := w.claim("mine", pool.Name, user("alice"))
	namespace := w.untilUsable(claim)
	alice := w.as("alice")
	w.enter(alice, namespace) // until the rights of the subject are known

	config := outsideOf(w, alice, namespace)
	server, err := url.Parse(config.Host)
	require.NoError(t, err)
	assert.True(t, addresses[server.Hostname()], "%s is the address of a node: %v", config.Host, addresses)
	_, port, err := net.SplitHostPort(server.Host)
	require.NoError(t, err)
	assert.NotEqual(t, "6443", port)
	cluster := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: namespace}}
	w.refresh(t, cluster)
	assert.Equal(t, config.Host, cluster.Status.APIURL, "status.apiURL is true")
	_, err = kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default").Create(t.Context(), note("kept"), metav1.CreateOptions{})
	require.NoError(t, err, "the certificate is for the address of the node")

	w.setPower(alice, namespace, hivev1.PowerStateHibernating)
	w.untilPower(namespace, hivev1.PowerStateHibernating)
	w.setPower(alice, namespace, hivev1.PowerStateRunning)
	w.untilPower(namespace, hivev1.PowerStateRunning)
	assert.Equal(t, config.Host, outsideOf(w, alice, namespace).Host, "the port stays the cluster's while it sleeps")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
		assert.NoError(c, err)
	}, moment, interval)
}
