// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/internal/agent"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// changeHost changes a BareMetalHost as a user does.
func changeHost(c *cluster, user client.Client, host *metal3v1.BareMetalHost, do func(*metal3v1.BareMetalHost)) error {
	c.Helper()
	before := &metal3v1.BareMetalHost{}
	require.NoError(c, c.user.Get(c.Context(), client.ObjectKeyFromObject(host), before))
	after := before.DeepCopy()
	do(after)
	return user.Patch(c.Context(), after, client.MergeFrom(before))
}

// hostOf is a host with a management controller for a machine of an InfraEnv.
func (c *cluster) hostOf(number int, infraEnv *agentv1.InfraEnv) *metal3v1.BareMetalHost {
	return &metal3v1.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.namespace, Name: fmt.Sprintf("node-%d", number), Labels: map[string]string{agentv1.InfraEnvLabel: infraEnv.Name}, Annotations: map[string]string{},
		},
		Spec: metal3v1.BareMetalHostSpec{
			BMC:            &metal3v1.BMCDetails{Address: "redfish+https://192.0.2.1/redfish/v1/Systems/1", CredentialsName: "bmc"},
			BootMACAddress: (&agent.Generated{Seed: c.namespace, Number: number}).Inventory().Interfaces[0].MACAddress,
		},
	}
}

// A host in git: it boots the image of its InfraEnv, and its machine is approved, named, bound and freed by what stands on the host.
func TestABareMetalHostBootsTheImageAndBindsItsMachine(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	infraEnv := c.infraEnv("rack")
	host := c.hostOf(1, infraEnv)
	host.Spec.BootMACAddress = strings.ToUpper(host.Spec.BootMACAddress)
	host.Annotations = map[string]string{
		agentv1.BMHRoleAnnotation: "worker", agentv1.BMHHostnameAnnotation: "worker-1", agentv1.BMHNodeLabelAnnotationPrefix + "node-role.kubernetes.io/infra": "",
		"bmac.agent-install.openshift.io/unheard-of": "",
	}
	c.create(host)
	c.until(host, "the host boots the image", func() bool { return host.Spec.Image != nil })
	assert.Equal(t, infraEnv.Status.ISODownloadURL, host.Spec.Image.URL)
	assert.Equal(t, "live-iso", *host.Spec.Image.DiskFormat)
	assert.True(t, host.Spec.Online)
	assert.Equal(t, "disabled", host.Spec.AutomatedCleaningMode)
	agent := c.agent(c.boot(infraEnv, 1, 0))
	c.until(agent, "the Agent is linked", func() bool { return agent.Labels[agentv1.BareMetalHostLabel] == host.Name })
	assert.True(t, agent.Spec.Approved)
	assert.Equal(t, "worker", agent.Spec.Role)
	assert.Equal(t, "worker-1", agent.Spec.Hostname)
	assert.Equal(t, map[string]string{"node-role.kubernetes.io/infra": ""}, agent.Spec.NodeLabels)
	c.eventOf(host, corev1.EventTypeWarning, "UnknownAnnotation", "", "annotations without effect: bmac.agent-install.openshift.io/unheard-of; remove them, or set the fields of the Agent")

	deployment, _ := c.deployment()
	refer := func(to string) func(*metal3v1.BareMetalHost) {
		return func(h *metal3v1.BareMetalHost) { h.Annotations[agentv1.BMHClusterReferenceAnnotation] = to }
	}
	require.NoError(t, changeHost(c, c.user, host, refer(deployment.Namespace+"/"+deployment.Name)))
	c.says(agent, agentv1.ConditionBound, agentv1.ReasonBound)
	require.NoError(t, changeHost(c, c.user, host, refer("")))
	c.says(agent, agentv1.ConditionBound, agentv1.ReasonUnbound)

	// A machine without a host waits for its approval as before.
	second := c.agent(c.boot(infraEnv, 2, 0))
	assert.False(t, second.Spec.Approved)
	assert.Empty(t, second.Labels[agentv1.BareMetalHostLabel])
}

