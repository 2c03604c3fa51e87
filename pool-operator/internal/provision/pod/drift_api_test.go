// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/pool-operator/internal/provision/pod"
)

// A second pod has an empty etcd of its own: behind the same Service, it answers every other request with other data.
func TestAStatefulSetThatAnotherClientScalesHasOnePodBehindItsService(t *testing.T) {
	e := newExposed(t, 8, pod.Options{})
	e.start()
	require.False(t, e.observe().Outdated)
	set := statefulSet(e.ref.ObjectName())
	set.Namespace = e.ref.Namespace
	require.NoError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error { // the StatefulSet's controller writes its status
		if err := e.client.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
			return err
		}
		set.Spec.Replicas = new(int32(2))
		return e.client.Update(t.Context(), set, client.FieldOwner("kubectl-scale"))
	}))
	pods := &corev1.PodList{}
	newKubelet(t, e.client) // a StatefulSet makes the second pod when the first one is ready
	require.Eventually(t, func() bool {
		return e.client.List(t.Context(), pods, client.InNamespace(e.ref.Namespace)) == nil && len(pods.Items) == 2
	}, patience, 50*time.Millisecond)
	behind := 0
	for i := range pods.Items {
		if labels.SelectorFromSet(e.service().Spec.Selector).Matches(labels.Set(pods.Items[i].Labels)) {
			behind++
			require.Equal(t, e.ref.ObjectName()+"-0", pods.Items[i].Name)
		}
	}
	require.Equal(t, 1, behind)

	require.True(t, e.observe().Outdated)
	e.renew()
	require.False(t, e.observe().Outdated)
	require.NoError(t, e.client.Get(t.Context(), client.ObjectKeyFromObject(set), set))
	require.Equal(t, int32(1), *set.Spec.Replicas)
}

func TestAServiceThatAnotherClientChangesLeadsToTheClusterAgain(t *testing.T) {
	e := newExposed(t, 9, pod.Options{})
	e.start()
	made := e.service().Spec.Selector
	for name, change := range map[string]func(*corev1.ServiceSpec){
		"every pod of the StatefulSet": func(s *corev1.ServiceSpec) { delete(s.Selector, "statefulset.kubernetes.io/pod-name") },
		"other pods":                   func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": "another"} },
		"one label more":               func(s *corev1.ServiceSpec) { s.Selector["app"] = "another" },
		"no pods":                      func(s *corev1.ServiceSpec) { s.Selector = nil },
	} {
		t.Run(name, func(t *testing.T) {
			service := e.service()
			change(&service.Spec)
			require.NoError(t, e.client.Update(t.Context(), service, client.FieldOwner("kubectl-edit")))
			require.True(t, e.observe().Outdated)
			e.renew()
			require.False(t, e.observe().Outdated)
			require.Equal(t, made, e.service().Spec.Selector)
		})
	}
}
