// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/controlplanetest"
	"github.com/muster-io/muster/pool-operator/internal/controller/clusterdeployment"
	"github.com/muster-io/muster/pool-operator/internal/provision"
	"github.com/muster-io/muster/pool-operator/internal/provision/contract"
	"github.com/muster-io/muster/pool-operator/internal/provision/pod"
)

// patience is how long anything may take on a busy machine before it counts as stuck.
const patience = 2 * time.Minute

func statefulSet(name string) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// watched brings a runtime its wake-ups for as long as the context lives.
func watched(ctx context.Context, t *testing.T, r *pod.Runtime, config *rest.Config) *pod.Runtime {
	t.Helper()
	watcher, err := r.Watch(config, clientgoscheme.Scheme)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.NoError(t, watcher.Start(ctx))
	}()
	t.Cleanup(func() { <-done })
	return r
}

func newClient(t *testing.T) client.Client {
	t.Helper()
	c, err := client.New(controlplanetest.Start(t), client.Options{Scheme: clientgoscheme.Scheme})
	require.NoError(t, err)
	return c
}

// TestContract runs the cases on a real API server with the real controllers of StatefulSets and volumes. The pods themselves do not run: see kubelet.
func TestContract(t *testing.T) {
	config := controlplanetest.Start(t)
	k := newKubelet(t, newClient(t))
	ends := map[clusterdeployment.Runtime]context.CancelFunc{}
	contract.Run(t, contract.Harness{
		Open: func(t *testing.T) clusterdeployment.Runtime {
			ctx, cancel := context.WithCancel(t.Context())
			r := watched(ctx, t, pod.New(pod.Options{Client: k.client, Images: pod.OneImage("control-plane:test"), Dial: k.dial}), config)
			ends[r] = cancel
			t.Cleanup(cancel)
			return r
		},
		Crash:     func(_ *testing.T, r clusterdeployment.Runtime) { ends[r]() },
		Namespace: k.namespace,
		Use: func(ctx context.Context, access provision.Access) error {
			_, err := k.do(ctx, access, http.MethodGet, "/readyz", "")
			return err
		},
		Remember: func(ctx context.Context, access provision.Access, mark string) error {
			_, err := k.do(ctx, access, http.MethodPut, "/mark", mark)
			return err
		},
		Recall: func(ctx context.Context, access provision.Access) (string, error) {
			return k.do(ctx, access, http.MethodGet, "/mark", "")
		},
		Leftovers: k.leftovers,
		Timeout:   patience,
	})
}

func TestARefusalIsAProblemThatTheNextObservationRepeats(t *testing.T) {
	c := newClient(t)
	k := &kubelet{T: t, client: c}
	ref := provision.ClusterRef{Namespace: k.namespace(t), Name: "blue", UID: "11111111-2222-4333-8444-555555555555"}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: "none"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/services": resource.MustParse("0")}}}
	require.NoError(t, c.Create(t.Context(), quota))
	r := pod.New(pod.Options{Client: c, Images: pod.OneImage("control-plane:test")})
	probe := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: "probe"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}
	require.Eventually(t, func() bool {
		err := c.Create(t.Context(), probe.DeepCopy(), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "exceeded quota")
	}, patience, 50*time.Millisecond, "a quota counts from when it was first computed")
	require.Error(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}))
	o, err := r.Observe(t.Context(), ref)
	require.NoError(t, err)
	assert.Equal(t, provision.StateFailed, o.State)
	require.NotNil(t, o.Problem)
	assert.Equal(t, provision.ReasonRefused, o.Problem.Reason)
	assert.Contains(t, o.Problem.Message, "exceeded quota")
	assert.Positive(t, o.Failures)

	require.NoError(t, c.Delete(t.Context(), quota))
	require.Eventually(t, func() bool { return r.Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}) == nil }, patience, 100*time.Millisecond)
	o, err = r.Observe(t.Context(), ref)
	require.NoError(t, err)
	assert.Equal(t, provision.StateStarting, o.State)
	assert.Nil(t, o.Problem)
}

// What refuses a pod, as a quota, a range of limits or OpenShift's security contexts do, tells the controller of StatefulSets, whose Event is all that is left of it.
func TestAPodThatIsRefusedIsAProblem(t *testing.T) {
	c := newClient(t)
	k := &kubelet{T: t, client: c}
	ref := provision.ClusterRef{Namespace: k.namespace(t), Name: "blue", UID: "11111111-2222-4333-8444-777777777777"}
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: "small"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
	}}}}
	require.NoError(t, c.Create(t.Context(), limits))
	r := pod.New(pod.Options{Client: c, Images: pod.OneImage("control-plane:test")})
	require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}))
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		o, err := r.Observe(t.Context(), ref)
		require.NoError(collect, err)
		assert.Equal(collect, provision.StateStarting, o.State)
		if assert.NotNil(collect, o.Problem) {
			assert.Equal(collect, provision.ReasonRefused, o.Problem.Reason)
			assert.Contains(collect, o.Problem.Message, "maximum memory usage per Container is 64Mi")
		}
	}, patience, 100*time.Millisecond)

	require.NoError(t, c.Delete(t.Context(), limits))
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		o, err := r.Observe(t.Context(), ref)
		require.NoError(collect, err)
		assert.Equal(collect, provision.StateStarting, o.State)
		assert.Nil(collect, o.Problem, "the pod was created")
	}, patience, 100*time.Millisecond)
}