// A host whose machine is installed is labelled: the machine is linked, and goes on. Once it is freed, it is restarted into the image, once, and the host is as before when the machine has
// registered.
func TestTheHostOfAnInstalledMachineIsRestartedOnlyWhenItIsFreed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t))
	bootstrappers(c)
	infraEnv := c.infraEnv("rack")
	m := c.boot(infraEnv, 1, 0)
	agent := c.agent(m)
	deployment, _ := c.takesNodes()
	c.bind(agent, deployment)
	host := c.hostOf(1, infraEnv)
	c.create(host)
	c.until(agent, "the Agent is linked", func() bool { return agent.Labels[agentv1.BareMetalHostLabel] == host.Name })
	c.eventOf(host, corev1.EventTypeWarning, "HostInUse", "", "the machine of Agent "+agent.Name+" is in use")
	c.until(host, "the host is as it was", func() bool { return true })
	assert.Nil(t, host.Spec.Image)
	assert.False(t, host.Spec.Online)
	assert.NotContains(t, host.Annotations, metal3v1.RebootAnnotation)

	free := func(h *metal3v1.BareMetalHost) {
		h.Annotations = map[string]string{agentv1.BMHClusterReferenceAnnotation: ""}
	}
	require.NoError(t, changeHost(c, c.user, host, free))
	c.until(host, "the machine is restarted into the image", func() bool { return host.Annotations[metal3v1.RebootAnnotation] != "" })
	assert.JSONEq(t, `{"mode":"hard"}`, host.Annotations[metal3v1.RebootAnnotation])
	assert.Equal(t, infraEnv.Status.ISODownloadURL, host.Spec.Image.URL)
	assert.True(t, host.Spec.Online)
	assert.NotEmpty(t, host.Annotations[agentv1.BMHRestartedAnnotation])
	m.stop()
	c.powerOn = "again-"
	c.boot(infraEnv, 1, 0)
	c.until(agent, "the machine is free", func() bool { return agentv1.IsConditionTrue(agent.Status.Conditions, agentv1.ConditionReleased) })
	c.until(host, "no restart is asked for any more", func() bool {
		_, restarted := host.Annotations[agentv1.BMHRestartedAnnotation]
		_, asked := host.Annotations[metal3v1.RebootAnnotation]
		return !restarted && !asked
	})
}

func TestABareMetalHostThatIsDeletedTakesItsAgentWithIt(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	infraEnv := c.infraEnv("rack")
	agent := c.agent(c.boot(infraEnv, 1, 0))
	c.until(agent, "the Agent has an inventory", func() bool { return len(agent.Status.Inventory.Interfaces) > 0 })
	deployment, _ := c.deployment()
	host := &metal3v1.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.namespace, Name: "node-1", Labels: map[string]string{agentv1.InfraEnvLabel: infraEnv.Name},
			Annotations: map[string]string{agentv1.BMHRemoveAgentAnnotation: "true", agentv1.BMHClusterReferenceAnnotation: deployment.Namespace + "/" + deployment.Name},
		},
		Spec: metal3v1.BareMetalHostSpec{BootMACAddress: agent.Status.Inventory.Interfaces[0].MacAddress},
	}
	c.create(host)
	c.says(agent, agentv1.ConditionBound, agentv1.ReasonBound)
	require.NoError(t, c.user.Delete(t.Context(), host))
	c.gone(host)
	again := &agentv1.Agent{}
	if err := c.user.Get(t.Context(), client.ObjectKeyFromObject(agent), again); err == nil {
		assert.NotEqual(t, agent.UID, again.UID, "a machine that registers again is another Agent")
	} else {
		assert.True(t, apierrors.IsNotFound(err), err)
	}
}

