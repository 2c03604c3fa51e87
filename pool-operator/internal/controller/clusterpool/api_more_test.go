// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/faultinject"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

const installConfig = `
apiVersion: v1
metadata:
  name: replaced
  labels: {kept: "yes"}
baseDomain: replaced.example.com
compute: [{name: worker, replicas: 3}]
`

func (w *testEnv) condition(pool, kind string) hivev1.Condition {
	w.t.Helper()
	c := hivev1.FindCondition(w.pool(pool).Status.Conditions, kind)
	if c == nil {
		return hivev1.Condition{}
	}
	return *c
}

func TestMissingDependenciesAreNoticedAtOnce(t *testing.T) {
	w := newTestEnv(t)
	w.installer()
	w.replica()
	imageSet := "images-of-" + w.ns
	w.create(testobj.Pool("p", testobj.In(w.ns), testobj.ImageSet(imageSet), testobj.PullSecret("pull"), testobj.InstallConfigTemplate("template")))
	w.create(testobj.Pool("other", testobj.In(w.ns)))
	w.settled("other", 1)
	missing := func(parts ...string) {
		t.Helper()
		w.eventually("the condition says what is missing", func() bool {
			c := w.condition("p", hivev1.ClusterPoolMissingDependencies)
			for _, part := range parts {
				if !strings.Contains(c.Message, part) {
					return false
				}
			}
			return c.Status == corev1.ConditionTrue
		})
		require.Empty(t, w.clusters("p"))
	}
	missing("cluster image set: ", "pull secret: ", "install config template secret: ")

	w.create(testobj.ClusterImageSet(imageSet), testobj.Secret(w.ns, "pull", "wrong-key", "x"), testobj.Secret(w.ns, "template", hivev1.SecretKeyInstallConfig, installConfig))
	missing(`pull secret: secret "pull" has no key .dockerconfigjson`)

	pull := testobj.Secret(w.ns, "pull", hivev1.SecretKeyDockerConfigJSON, `{"auths":{}}`)
	require.NoError(t, w.client.Update(t.Context(), pull))
	w.settled("p", 1)

	cd := w.clusters("p")[0]
	require.Equal(t, "False", string(w.condition("p", hivev1.ClusterPoolMissingDependencies).Status))
	copied := &corev1.Secret{}
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: cd.Namespace, Name: cd.Spec.PullSecretRef.Name}, copied))
	require.Equal(t, pull.Data[hivev1.SecretKeyDockerConfigJSON], copied.Data[hivev1.SecretKeyDockerConfigJSON])
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: cd.Namespace, Name: cd.Spec.Provisioning.InstallConfigSecretRef.Name}, copied))
	rendered := string(copied.Data[hivev1.SecretKeyInstallConfig])
	for _, part := range []string{"name: " + cd.Name, "kept: \"yes\"", "baseDomain: example.com", "replicas: 3"} {
		require.Contains(t, rendered, part)
	}
	require.NotContains(t, rendered, "replaced")
}

// An installer reads the Secrets of a platform in the cluster's namespace, as Hive does.
func TestTheSecretsOfAPlatformAreCopiedToItsClusters(t *testing.T) {
	w := newTestEnv(t)
	w.installer()
	w.replica()
	const settings = `{"vCenter":"v","credentialsSecretRef":{"name":"cloud"},"certificatesSecretRef":{"name":"ca"}}`
	w.create(testobj.Secret(w.ns, "cloud", "password", "p"), testobj.Pool("p", testobj.In(w.ns), func(p *hivev1.ClusterPool) {
		p.Spec.Platform = hivev1.Platform{VSphere: &runtime.RawExtension{Raw: []byte(settings)}}
	}))
	w.eventually("the condition says what is missing", func() bool {
		return w.condition("p", hivev1.ClusterPoolMissingDependencies).Message == `certificates secret: secrets "ca" not found`
	})
	w.create(testobj.Secret(w.ns, "ca", ".cacert", "c"))
	w.settled("p", 1)

	cd := w.clusters("p")[0]
	require.JSONEq(t, settings, string(cd.Spec.Platform.VSphere.Raw), "the platform stays as it is")
	for name, data := range map[string]map[string][]byte{"cloud": {"password": []byte("p")}, "ca": {".cacert": []byte("c")}} {
		copied := &corev1.Secret{}
		require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: cd.Namespace, Name: name}, copied))
		require.Equal(t, data, copied.Data)
	}
}

