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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	admissionFile = "../deploy/base/pool-operator/admission.yaml"
	operatorName  = "system:serviceaccount:muster-pool-operator:pool-operator"
)

// TestAdmissionPolicies holds the policies that pool-operator is deployed with to what they promise: only the operator writes which cluster a claim
// got, clusters are not created claimed, and protected ones are not deleted.
func TestAdmissionPolicies(t *testing.T) {
	a := newAPI(t)
	a.installPolicies(t)
	config := rest.CopyConfig(a.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: operatorName, Groups: []string{"system:masters"}}
	operator := api{Client: newClient(t, config), config: config, namespace: a.namespace}

	c := a.mustCreate(t, claim("  clusterPoolName: one\n"))
	protected := a.object(t, cluster("  platform: {hosted: {}}\n"))
	protected.SetAnnotations(map[string]string{"hive.openshift.io/protected-delete": "true"})
	require.NoError(t, a.Create(t.Context(), protected))
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

	_, err := a.create(t, cluster(claimed))
	assertRefused(t, err, "a ClusterDeployment cannot be created already claimed: leave spec.clusterPoolRef.claimName out.")
	restored := a.object(t, cluster(claimed))
	restored.SetLabels(map[string]string{"hive.openshift.io/disable-creation-webhook-for-dr": "true"})
	require.NoError(t, a.Create(t.Context(), restored))

	assertRefused(t, a.Delete(t.Context(), protected), "the ClusterDeployment is protected: remove its annotation hive.openshift.io/protected-delete first.")
	require.NoError(t, a.set(t, protected, "false", "metadata", "annotations", "hive.openshift.io/protected-delete"))
	require.NoError(t, a.Delete(t.Context(), protected))
}

// installPolicies installs the policies of the deployment, for the namespace of the test: they are in force for a moment longer than they are there.
func (a api) installPolicies(t *testing.T) {
	t.Helper()
	data, err := os.ReadFile(admissionFile)
	require.NoError(t, err)
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(&u.Object); errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		if u.GetKind() == "ValidatingAdmissionPolicyBinding" {
			require.NoError(t, unstructured.SetNestedStringMap(u.Object, map[string]string{"kubernetes.io/metadata.name": a.namespace},
				"spec", "matchResources", "namespaceSelector", "matchLabels"))
		}
		require.NoError(t, a.Create(t.Context(), u))
		t.Cleanup(func() {
			require.NoError(t, client.IgnoreNotFound(a.Delete(context.WithoutCancel(t.Context()), u)))
		})
	}
}
