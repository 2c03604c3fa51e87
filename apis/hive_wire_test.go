// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package apis_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1ac "github.com/muster-io/muster/apis/applyconfiguration/hive/v1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// Fields that other controllers write into a cluster survive our writes beside them.
func TestPartsThatAreNotModelledSurvive(t *testing.T) {
	a := newAPI(t)
	u := a.mustCreate(t, awsCluster)
	status := map[string]any{"clusterVersionStatus": map[string]any{"desired": map[string]any{"version": "4.20.1"}}, "installerImage": "i"}
	require.NoError(t, unstructured.SetNestedMap(u.Object, status, "status"))
	require.NoError(t, a.Status().Update(t.Context(), u))
	before := u.DeepCopy()

	require.NoError(t, a.Apply(t.Context(), hivev1ac.ClusterDeployment("blue", a.namespace).WithSpec(
		hivev1ac.ClusterDeploymentSpec().WithPowerState(hivev1.PowerStateHibernating)), client.FieldOwner("power"), client.ForceOwnership))
	require.NoError(t, a.Status().Apply(t.Context(), hivev1ac.ClusterDeployment("blue", a.namespace).WithStatus(
		hivev1ac.ClusterDeploymentStatus().WithPowerState(hivev1.PowerStateStopping)), client.FieldOwner("power"), client.ForceOwnership))

	require.NoError(t, a.Get(t.Context(), client.ObjectKeyFromObject(u), u))
	want := before.Object["spec"].(map[string]any)
	want["powerState"] = "Hibernating"
	assert.Equal(t, want, u.Object["spec"])
	status["powerState"] = "Stopping"
	assert.Equal(t, status, u.Object["status"])
}

// Controllers apply statuses, with and without a precondition: what is gone meanwhile is answered as such, and is not made again.
func TestAStatusIsNotAppliedToAnObjectThatIsGone(t *testing.T) {
	a := newAPI(t)
	status := func() *hivev1ac.ClusterDeploymentApplyConfiguration {
		return hivev1ac.ClusterDeployment("gone", a.namespace).WithUID("1").WithStatus(hivev1ac.ClusterDeploymentStatus().WithPowerState(hivev1.PowerStateStopping))
	}
	for name, apply := range map[string]*hivev1ac.ClusterDeploymentApplyConfiguration{"by its UID": status(), "by its version": status().WithResourceVersion("1")} {
		err := a.Status().Apply(t.Context(), apply, client.FieldOwner("power"), client.ForceOwnership)
		assert.True(t, apierrors.IsNotFound(err), "%s: %v", name, err)
	}
}

// A platform that we know nothing about goes from a pool to a cluster as it was written.
func TestPlatformIsCopiedAsItIs(t *testing.T) {
	a := newAPI(t)
	a.mustCreate(t, vspherePool)
	p := &hivev1.ClusterPool{}
	require.NoError(t, a.Get(t.Context(), client.ObjectKey{Namespace: a.namespace, Name: "vsphere"}, p))
	assert.Equal(t, hivev1.PlatformVSphere, p.Spec.Platform.Name())

	require.NoError(t, a.Create(t.Context(), &hivev1.ClusterDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: "copied"},
		Spec:       hivev1.ClusterDeploymentSpec{BaseDomain: "example.com", ClusterName: "copied", Platform: p.Spec.Platform},
	}))
	require.NoError(t, a.Apply(t.Context(), hivev1ac.ClusterDeployment("applied", a.namespace).WithSpec(
		hivev1ac.ClusterDeploymentSpec().WithBaseDomain("example.com").WithClusterName("applied").WithPlatform(
			hivev1ac.Platform().WithVSphere(*p.Spec.Platform.VSphere))), client.FieldOwner("pool")))

	want := a.object(t, vspherePool).Object["spec"].(map[string]any)["platform"]
	for _, name := range []string{"copied", "applied"} {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(hivev1.GroupVersion.WithKind("ClusterDeployment"))
		require.NoError(t, a.Get(t.Context(), client.ObjectKey{Namespace: a.namespace, Name: name}, u))
		got, _, _ := unstructured.NestedMap(u.Object, "spec", "platform")
		assert.Equal(t, want, got, name)
	}
}