func TestPodsAreConfined(t *testing.T) {
	c := newClient(t)
	k := &kubelet{T: t, client: c}
	ref := provision.ClusterRef{Namespace: k.namespace(t), Name: "blue", UID: "11111111-2222-4333-8444-666666666666"}
	var namespace corev1.Namespace
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: ref.Namespace}, &namespace))
	namespace.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
	require.NoError(t, c.Update(t.Context(), &namespace))
	r := pod.New(pod.Options{Client: c, Images: pod.OneImage("control-plane:test"), Address: "https://{clusterName}.{baseDomain}:8443"})
	require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: "blue", BaseDomain: "example.org"}))
	var p corev1.Pod
	require.Eventually(t, func() bool {
		return c.Get(t.Context(), client.ObjectKey{Namespace: ref.Namespace, Name: "hosted-11111111-2222-0"}, &p) == nil
	}, patience, 50*time.Millisecond, "the pod is admitted where only restricted ones are")
	for _, container := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		assert.True(t, *container.SecurityContext.ReadOnlyRootFilesystem, container.Name)
		for _, list := range []corev1.ResourceList{container.Resources.Requests, container.Resources.Limits} {
			assert.False(t, list.Cpu().IsZero(), container.Name)
			assert.False(t, list.Memory().IsZero(), container.Name)
		}
	}
	policy := &networkingv1.NetworkPolicy{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: ref.Namespace, Name: "hosted-11111111-2222"}, policy))
	assert.Equal(t, p.Labels[pod.Label], policy.Spec.PodSelector.MatchLabels[pod.Label])
	assert.ElementsMatch(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}, policy.Spec.PolicyTypes)
	assert.Empty(t, policy.Spec.Egress, "no egress is allowed")
	require.Len(t, policy.Spec.Ingress, 1)
	require.Len(t, policy.Spec.Ingress[0].Ports, 1)
	assert.Equal(t, 6443, policy.Spec.Ingress[0].Ports[0].Port.IntValue(), "the API port and no other comes in")
	assert.False(t, *p.Spec.AutomountServiceAccountToken)
	o, err := r.Observe(t.Context(), ref)
	require.NoError(t, err)
	assert.Equal(t, "https://blue.example.org:8443", o.URL)
	access, err := r.Access(t.Context(), ref)
	require.NoError(t, err)
	assert.Contains(t, string(access.Kubeconfig), o.URL)
	require.NoError(t, r.Delete(t.Context(), ref))
}

// apiServer returns the arguments of the API server.
func apiServer(t *testing.T, c client.Client, ref provision.ClusterRef) []string {
	t.Helper()
	set := statefulSet("")
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: ref.Namespace, Name: ref.ObjectName()}, set))
	return set.Spec.Template.Spec.Containers[0].Args
}

func TestSecretsAreEncryptedAndAuditIsOneFieldAway(t *testing.T) {
	c := newClient(t)
	k := &kubelet{T: t, client: c}
	ref := provision.ClusterRef{Namespace: k.namespace(t), Name: "blue", UID: "11111111-2222-4333-8444-777777777777"}
	r := pod.New(pod.Options{Client: c, Images: pod.OneImage("control-plane:test")})
	spec := provision.Spec{ClusterName: "blue"}
	require.NoError(t, r.Start(t.Context(), ref, spec))
	identity := &corev1.Secret{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: ref.Namespace, Name: ref.ObjectName()}, identity))
	args := apiServer(t, c, ref)
	assert.Contains(t, args, "--encryption-provider-config=/pki/encryption.yaml")
	assert.Contains(t, string(identity.Data["encryption.yaml"]), "secretbox")
	assert.NotContains(t, strings.Join(args, " "), "--audit", "it is off by default")

	require.NoError(t, r.Stop(t.Context(), ref))
	assert.Equal(t, args, apiServer(t, c, ref), "stopping changes nothing else")
	for _, level := range []string{"Metadata", "Request", "RequestResponse"} {
		spec.Audit = level
		require.NoError(t, r.Start(t.Context(), ref, spec))
		file := "audit-" + strings.ToLower(level) + ".yaml"
		assert.Subset(t, apiServer(t, c, ref), []string{"--audit-policy-file=/pki/" + file, "--audit-log-path=-"})
		assert.Contains(t, string(identity.Data[file]), "- level: "+level+"\n")
	}
	require.NoError(t, r.Delete(t.Context(), ref))
}

