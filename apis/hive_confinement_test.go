// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package apis_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// as is the API server as seen by a user; the operator has its right to operate pools in every test.
func (a api) as(t *testing.T, user string, groups ...string) api {
	t.Helper()
	config := rest.CopyConfig(a.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return api{Client: newClient(t, config), config: config, namespace: a.namespace}
}

func namespaceNamed(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// The operator acts in the namespaces that it made for clusters of pools, and in those whose administrators allow hosted clusters; nowhere else.
func TestTheOperatorIsConfinedToItsNamespaces(t *testing.T) {
	a := newAPI(t)
	made, allowed, own, free := a.namespace+"-made", a.namespace+"-allowed", a.namespace+"-own", a.namespace+"-free"
	a.installPolicies(t, confinementFile, made, allowed, own, free)
	ofPool := map[string]string{"hive.openshift.io/cluster-pool-name": "p", "hive.openshift.io/cluster-pool-namespace": "team"}
	operator, admin := a.as(t, operatorName, "system:masters"), a
	secret := func(namespace string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "s-"}}
	}
	require.Eventually(t, func() bool {
		hosted := a.object(t, cluster("  platform: {hosted: {}}\n"))
		return operator.Create(t.Context(), secret(a.namespace), client.DryRunAll) != nil && operator.Create(t.Context(), namespaceNamed(own, nil), client.DryRunAll) != nil &&
			a.Create(t.Context(), hosted, client.DryRunAll) != nil
	}, time.Minute, 50*time.Millisecond, "the policies come into force in their own time")

	assertRefused(t, operator.Create(t.Context(), namespaceNamed(own, map[string]string{"hive.openshift.io/cluster-pool-name": "p"})), "pool-operator creates and deletes only namespaces of clusters of pools")
	require.NoError(t, operator.Create(t.Context(), namespaceNamed(made, ofPool)))
	require.NoError(t, admin.Create(t.Context(), namespaceNamed(allowed, map[string]string{"muster.io/hosted-clusters": "true"})))
	require.NoError(t, admin.Create(t.Context(), namespaceNamed(own, nil)))

	const acts = "pool-operator acts only in namespaces that it made for clusters of pools, and in those that allow hosted clusters: to allow them, run kubectl label namespace "
	role := func(namespace string) *rbacv1.Role {
		return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "hive-claim-owner"}}
	}
	existing := secret(own)
	existing.GenerateName, existing.Name = "", "theirs"
	require.NoError(t, admin.Create(t.Context(), existing))
	require.NoError(t, admin.Create(t.Context(), role(own)))
	assertRefused(t, operator.Create(t.Context(), secret(own)), acts+own+" muster.io/hosted-clusters=true")
	assertRefused(t, operator.Delete(t.Context(), existing), acts)
	assertRefused(t, operator.Patch(t.Context(), existing, client.RawPatch(types.MergePatchType, []byte(`{"stringData":{"a":"b"}}`))), acts)
	assertRefused(t, operator.Patch(t.Context(), role(own), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))), acts)
	assertRefused(t, operator.Delete(t.Context(), namespaceNamed(own, nil)), "pool-operator creates and deletes only namespaces of clusters of pools")
	require.NoError(t, operator.Delete(t.Context(), role(own)), "rights may be taken away anywhere")
	for _, namespace := range []string{made, allowed} {
		require.NoError(t, operator.Create(t.Context(), secret(namespace)))
		require.NoError(t, operator.Create(t.Context(), role(namespace)))
	}
	require.NoError(t, admin.Create(t.Context(), secret(own)), "the policy binds only the operator")

	hosted := func(namespace string) error {
		cd := a.object(t, cluster("  platform: {hosted: {}}\n"))
		cd.SetNamespace(namespace)
		return a.Create(t.Context(), cd)
	}
	assertRefused(t, hosted(own), "hosted clusters run only in namespaces of clusters of pools, and in those that allow them: to allow them, run kubectl label namespace "+own)
	require.NoError(t, hosted(allowed))
	elsewhere := a.object(t, cluster("  platform: {none: {}}\n"))
	elsewhere.SetNamespace(own)
	require.NoError(t, a.Create(t.Context(), elsewhere), "the policy ignores clusters that another controller installs")
	require.NoError(t, operator.Delete(t.Context(), namespaceNamed(made, nil)))

	// Where people create namespaces for themselves, they do not make them the operator's.
	tenant := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: a.namespace + "-tenant"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: tenant.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: tenant.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "tenant"}},
	}
	require.NoError(t, admin.Create(t.Context(), tenant))
	require.NoError(t, admin.Create(t.Context(), binding))
	user := a.as(t, "tenant")
	require.Eventually(t, func() bool { return user.Create(t.Context(), namespaceNamed(free, nil), client.DryRunAll) == nil }, time.Minute, 50*time.Millisecond)
	for label, value := range map[string]string{"hive.openshift.io/cluster-pool-name": "p", "hive.openshift.io/cluster-pool-namespace": "team", "muster.io/hosted-clusters": "true"} {
		assertRefused(t, user.Create(t.Context(), namespaceNamed(free, map[string]string{label: value})), "say in which namespaces pool-operator may act: leave them out")
	}
	require.NoError(t, user.Create(t.Context(), namespaceNamed(free, map[string]string{"team": "a"})))
	require.NoError(t, admin.Patch(t.Context(), namespaceNamed(free, nil), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"muster.io/hosted-clusters":"true"}}}`))))
}