// What other controllers keep in a MachinePool survives what we write beside it.
func TestMachinePoolsOfOthersAreKept(t *testing.T) {
	a := newAPI(t)
	u := a.mustCreate(t, hiveMachinePool)
	require.NoError(t, unstructured.SetNestedSlice(u.Object, []any{map[string]any{"name": "blue-worker-a", "replicas": int64(3)}}, "status", "machineSets"))
	require.NoError(t, a.Status().Update(t.Context(), u))
	before := u.DeepCopy()
	require.NoError(t, a.Status().Apply(t.Context(), hivev1ac.MachinePool("workers", a.namespace).WithStatus(hivev1ac.MachinePoolStatus().WithReadyReplicas(3)), client.FieldOwner("machines")))
	require.NoError(t, a.Get(t.Context(), client.ObjectKeyFromObject(u), u))
	assert.Equal(t, before.Object["spec"], u.Object["spec"])
	want := before.Object["status"].(map[string]any)
	want["readyReplicas"] = int64(3)
	assert.Equal(t, want, u.Object["status"])
}

// A MachinePool is for one cluster and for one choice of machines.
func TestAMachinePoolStaysWithItsCluster(t *testing.T) {
	a := newAPI(t)
	u := a.mustCreate(t, machinePool("  replicas: 2\n"))
	for name, test := range map[string]struct{ patch, sentence string }{
		"selector":  {`{"spec":{"platform":{"agentBareMetal":{"agentSelector":{"matchLabels":{"a":"b"}}}}}}`, "agentSelector and agentNamespace cannot change; create another MachinePool"},
		"namespace": {`{"spec":{"platform":{"agentBareMetal":{"agentNamespace":"metal"}}}}`, "agentSelector and agentNamespace cannot change; create another MachinePool"},
		"cluster":   {`{"spec":{"clusterDeploymentRef":{"name":"red"}}}`, "clusterDeploymentRef and name cannot change; create another MachinePool"},
	} {
		t.Run(name, func(t *testing.T) {
			assertRefused(t, a.Patch(t.Context(), u.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(test.patch))), test.sentence)
		})
	}
	require.NoError(t, a.Patch(t.Context(), u, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":5,"platform":{"agentBareMetal":{"minimum":{"cpuCores":4}}}}}`))))
}

// Two controllers write conditions of one cluster and leave each other's alone.
func TestConditionsHaveSeveralWriters(t *testing.T) {
	a := newAPI(t)
	a.mustCreate(t, agentCluster)
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	write := func(owner string, conditions ...string) {
		status := hivev1ac.ClusterDeploymentStatus()
		for _, condition := range conditions {
			status.WithConditions(hivev1ac.Condition().WithType(condition).WithStatus(corev1.ConditionTrue).WithReason("Test").WithLastTransitionTime(now))
		}
		require.NoError(t, a.Status().Apply(t.Context(), hivev1ac.ClusterDeployment("metal", a.namespace).WithStatus(status), client.FieldOwner(owner)))
	}
	types := func() []string {
		d := &hivev1.ClusterDeployment{}
		require.NoError(t, a.Get(t.Context(), client.ObjectKey{Namespace: a.namespace, Name: "metal"}, d))
		var types []string
		for _, condition := range d.Status.Conditions {
			types = append(types, condition.Type)
		}
		return types
	}

	write("power", hivev1.ClusterDeploymentReady, hivev1.ClusterDeploymentHibernating)
	write("installer", hivev1.ClusterDeploymentProvisioned)
	assert.ElementsMatch(t, []string{"Ready", "Hibernating", "Provisioned"}, types())
	write("power", hivev1.ClusterDeploymentReady)
	assert.ElementsMatch(t, []string{"Ready", "Provisioned"}, types())
}

func TestStatusIsWrittenApart(t *testing.T) {
	a := newAPI(t)
	u := a.mustCreate(t, awsPool)
	require.NoError(t, unstructured.SetNestedField(u.Object, int64(7), "status", "size"))
	require.NoError(t, a.Update(t.Context(), u))
	status, _, _ := unstructured.NestedMap(u.Object, "status")
	assert.Equal(t, map[string]any{"observedGeneration": int64(-1)}, status, "an update of the object must not write its status: it stays the default")

	require.NoError(t, a.Status().Apply(t.Context(), hivev1ac.ClusterPool(u.GetName(), a.namespace).WithStatus(
		hivev1ac.ClusterPoolStatus().WithSize(2).WithReady(1).WithObserved(hivev1ac.ClusterPoolObservation().WithClusterDeployments("12"))), client.FieldOwner("pool")))
	p := &hivev1.ClusterPool{}
	require.NoError(t, a.Get(t.Context(), client.ObjectKeyFromObject(u), p))
	assert.Equal(t, int32(2), p.Status.Size)
	assert.Equal(t, "12", p.Status.Observed.ClusterDeployments)
}

func TestPoolIsScaledByAutoscalers(t *testing.T) {
	a := newAPI(t)
	u := a.mustCreate(t, awsPool)
	require.NoError(t, a.Status().Apply(t.Context(), hivev1ac.ClusterPool(u.GetName(), a.namespace).WithStatus(
		hivev1ac.ClusterPoolStatus().WithSize(2).WithSelector("hive.openshift.io/clusterpool-name=a")), client.FieldOwner("pool")))

	p := &hivev1.ClusterPool{}
	require.NoError(t, a.Get(t.Context(), client.ObjectKeyFromObject(u), p))
	scale := &autoscalingv1.Scale{}
	require.NoError(t, a.SubResource("scale").Get(t.Context(), p, scale))
	assert.Equal(t, int32(3), scale.Spec.Replicas)
	assert.Equal(t, int32(2), scale.Status.Replicas)
	assert.Equal(t, "hive.openshift.io/clusterpool-name=a", scale.Status.Selector)

	scale.Spec.Replicas = 5
	require.NoError(t, a.SubResource("scale").Update(t.Context(), p, client.WithSubResourceBody(scale)))
	require.NoError(t, a.Get(t.Context(), client.ObjectKeyFromObject(u), p))
	assert.Equal(t, int32(5), p.Spec.Size)

	scale.ResourceVersion = ""
	scale.Spec.Replicas = -1
	assert.Error(t, a.SubResource("scale").Update(t.Context(), p, client.WithSubResourceBody(scale)))
}

// The roles that the operator is deployed with let those who may edit pools scale them, and those who may only look not.
func TestEditorsOfPoolsScaleThem(t *testing.T) {
	a := newAPI(t)
	u := a.mustCreate(t, awsPool)
	data, err := os.ReadFile("../deploy/base/pool-operator/user_roles.yaml")
	require.NoError(t, err)
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		role := &rbacv1.ClusterRole{}
		if err := decoder.Decode(role); errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, a.Create(t.Context(), role))
		t.Cleanup(func() { require.NoError(t, a.Delete(context.WithoutCancel(t.Context()), role)) })
		require.NoError(t, a.Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: role.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: role.Name}},
		}))
	}
	scale := func(user string) error {
		config := rest.CopyConfig(a.config)
		config.Impersonate = rest.ImpersonationConfig{UserName: user}
		c, pool := newClient(t, config), &hivev1.ClusterPool{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: u.GetName()}}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":4}}`))
		return c.SubResource("scale").Patch(t.Context(), pool, patch)
	}
	for _, user := range []string{"pool-operator-edit", "hive-cluster-pool-admin"} {
		require.EventuallyWithT(t, func(c *assert.CollectT) { assert.NoError(c, scale(user)) }, time.Minute, 50*time.Millisecond, "%s may scale", user)
	}
	require.True(t, apierrors.IsForbidden(scale("pool-operator-view")))
	p := &hivev1.ClusterPool{}
	require.NoError(t, a.Get(t.Context(), client.ObjectKeyFromObject(u), p))
	assert.Equal(t, int32(4), p.Spec.Size)
}

