// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package apis_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// allow gives a user a right in the namespace of the test, on the objects with the names or on all.
func (a api) allow(t *testing.T, user, resource, verb string, names ...string) {
	t.Helper()
	group := "hive.openshift.io"
	if resource == "secrets" {
		group = ""
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, GenerateName: user + "-"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names, Verbs: []string{verb}},
	}}
	require.NoError(t, a.Create(t.Context(), role))
	require.NoError(t, a.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}))
}

// Subjects of a claim may read the Secrets that clusterMetadata names. A user who reads no Secrets, as administrators of pools do not, names none to them.
func TestOnlyAReaderOfASecretNamesItToSubjects(t *testing.T) {
	a := newAPI(t)
	a.installPolicies(t, admissionFile)
	pooled := "  platform: {none: {}}\n  installed: true\n  clusterPoolRef: {namespace: a, poolName: b}\n"
	object := a.object(t, cluster(pooled+"  clusterMetadata: {clusterID: '1', infraID: a, adminKubeconfigSecretRef: {name: k}}\n"))
	object.SetLabels(map[string]string{"hive.openshift.io/disable-creation-webhook-for-dr": "true"})
	require.NoError(t, a.Create(t.Context(), object))
	alone := a.object(t, cluster("  platform: {none: {}}\n  installed: true\n"))
	alone.SetName("alone")
	require.NoError(t, a.Create(t.Context(), alone))
	for _, user := range []string{"keyless", "installer"} {
		for _, verb := range []string{"get", "patch", "create"} {
			a.allow(t, user, "clusterdeployments", verb)
		}
	}
	a.allow(t, "installer", "secrets", "get", "metadata", "password")
	keyless, installer := a.as(t, "keyless"), a.as(t, "installer")
	const sentence = "clusterMetadata of a pool's cluster gives a claim's subjects the right to read the Secrets that it names: name only Secrets that you may read yourself, not pull-secret"
	pull := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"clusterMetadata":{"metadataJSONSecretRef":{"name":"pull-secret"}}}}`))
	require.Eventually(t, func() bool {
		return keyless.merge(t, object, `{"metadata":{"labels":{"a":"b"}}}`) == nil && installer.merge(t, object, `{"metadata":{"labels":{"a":"b"}}}`) == nil &&
			keyless.Patch(t.Context(), object.DeepCopy(), pull, client.DryRunAll) != nil
	}, time.Minute, 50*time.Millisecond, "policies and rights come into force in their own time")

	for name, patch := range map[string]string{
		"metadata":  `{"spec":{"clusterMetadata":{"metadataJSONSecretRef":{"name":"pull-secret"}}}}`,
		"password":  `{"spec":{"clusterMetadata":{"adminPasswordSecretRef":{"name":"pull-secret"}}}}`,
		"installer": `{"spec":{"clusterMetadata":{"adminPasswordSecretRef":{"name":"password"},"metadataJSONSecretRef":{"name":"pull-secret"}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			assertRefused(t, keyless.merge(t, object, patch), "name only Secrets that you may read yourself")
			assertRefused(t, installer.merge(t, object, patch), sentence)
		})
	}
	created := a.object(t, cluster(pooled+"  clusterMetadata: {clusterID: '1', infraID: a, adminKubeconfigSecretRef: {name: pull-secret}}\n"))
	created.SetName("created")
	created.SetLabels(object.GetLabels())
	assertRefused(t, keyless.Create(t.Context(), created), sentence)
	require.NoError(t, keyless.merge(t, object, `{"spec":{"powerState":"Hibernating"}}`), "a Secret that is named already")
	require.NoError(t, installer.merge(t, object, `{"spec":{"clusterMetadata":{"adminPasswordSecretRef":{"name":"password"},"metadataJSONSecretRef":{"name":"metadata"}}}}`))
	require.NoError(t, keyless.merge(t, alone, `{"spec":{"clusterMetadata":{"clusterID":"1","infraID":"a","adminKubeconfigSecretRef":{"name":"k"}}}}`), "a cluster that no claim can have")
}
