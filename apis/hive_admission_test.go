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

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	admissionFile   = "../deploy/base/pool-operator/admission.yaml"
	confinementFile = "../deploy/base/pool-operator/confinement.yaml"
	operatorName    = "system:serviceaccount:muster-pool-operator:pool-operator"
)

// asOperator is the API as pool-operator uses it.
func (a api) asOperator(t *testing.T) api {
	t.Helper()
	config := rest.CopyConfig(a.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: operatorName, Groups: []string{"system:masters"}}
	return api{Client: newClient(t, config), config: config, namespace: a.namespace}
}

// TestAdmissionPolicies holds the policies that pool-operator is deployed with to what they promise: only the operator writes which cluster a claim
// got, clusters are not created claimed, and protected ones are not deleted.
func TestAdmissionPolicies(t *testing.T) {
	a := newAPI(t)
	a.installPolicies(t, admissionFile)
	operator := a.asOperator(t)

	c := a.mustCreate(t, claim("  clusterPoolName: one\n"))
	protected := a.object(t, cluster("  platform: {hosted: {}}\n"))
	protected.SetAnnotations(map[string]string{"hive.openshift.io/protected-delete": "true"})
	require.NoError(t, a.Create(t.Context(), protected))
	pooled := "  platform: {hosted: {}}\n  clusterPoolRef: {namespace: a, poolName: b}\n"
	claimed := "  platform: {hosted: {}}\n  clusterPoolRef: {namespace: a, poolName: b, claimName: c}\n"
	// Each policy comes into force in its own time.
	require.Eventually(t, func() bool {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"namespace":"one-abcde"}}`))
		return a.Patch(t.Context(), c.DeepCopy(), patch, client.DryRunAll) != nil &&
			a.Create(t.Context(), a.object(t, cluster(claimed)), client.DryRunAll) != nil &&
			a.Delete(t.Context(), protected.DeepCopy(), client.DryRunAll) != nil
	}, time.Minute, 50*time.Millisecond, "the policies are not in force")

	const sentence = "spec.namespace is where the operator writes which cluster the claim got: leave it as it is."
	assertRefused(t, a.set(t, c, "one-abcde", "spec", "namespace"), sentence)
	require.NoError(t, a.set(t, c, "1h", "spec", "lifetime"))
	require.NoError(t, operator.set(t, c, "one-abcde", "spec", "namespace"))
	assertRefused(t, a.set(t, c, "one-fghij", "spec", "namespace"), sentence)
	require.NoError(t, a.set(t, c, "2h", "spec", "lifetime"))
	impostor := a.impostor(t, c.GetNamespace())
	require.NoError(t, impostor.set(t, c, "3h", "spec", "lifetime"))
	assertRefused(t, impostor.set(t, c, "one-fghij", "spec", "namespace"), sentence)

	_, err := a.create(t, cluster(claimed))
	assertRefused(t, err, "a ClusterDeployment cannot be created already claimed: leave spec.clusterPoolRef.claimName out.")
	_, err = operator.create(t, cluster(claimed))
	assertRefused(t, err, "a ClusterDeployment cannot be created already claimed")
	restored := a.object(t, cluster(claimed))
	restored.SetLabels(map[string]string{"hive.openshift.io/disable-creation-webhook-for-dr": "true"})
	require.NoError(t, a.Create(t.Context(), restored))

	_, err = a.create(t, cluster(pooled))
	assertRefused(t, err, "only the operator makes clusters of a pool: leave spec.clusterPoolRef out")
	restored = a.object(t, cluster(pooled))
	restored.SetName("restored")
	restored.SetLabels(map[string]string{"hive.openshift.io/disable-creation-webhook-for-dr": "true"})
	require.NoError(t, a.Create(t.Context(), restored))
	for value, name := range map[string]string{"True": "restored-title", "TRUE": "restored-capitals", "1": "restored-digit", "t": "restored-letter"} {
		restored = a.object(t, cluster(claimed))
		restored.SetName(name)
		restored.SetLabels(map[string]string{"hive.openshift.io/disable-creation-webhook-for-dr": value})
		require.NoError(t, a.Create(t.Context(), restored), "the operator reads the label like this, too: %s", value)
	}
	for _, value := range []string{"false", "yes", "0"} {
		restored = a.object(t, cluster(claimed))
		restored.SetName("no-restore")
		restored.SetLabels(map[string]string{"hive.openshift.io/disable-creation-webhook-for-dr": value})
		assertRefused(t, a.Create(t.Context(), restored), "a ClusterDeployment cannot be created already claimed")
	}
	made := a.object(t, cluster(pooled))
	made.SetName("made")
	require.NoError(t, operator.Create(t.Context(), made))
	const taken = "spec.clusterPoolRef is where the operator writes which claim has the cluster: leave it as it is."
	assertRefused(t, a.set(t, made, "c", "spec", "clusterPoolRef", "claimName"), taken)
	assertRefused(t, a.set(t, made, "uid", "spec", "clusterPoolRef", "claimUID"), taken)
	assertRefused(t, a.set(t, made, "2026-01-01T00:00:00Z", "spec", "clusterPoolRef", "claimedTimestamp"), taken)
	require.NoError(t, a.set(t, made, "blue", "spec", "clusterPoolRef", "clusterDeploymentCustomization", "name"))
	require.NoError(t, a.set(t, made, true, "spec", "installed"), "the installer sets spec.installed")
	require.NoError(t, operator.set(t, made, "c", "spec", "clusterPoolRef", "claimName"))

	assertRefused(t, a.Delete(t.Context(), protected), "the ClusterDeployment is protected: remove its annotation hive.openshift.io/protected-delete first.")
	require.NoError(t, a.set(t, protected, "false", "metadata", "annotations", "hive.openshift.io/protected-delete"))
	require.NoError(t, a.Delete(t.Context(), protected))
}

// A controller of Hive decodes a ClusterDeployment into a type that has no claimUID, and writes all of it back, as when it removes its finalizer after the deprovision.
func TestAClientThatDoesNotKnowTheUIDOfAClaimUpdatesItsCluster(t *testing.T) {
	a := newAPI(t)
	a.installPolicies(t, admissionFile)
	operator := a.asOperator(t)
	claimed := map[string]any{"namespace": "a", "poolName": "b", "claimName": "c", "claimUID": "1", "claimedTimestamp": "2026-01-02T03:04:05Z"}

	u := a.object(t, cluster("  platform: {hosted: {}}\n  clusterPoolRef: {namespace: a, poolName: b}\n"))
	u.SetFinalizers([]string{"hive.openshift.io/deprovision"})
	require.NoError(t, operator.Create(t.Context(), u))
	require.NoError(t, operator.set(t, u, claimed, "spec", "clusterPoolRef"))
	require.Eventually(t, func() bool {
		return a.Create(t.Context(), a.object(t, cluster("  platform: {hosted: {}}\n  clusterPoolRef: {namespace: a, poolName: b}\n")), client.DryRunAll) != nil
	}, time.Minute, 50*time.Millisecond, "the policies are not in force")
	require.NoError(t, a.Delete(t.Context(), u))

	require.NoError(t, a.Get(t.Context(), client.ObjectKeyFromObject(u), u))
	unstructured.RemoveNestedField(u.Object, "spec", "clusterPoolRef", "claimUID")
	require.NoError(t, a.Update(t.Context(), u), "it labels the cluster")
	const taken = "spec.clusterPoolRef is where the operator writes which claim has the cluster: leave it as it is."
	assertRefused(t, a.set(t, u, "2", "spec", "clusterPoolRef", "claimUID"), taken)
	require.NoError(t, operator.set(t, u, "1", "spec", "clusterPoolRef", "claimUID"), "the operator writes it again")

	require.NoError(t, a.Get(t.Context(), client.ObjectKeyFromObject(u), u))
	unstructured.RemoveNestedField(u.Object, "spec", "clusterPoolRef", "claimUID")
	u.SetFinalizers(nil)
	require.NoError(t, a.Update(t.Context(), u), "it lets the cluster go")
	require.True(t, apierrors.IsNotFound(a.Get(t.Context(), client.ObjectKeyFromObject(u), u)))
}

// impostor is a service account that a tenant named as the operator's and gave all rights that the tenant has.
func (a api) impostor(t *testing.T, namespace string) api {
	t.Helper()
	name := "system:serviceaccount:" + namespace + ":pool-operator"
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "impostor-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
	}
	require.NoError(t, a.Create(t.Context(), binding))
	config := rest.CopyConfig(a.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: name}
	return api{Client: newClient(t, config), config: config, namespace: namespace}
}

// installPolicies installs the policies of the deployment, for the namespace of the test and others: they are in force for a moment longer than they are there.
func (a api) installPolicies(t *testing.T, file string, others ...string) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	selected := []any{a.namespace}
	for _, other := range others {
		selected = append(selected, other)
	}
	for {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(&u.Object); errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		if u.GetKind() == "ValidatingAdmissionPolicyBinding" {
			require.NoError(t, unstructured.SetNestedSlice(u.Object, []any{map[string]any{"key": "kubernetes.io/metadata.name", "operator": "In", "values": selected}},
				"spec", "matchResources", "namespaceSelector", "matchExpressions"))
		}
		require.NoError(t, a.Create(t.Context(), u))
		t.Cleanup(func() {
			require.NoError(t, client.IgnoreNotFound(a.Delete(context.WithoutCancel(t.Context()), u)))
		})
	}
}