func TestClaimsOfAPoolCanBeSelected(t *testing.T) {
	a := newAPI(t)
	a.mustCreate(t, claim("  clusterPoolName: one\n"))
	two := a.mustCreate(t, claim("  clusterPoolName: two\n"))
	claims := &hivev1.ClusterClaimList{}
	require.NoError(t, a.List(t.Context(), claims, client.InNamespace(a.namespace), client.MatchingFields{"spec.clusterPoolName": "two"}))
	require.Len(t, claims.Items, 1)
	assert.Equal(t, two.GetName(), claims.Items[0].Name)
}

// The fields of a cluster's identity do not change once they are set.
func TestChangesThatAreRefused(t *testing.T) {
	a := newAPI(t)
	u := a.mustCreate(t, cluster("  platform: {hosted: {}}\n  clusterPoolRef: {namespace: a, poolName: b}\n"))
	ref := func(field string) []string { return []string{"spec", "clusterPoolRef", field} }

	assertRefused(t, a.set(t, u, "c", ref("poolName")...), "namespace and poolName cannot change; a cluster belongs to the pool that created it")
	require.NoError(t, a.set(t, u, map[string]any{"namespace": "a", "poolName": "b", "claimName": "c", "claimUID": "1", "claimedTimestamp": "2026-01-02T03:04:05Z"}, "spec", "clusterPoolRef"))
	assertRefused(t, a.set(t, u, "d", ref("claimName")...), "claimName cannot change once it is set; delete the claim to release the cluster")
	assertRefused(t, a.set(t, u, "2", ref("claimUID")...), "claimUID cannot change once it is set")
	assertRefused(t, a.set(t, u, "2026-01-02T03:04:06Z", ref("claimedTimestamp")...), "claimedTimestamp cannot change once it is set")
	assertRefused(t, a.set(t, u, nil, "spec", "clusterPoolRef"), "clusterPoolRef can be neither added nor removed")
	require.NoError(t, a.set(t, u, true, "spec", "installed"))
	assertRefused(t, a.set(t, u, false, "spec", "installed"), "installed cannot go back to false")
	require.NoError(t, a.set(t, u, "Hibernating", "spec", "powerState"))

	c := a.mustCreate(t, claim("  clusterPoolName: one\n"))
	require.NoError(t, a.set(t, c, "two", "spec", "clusterPoolName"))
	require.NoError(t, a.set(t, c, "two-abcde", "spec", "namespace"))
	assertRefused(t, a.set(t, c, "one", "spec", "clusterPoolName"), "the claim already has a cluster of this pool; delete the claim and create one for the other pool")
}