// A machine of an InfraEnv with a cluster of its own cannot be freed, but it leaves that cluster with its host.
func TestABareMetalHostThatIsDeletedTakesTheMachineOutOfTheClusterOfItsInfraEnv(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t))
	bootstrappers(c)
	deployment, _ := c.takesNodes()
	infraEnv := c.infraEnv("rack", func(s *agentv1.InfraEnvSpec) { s.ClusterRef = reference(deployment) })
	m := c.boot(infraEnv, 1, 0)
	agent := c.agent(m)
	c.bind(agent, deployment)
	host := &metal3v1.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.namespace, Name: "node-1", Labels: map[string]string{agentv1.InfraEnvLabel: infraEnv.Name}, Annotations: map[string]string{agentv1.BMHRemoveAgentAnnotation: "true"},
		},
		Spec: metal3v1.BareMetalHostSpec{BootMACAddress: agent.Status.Inventory.Interfaces[0].MacAddress},
	}
	c.create(host)
	c.until(agent, "the machine is that of the host", func() bool { return agent.Labels[agentv1.BareMetalHostLabel] == host.Name })
	c.until(host, "the host is kept", func() bool { return len(host.Finalizers) > 0 })
	change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = nil })
	c.says(agent, agentv1.ConditionSpecSynced, agentv1.ReasonInputError)
	change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = reference(deployment) })
	c.says(agent, agentv1.ConditionSpecSynced, agentv1.ReasonSyncOK)
	node := c.node(worker(c.namespace), corev1.ConditionFalse)
	require.NoError(t, c.user.Delete(t.Context(), host))
	c.gone(node)
	c.gone(host)
	again := &agentv1.Agent{}
	require.NoError(t, client.IgnoreNotFound(c.user.Get(t.Context(), client.ObjectKeyFromObject(agent), again)))
	assert.NotEqual(t, agent.UID, again.UID, "a machine that registers again is another Agent")
}

// The service binds with its own rights what a host names: who may write hosts in a namespace does not thereby bring machines into clusters of others.
func TestABareMetalHostBindsIntoOtherNamespacesByConsentOnly(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	infraEnv := c.infraEnv("rack")
	deployment, _ := c.deployment()
	user := c.as("hosts-"+c.namespace, c.namespace)
	c.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "hosts"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{metal3v1.GroupVersion.Group}, Resources: []string{"baremetalhosts"}, Verbs: []string{"create", "patch"},
	}}})
	c.grant("hosts-"+c.namespace, c.namespace, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "hosts"})
	host := func(name, to string) *metal3v1.BareMetalHost {
		return &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{
			Namespace: c.namespace, Name: name, Labels: map[string]string{agentv1.InfraEnvLabel: infraEnv.Name}, Annotations: map[string]string{agentv1.BMHClusterReferenceAnnotation: to},
		}}
	}
	target := deployment.Namespace + "/" + deployment.Name
	c.may(func() error { return user.Create(t.Context(), host("own", c.namespace+"/blue")) })
	c.may(func() error {
		err := user.Create(t.Context(), host("other", target), client.DryRunAll)
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "may not give machines of namespace "+c.namespace+" to ClusterDeployment "+target) {
			return nil
		}
		return err
	})
	err := user.Create(t.Context(), host("malformed", "blue"))
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	assert.Contains(t, err.Error(), "write <namespace>/<ClusterDeployment>")

	// Neither a change of the annotation nor a label that is added later gets around it; what stands there may be kept.
	own := host("own", "")
	require.True(t, apierrors.IsForbidden(changeHost(c, user, own, func(h *metal3v1.BareMetalHost) { h.Annotations[agentv1.BMHClusterReferenceAnnotation] = target })))
	unlabelled := host("later", target)
	unlabelled.Labels = nil
	require.NoError(t, user.Create(t.Context(), unlabelled))
	require.True(t, apierrors.IsForbidden(changeHost(c, user, unlabelled, func(h *metal3v1.BareMetalHost) { h.Labels = map[string]string{agentv1.InfraEnvLabel: infraEnv.Name} })))
	require.NoError(t, changeHost(c, c.user, own, func(h *metal3v1.BareMetalHost) { h.Annotations[agentv1.BMHClusterReferenceAnnotation] = target }))
	require.NoError(t, changeHost(c, user, own, func(h *metal3v1.BareMetalHost) { h.Annotations["note"] = "kept" }))
}
