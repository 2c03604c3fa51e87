// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/muster-io/muster/e2e/checkout"
)

// directories returns every directory of deploy that can be applied, relative to the repository. Components cannot: overlays include them.
func directories(t *testing.T) []string {
	t.Helper()
	root, err := checkout.Root()
	require.NoError(t, err)
	var found []string
	for _, pattern := range []string{"base/*", "crds/*", "overlays/*", "overlays/*/*", "samples"} {
		matches, err := filepath.Glob(filepath.Join(root, "deploy", pattern, "kustomization.yaml"))
		require.NoError(t, err)
		for _, match := range matches {
			dir, err := filepath.Rel(root, filepath.Dir(match))
			require.NoError(t, err)
			found = append(found, filepath.ToSlash(dir))
		}
	}
	require.NotEmpty(t, found)
	return found
}

// operators returns the names of all operators.
func operators(t *testing.T) []string {
	t.Helper()
	root, err := checkout.Root()
	require.NoError(t, err)
	bases, err := filepath.Glob(filepath.Join(root, "deploy", "base", "*", "kustomization.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, bases)
	var out []string
	for _, base := range bases {
		out = append(out, filepath.Base(filepath.Dir(base)))
	}
	return out
}

func each(t *testing.T, check func(t *testing.T, dir string, objects []*unstructured.Unstructured)) {
	for _, dir := range directories(t) {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			objects := mustRender(t, dir)
			require.NotEmpty(t, objects)
			check(t, dir, objects)
		})
	}
}

func decode[T any](t *testing.T, object *unstructured.Unstructured) *T {
	t.Helper()
	out := new(T)
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, out, true), "%s %s", object.GetKind(), object.GetName())
	return out
}

func ofKind[T any](t *testing.T, objects []*unstructured.Unstructured, kind string) []*T {
	t.Helper()
	var out []*T
	for _, object := range objects {
		if object.GetKind() == kind {
			out = append(out, decode[T](t, object))
		}
	}
	return out
}

func TestNoRuleHasAWildcard(t *testing.T) {
	each(t, func(t *testing.T, _ string, objects []*unstructured.Unstructured) {
		for _, role := range append(ofKind[rbacv1.ClusterRole](t, objects, "ClusterRole"), asClusterRoles(ofKind[rbacv1.Role](t, objects, "Role"))...) {
			for _, rule := range role.Rules {
				for _, list := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs} {
					for _, entry := range list {
						assert.NotContains(t, entry, "*", "role %s, rule %v", role.Name, rule)
					}
				}
			}
		}
	})
}

func asClusterRoles(roles []*rbacv1.Role) []*rbacv1.ClusterRole {
	var out []*rbacv1.ClusterRole
	for _, role := range roles {
		out = append(out, &rbacv1.ClusterRole{ObjectMeta: role.ObjectMeta, Rules: role.Rules})
	}
	return out
}

func TestPodsAreConfined(t *testing.T) {
	each(t, func(t *testing.T, dir string, objects []*unstructured.Unstructured) {
		deployments := ofKind[appsv1.Deployment](t, objects, "Deployment")
		if strings.HasPrefix(dir, "deploy/overlays/local") {
			assert.Empty(t, deployments, "operators are processes there")
		}
		for _, deployment := range deployments {
			checkPod(t, deployment.Name, deployment.Spec.Template.Spec)
		}
		for _, set := range ofKind[appsv1.StatefulSet](t, objects, "StatefulSet") {
			checkPod(t, set.Name, set.Spec.Template.Spec)
		}
		for _, object := range objects {
			assert.NotContains(t, []string{"Pod", "DaemonSet", "Job", "CronJob", "ReplicaSet"}, object.GetKind(), "checked by nothing here")
		}
	})
}

