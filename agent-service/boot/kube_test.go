// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package boot_test

import (
	"errors"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/apis/controlplanetest"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
	"github.com/muster-io/muster/apis/machinetest"
)

const namespace = "metal"

// resources are what a user of custom resources makes and sees.
type resources struct {
	*testEnv
	user client.Client
}

func newResources(t *testing.T) resources {
	t.Helper()
	config := controlplanetest.Start(t)
	ctrl.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, agentv1.AddToScheme, hivev1.AddToScheme, hiveextv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	user, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	r := resources{testEnv: newTestEnv(t, "http", "--kube-api", "--kubeconfig="+controlplanetest.Kubeconfig(t)), user: user}
	r.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	r.create(t, &corev1.Secret{
		ObjectMeta: named("pull"), Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)},
	})
	return r
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }

func (r resources) create(t *testing.T, object client.Object) {
	t.Helper()
	require.NoError(t, r.user.Create(t.Context(), object))
}

// until reads an object until it is as wanted.
func (r resources) until(t *testing.T, object client.Object, wanted func() bool, says string) {
	t.Helper()
	r.wait(t, func() bool {
		return r.user.Get(t.Context(), client.ObjectKeyFromObject(object), object) == nil && wanted()
	}, says)
}

func (r resources) wait(t *testing.T, done func() bool, says string) {
	t.Helper()
	r.machine.Until(t, "waited", func() error {
		if done() {
			return nil
		}
		return errors.New(says)
	})
}

// change patches an object as a user does.
func (r resources) change(t *testing.T, agent *agentv1.Agent, do func(*agentv1.AgentSpec)) {
	t.Helper()
	before := agent.DeepCopy()
	do(&agent.Spec)
	require.NoError(t, r.user.Patch(t.Context(), agent, client.MergeFrom(before)))
}

// cluster makes a ClusterDeployment of one machine.
func (r resources) cluster(t *testing.T, version string) (*hivev1.ClusterDeployment, *hiveextv1.AgentClusterInstall) {
	t.Helper()
	set := &hivev1.ClusterImageSet{ObjectMeta: metav1.ObjectMeta{Name: version}, Spec: hivev1.ClusterImageSetSpec{ReleaseImage: "registry.example.org/system:" + version}}
	r.create(t, set)
	deployment := &hivev1.ClusterDeployment{ObjectMeta: named("blue"), Spec: hivev1.ClusterDeploymentSpec{
		ClusterName: "blue", BaseDomain: "example.org", PullSecretRef: &hivev1.LocalObjectReference{Name: "pull"},
		Platform: hivev1.Platform{AgentBareMetal: &hivev1.AgentBareMetalPlatform{}},
		ClusterInstallRef: &hivev1.ClusterInstallLocalReference{
			Group: hiveextv1.GroupVersion.Group, Version: hiveextv1.GroupVersion.Version, Kind: "AgentClusterInstall", Name: "blue",
		},
	}}
	r.create(t, deployment)
	install := &hiveextv1.AgentClusterInstall{ObjectMeta: named("blue"), Spec: hiveextv1.AgentClusterInstallSpec{
		ClusterDeploymentRef: hivev1.LocalObjectReference{Name: "blue"}, ProvisionRequirements: hiveextv1.ProvisionRequirements{ControlPlaneAgents: 1},
		ImageSetRef: &hivev1.ClusterImageSetReference{Name: set.Name},
		Networking:  hiveextv1.Networking{MachineNetwork: []hiveextv1.MachineNetworkEntry{{CIDR: "10.0.2.0/24"}}},
	}}
	r.create(t, install)
	return deployment, install
}

func says(agent *agentv1.Agent, kind, reason string) func() bool {
	return func() bool {
		found := agentv1.FindCondition(agent.Status.Conditions, kind)
		return found != nil && found.Reason == reason
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Size()
}

// The same with custom resources alone: the Agent appears, is bound and approved by its spec, and says when its machine is done.
// The image is a minimal one.
func TestAMachineIsBoundThroughItsAgentAndInstalled(t *testing.T) {
	t.Parallel()
	r := newResources(t)
	infraEnv := &agentv1.InfraEnv{ObjectMeta: named("rack"), Spec: agentv1.InfraEnvSpec{
		PullSecretRef: agentv1.SecretReference{Name: "pull"}, ImageType: "minimal-iso",
	}}
	r.create(t, infraEnv)
	r.until(t, infraEnv, func() bool { return agentv1.IsConditionTrue(infraEnv.Status.Conditions, agentv1.ConditionImageCreated) }, "there is no image")
	iso := r.download(t, infraEnv.Status.ISODownloadURL)
	assert.Less(t, size(t, iso), size(t, liveImage), "the agent is left out")
	r.power(t, machinetest.Hardware{ISO: iso, UEFI: true})

	var agents agentv1.AgentList
	r.wait(t, func() bool {
		return r.user.List(t.Context(), &agents, client.InNamespace(namespace)) == nil && len(agents.Items) == 1
	}, "no Agent appeared")
	agent := &agents.Items[0]
	r.until(t, agent, func() bool { return agent.Status.Inventory.Hostname != "" }, "the Agent does not say what the machine is made of")
	assert.Nil(t, agent.Spec.ClusterDeploymentName)
	assert.True(t, says(agent, agentv1.ConditionBound, agentv1.ReasonUnbound)(), "%+v", agent.Status.Conditions)
	assert.False(t, agent.Spec.Approved)
	assert.Equal(t, machinetest.Hostname, agent.Status.Inventory.Hostname, "as DHCP says")
	assert.Equal(t, "uefi", agent.Status.Inventory.Boot.CurrentBootMode)

	deployment, install := r.cluster(t, "gz")
	r.change(t, agent, func(spec *agentv1.AgentSpec) {
		spec.ClusterDeploymentName = &agentv1.ClusterReference{Namespace: deployment.Namespace, Name: deployment.Name}
	})
	r.until(t, agent, says(agent, agentv1.ConditionBound, agentv1.ReasonBound), "the Agent is not bound")
	r.until(t, agent, says(agent, agentv1.ConditionRequirementsMet, agentv1.ReasonAgentIsNotApproved), "the Agent does not ask to be approved")
	r.change(t, agent, func(spec *agentv1.AgentSpec) { spec.Approved = true })

	r.until(t, install, func() bool {
		return hivev1.IsConditionTrue(install.Status.Conditions, hivev1.ClusterInstallStopped)
	}, "the installation did not end")
	assert.True(t, hivev1.IsConditionTrue(install.Status.Conditions, hivev1.ClusterInstallCompleted), "%+v", install.Status.Conditions)
	r.until(t, agent, says(agent, agentv1.ConditionInstalled, agentv1.ReasonInstallationCompleted), "the Agent does not say that its machine is installed")
	assert.Equal(t, "Done", agent.Status.Progress.CurrentStage)
	assert.Contains(t, r.machine.String(), "muster.installed", "the machine started from its disk")
	requireInstallationEvents(t, r.testEnv, agent.Name, string(deployment.UID))
}