// A cluster whose Secret was made before there was encryption reads what it has, and starts as it did.
func TestAClusterOfBeforeStartsAsItDid(t *testing.T) {
	c := newClient(t)
	k := &kubelet{T: t, client: c}
	ref := provision.ClusterRef{Namespace: k.namespace(t), Name: "blue", UID: "11111111-2222-4333-8444-888888888888"}
	r := pod.New(pod.Options{Client: c, Images: pod.OneImage("control-plane:test")})
	spec := provision.Spec{ClusterName: "blue", Audit: "Metadata"}
	require.NoError(t, r.Start(t.Context(), ref, spec))
	identity := &corev1.Secret{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: ref.Namespace, Name: ref.ObjectName()}, identity))
	before := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: identity.Namespace, Name: identity.Name, Labels: identity.Labels, Annotations: identity.Annotations}, Immutable: new(true)}
	before.Data = map[string][]byte{}
	for name, content := range identity.Data {
		if name != "encryption.yaml" && !strings.HasPrefix(name, "audit-") {
			before.Data[name] = content
		}
	}
	require.NoError(t, c.Delete(t.Context(), identity))
	require.NoError(t, c.Create(t.Context(), before))
	require.NoError(t, r.Start(t.Context(), ref, spec))
	for _, arg := range apiServer(t, c, ref) {
		assert.NotContains(t, arg, "--encryption-provider-config")
		assert.NotContains(t, arg, "--audit")
	}
	require.NoError(t, r.Delete(t.Context(), ref))
}

// TestAPodThatIsNotAdmittedIsAProblem: only the StatefulSet's own controller is told why.
func TestAPodThatIsNotAdmittedIsAProblem(t *testing.T) {
	c := newClient(t)
	k := &kubelet{T: t, client: c}
	ref := provision.ClusterRef{Namespace: k.namespace(t), Name: "blue", UID: "11111111-2222-4333-8444-777777777777"}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: "none"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}}}
	require.NoError(t, c.Create(t.Context(), quota))
	require.Eventually(t, func() bool {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(quota), quota)
		return err == nil && len(quota.Status.Used) > 0
	}, patience, 50*time.Millisecond, "a quota counts from when it was first computed")
	r := pod.New(pod.Options{Client: c, Images: pod.OneImage("control-plane:test")})
	require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}))
	var o provision.Observation
	require.Eventually(t, func() bool {
		var err error
		o, err = r.Observe(t.Context(), ref)
		return err == nil && o.Problem != nil
	}, patience, 50*time.Millisecond, "nothing says why there is no pod")
	assert.Equal(t, provision.StateStarting, o.State)
	assert.Equal(t, provision.ReasonRefused, o.Problem.Reason)
	assert.Contains(t, o.Problem.Message, "StatefulSet hosted-11111111-2222")

	require.NoError(t, c.Delete(t.Context(), quota))
	require.Eventually(t, func() bool {
		o, err := r.Observe(t.Context(), ref)
		return err == nil && o.State == provision.StateStarting && o.Problem == nil
	}, patience, 50*time.Millisecond, "the controller of StatefulSets tries on")
}

// TestAPodThatDoesNotEndIsAProblem: a StatefulSet makes no second pod while the first one may run on a node that is lost.
func TestAPodThatDoesNotEndIsAProblem(t *testing.T) {
	c := newClient(t)
	k := &kubelet{T: t, client: c}
	ref := provision.ClusterRef{Namespace: k.namespace(t), Name: "blue", UID: "11111111-2222-4333-8444-888888888888"}
	now := time.Now()
	r := pod.New(pod.Options{Client: c, Images: pod.OneImage("control-plane:test"), Now: func() time.Time { return now }})
	require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}))
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: "hosted-11111111-2222-0"}}
	require.Eventually(t, func() bool { return c.Get(t.Context(), client.ObjectKeyFromObject(p), p) == nil }, patience, 50*time.Millisecond)
	p.Finalizers = []string{"example.com/node"} // there is no node whose kubelet would keep it
	require.NoError(t, c.Update(t.Context(), p))
	require.NoError(t, c.Delete(t.Context(), p))
	observe := func() provision.Observation {
		o, err := r.Observe(t.Context(), ref)
		require.NoError(t, err)
		return o
	}
	assert.Nil(t, observe().Problem, "it may still end")
	now = now.Add(10 * time.Minute)
	o := observe()
	assert.Equal(t, provision.StateStarting, o.State)
	require.NotNil(t, o.Problem, "nothing says what the cluster waits for")
	assert.Contains(t, o.Problem.Message, "pod hosted-11111111-2222-0")
	require.NoError(t, r.Stop(t.Context(), ref))
	o = observe()
	assert.Equal(t, provision.StateStopping, o.State)
	require.NotNil(t, o.Problem)
	require.NoError(t, r.Delete(t.Context(), ref))
	require.Eventually(t, func() bool { return observe().State == provision.StateDeleting }, patience, 50*time.Millisecond)
	require.NotNil(t, observe().Problem)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(p), p))
	p.Finalizers = nil
	require.NoError(t, c.Update(t.Context(), p))
}