func TestNewClustersLookAsThePoolSays(t *testing.T) {
	w := newTestEnv(t)
	w.installer()
	w.replica()
	w.create(testobj.Pool("p", testobj.In(w.ns), testobj.Inventory("red"), func(p *hivev1.ClusterPool) {
		p.Spec.Labels = map[string]string{"team": "a"}
		p.Spec.Annotations = map[string]string{"note": "b"}
		p.Spec.HibernateAfter = &metav1.Duration{Duration: time.Hour}
		p.Spec.InstallAttemptsLimit = new(int32(2))
		p.Spec.InstallerEnv = []corev1.EnvVar{{Name: "A", Value: "b"}}
	}))
	w.settled("p", 1)
	cd := w.clusters("p")[0]
	require.Equal(t, "red", cd.Spec.ClusterName)
	require.Regexp(t, "^red-[a-z0-9]{5}$", cd.Name)
	require.Equal(t, "a", cd.Labels["team"])
	require.Equal(t, w.ns, cd.Labels[hivev1.LabelClusterPoolNamespace])
	require.Equal(t, "p", cd.Labels[hivev1.LabelClusterPoolName])
	require.Equal(t, hivev1.PlatformHosted, cd.Labels[hivev1.LabelClusterPlatform])
	require.Equal(t, "b", cd.Annotations["note"])
	require.NotEmpty(t, cd.Annotations[hivev1.AnnotationClusterPoolSpecHash])
	require.Equal(t, time.Hour, cd.Spec.HibernateAfter.Duration)
	require.Equal(t, int32(2), *cd.Spec.InstallAttemptsLimit)
	require.Equal(t, "b", cd.Spec.Provisioning.InstallerEnv[0].Value)
	require.Equal(t, hivev1.PowerStateHibernating, cd.Spec.PowerState)
	require.Equal(t, hivev1.ClusterPoolReference{Namespace: w.ns, PoolName: "p"}, *cd.Spec.ClusterPoolRef)
	require.Equal(t, map[string]string{"red": cd.Namespace}, w.pool("p").Status.ClusterNameUsage)
}

// An administrator of a cluster's namespace gets no way onto the nodes of the management cluster: its API server refuses what the label of the namespace says.
func TestPrivilegedPodsAreRefusedBesideHostedClusters(t *testing.T) {
	w := newTestEnv(t)
	w.installer()
	w.replica()
	w.create(testobj.Pool("p", testobj.In(w.ns)))
	w.settled("p", 1)
	namespace := w.clusters("p")[0].Namespace
	confined := func() *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pod"}}
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
		pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "c", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}}}
		return pod
	}
	w.eventually("a confined pod is admitted", func() bool { return w.client.Create(t.Context(), confined(), client.DryRunAll) == nil })
	for name, change := range map[string]func(*corev1.Pod){
		"privileged": func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		},
		"network of the node": func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"processes of the node": func(p *corev1.Pod) {
			p.Spec.HostPID = true
		},
		"files of the node": func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "root", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		},
		"root": func(p *corev1.Pod) { p.Spec.SecurityContext.RunAsNonRoot = new(false) },
	} {
		pod := confined()
		change(pod)
		err := w.client.Create(t.Context(), pod, client.DryRunAll)
		require.True(t, apierrors.IsForbidden(err), "%s: %v", name, err)
		require.ErrorContains(t, err, `violates PodSecurity "restricted`, name)
	}
}

