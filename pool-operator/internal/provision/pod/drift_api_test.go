// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/pool-operator/internal/provision"
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

// ready waits until the cluster answers.
func ready(t *testing.T, r *pod.Runtime, ref provision.ClusterRef) {
	t.Helper()
	require.Eventually(t, func() bool {
		o, err := r.Observe(t.Context(), ref)
		return err == nil && o.State == provision.StateReady && o.DataMissing == ""
	}, patience, 50*time.Millisecond)
}

// stopped waits until no pod of the cluster is left.
func stopped(t *testing.T, r *pod.Runtime, ref provision.ClusterRef) {
	t.Helper()
	require.Eventually(t, func() bool {
		o, err := r.Observe(t.Context(), ref)
		return err == nil && o.State == provision.StateStopped
	}, patience, 50*time.Millisecond)
}

func claimOf(ref provision.ClusterRef) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: "data-" + ref.ObjectName() + "-0"}}
}

func TestAStatefulSetThatAnotherClientDeletesIsMadeAgainWithItsData(t *testing.T) {
	k := newKubelet(t, newClient(t))
	r := pod.New(pod.Options{Client: k.client, Images: pod.OneImage("control-plane:test"), Dial: k.dial})
	ref := provision.ClusterRef{Namespace: k.namespace(t), Name: "blue", UID: "61111111-2222-4333-8444-555555555555"}
	require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}))
	ready(t, r, ref)
	before, after := claimOf(ref), claimOf(ref)
	require.NoError(t, k.client.Get(t.Context(), client.ObjectKeyFromObject(before), before))
	require.Empty(t, before.OwnerReferences, "the garbage collector deletes it with its owner")

	set := statefulSet(ref.ObjectName())
	set.Namespace = ref.Namespace
	require.NoError(t, k.client.Delete(t.Context(), set))
	stopped(t, r, ref)
	require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}))
	ready(t, r, ref)
	require.NoError(t, k.client.Get(t.Context(), client.ObjectKeyFromObject(after), after))
	require.Equal(t, before.UID, after.UID)

	require.NoError(t, r.Delete(t.Context(), ref))
	require.Eventually(t, func() bool {
		left, err := k.leftovers(t.Context(), ref)
		return err == nil && len(left) == 0
	}, patience, 50*time.Millisecond, "a cluster that is deleted leaves no volume")
}

// As kubectl delete secret --all leaves it, but for the Secret with the keys.
func TestCredentialsOfAClusterThatSleepsAreMadeAnew(t *testing.T) {
	k := newKubelet(t, newClient(t))
	r := pod.New(pod.Options{Client: k.client, Images: pod.OneImage("control-plane:test"), Dial: k.dial})
	ref := provision.ClusterRef{Namespace: k.namespace(t), Name: "blue", UID: "81111111-2222-4333-8444-555555555555"}
	require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}))
	ready(t, r, ref)
	require.NoError(t, r.Stop(t.Context(), ref))
	stopped(t, r, ref)
	serving := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.ServingName()}}
	require.NoError(t, k.client.Delete(t.Context(), serving))
	_, err := r.Access(t.Context(), ref)
	problem, is := errors.AsType[*provision.Problem](err)
	require.True(t, is, "it holds up nothing: %v", err)
	require.NotEmpty(t, problem.Message)
	o, err := r.Observe(t.Context(), ref)
	require.NoError(t, err)
	require.Equal(t, provision.StateStopped, o.State)
	require.True(t, o.Outdated)
	require.NoError(t, r.Renew(t.Context(), ref, provision.Spec{}))
	access, err := r.Access(t.Context(), ref)
	require.NoError(t, err)
	require.NotEmpty(t, access.Kubeconfig)
	require.NoError(t, r.Delete(t.Context(), ref))
}

