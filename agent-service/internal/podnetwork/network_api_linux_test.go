// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package podnetwork_test

import (
	"context"
	"encoding/json"
	"net/netip"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-io/muster/apis/controlplanetest"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/apis/netnstest"

	"github.com/muster-io/muster/agent-service/internal/podnetwork"
)

// kubeconfig is that of the node self, which has no rights but those of docs/spec/node-access.md.
func kubeconfig(t *testing.T, admin kubernetes.Interface) string {
	t.Helper()
	_, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "nodes-proxy"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-proxier"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:nodes"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	config, err := clientcmd.LoadFromFile(controlplanetest.Kubeconfig(t))
	require.NoError(t, err)
	for _, user := range config.AuthInfos {
		user.Impersonate, user.ImpersonateGroups = "system:node:self", []string{"system:nodes"}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}

func node(name, address string, pods ...string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: pods},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}},
	}
}

func TestANodeFollowsTheNodesOfItsCluster(t *testing.T) {
	netnstest.Need(t)
	_, err := exec.LookPath("nft")
	needtest.Part(t, err == nil, "there is no nft (Debian: nftables) to masquerade with")
	admin, err := kubernetes.NewForConfig(controlplanetest.Start(t))
	require.NoError(t, err)
	netnstest.IP(t, "link add rack0 type bridge")
	t.Cleanup(func() { netnstest.IP(t, "link del rack0") })
	netnstest.IP(t, "link set rack0 up")
	netnstest.IP(t, "address add 192.0.2.5/24 dev rack0")
	nodes := admin.CoreV1().Nodes()
	join := func(n *corev1.Node) {
		_, err := nodes.Create(t.Context(), n, metav1.CreateOptions{})
		require.NoError(t, err)
		status, err := json.Marshal(map[string]any{"status": map[string]any{"addresses": n.Status.Addresses}})
		require.NoError(t, err)
		_, err = nodes.Patch(t.Context(), n.Name, types.MergePatchType, status, metav1.PatchOptions{}, "status")
		require.NoError(t, err)
	}
	join(node("self", "192.0.2.5", "10.244.5.0/24"))
	options := podnetwork.Options{Kubeconfig: kubeconfig(t, admin), Node: "self", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:1::/48")}, Say: t.Logf}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- podnetwork.Run(ctx, options) }()
	see := func(want ...string) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) { assert.ElementsMatch(c, want, routes(t)) }, time.Minute, 50*time.Millisecond)
	}
	join(node("one", "192.0.2.1", "10.244.1.0/24"))
	see("10.244.1.0/24 via 192.0.2.1 dev rack0")
	join(node("two", "192.0.2.2", "10.244.2.0/24"))
	see("10.244.1.0/24 via 192.0.2.1 dev rack0", "10.244.2.0/24 via 192.0.2.2 dev rack0")
	require.NoError(t, nodes.Delete(t.Context(), "one", metav1.DeleteOptions{}))
	see("10.244.2.0/24 via 192.0.2.2 dev rack0")
	table, err := exec.CommandContext(t.Context(), "nft", "list", "table", "inet", "muster-pods").CombinedOutput()
	require.NoError(t, err, string(table))
	assert.Contains(t, string(table), "ip saddr 10.244.0.0/16 ip daddr != { 10.244.0.0/16, 224.0.0.0/4 } masquerade")
	assert.Contains(t, string(table), "ip6 saddr fd00:1::/48 ip6 daddr != { fd00:1::/48, ff00::/8 } masquerade")
	stop()
	require.NoError(t, <-ended)
	see("10.244.2.0/24 via 192.0.2.2 dev rack0")
}
