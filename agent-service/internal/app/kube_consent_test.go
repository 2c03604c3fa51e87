// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/apis/controlplanetest"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
)

// as is a user who may use the service in namespaces, with the rights there that the ClusterRole of deploy gives editors.
func (c *cluster) as(name string, namespaces ...string) client.Client {
	c.Helper()
	c.install("user_roles.yaml")
	for _, namespace := range namespaces {
		c.grant(name, namespace, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "agent-service-edit"})
		c.grant(name, namespace, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "agent-service-view"})
	}
	config := controlplanetest.Start(c.T)
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}}
	user, err := client.New(config, client.Options{Scheme: c.user.Scheme()})
	require.NoError(c, err)
	return user
}

func (c *cluster) grant(name, namespace string, role rbacv1.RoleRef) {
	c.Helper()
	c.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "grant-"}, RoleRef: role,
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	})
}

// may waits until something can be done that was just allowed: the API server needs a moment to hear of it.
func (c *cluster) may(do func() error) {
	c.Helper()
	require.EventuallyWithT(c, func(collect *assert.CollectT) { require.NoError(collect, do()) }, kubePatience, 50*time.Millisecond)
}

func TestMachinesGoIntoClustersOfOtherNamespacesByConsentOnly(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	agent := c.agent(c.boot(c.infraEnv("rack"), 1, 0))
	deployment, _ := c.deployment()
	admin := c.as("admin-"+c.namespace, c.namespace)
	creator := c.as("creator-"+c.namespace, c.namespace, deployment.Namespace)
	bind := func(user client.Client, to *agentv1.ClusterReference, options ...client.PatchOption) func() error {
		return func() error {
			before := &agentv1.Agent{}
			if err := user.Get(t.Context(), client.ObjectKeyFromObject(agent), before); err != nil {
				return err
			}
			after := before.DeepCopy()
			after.Spec.ClusterDeploymentName = to
			return user.Patch(t.Context(), after, client.MergeFrom(before), options...)
		}
	}
	why := "may not give machines of namespace " + c.namespace + " to ClusterDeployment " + deployment.Namespace + "/blue"
	refused := func(do func() error) {
		t.Helper()
		c.may(func() error { // a policy is in force a moment after it is there
			if err := do(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), why) {
				return fmt.Errorf("want it to be refused by the policy, not: %w", err)
			}
			return nil
		})
	}

	// A user with both rights may bind them; the binding then stays for all users.
	c.may(bind(admin, &agentv1.ClusterReference{Name: "a-cluster-of-this-namespace"}))
	refused(bind(admin, reference(deployment), client.DryRunAll))
	c.may(bind(creator, reference(deployment)))
	c.says(agent, agentv1.ConditionBound, agentv1.ReasonBound)
	before := agent.DeepCopy()
	agent.Spec.Approved = true
	require.NoError(t, admin.Patch(t.Context(), agent, client.MergeFrom(before)))
	require.NoError(t, bind(admin, nil)())
	c.says(agent, agentv1.ConditionBound, agentv1.ReasonUnbound)
	refused(bind(admin, reference(deployment)))

	// InfraEnvs bring machines too. The service itself may create objects for them.
	edge := func() *agentv1.InfraEnv {
		return &agentv1.InfraEnv{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "edge"}, Spec: agentv1.InfraEnvSpec{
			PullSecretRef: agentv1.SecretReference{Name: "pull"}, ClusterRef: reference(deployment),
		}}
	}
	refused(func() error { return admin.Create(t.Context(), edge()) })
	theirs := edge()
	require.NoError(t, creator.Create(t.Context(), theirs))
	c.until(theirs, "the image is there", func() bool { return agentv1.IsConditionTrue(theirs.Status.Conditions, agentv1.ConditionImageCreated) })
	second := c.agent(c.boot(theirs, 2, 0))
	c.says(second, agentv1.ConditionBound, agentv1.ReasonBound)
	assert.Equal(t, reference(deployment), second.Spec.ClusterDeploymentName)

	// The administrator of the cluster can grant binding without the right to change it.
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: deployment.Namespace, Name: "bind"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"hive.openshift.io"}, Resources: []string{"clusterdeployments"}, ResourceNames: []string{deployment.Name}, Verbs: []string{"bind"},
	}}}
	c.create(role)
	c.grant("admin-"+c.namespace, deployment.Namespace, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name})
	c.may(bind(admin, reference(deployment)))
	c.says(agent, agentv1.ConditionBound, agentv1.ReasonBound)
}

func TestObjectsOfOtherNamespacesDoNotPassForThoseOfAMachine(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	infraEnv := c.infraEnv("rack")
	agent := c.agent(c.boot(infraEnv, 1, 0))
	deployment, _ := c.deployment()
	change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = reference(deployment) })
	c.says(agent, agentv1.ConditionBound, agentv1.ReasonBound)
	elsewhere := c.newNamespace()
	stranger := &agentv1.Agent{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: elsewhere, Name: agent.Name, OwnerReferences: agent.OwnerReferences, Finalizers: []string{agentv1.AgentFinalizer},
		},
		Spec: agentv1.AgentSpec{Approved: true, Role: "worker"},
	}
	install := &hiveextv1.AgentClusterInstall{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: elsewhere, Name: "blue", Finalizers: []string{hiveextv1.FinalizerAgentClusterInstall},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: hivev1.GroupVersion.String(), Kind: "ClusterDeployment", Name: "blue", UID: deployment.UID}},
		},
		Spec: hiveextv1.AgentClusterInstallSpec{ClusterDeploymentRef: hivev1.LocalObjectReference{Name: "nowhere"}},
	}
	for _, object := range []client.Object{stranger, install} {
		c.create(object)
		require.NoError(t, client.IgnoreNotFound(c.user.Delete(t.Context(), object)))
		c.gone(object)
	}
	_, cluster := call(t, http.MethodGet, c.base+"/api/assisted-install/v2/clusters/"+string(deployment.UID), "")
	assert.Equal(t, "blue", cluster["name"])
	uid := agent.UID
	change(c, agent, func(a *agentv1.Agent) { a.Spec.Hostname = "node" })
	c.until(agent, "the Agent is as it was", func() bool {
		return agent.Status.Inventory.Hostname != "" && is(agent, agentv1.ConditionRequirementsMet, agentv1.ReasonAgentIsNotApproved)
	})
	assert.Equal(t, uid, agent.UID)
	assert.False(t, agent.Spec.Approved)
	_, host := call(t, http.MethodGet, c.base+"/api/assisted-install/v2/infra-envs/"+string(infraEnv.UID)+"/hosts/"+agent.Name, "")
	assert.Equal(t, string(deployment.UID), host["cluster_id"])
	assert.NotEqual(t, "worker", host["role"])
}