// An object that was stored before a rule existed can be changed everywhere but where it breaks the rule.
func TestRulesRatchet(t *testing.T) {
	a := newAPI(t)
	key := client.ObjectKey{Name: "clusterpools.hive.openshift.io"}
	strict := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, a.Get(t.Context(), key, strict))
	setSpec := func(properties apiextensionsv1.JSONSchemaProps) {
		ctx := context.WithoutCancel(t.Context())
		c := &apiextensionsv1.CustomResourceDefinition{}
		require.NoError(t, a.Get(ctx, key, c))
		c.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = properties
		require.NoError(t, a.Update(ctx, c))
	}
	spec := strict.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	setSpec(apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)})
	t.Cleanup(func() { setSpec(spec) })

	u := a.object(t, pool("  platform: {}\n  size: 1\n  maxSize: -1\n"))
	require.Eventually(t, func() bool { return a.Create(t.Context(), u) == nil }, time.Minute, 50*time.Millisecond, "the lax schema is not in force")
	setSpec(spec)
	require.Eventually(t, func() bool {
		_, err := a.create(t, pool("  platform: {}\n  size: 1\n"))
		return err != nil
	}, time.Minute, 50*time.Millisecond, "the strict schema is not in force")

	require.NoError(t, a.set(t, u, int64(2), "spec", "size"))
	require.NoError(t, a.set(t, u, "b", "metadata", "labels", "a"))
	assertRefused(t, a.set(t, u, int64(-2), "spec", "maxSize"), "maxSize must not be negative")
	require.NoError(t, a.set(t, u, int64(3), "spec", "maxSize"))
}

// Raw embedded values keep their place when they are copied in Go.
func TestRawPartsAreDeepCopied(t *testing.T) {
	p := hivev1.Platform{AWS: &runtime.RawExtension{Raw: []byte(`{"region":"a"}`)}}
	c := p.DeepCopy()
	c.AWS.Raw[2] = 'X'
	assert.JSONEq(t, `{"region":"a"}`, string(p.AWS.Raw))
}
