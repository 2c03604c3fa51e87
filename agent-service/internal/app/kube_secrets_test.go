// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/apis/porttest"
)

// secretsByNamespace gives the service another account, with the rights of deploy/components/agent-service-secrets-by-namespace. It returns what binds the right to
// Secrets in a namespace.
func secretsByNamespace(c *cluster) (bind func(namespace string)) {
	c.Helper()
	user := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:serviceaccount:" + c.namespace + ":agent-service"}
	c.options.kube.Impersonate.UserName = user.Name
	deployed, rest, secrets := &rbacv1.ClusterRole{}, &rbacv1.ClusterRole{}, &rbacv1.ClusterRole{}
	require.NoError(c, c.user.Get(c.Context(), client.ObjectKey{Name: "agent-service"}, deployed))
	rest.Name, secrets.Name = "rest-"+c.namespace, "secrets-"+c.namespace
	rest.Rules = slices.DeleteFunc(slices.Clone(deployed.Rules), func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "secrets") })
	require.Len(c, rest.Rules, len(deployed.Rules)-1)
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "components", "agent-service-secrets-by-namespace", "role.yaml"))
	require.NoError(c, err)
	var role rbacv1.ClusterRole
	require.NoError(c, yaml.UnmarshalStrict(content, &role))
	secrets.Rules = role.Rules
	c.create(rest)
	c.create(secrets)
	c.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: rest.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: rest.Name}, Subjects: []rbacv1.Subject{user},
	})
	return func(namespace string) {
		c.Helper()
		c.create(&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "secrets"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: secrets.Name},
			Subjects: []rbacv1.Subject{user},
		})
	}
}

// A service that may read Secrets in some namespaces works there. Elsewhere the objects say which right is missing, and a right that is given later is enough.
func TestTheRightToSecretsCanBeGivenByNamespace(t *testing.T) {
	t.Parallel()
	c := unserved(t, withSystem(t))
	bind := secretsByNamespace(c)
	c.start("127.0.0.1:" + porttest.Free(t))
	bootstrappers(c)
	c.pullSecret(c.namespace)
	infraEnv := &agentv1.InfraEnv{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "rack"}, Spec: agentv1.InfraEnvSpec{PullSecretRef: agentv1.SecretReference{Name: "pull"}}}
	c.create(infraEnv)
	c.until(infraEnv, "the InfraEnv says which right is missing", func() bool {
		created := agentv1.FindCondition(infraEnv.Status.Conditions, agentv1.ConditionImageCreated)
		return created != nil && created.Status == corev1.ConditionFalse && strings.Contains(created.Message, "bind the ClusterRole agent-service-secrets in namespace "+c.namespace)
	})
	bind(c.namespace)
	c.until(infraEnv, "the image is there", func() bool { return agentv1.IsConditionTrue(infraEnv.Status.Conditions, agentv1.ConditionImageCreated) })

	m := c.boot(infraEnv, 1, 0)
	agent := c.agent(m)
	unbound, _ := c.takesNodes()
	c.bound(agent, unbound)
	c.until(agent, "the installation says which right is missing", func() bool {
		return strings.Contains(agent.Status.DebugInfo.StateInfo, "bind the ClusterRole agent-service-secrets")
	})
	assert.Nil(t, m.installed.join(t))

	other := c.boot(infraEnv, 2, 0)
	second := c.agent(other)
	deployment, _ := c.takesNodes()
	bind(deployment.Namespace)
	change(c, second, func(a *agentv1.Agent) {
		a.Spec.ClusterDeploymentName, a.Spec.Approved, a.Spec.Hostname, a.Spec.Role = reference(deployment), true, worker(c.namespace)+"-2", "worker"
	})
	c.until(second, "the machine is installed", func() bool { return second.Status.DebugInfo.State == "added-to-existing-cluster" })
	assert.NotNil(t, other.installed.join(t))
}