// That is how volumes of other StatefulSets are made larger.
func TestAPodWithoutItsStatefulSetIsAdopted(t *testing.T) {
	k := newKubelet(t, newClient(t))
	r := pod.New(pod.Options{Client: k.client, Images: pod.OneImage("control-plane:test"), Dial: k.dial})
	ref := provision.ClusterRef{Namespace: k.namespace(t), Name: "blue", UID: "91111111-2222-4333-8444-555555555555"}
	spec := provision.Spec{ClusterName: "blue"}
	start := func() {
		t.Helper()
		require.NoError(t, r.Start(t.Context(), ref, spec))
		ready(t, r, ref)
	}
	orphan := func() {
		t.Helper()
		set := statefulSet(ref.ObjectName())
		set.Namespace = ref.Namespace
		require.NoError(t, k.client.Delete(t.Context(), set, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
		require.Eventually(t, func() bool {
			o, err := r.Observe(t.Context(), ref)
			return err == nil && o.State == provision.StateFailed
		}, patience, 50*time.Millisecond)
	}
	instance := func() types.UID {
		t.Helper()
		p := &corev1.Pod{}
		require.NoError(t, k.client.Get(t.Context(), client.ObjectKey{Namespace: ref.Namespace, Name: ref.ObjectName() + "-0"}, p))
		return p.UID
	}
	start()
	first := instance()
	orphan()
	start()
	require.Equal(t, first, instance(), "it runs on")

	orphan()
	require.NoError(t, r.Stop(t.Context(), ref))
	stopped(t, r, ref)
	start()

	orphan()
	require.Eventually(t, func() bool {
		if err := r.Delete(t.Context(), ref); err != nil { // as the caller does for as long as there is anything
			return false
		}
		left, err := k.leftovers(t.Context(), ref)
		return err == nil && len(left) == 0
	}, patience, 100*time.Millisecond)
}

// A StatefulSet of a former version owns the claim, and the cluster may run for months.
func TestAStatefulSetOfBeforeIsChangedToLeaveItsVolume(t *testing.T) {
	e := newExposed(t, 11, pod.Options{})
	e.start()
	set := statefulSet(e.ref.ObjectName())
	set.Namespace = e.ref.Namespace
	require.NoError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := e.client.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
			return err
		}
		set.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
		return e.client.Update(t.Context(), set, client.FieldOwner(pod.FieldOwner))
	}))
	owners := func() int {
		claim := claimOf(e.ref)
		if e.client.Get(t.Context(), client.ObjectKeyFromObject(claim), claim) != nil {
			return -1
		}
		return len(claim.OwnerReferences)
	}
	require.Eventually(t, func() bool { return owners() == 1 }, patience, 50*time.Millisecond)
	require.True(t, e.observe().Outdated)
	e.renew()
	require.False(t, e.observe().Outdated)
	require.Eventually(t, func() bool { return owners() == 0 }, patience, 50*time.Millisecond)
	require.NoError(t, e.client.Get(t.Context(), client.ObjectKeyFromObject(set), set))
	require.Equal(t, int32(1), *set.Spec.Replicas)
}

// The controller of StatefulSets makes an empty volume for a pod whose claim is gone.
func TestAVolumeClaimThatAnotherClientDeletesIsMissed(t *testing.T) {
	k := newKubelet(t, newClient(t))
	r := pod.New(pod.Options{Client: k.client, Images: pod.OneImage("control-plane:test"), Dial: k.dial})
	ref := provision.ClusterRef{Namespace: k.namespace(t), Name: "blue", UID: "71111111-2222-4333-8444-555555555555"}
	require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}))
	ready(t, r, ref)
	made := claimOf(ref)
	require.NoError(t, k.client.Get(t.Context(), client.ObjectKeyFromObject(made), made))
	require.NoError(t, k.client.Delete(t.Context(), claimOf(ref)))
	ready(t, r, ref) // the claim goes when no pod uses it any more

	require.NoError(t, r.Stop(t.Context(), ref))
	stopped(t, r, ref)
	missing := func() provision.Observation {
		o, err := r.Observe(t.Context(), ref)
		require.NoError(t, err)
		return o
	}
	require.Contains(t, missing().DataMissing, made.Name)
	require.NotEmpty(t, missing().ID, "the identity is there")
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(k.client.Get(t.Context(), client.ObjectKeyFromObject(made), claimOf(ref)))
	}, patience, 50*time.Millisecond)
	require.Contains(t, missing().DataMissing, made.Name)

	restored := claimOf(ref)
	restored.Labels, restored.Spec = made.Labels, made.Spec
	restored.Spec.VolumeName = ""
	require.NoError(t, k.client.Create(t.Context(), restored))
	require.Empty(t, missing().DataMissing)
	require.NoError(t, r.Delete(t.Context(), ref))
}

func TestAServiceThatAnotherClientChangesLeadsToTheClusterAgain(t *testing.T) {
	e := newExposed(t, 9, pod.Options{})
	e.start()
	made := e.service()
	for name, change := range map[string]func(*corev1.ServiceSpec){
		"every pod of the StatefulSet": func(s *corev1.ServiceSpec) { delete(s.Selector, "statefulset.kubernetes.io/pod-name") },
		"other pods":                   func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": "another"} },
		"one label more":               func(s *corev1.ServiceSpec) { s.Selector["app"] = "another" },
		"another port":                 func(s *corev1.ServiceSpec) { s.Ports[0].Port = 443 },
		"another port of the pod":      func(s *corev1.ServiceSpec) { s.Ports[0].TargetPort = intstr.FromInt32(8443) },
		"no pods":                      func(s *corev1.ServiceSpec) { s.Selector = nil },
	} {
		t.Run(name, func(t *testing.T) {
			service := e.service()
			change(&service.Spec)
			require.NoError(t, e.client.Update(t.Context(), service, client.FieldOwner("kubectl-edit")))
			require.True(t, e.observe().Outdated)
			e.renew()
			require.False(t, e.observe().Outdated)
			require.Equal(t, made.Spec.Selector, e.service().Spec.Selector)
			require.Equal(t, made.Spec.Ports, e.service().Spec.Ports)
			e.start()
		})
	}
}

func TestAServiceThatAnotherClientDeletesIsMadeAgain(t *testing.T) {
	e := newExposed(t, 10, pod.Options{})
	e.start()
	made := e.service()
	require.NoError(t, e.client.Delete(t.Context(), made))
	require.True(t, e.observe().Outdated)
	e.renew()
	require.False(t, e.observe().Outdated)
	require.Equal(t, made.Spec.Selector, e.service().Spec.Selector)
}