func checkPod(t *testing.T, name string, pod corev1.PodSpec) {
	t.Helper()
	require.NotNil(t, pod.SecurityContext, name)
	if assert.NotNil(t, pod.SecurityContext.RunAsNonRoot, name) {
		assert.True(t, *pod.SecurityContext.RunAsNonRoot, name)
	}
	if assert.NotNil(t, pod.SecurityContext.SeccompProfile, name) {
		assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type, name)
	}
	assert.NotNil(t, pod.AutomountServiceAccountToken, "%s: say whether a token is mounted", name)
	assert.NotEmpty(t, pod.ServiceAccountName, name)
	assert.False(t, pod.HostNetwork || pod.HostPID || pod.HostIPC, name)
	for _, volume := range pod.Volumes {
		assert.Nil(t, volume.HostPath, name)
	}
	for _, container := range append(pod.InitContainers, pod.Containers...) {
		checkContainer(t, name+"/"+container.Name, container)
	}
	for _, container := range pod.Containers {
		assert.NotNil(t, container.LivenessProbe, "%s/%s: liveness probe", name, container.Name)
		assert.NotNil(t, container.ReadinessProbe, "%s/%s: readiness probe", name, container.Name)
	}
}

func checkContainer(t *testing.T, name string, container corev1.Container) {
	t.Helper()
	sc := container.SecurityContext
	if assert.NotNil(t, sc, name) {
		assert.True(t, sc.ReadOnlyRootFilesystem != nil && *sc.ReadOnlyRootFilesystem, "%s: read-only root", name)
		assert.True(t, sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation, "%s: no privilege escalation", name)
		assert.True(t, sc.Privileged == nil || !*sc.Privileged, "%s: not privileged", name)
		if assert.NotNil(t, sc.Capabilities, name) {
			assert.Equal(t, []corev1.Capability{"ALL"}, sc.Capabilities.Drop, name)
			assert.Empty(t, sc.Capabilities.Add, name)
		}
	}
	assert.False(t, container.Resources.Requests.Cpu().IsZero(), "%s: CPU request", name)
	assert.False(t, container.Resources.Requests.Memory().IsZero(), "%s: memory request", name)
	assert.False(t, container.Resources.Limits.Memory().IsZero(), "%s: memory limit", name)
	checkImage(t, name, container.Image)
	for _, variable := range container.Env {
		if strings.HasSuffix(variable.Name, "_IMAGE") {
			checkImage(t, name+" "+variable.Name, variable.Value)
		}
	}
}

// checkImage wants a tag that is a version, or a digest.
func checkImage(t *testing.T, name, image string) {
	t.Helper()
	if strings.Contains(image, "@sha256:") {
		return
	}
	_, tag, found := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	assert.True(t, found && tag != "", "%s: image %s has no tag", name, image)
	assert.NotEqual(t, "latest", tag, "%s: image %s", name, image)
	assert.Contains(t, image, "/", "%s: image %s names no registry, so one would be guessed", name, image)
}

// Every account has rights, every binding has an account and a role, and what a pod runs as exists.
func TestAccountsAreBound(t *testing.T) {
	each(t, func(t *testing.T, dir string, objects []*unstructured.Unstructured) {
		if strings.HasPrefix(dir, "deploy/samples") {
			t.Skip("the operator grants the rights of a sample's account")
		}
		accounts, bound := map[string]bool{}, map[string]bool{}
		for _, account := range ofKind[corev1.ServiceAccount](t, objects, "ServiceAccount") {
			accounts[account.Namespace+"/"+account.Name] = true
			if assert.NotNil(t, account.AutomountServiceAccountToken, "account %s", account.Name) {
				assert.False(t, *account.AutomountServiceAccountToken, "account %s: pods say themselves that they need a token", account.Name)
			}
		}
		roles := map[string]bool{}
		for _, object := range objects {
			if kind := object.GetKind(); kind == "Role" || kind == "ClusterRole" {
				roles[kind+" "+object.GetName()] = true
			}
		}
		bind := func(name string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
			assert.True(t, roles[ref.Kind+" "+ref.Name], "binding %s: no %s %s", name, ref.Kind, ref.Name)
			for _, subject := range subjects {
				key := subject.Namespace + "/" + subject.Name
				assert.True(t, subject.Kind != "ServiceAccount" || accounts[key], "binding %s: no account %s", name, key)
				bound[key] = true
			}
		}
		for _, b := range ofKind[rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding") {
			bind(b.Name, b.RoleRef, b.Subjects)
		}
		for _, b := range ofKind[rbacv1.RoleBinding](t, objects, "RoleBinding") {
			bind(b.Name, b.RoleRef, b.Subjects)
		}
		for account := range accounts {
			assert.True(t, bound[account], "account %s has no rights", account)
		}
		for _, deployment := range ofKind[appsv1.Deployment](t, objects, "Deployment") {
			assert.True(t, accounts[deployment.Namespace+"/"+deployment.Spec.Template.Spec.ServiceAccountName], "deployment %s: no account", deployment.Name)
		}
	})
}

