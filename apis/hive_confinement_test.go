// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package apis_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
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

// confined are the kinds that the operator writes in namespaces, with an object of each.
func (a api) confined(t *testing.T) map[string]client.Object {
	t.Helper()
	a.installTLSRoutes(t)
	named := metav1.ObjectMeta{Name: "confined"}
	labels := map[string]string{"a": "b"}
	route := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"hostnames": []any{"blue.example.org"}, "rules": []any{map[string]any{"backendRefs": []any{map[string]any{"name": "blue", "port": int64(6443)}}}},
	}}}
	route.SetAPIVersion("gateway.networking.k8s.io/v1alpha3")
	route.SetKind("TLSRoute")
	route.SetName(named.Name)
	return map[string]client.Object{
		"secrets":  &corev1.Secret{ObjectMeta: named},
		"services": &corev1.Service{ObjectMeta: named, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}},
		"persistentvolumeclaims": &corev1.PersistentVolumeClaim{ObjectMeta: named, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}},
		"statefulsets": &appsv1.StatefulSet{ObjectMeta: named, Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}},
		}},
		"networkpolicies": &networkingv1.NetworkPolicy{ObjectMeta: named},
		"roles":           &rbacv1.Role{ObjectMeta: named},
		"rolebindings":    &rbacv1.RoleBinding{ObjectMeta: named, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}},
		"tlsroutes":       route,
	}
}

// installTLSRoutes installs the kind TLSRoute of Gateway API, and waits until it is served.
func (a api) installTLSRoutes(t *testing.T) {
	t.Helper()
	data, err := os.ReadFile("../pool-operator/internal/provision/pod/testdata/tlsroutes.yaml")
	require.NoError(t, err)
	crd := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal(data, &crd.Object))
	require.NoError(t, client.IgnoreAlreadyExists(a.Create(t.Context(), crd)))
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("gateway.networking.k8s.io/v1alpha3")
	list.SetKind("TLSRouteList")
	require.Eventually(t, func() bool { return a.List(t.Context(), list, client.InNamespace(a.namespace)) == nil }, time.Minute, 50*time.Millisecond, "the kind is not served")
}

// The operator acts in the namespaces that it made for clusters of pools, and in those whose administrators allow hosted clusters; nowhere else.
func TestTheOperatorIsConfinedToItsNamespaces(t *testing.T) {
	a := newAPI(t)
	made, allowed, own, free, back := a.namespace+"-made", a.namespace+"-allowed", a.namespace+"-own", a.namespace+"-free", a.namespace+"-back"
	a.installPolicies(t, confinementFile, made, allowed, own, free, back)
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
	binding := func(namespace, name string) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}}
	}
	for kind, object := range a.confined(t) {
		in := func(namespace string) client.Object {
			o := object.DeepCopyObject().(client.Object)
			o.SetNamespace(namespace)
			return o
		}
		t.Run(kind, func(t *testing.T) {
			assertRefused(t, operator.Create(t.Context(), in(own)), acts+own+" muster.io/hosted-clusters=true")
			theirs := in(own)
			require.NoError(t, admin.Create(t.Context(), theirs), "the policy binds only the operator")
			assertRefused(t, operator.Patch(t.Context(), in(own), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))), acts)
			assertRefused(t, operator.Delete(t.Context(), in(own)), acts)
			for _, namespace := range []string{made, allowed} {
				require.NoError(t, operator.Create(t.Context(), in(namespace)))
			}
			require.NoError(t, operator.Delete(t.Context(), in(made)))
		})
	}
	assertRefused(t, operator.Delete(t.Context(), namespaceNamed(own, nil)), "pool-operator creates and deletes only namespaces of clusters of pools")
	for _, object := range []client.Object{role(own), binding(own, "hive-claim-owner"), binding(own, "hive-cluster-pool-admin-binding")} {
		require.NoError(t, admin.Create(t.Context(), object))
		require.NoError(t, operator.Delete(t.Context(), object), "the rights that it gave may be taken away anywhere")
	}
	admins := role(own)
	admins.Name = "hive-cluster-pool-admin-binding"
	require.NoError(t, admin.Create(t.Context(), admins))
	assertRefused(t, operator.Delete(t.Context(), admins), acts)
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

	// Where people create namespaces for themselves, they do not make them the operator's, also not by an account with the operator's name.
	user := a.withVerbsOnNamespaces(t, "tenant", free, "create")
	for _, user := range []api{user, a.withVerbsOnNamespaces(t, "system:serviceaccount:tenant:pool-operator", free, "create")} {
		for label, value := range map[string]string{"hive.openshift.io/cluster-pool-name": "p", "hive.openshift.io/cluster-pool-namespace": "team", "muster.io/hosted-clusters": "true"} {
			assertRefused(t, user.Create(t.Context(), namespaceNamed(free, map[string]string{label: value})), "say in which namespaces pool-operator may act: leave them out")
		}
	}
	// The operator of v0.1 has no right to operate pools. Where it is put back, the policy is there still.
	former := a.withVerbsOnNamespaces(t, "system:serviceaccount:former:pool-operator", free, "create", "delete", "get", "list", "watch")
	require.NoError(t, former.Create(t.Context(), namespaceNamed(back, ofPool)))
	require.NoError(t, user.Create(t.Context(), namespaceNamed(free, map[string]string{"team": "a"})))
	require.NoError(t, admin.Patch(t.Context(), namespaceNamed(free, nil), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"muster.io/hosted-clusters":"true"}}}`))))
}

// withVerbsOnNamespaces is the API server as seen by a user with rights to namespaces of all names, and no others.
func (a api) withVerbsOnNamespaces(t *testing.T, user, unused string, verbs ...string) api {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: a.namespace + "-" + user}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: verbs},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}
	admin := newClient(t, a.config)
	require.NoError(t, admin.Create(t.Context(), role))
	require.NoError(t, admin.Create(t.Context(), binding))
	seen := a.as(t, user)
	require.Eventually(t, func() bool { return seen.Create(t.Context(), namespaceNamed(unused, nil), client.DryRunAll) == nil }, time.Minute, 50*time.Millisecond)
	return seen
}