// Columns and autoscalers show a count that is absent as unknown.
func TestCountsAreThereWhenTheyAreZero(t *testing.T) {
	w := newTestEnv(t)
	w.replica()
	w.create(testobj.Pool("p", testobj.In(w.ns), testobj.Size(0)))
	w.settled("p", 0)
	stored := &unstructured.Unstructured{}
	stored.SetGroupVersionKind(hivev1.GroupVersion.WithKind("ClusterPool"))
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "p"}, stored))
	status, _, err := unstructured.NestedMap(stored.Object, "status")
	require.NoError(t, err)
	for _, count := range []string{"size", "standby", "ready"} {
		require.Equal(t, int64(0), status[count], count)
	}
}

func TestClaimedClustersKeepThePool(t *testing.T) {
	w := newTestEnv(t)
	w.installer()
	w.replica()
	w.create(testobj.Pool("p", testobj.In(w.ns), testobj.Size(2)))
	w.settled("p", 2)

	cd := w.clusters("p")[0]
	before := cd.DeepCopy()
	cd.Spec.ClusterPoolRef.ClaimName, cd.Spec.ClusterPoolRef.ClaimUID = "c", "uid-of-c"
	require.NoError(t, w.client.Patch(t.Context(), &cd, client.MergeFrom(before)))
	w.eventually("the claimed cluster is replaced", func() bool { return len(w.clusters("p")) == 3 })
	require.NoError(t, w.client.Delete(t.Context(), w.pool("p")))
	w.eventually("the unclaimed clusters go", func() bool {
		return len(w.clusters("p")) == 1 && w.condition("p", hivev1.ClusterPoolDeletionPossible).Status == corev1.ConditionFalse
	})
	require.Equal(t, cd.Name, w.clusters("p")[0].Name)

	before = w.clusters("p")[0].DeepCopy()
	released := before.DeepCopy()
	released.Annotations[hivev1.AnnotationRemoveFromPool] = "true"
	require.NoError(t, w.client.Patch(t.Context(), released, client.MergeFrom(before)))
	w.eventually("the pool goes", func() bool {
		err := w.client.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "p"}, &hivev1.ClusterPool{})
		return apierrors.IsNotFound(err)
	})
	require.Empty(t, w.namespaces("p"))
}

func TestManualPowerIsPutBack(t *testing.T) {
	w := newTestEnv(t)
	w.installer()
	w.replica()
	w.create(testobj.Pool("p", testobj.In(w.ns), testobj.Size(3), testobj.RunningCount(1)))
	w.settled("p", 3)
	running := func() (names []string) {
		for _, cd := range w.clusters("p") {
			if cd.Spec.PowerState == hivev1.PowerStateRunning {
				names = append(names, cd.Name)
			}
		}
		return names
	}
	w.eventually("one runs", func() bool { return len(running()) == 1 })
	first := running()
	for _, cd := range w.clusters("p") {
		before := cd.DeepCopy()
		cd.Spec.PowerState = hivev1.PowerStateRunning
		require.NoError(t, w.client.Patch(t.Context(), &cd, client.MergeFrom(before)))
	}
	w.eventually("the same one runs again", func() bool { now := running(); return len(now) == 1 && now[0] == first[0] })
}

func TestWritesAreFew(t *testing.T) {
	const size = 40
	w := newTestEnv(t)
	w.installer()
	counted := faultinject.Never()
	w.create(testobj.Pool("p", testobj.In(w.ns), testobj.Size(size), testobj.RunningCount(size)))
	w.replica(through(counted))
	w.settled("p", size)
	t.Logf("%d writes for %d clusters: %v", counted.Calls(), size, summary(counted))
	require.LessOrEqual(t, counted.Calls(), 3*size, "two creations and a share of the status writes")

	before := -1
	require.Eventually(t, func() bool {
		last := before
		before = counted.Calls()
		return before == last
	}, patience, 3*time.Second, "the pool comes to rest")
	for _, cd := range w.clusters("p") {
		touched := cd.DeepCopy()
		touched.Labels["touched"] = "yes"
		require.NoError(t, w.client.Patch(t.Context(), touched, client.MergeFrom(&cd)))
	}
	require.Never(t, func() bool { return counted.Calls() > before }, 3*time.Second, 100*time.Millisecond, "a full pool writes nothing")
}
