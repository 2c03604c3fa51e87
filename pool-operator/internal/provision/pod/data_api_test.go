// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/pool-operator/internal/controlplane"
	"github.com/muster-io/muster/pool-operator/internal/provision"
	"github.com/muster-io/muster/pool-operator/internal/provision/pod"
)

// etcdOf is etcd's container in the StatefulSet of a cluster.
func etcdOf(t *testing.T, c client.Client, ref provision.ClusterRef) corev1.Container {
	t.Helper()
	set := statefulSet("")
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: ref.Namespace, Name: ref.ObjectName()}, set))
	return set.Spec.Template.Spec.InitContainers[0]
}

// stateOf is what a kubelet would give etcd's container, by the Secret as it is now.
func stateOf(t *testing.T, c client.Client, ref provision.ClusterRef) string {
	t.Helper()
	env := etcdOf(t, c, ref).Env
	require.Len(t, env, 1)
	require.Equal(t, "ETCD_INITIAL_CLUSTER_STATE", env[0].Name)
	from := env[0].ValueFrom.SecretKeyRef
	require.True(t, *from.Optional, "it is there when the cluster was ready")
	secret := &corev1.Secret{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: ref.Namespace, Name: from.Name}, secret))
	return string(secret.Data[from.Key])
}

// renewed has the cluster renewed until nothing is outdated.
func renewed(t *testing.T, r *pod.Runtime, ref provision.ClusterRef) {
	t.Helper()
	require.Eventually(t, func() bool {
		o, err := r.Observe(t.Context(), ref)
		if err != nil || o.Outdated {
			require.NoError(t, r.Renew(t.Context(), ref, provision.Spec{}))
			return false
		}
		return true
	}, patience, 50*time.Millisecond)
}

// The controller of StatefulSets makes an empty volume for a pod whose claim is gone. With the keys of the cluster, it would be taken for the cluster.
func TestAClusterThatWasReadyDoesNotBeginWithNothing(t *testing.T) {
	k := newKubelet(t, newClient(t))
	now := time.Now()
	r := pod.New(pod.Options{Client: k.client, Images: pod.OneImage("control-plane:test"), Dial: k.dial, Now: func() time.Time { return now }})
	ref := provision.ClusterRef{Namespace: k.namespace(t), Name: "blue", UID: "a1111111-2222-4333-8444-555555555555"}
	require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}))
	require.Empty(t, stateOf(t, k.client, ref), "a new cluster begins with nothing")
	ready(t, r, ref)
	renewed(t, r, ref)
	require.Equal(t, "existing", stateOf(t, k.client, ref))
	now = now.Add(700 * 24 * time.Hour)
	require.NoError(t, r.Renew(t.Context(), ref, provision.Spec{})) // the certificates end soon
	require.Equal(t, "existing", stateOf(t, k.client, ref), "certificates that are renewed change nothing about the data")

	p := &corev1.Pod{}
	require.NoError(t, k.client.Get(t.Context(), client.ObjectKey{Namespace: ref.Namespace, Name: ref.ObjectName() + "-0"}, p))
	// A pod without a node keeps no claim.
	require.NoError(t, k.client.SubResource("binding").Create(t.Context(), p, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "node"}}))
	require.NoError(t, k.client.Delete(t.Context(), claimOf(ref)))
	o, err := r.Observe(t.Context(), ref)
	require.NoError(t, err)
	require.Contains(t, o.DataAtRisk, claimOf(ref).Name, "the data can be saved while the pod runs")
	require.Empty(t, o.DataMissing)
	require.NoError(t, r.Delete(t.Context(), ref))
}

func TestAnEmptyVolumeThatEtcdRefusesIsMissingData(t *testing.T) {
	c := newClient(t)
	k := &kubelet{T: t, client: c}
	r := pod.New(pod.Options{Client: c, Images: pod.OneImage("control-plane:test")})
	ref := provision.ClusterRef{Namespace: k.namespace(t), Name: "blue", UID: "b1111111-2222-4333-8444-555555555555"}
	require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}))
	p := &corev1.Pod{}
	require.Eventually(t, func() bool {
		return c.Get(t.Context(), client.ObjectKey{Namespace: ref.Namespace, Name: ref.ObjectName() + "-0"}, p) == nil
	}, patience, 50*time.Millisecond)
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: refusalOfEtcd}}
	for name, status := range map[string]corev1.ContainerStatus{
		"it has ended":      {State: ended},
		"it waits":          {State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}, LastTerminationState: ended},
		"it is tried again": {State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, LastTerminationState: ended},
	} {
		status.Name = "etcd"
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{status}
		require.NoError(t, c.Status().Update(t.Context(), p))
		o, err := r.Observe(t.Context(), ref)
		require.NoError(t, err)
		assert.Equal(t, provision.StateStarting, o.State, name)
		assert.Contains(t, o.DataMissing, claimOf(ref).Name, name)
		assert.True(t, o.DataRefused, name)
		assert.NotEmpty(t, o.ID, name)
	}
	require.NoError(t, r.Delete(t.Context(), ref))
}

