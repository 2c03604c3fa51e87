// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/controlplanetest"
	"github.com/muster-io/muster/pool-operator/internal/provision"
	"github.com/muster-io/muster/pool-operator/internal/provision/pod"
)

// Without its policy, an administrator of the hosted cluster gets into the network of this one.
func TestANetworkPolicyThatAnotherClientDeletesComesBack(t *testing.T) {
	e := newExposed(t, 5, pod.Options{})
	e.start()
	require.False(t, e.observe().Outdated)
	policy := &networkingv1.NetworkPolicy{}
	key := client.ObjectKey{Namespace: e.ref.Namespace, Name: e.ref.ObjectName()}
	require.NoError(t, e.client.Get(t.Context(), key, policy))
	spec := policy.Spec
	require.NoError(t, e.client.Delete(t.Context(), policy))
	require.True(t, e.observe().Outdated)
	e.renew()
	require.False(t, e.observe().Outdated)
	require.NoError(t, e.client.Get(t.Context(), key, policy))
	require.Equal(t, spec, policy.Spec)
	require.Equal(t, e.ref.Name, policy.Annotations[pod.NameAnnotation], "its events name the cluster")
}

// TestANetworkPolicyThatAnotherClientChangesIsMadeWhatItWas whatever was added to it or left out of it.
func TestANetworkPolicyThatAnotherClientChangesIsMadeWhatItWas(t *testing.T) {
	e := newExposed(t, 7, pod.Options{})
	e.start()
	policy := &networkingv1.NetworkPolicy{}
	key := client.ObjectKey{Namespace: e.ref.Namespace, Name: e.ref.ObjectName()}
	require.NoError(t, e.client.Get(t.Context(), key, policy))
	spec := policy.Spec
	for name, change := range map[string]func(*networkingv1.NetworkPolicySpec){
		"a way out more": func(s *networkingv1.NetworkPolicySpec) { s.Egress = []networkingv1.NetworkPolicyEgressRule{{}} },
		"a way in more": func(s *networkingv1.NetworkPolicySpec) {
			s.Ingress = append(s.Ingress, networkingv1.NetworkPolicyIngressRule{})
		},
		"no way in":           func(s *networkingv1.NetworkPolicySpec) { s.Ingress = nil },
		"other pods":          func(s *networkingv1.NetworkPolicySpec) { s.PodSelector.MatchLabels["app"] = "none" },
		"one direction alone": func(s *networkingv1.NetworkPolicySpec) { s.PolicyTypes = s.PolicyTypes[:1] },
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, e.client.Get(t.Context(), key, policy))
			change(&policy.Spec)
			require.NoError(t, e.client.Update(t.Context(), policy, client.FieldOwner("another")))
			require.True(t, e.observe().Outdated)
			e.renew()
			require.False(t, e.observe().Outdated)
			require.NoError(t, e.client.Get(t.Context(), key, policy))
			require.Equal(t, spec, policy.Spec)
		})
	}
}

// The programs go on for the grace period of their pod, and must not reach the network meanwhile.
func TestTheNetworkPolicyOfAClusterStaysUntilItsPodHasEnded(t *testing.T) {
	e := newExposed(t, 10, pod.Options{})
	e.start()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.ref.Namespace, Name: e.ref.ObjectName() + "-0"}}
	require.Eventually(t, func() bool { return e.client.Get(t.Context(), client.ObjectKeyFromObject(p), p) == nil }, patience, 50*time.Millisecond)
	p.Finalizers = []string{"example.com/node"} // there is no node whose kubelet would keep it
	require.NoError(t, e.client.Update(t.Context(), p))
	key := client.ObjectKey{Namespace: e.ref.Namespace, Name: e.ref.ObjectName()}
	for range 2 {
		require.NoError(t, e.runtime.Delete(t.Context(), e.ref))
		require.Eventually(t, func() bool {
			return e.client.Get(t.Context(), client.ObjectKeyFromObject(p), p) == nil && p.DeletionTimestamp != nil
		}, patience, 50*time.Millisecond)
		require.NoError(t, e.client.Get(t.Context(), key, &networkingv1.NetworkPolicy{}))
		require.Equal(t, provision.StateDeleting, e.observe().State)
	}
	p.Finalizers = nil
	require.NoError(t, e.client.Update(t.Context(), p))
	require.Eventually(t, func() bool { return e.observe().State == provision.StateAbsent }, patience, 50*time.Millisecond)
	require.True(t, apierrors.IsNotFound(e.client.Get(t.Context(), key, &networkingv1.NetworkPolicy{})), "it is left behind")
}

func TestNetworkPoliciesWakeTheirCluster(t *testing.T) {
	e := newExposed(t, 6, pod.Options{})
	watched(t.Context(), t, e.runtime, controlplanetest.Start(t))
	// There is nothing else of the cluster that could wake it.
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{
		Namespace: e.ref.Namespace, Name: "alone", Labels: map[string]string{pod.Label: string(e.ref.UID)}, Annotations: map[string]string{pod.NameAnnotation: e.ref.Name},
	}}
	require.NoError(t, e.client.Create(t.Context(), policy))
	e.untilWoken()
	require.NoError(t, e.client.Delete(t.Context(), policy))
	e.untilWoken()
}

// untilWoken waits for a wake-up of the cluster, whatever others there are.
func (e *exposed) untilWoken() {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), patience)
	defer cancel()
	for {
		refs, err := e.runtime.Changes().Wait(ctx)
		require.NoError(e, err)
		if slices.Contains(refs, e.ref) {
			return
		}
	}
}
