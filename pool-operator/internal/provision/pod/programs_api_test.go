// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/hostedplan"
	"github.com/muster-io/muster/pool-operator/internal/provision"
	"github.com/muster-io/muster/pool-operator/internal/provision/pod"
)

// stuck are the statuses of a container whose image keeps the pod from becoming ready.
var stuck = map[string]corev1.ContainerStatus{
	"an image that cannot be pulled": {State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}},
	"an image without the program":   {State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerError"}}},
	"a program that ends": {
		RestartCount: 3, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}},
	},
}

// Images may be in a registry that asks for credentials. The ClusterDeployment names them.
func TestImagesArePulledWithThePullSecretOfTheCluster(t *testing.T) {
	c := newClient(t)
	ref := provision.ClusterRef{Namespace: (&kubelet{T: t, client: c}).namespace(t), Name: "blue", UID: "81111111-2222-4333-8444-555555555555"}
	r := pod.New(pod.Options{Client: c, Images: pod.OneImage("registry.example.com/control-plane:test")})
	used := func() []corev1.LocalObjectReference {
		set := statefulSet("")
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: ref.Namespace, Name: ref.ObjectName()}, set))
		return set.Spec.Template.Spec.ImagePullSecrets
	}
	require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: "blue", PullSecret: "blue-pull-secret"}))
	require.Equal(t, []corev1.LocalObjectReference{{Name: "blue-pull-secret"}}, used())
	require.NoError(t, r.Stop(t.Context(), ref))
	require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}))
	require.Empty(t, used())
	require.NoError(t, r.Delete(t.Context(), ref))
}

// TestAnImageThatIsCorrectedReachesAClusterThatDoesNotComeUp: a StatefulSet replaces no pod that is not ready, whatever its template says by then.
func TestAnImageThatIsCorrectedReachesAClusterThatDoesNotComeUp(t *testing.T) {
	c := newClient(t)
	k := &kubelet{T: t, client: c}
	for name, status := range stuck {
		t.Run(name, func(t *testing.T) {
			ref := provision.ClusterRef{Namespace: k.namespace(t), Name: "blue", UID: "51111111-2222-4333-8444-555555555555"}
			key := client.ObjectKey{Namespace: ref.Namespace, Name: "hosted-51111111-2222-0"}
			open := func(image string) *pod.Runtime {
				return pod.New(pod.Options{Client: c, Images: pod.OneImage(image)})
			}
			wrong := open("control-plane:wrong")
			require.NoError(t, wrong.Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}))
			p := &corev1.Pod{}
			require.Eventually(t, func() bool { return c.Get(t.Context(), key, p) == nil }, patience, 50*time.Millisecond)
			status := *status.DeepCopy()
			status.Name, status.Image = "kube-apiserver", "control-plane:wrong"
			p.Status.Phase, p.Status.ContainerStatuses = corev1.PodPending, []corev1.ContainerStatus{status}
			require.NoError(t, c.Status().Update(t.Context(), p))

			cluster := &hivev1.ClusterDeployment{
				ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID, Finalizers: []string{hivev1.FinalizerDeprovision}},
				Spec:       hivev1.ClusterDeploymentSpec{ClusterName: "blue", Platform: hivev1.Platform{Hosted: &hivev1.HostedPlatform{}}},
			}
			if name != "an image without the program" { // that one is being installed
				o, err := wrong.Observe(t.Context(), ref)
				require.NoError(t, err)
				cluster.Spec.Installed, cluster.Spec.ClusterMetadata = true, &hivev1.ClusterMetadata{ClusterID: o.ID}
			}
			pass := func(r *pod.Runtime) (stopped bool) {
				o, err := r.Observe(t.Context(), ref)
				require.NoError(t, err)
				for _, action := range hostedplan.Plan(time.Now(), hostedplan.Snapshot{Cluster: cluster, Observed: o}).Actions {
					switch action.(type) {
					case hostedplan.Start:
						require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}))
					case hostedplan.Stop:
						require.NoError(t, r.Stop(t.Context(), ref))
						stopped = true
					}
				}
				return stopped
			}
			assert.False(t, pass(wrong), "a start would run the same programs")

			right := open("control-plane:right")
			require.Eventually(t, func() bool {
				pass(right)
				return c.Get(t.Context(), key, p) == nil && p.Spec.Containers[0].Image == "control-plane:right"
			}, 20*time.Second, 100*time.Millisecond, "the cluster goes on with the wrong image")
			assert.False(t, pass(right))
			require.NoError(t, right.Delete(t.Context(), ref))
		})
	}
}
