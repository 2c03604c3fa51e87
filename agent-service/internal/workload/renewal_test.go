// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// A machine that is written slowly, or is off for a night before its first boot, has a token on its disk that is still good when it boots.
func TestATokenIsRenewedUntilItsMachineHasJoined(t *testing.T) {
	tokens, err := NewTokens([]byte("secret"))
	require.NoError(t, err)
	h := &domain.Host{HostKey: domain.HostKey{InfraEnvID: "e", HostID: "h"}, ClusterID: "c"}
	cluster := fake.NewClientset()
	secrets := cluster.CoreV1().Secrets(metav1.NamespaceSystem)
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	clock := begin
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	start := func() *Watcher {
		w := &Watcher{cluster: cluster, nodes: corelisters.NewNodeLister(nodes), forgotten: map[string]bool{}, made: map[string]time.Time{}}
		w.machines = []Machine{{
			NodeName: "n", TokenID: tokens.ID(h), Joining: true, TokenMadeAt: begin,
			MakeToken: func(ctx context.Context, cluster kubernetes.Interface) error {
				return tokens.Make(ctx, cluster, h, clock)
			},
		}}
		return w
	}
	require.NoError(t, tokens.Make(t.Context(), cluster, h, clock)) // with the first-boot data
	w := start()
	for ; clock.Before(begin.Add(12 * time.Hour)); clock = clock.Add(time.Minute) {
		if clock.Sub(begin) == 7*time.Hour {
			w = start() // the service restarts
		}
		require.NoError(t, w.makeTokens(t.Context(), clock))
		token, err := secrets.Get(t.Context(), secretName(tokens.ID(h)), metav1.GetOptions{})
		require.NoError(t, err)
		until, err := time.Parse(time.RFC3339, token.StringData["expiration"])
		require.NoError(t, err)
		require.True(t, until.After(clock.Add(time.Hour)), "at %s the token is good until %s", clock, until)
		require.Equal(t, tokens.secret(h), token.StringData["token-secret"], "the machine has no other")
	}
	assert.Less(t, len(cluster.Actions()), 12*60+12*2*4, "it is not made at each look")

	require.NoError(t, nodes.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}))
	w.machines[0].Joined = true
	require.NoError(t, w.forgetTokens(t.Context()))
	require.NoError(t, w.makeTokens(t.Context(), clock.Add(tokenTTL)))
	_, err = secrets.Get(t.Context(), secretName(tokens.ID(h)), metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "the machine has joined: %v", err)
}

// A Node that was there before a host of its name is another machine's until a certificate for it was approved with the host's token.
func TestANodeThatWasThereBeforeIsNotTheHosts(t *testing.T) {
	nodes, requests := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil), cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	w := &Watcher{nodes: corelisters.NewNodeLister(nodes), requests: certificateslisters.NewCertificateSigningRequestLister(requests), synced: func() bool { return true }}
	machine := Machine{NodeName: "n", TokenID: "abcdef", Joining: true}
	require.NoError(t, nodes.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}))
	node, known := w.Node(machine)
	assert.True(t, known)
	assert.Equal(t, domain.Node{Name: "n"}, node)
	assert.False(t, w.tokenEnds(machine), "the host has not joined")
	request := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr"}, Spec: certificatesv1.CertificateSigningRequestSpec{Username: "system:bootstrap:abcdef"}}
	require.NoError(t, requests.Add(request))
	node, _ = w.Node(machine)
	assert.Equal(t, domain.Node{Name: "n"}, node, "it asks")
	request = request.DeepCopy()
	request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}}
	require.NoError(t, requests.Update(request))
	node, _ = w.Node(machine)
	assert.Equal(t, domain.Node{Name: "n", Seen: true, Ready: true}, node)
	assert.True(t, w.tokenEnds(machine))
	require.NoError(t, requests.Delete(request)) // the cluster deletes it after an hour
	machine.Joined = true
	node, _ = w.Node(machine)
	assert.True(t, node.Ready)
}

// A node that lost its certificate has a token while its Node is there and not Ready. A user who deletes the Node ends it.
func TestATokenIsMadeForANodeThatIsThere(t *testing.T) {
	tokens, err := NewTokens([]byte("secret"))
	require.NoError(t, err)
	h := &domain.Host{HostKey: domain.HostKey{InfraEnvID: "e", HostID: "h"}, ClusterID: "c"}
	h.Node.Rejoin.Stamp = "lost"
	cluster := fake.NewClientset()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	w := &Watcher{
		cluster: cluster, nodes: corelisters.NewNodeLister(nodes), forgotten: map[string]bool{}, made: map[string]time.Time{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()), requests: certificateslisters.NewCertificateSigningRequestLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)),
	}
	machine := Machine{NodeName: "n", TokenID: tokens.ID(h), Joining: true, Joined: true, Rejoins: true, MakeToken: func(ctx context.Context, cluster kubernetes.Interface) error {
		return tokens.Make(ctx, cluster, h, now)
	}}
	there := func() bool {
		t.Helper()
		w.Expect([]Machine{machine})
		require.NoError(t, w.makeTokens(t.Context(), now))
		require.NoError(t, w.forgetTokens(t.Context()))
		_, err := cluster.CoreV1().Secrets(metav1.NamespaceSystem).Get(t.Context(), secretName(machine.TokenID), metav1.GetOptions{})
		require.NoError(t, client.IgnoreNotFound(err))
		return err == nil
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}}}
	assert.False(t, there(), "there is no Node")
	require.NoError(t, nodes.Add(node))
	assert.True(t, there())
	now = now.Add(tokenTTL)
	require.NoError(t, nodes.Delete(node))
	assert.False(t, there(), "a user deleted it")
	require.NoError(t, nodes.Add(node))
	assert.True(t, there(), "and made it again")
	now = now.Add(tokenTTL)
	ready := node.DeepCopy()
	ready.Status.Conditions[0].Status = corev1.ConditionTrue
	require.NoError(t, nodes.Update(ready))
	assert.False(t, there(), "it has joined")
	require.NoError(t, nodes.Update(node))
	machine.MakeToken = nil
	assert.False(t, there(), "it does not ask")
}