const refusalOfEtcd = `{"level":"fatal","msg":"discovery failed","error":"cannot fetch cluster info from peer urls: could not retrieve cluster information from the given URLs"}`

// A StatefulSet of a former version has etcd begin with nothing, and its pod may run for months.
func TestAStatefulSetOfBeforeIsChangedWithoutANewPod(t *testing.T) {
	k := newKubelet(t, newClient(t))
	r := pod.New(pod.Options{Client: k.client, Images: pod.OneImage("control-plane:test"), Dial: k.dial})
	ref := provision.ClusterRef{Namespace: k.namespace(t), Name: "blue", UID: "c1111111-2222-4333-8444-555555555555"}
	require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}))
	require.NoError(t, r.Stop(t.Context(), ref))
	stopped(t, r, ref)
	set := &appsv1.StatefulSet{}
	require.NoError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := k.client.Get(t.Context(), client.ObjectKey{Namespace: ref.Namespace, Name: ref.ObjectName()}, set); err != nil {
			return err
		}
		set.Spec.Template.Spec.InitContainers[0].Env, set.Spec.Replicas = nil, new(int32(1))
		return k.client.Update(t.Context(), set, client.FieldOwner(pod.FieldOwner))
	}))
	ready(t, r, ref)
	before, after := &corev1.Pod{}, &corev1.Pod{}
	key := client.ObjectKey{Namespace: ref.Namespace, Name: ref.ObjectName() + "-0"}
	require.NoError(t, k.client.Get(t.Context(), key, before))
	require.Empty(t, before.Spec.InitContainers[0].Env)
	renewed(t, r, ref)
	require.Equal(t, "existing", stateOf(t, k.client, ref))
	require.Eventually(t, func() bool { // its controller has seen the change
		err := k.client.Get(t.Context(), client.ObjectKeyFromObject(set), set)
		return err == nil && set.Status.ObservedGeneration == set.Generation
	}, patience, 50*time.Millisecond)
	require.NoError(t, k.client.Get(t.Context(), key, after))
	require.Equal(t, before.UID, after.UID, "the pod that runs stays")
	require.Nil(t, after.DeletionTimestamp)

	require.NoError(t, k.client.Delete(t.Context(), after))
	require.Eventually(t, func() bool {
		p := &corev1.Pod{}
		return k.client.Get(t.Context(), key, p) == nil && p.UID != before.UID && len(p.Spec.InitContainers[0].Env) == 1
	}, patience, 50*time.Millisecond, "the next one does not begin with nothing")
	require.NoError(t, r.Stop(t.Context(), ref))
	stopped(t, r, ref)
	require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}), "what was changed can be applied over")
	ready(t, r, ref)
	require.NoError(t, r.Delete(t.Context(), ref))
}

// TestEtcdRefusesAnEmptyVolume runs etcd as the pod does.
func TestEtcdRefusesAnEmptyVolume(t *testing.T) {
	programs, err := controlplane.FindBinaries("")
	if err != nil {
		t.Skip(err)
	}
	c := newClient(t)
	k := &kubelet{T: t, client: c}
	r := pod.New(pod.Options{Client: c, Images: pod.OneImage("control-plane:test")})
	ref := provision.ClusterRef{Namespace: k.namespace(t), Name: "blue", UID: "d1111111-2222-4333-8444-555555555555"}
	require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}))
	args := etcdOf(t, c, ref).Args
	require.NoError(t, r.Delete(t.Context(), ref))

	// run runs etcd with a volume until it serves, or ends, and returns what it wrote last if it ended.
	run := func(volume, state string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		dir := t.TempDir()
		own := make([]string, 0, len(args))
		for _, arg := range args {
			own = append(own, strings.Replace(arg, "--data-dir=/data", "--data-dir="+volume, 1))
		}
		out, err := os.Create(filepath.Join(dir, "log"))
		require.NoError(t, err)
		defer func() { _ = out.Close() }()
		command := exec.CommandContext(ctx, programs.Etcd, own...)
		command.Dir, command.Stdout, command.Stderr = dir, out, out
		if state != "" {
			command.Env = append(os.Environ(), "ETCD_INITIAL_CLUSTER_STATE="+state)
		}
		require.NoError(t, command.Start())
		done := make(chan error, 1)
		go func() { done <- command.Wait() }()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case err := <-done:
				require.Error(t, err)
				written, err := os.ReadFile(out.Name())
				require.NoError(t, err)
				return string(written[max(0, len(written)-2048):]) // as much as a kubelet reports
			case <-tick.C:
				if wals, _ := filepath.Glob(filepath.Join(volume, "etcd/member/wal/*.wal")); len(wals) > 0 {
					cancel()
					require.Error(t, <-done, "it was killed")
					return ""
				}
			}
		}
	}
	empty := t.TempDir()
	for range 3 {
		require.Contains(t, run(empty, "existing"), "cannot fetch cluster info from peer urls", "it refuses again and again")
	}
	volume := t.TempDir()
	require.Empty(t, run(volume, ""), "a new cluster begins")
	require.Empty(t, run(volume, "existing"), "it goes on with its data")
}
