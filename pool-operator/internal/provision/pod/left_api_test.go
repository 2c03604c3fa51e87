// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/pool-operator/internal/provision"
	"github.com/muster-io/muster/pool-operator/internal/provision/pod"
)

// A user who deletes what has the keys, and the StatefulSet, leaves the volume, which nothing else deletes.
func TestAVolumeWithoutItsClusterIsDeleted(t *testing.T) {
	k := newKubelet(t, newClient(t))
	r := pod.New(pod.Options{Client: k.client, Images: pod.OneImage("control-plane:test"), Dial: k.dial})
	ref := provision.ClusterRef{Namespace: k.namespace(t), Name: "blue", UID: "e1111111-2222-4333-8444-555555555555"}
	require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}))
	ready(t, r, ref)
	set, secret := statefulSet(ref.ObjectName()), &corev1.Secret{}
	set.Namespace, secret.Namespace, secret.Name = ref.Namespace, ref.Namespace, ref.ObjectName()
	require.NoError(t, k.client.Delete(t.Context(), secret))
	require.NoError(t, k.client.Delete(t.Context(), set))
	require.Eventually(t, func() bool {
		o, err := r.Observe(t.Context(), ref)
		return err == nil && o.State == provision.StateFailed && o.Problem != nil && o.Problem.Reason == provision.ReasonDataDamaged
	}, patience, 50*time.Millisecond, "a cluster that is held to be going already is not deleted")
	require.NoError(t, r.Delete(t.Context(), ref))
	require.Eventually(t, func() bool {
		o, err := r.Observe(t.Context(), ref)
		return err == nil && o.State == provision.StateAbsent
	}, patience, 50*time.Millisecond)
}

// A user who also leaves the pod, as by kubectl delete statefulset --cascade=orphan, leaves one that no controller ends.
func TestAPodWithoutItsClusterIsEnded(t *testing.T) {
	k := newKubelet(t, newClient(t))
	r := pod.New(pod.Options{Client: k.client, Images: pod.OneImage("control-plane:test"), Dial: k.dial})
	ref := provision.ClusterRef{Namespace: k.namespace(t), Name: "blue", UID: "f1111111-2222-4333-8444-555555555555"}
	require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}))
	ready(t, r, ref)
	set, secret := statefulSet(ref.ObjectName()), &corev1.Secret{}
	set.Namespace, secret.Namespace, secret.Name = ref.Namespace, ref.Namespace, ref.ObjectName()
	require.NoError(t, k.client.Delete(t.Context(), secret))
	require.NoError(t, k.client.Delete(t.Context(), set, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	require.Eventually(t, func() bool {
		o, err := r.Observe(t.Context(), ref)
		return err == nil && o.State == provision.StateFailed && o.Problem != nil && o.Problem.Reason == provision.ReasonDataDamaged
	}, patience, 50*time.Millisecond, "a cluster that is held to be going already is not deleted")
	require.Eventually(t, func() bool {
		if err := r.Delete(t.Context(), ref); err != nil { // as the caller does for as long as there is anything
			return false
		}
		left, err := k.leftovers(t.Context(), ref)
		return err == nil && len(left) == 0
	}, patience, 100*time.Millisecond)
}
