// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

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