func TestNamespacedObjectsHaveANamespaceOfTheirOperator(t *testing.T) {
	each(t, func(t *testing.T, dir string, objects []*unstructured.Unstructured) {
		if strings.HasPrefix(dir, "deploy/samples") {
			t.Skip("samples go wherever a user likes")
		}
		namespaces := map[string]bool{}
		for _, object := range objects {
			if object.GetKind() == "Namespace" {
				namespaces[object.GetName()] = true
			}
		}
		for _, object := range objects {
			if object.GetNamespace() != "" {
				assert.True(t, namespaces[object.GetNamespace()], "%s %s: namespace %s is not rendered", object.GetKind(), object.GetName(), object.GetNamespace())
			}
		}
	})
}

// Every operator has what a user needs to deploy it alone, and every environment has all operators.
func TestEveryOperatorDeploysAlone(t *testing.T) {
	for _, operator := range operators(t) {
		t.Run(operator, func(t *testing.T) {
			assert.NotEmpty(t, mustRender(t, "deploy/crds/"+operator), "the operator has custom resources")
			for _, environment := range []string{"local", "kind", "production"} {
				objects := mustRender(t, "deploy/overlays/"+environment+"/"+operator)
				all := mustRender(t, "deploy/overlays/"+environment)
				assert.Subset(t, names(all), names(objects), "the overlay %s lacks something of it", environment)
				for _, object := range objects {
					assert.NotEqual(t, "CustomResourceDefinition", object.GetKind(), "deleting an operator must not delete what users have")
				}
			}
		})
	}
}

// Each kind belongs to one set of custom resource definitions, so that deleting the set of one operator never deletes objects of another.
func TestEveryKindBelongsToOneSet(t *testing.T) {
	var all, sets []string
	for _, definition := range mustRender(t, "apis/crd") {
		all = append(all, definition.GetName())
	}
	for _, dir := range directories(t) {
		if !strings.HasPrefix(dir, "deploy/crds/") {
			continue
		}
		for _, object := range mustRender(t, dir) {
			require.Equal(t, "CustomResourceDefinition", object.GetKind(), dir)
			sets = append(sets, object.GetName())
		}
	}
	assert.ElementsMatch(t, all, sets)
}

// An image that exists only after a build by hand is none for production.
func TestProductionImagesCanBePulled(t *testing.T) {
	each(t, func(t *testing.T, dir string, objects []*unstructured.Unstructured) {
		if !strings.HasPrefix(dir, "deploy/overlays/production") {
			t.Skip("not production")
		}
		for _, deployment := range ofKind[appsv1.Deployment](t, objects, "Deployment") {
			for _, container := range deployment.Spec.Template.Spec.Containers {
				assert.NotContains(t, container.Image, "muster.local/")
				for _, variable := range container.Env {
					assert.NotContains(t, variable.Value, "muster.local/", variable.Name)
				}
			}
		}
	})
}

func names(objects []*unstructured.Unstructured) []string {
	var out []string
	for _, object := range objects {
		out = append(out, object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName())
	}
	return out
}