func TestAClusterKeepsItsVolumeWhenThatOfNewOnesChanges(t *testing.T) {
	c := newClient(t)
	ref := provision.ClusterRef{Namespace: (&kubelet{T: t, client: c}).namespace(t), Name: "blue", UID: "31111111-2222-4333-8444-555555555555"}
	for _, options := range []pod.Options{{}, {VolumeSize: resource.MustParse("4Gi")}, {StorageClass: "fast"}} {
		options.Client, options.Images = c, pod.OneImage("control-plane:test")
		r := pod.New(options)
		require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}))
		require.NoError(t, r.Stop(t.Context(), ref))
	}
	set := statefulSet("hosted-" + string(ref.UID[:13]))
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: ref.Namespace, Name: set.Name}, set))
	claim := set.Spec.VolumeClaimTemplates[0].Spec
	assert.Equal(t, "2Gi", claim.Resources.Requests.Storage().String())
	assert.Nil(t, claim.StorageClassName)
}

func TestEtcdStaysWithinItsVolume(t *testing.T) {
	c := newClient(t)
	k := &kubelet{T: t, client: c}
	ref := provision.ClusterRef{Namespace: k.namespace(t), Name: "blue", UID: "21111111-2222-4333-8444-555555555555"}
	open := func(size string) *pod.Runtime {
		return pod.New(pod.Options{Client: c, Images: pod.OneImage("control-plane:test"), VolumeSize: resource.MustParse(size)})
	}
	quota := func() string {
		t.Helper()
		set := statefulSet("hosted-" + string(ref.UID[:13]))
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: ref.Namespace, Name: set.Name}, set))
		for _, arg := range set.Spec.Template.Spec.InitContainers[0].Args {
			if bytes, ok := strings.CutPrefix(arg, "--quota-backend-bytes="); ok {
				return bytes
			}
		}
		return ""
	}
	require.NoError(t, open("1Gi").Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}))
	assert.Equal(t, "536870912", quota(), "half of the volume")

	require.NoError(t, open("1Gi").Stop(t.Context(), ref))
	require.NoError(t, open("4Gi").Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}))
	assert.Equal(t, "536870912", quota(), "the size of new volumes is not that of this one")

	claim := client.ObjectKey{Namespace: ref.Namespace, Name: "data-hosted-" + string(ref.UID[:13]) + "-0"}
	require.NoError(t, c.Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "hosted-"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("3Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			ClaimRef:               &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}},
		},
	}))
	require.Eventually(t, func() bool {
		var bound corev1.PersistentVolumeClaim
		return c.Get(t.Context(), claim, &bound) == nil && bound.Status.Phase == corev1.ClaimBound
	}, patience, 50*time.Millisecond)
	require.NoError(t, open("1Gi").Stop(t.Context(), ref))
	require.NoError(t, open("1Gi").Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}))
	assert.Equal(t, "1610612736", quota(), "half of what the volume has")
}

func TestAnEtcdThatRefusesWritesIsAProblemOfAClusterThatIsReady(t *testing.T) {
	k := newKubelet(t, newClient(t))
	r := pod.New(pod.Options{Client: k.client, Images: pod.OneImage("control-plane:test"), Dial: k.dial})
	ref := provision.ClusterRef{Namespace: k.namespace(t), Name: "blue", UID: "41111111-2222-4333-8444-555555555555"}
	require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: "blue"}))
	require.Eventually(t, func() bool {
		o, err := r.Observe(t.Context(), ref)
		return err == nil && o.State == provision.StateReady && o.Problem == nil
	}, patience, 50*time.Millisecond)
	k.full.Store(true)
	o, err := r.Observe(t.Context(), ref)
	require.NoError(t, err)
	assert.Equal(t, provision.StateReady, o.State, "starting it again would not help")
	require.NotNil(t, o.Problem)
	assert.Equal(t, provision.ReasonDiskFull, o.Problem.Reason)
	assert.Contains(t, o.Problem.Message, "--endpoints=unix:///run/muster/etcd.sock in the pod hosted-41111111-2222-0")
}
