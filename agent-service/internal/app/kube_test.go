// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/agent"
	"github.com/muster-io/muster/agent-service/internal/image"
	"github.com/muster-io/muster/agent-service/internal/imagetest"
	"github.com/muster-io/muster/agent-service/internal/postgrestest"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
)

func reference(deployment *hivev1.ClusterDeployment) *agentv1.ClusterReference {
	return &agentv1.ClusterReference{Namespace: deployment.Namespace, Name: deployment.Name}
}

func TestAnInfraEnvSaysThatMachinesWillHaveNoAgent(t *testing.T) {
	t.Parallel()
	agents := t.TempDir()
	c := newCluster(t, func(o *Options) { o.AgentDirectory = agents })
	infraEnv := c.infraEnv("rack")
	message := func() string {
		return agentv1.FindCondition(infraEnv.Status.Conditions, agentv1.ConditionImageCreated).Message
	}
	assert.Equal(t, "InfraEnv is available: Image has been created, but live images of CoreOS do not start an agent, because this service has none for x86_64", message())
	require.NoError(t, os.WriteFile(filepath.Join(agents, "agent-x86_64"), []byte("agent"), 0o600))
	change(c, infraEnv, func(e *agentv1.InfraEnv) { e.Spec.SSHAuthorizedKey = "ssh-ed25519 AAAA" })
	c.until(infraEnv, "there is an agent", func() bool { return message() == "InfraEnv is available: Image has been created" })
}

func TestAHostIsFoundBoundMovedAndFreedByItsAgent(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	infraEnv := c.infraEnv("rack")
	assert.LessOrEqual(t, len(infraEnv.Status.ISODownloadURL), 200)
	assert.Contains(t, infraEnv.Status.ISODownloadURL, ".iso")
	assert.NotEmpty(t, infraEnv.Status.BootArtifacts.InitrdURL)
	m := c.boot(infraEnv, 1, 0)
	agent := c.agent(m)
	assert.Nil(t, agent.Spec.ClusterDeploymentName)
	assert.False(t, agent.Spec.Approved)
	assert.Equal(t, "rack", agent.Labels["rack"])
	assert.Equal(t, "rack", agent.Labels[agentv1.InfraEnvLabel])
	c.says(agent, agentv1.ConditionRequirementsMet, agentv1.ReasonAgentIsNotApproved)
	assert.True(t, is(agent, agentv1.ConditionBound, agentv1.ReasonUnbound))
	assert.True(t, is(agent, agentv1.ConditionConnected, agentv1.ReasonAgentIsConnected))
	assert.Equal(t, int64(16), agent.Status.Inventory.CPU.Count)
	c.until(agent, "labels say what the hardware is", func() bool { return agent.Labels[agentv1.NonRotationalDiskLabel] == "true" })

	first, _ := c.deployment()
	second, _ := c.deployment()
	change(c, agent, func(a *agentv1.Agent) {
		a.Spec.ClusterDeploymentName, a.Spec.Hostname, a.Spec.Role, a.Spec.Approved = reference(first), "node", "master", true
	})
	c.until(agent, "the Agent is bound and ready", func() bool {
		return is(agent, agentv1.ConditionBound, agentv1.ReasonBound) && is(agent, agentv1.ConditionRequirementsMet, agentv1.ReasonAgentIsReady)
	})
	require.Eventually(t, func() bool { return m.received(api.StepTypeDomainResolution) > 0 }, kubePatience, 50*time.Millisecond, "the agent is told what the cluster needs")
	assert.Equal(t, first.Namespace, agent.Labels[agentv1.ClusterNamespaceLabel])
	assert.Equal(t, "master", agent.Status.Role)

	change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = reference(second) })
	c.until(agent, "the Agent is in the other cluster", func() bool {
		return agent.Labels[agentv1.ClusterNamespaceLabel] == second.Namespace && is(agent, agentv1.ConditionRequirementsMet, agentv1.ReasonAgentIsReady)
	})
	assert.Equal(t, "master", agent.Status.Role, "the Agent's settings go with it")
	change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = nil })
	c.says(agent, agentv1.ConditionBound, agentv1.ReasonUnbound)
	c.until(agent, "the label is gone", func() bool { return agent.Labels[agentv1.ClusterNamespaceLabel] == "" })

	change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = &agentv1.ClusterReference{Name: "nowhere"} })
	c.says(agent, agentv1.ConditionSpecSynced, agentv1.ReasonInputError)
	assert.Contains(t, agentv1.FindCondition(agent.Status.Conditions, agentv1.ConditionSpecSynced).Message, "nowhere is missing")
	assert.True(t, is(agent, agentv1.ConditionBound, agentv1.ReasonUnbound))
	change(c, agent, func(a *agentv1.Agent) {
		a.Spec.ClusterDeploymentName, a.Spec.NodeLabels = nil, map[string]string{"rack": "not a value"}
	})
	c.until(agent, "the label is refused", func() bool {
		found := agentv1.FindCondition(agent.Status.Conditions, agentv1.ConditionSpecSynced)
		return found.Reason == agentv1.ReasonInputError && strings.Contains(found.Message, `label "rack" with value "not a value"`)
	})
}

func TestAClusterInstallsWhenItsAgentsAreThere(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t))
	m := c.boot(c.infraEnv("rack"), 1, 0)
	agent := c.agent(m)
	deployment, install := c.deployment(func(spec *hiveextv1.AgentClusterInstallSpec) { spec.HoldInstallation = false })
	says := func(kind, reason string) {
		t.Helper()
		c.until(install, kind+" is "+reason, func() bool {
			found := hivev1.FindCondition(install.Status.Conditions, kind)
			return found != nil && found.Reason == reason
		})
	}
	says(hivev1.ClusterInstallRequirementsMet, "InsufficientAgents")
	change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = reference(deployment) })
	says(hivev1.ClusterInstallRequirementsMet, "UnapprovedAgents")
	assert.Equal(t, 1, install.Status.ControlPlaneAgentsReady)
	change(c, agent, func(a *agentv1.Agent) { a.Spec.Approved = true })

	says(hivev1.ClusterInstallCompleted, "InstallationCompleted")
	assert.True(t, hivev1.IsConditionTrue(install.Status.Conditions, hivev1.ClusterInstallRequirementsMet))
	assert.True(t, hivev1.IsConditionTrue(install.Status.Conditions, hivev1.ClusterInstallStopped))
	assert.False(t, hivev1.IsConditionTrue(install.Status.Conditions, hivev1.ClusterInstallFailed))
	require.NotNil(t, install.Spec.ClusterMetadata)
	assert.NotEmpty(t, install.Spec.ClusterMetadata.InfraID)
	c.says(agent, agentv1.ConditionInstalled, agentv1.ReasonInstallationCompleted)
	assert.True(t, is(agent, agentv1.ConditionSpecSynced, agentv1.ReasonSyncOK), "the role that the installation chose is not taken back")
	assert.Equal(t, "master", agent.Status.Role)
	assert.Equal(t, "Done", agent.Status.Progress.CurrentStage)

	// The client that completes the installation sends the kubeconfig: it becomes the Secret that the metadata names.
	code, answer := call(t, http.MethodPost, c.base+"/api/assisted-install/v2/clusters/"+string(deployment.UID)+"/actions/complete-installation",
		`{"is_success":true,"data":{"kubeconfig":"apiVersion: v1"}}`)
	require.Equal(t, http.StatusAccepted, code, answer)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: install.Spec.ClusterMetadata.AdminKubeconfigSecretRef.Name}}
	c.until(secret, "the kubeconfig is there", func() bool { return string(secret.Data[hivev1.SecretKeyKubeconfig]) == "apiVersion: v1" })

	// The machine leaves the cluster: it must boot the image again, and says so.
	change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = nil })
	c.says(agent, agentv1.ConditionBound, agentv1.ReasonUnbindingPendingUserAction)
	require.NoError(t, c.user.Delete(t.Context(), install))
	c.gone(install)
}

func TestDeletionWaitsForWhatIsUsed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	infraEnv := c.infraEnv("rack")
	m := c.boot(infraEnv, 1, 0)
	agent := c.agent(m)
	deployment, install := c.deployment()
	change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = reference(deployment) })
	c.says(agent, agentv1.ConditionBound, agentv1.ReasonBound)
	require.NoError(t, c.user.Delete(t.Context(), infraEnv))
	c.until(infraEnv, "the InfraEnv says what it waits for", func() bool {
		found := agentv1.FindCondition(infraEnv.Status.Conditions, agentv1.ConditionImageCreated)
		return found != nil && found.Reason == "HostsBound"
	})
	// The cluster goes: its machine is free, and its Agent says so by itself.
	require.NoError(t, c.user.Delete(t.Context(), install))
	c.gone(install)
	m.stop()
	c.gone(infraEnv)
	c.gone(agent)
}

func TestAnAgentThatIsDeletedComesBackWithItsMachine(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	m := c.boot(c.infraEnv("rack"), 1, 0)
	agent := c.agent(m)
	uid := agent.UID
	require.NoError(t, c.user.Delete(t.Context(), agent))
	c.until(agent, "there is another Agent", func() bool { return agent.UID != uid })
}

func TestNothingIsWrittenForHeartbeats(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	m := c.boot(c.infraEnv("rack"), 1, 20*time.Millisecond)
	agent := c.agent(m)
	c.says(agent, agentv1.ConditionValidated, agentv1.ReasonValidationsPassing)
	polls := func(n int) {
		t.Helper()
		want := m.polled() + n
		require.Eventually(t, func() bool { return m.polled() >= want }, kubePatience, 20*time.Millisecond)
	}
	// The inventory of the machine settles first.
	for try := 1; ; try++ {
		before := c.writes.Load()
		polls(150)
		if c.writes.Load() == before {
			return
		}
		require.Less(t, try, 20, "something is written again and again")
	}
}

func TestMachinesRegisterWhileTheAPIServerIsAway(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	infraEnv := c.infraEnv("rack")
	token := c.token(infraEnv)
	require.NotEmpty(t, token)
	c.away.Store(true)
	m := c.boot(infraEnv, 1, 0)
	hosts := c.base + "/api/assisted-install/v2/infra-envs/" + string(infraEnv.UID) + "/hosts/" + m.HostID().String()
	require.Eventually(t, func() bool {
		_, host := call(t, http.MethodGet, hosts, "")
		return host["status"] == "known-unbound"
	}, kubePatience, 50*time.Millisecond, "the machine is known")
	agent := &agentv1.Agent{}
	require.Error(t, c.user.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: m.HostID().String()}, agent))
	c.away.Store(false)
	c.says(c.agent(m), agentv1.ConditionValidated, agentv1.ReasonValidationsPassing)
}

func TestOneMachineWithTwoImagesIsTwoAgents(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	m := c.boot(c.infraEnv("one"), 1, 0)
	first := c.agent(m)
	m.stop()
	other := c.infraEnv("two")
	c.boot(other, 1, 0)
	second := &agentv1.Agent{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: first.Name + "-" + string(other.UID)[:8]}}
	c.until(second, "the second Agent is ready", func() bool { return is(second, agentv1.ConditionValidated, agentv1.ReasonValidationsPassing) })
	assert.Equal(t, "two", second.Labels[agentv1.InfraEnvLabel])
	c.says(first, agentv1.ConditionConnected, agentv1.ReasonAgentIsDisconnected)
}

func TestAnInfraEnvSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	infraEnv := &agentv1.InfraEnv{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "rack"}, Spec: agentv1.InfraEnvSpec{PullSecretRef: agentv1.SecretReference{Name: "pull"}},
	}
	c.create(infraEnv)
	reason := func(want string) {
		t.Helper()
		c.until(infraEnv, "the reason is "+want, func() bool {
			found := agentv1.FindCondition(infraEnv.Status.Conditions, agentv1.ConditionImageCreated)
			return found != nil && found.Reason == want
		})
	}
	reason(agentv1.ReasonImageCreationError)
	c.pullSecret(c.namespace)
	change(c, infraEnv, func(e *agentv1.InfraEnv) { e.Spec.IgnitionConfigOverride = "{" })
	c.until(infraEnv, "the ignition is refused", func() bool {
		return infraEnv.Status.Conditions[0].Message == "Failed to create image: ignition_config_override is not JSON"
	})
	change(c, infraEnv, func(e *agentv1.InfraEnv) {
		e.Spec.IgnitionConfigOverride, e.Spec.KernelArguments = "", []agentv1.KernelArgument{{Operation: "append", Value: "\"a\nset x=1\nb\""}}
	})
	c.until(infraEnv, "a line of the boot loader is refused", func() bool {
		return strings.Contains(infraEnv.Status.Conditions[0].Message, "has a line break or another control character: leave it out")
	})
	c.create(&agentv1.NMStateConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "a", Labels: map[string]string{"for": "rack"}},
		Spec: agentv1.NMStateConfigSpec{
			Interfaces: []agentv1.NMStateInterface{{Name: "eth0", MacAddress: "52:54:00:00:00:0A"}},
			NetConfig:  &runtime.RawExtension{Raw: []byte(`{"interfaces":[{"name":"eth0"}]}`)},
		},
	})
	change(c, infraEnv, func(e *agentv1.InfraEnv) {
		e.Spec.KernelArguments = nil
		e.Spec.NMStateConfigLabelSelector = metav1.LabelSelector{MatchLabels: map[string]string{"for": "rack"}}
	})
	reason(agentv1.ReasonInfraEnvAvailable)
	code, shown := call(t, http.MethodGet, c.base+"/api/assisted-install/v2/infra-envs/"+string(infraEnv.UID), "")
	require.Equal(t, http.StatusOK, code)
	assert.JSONEq(t, `[{"network_yaml":"interfaces:\n- name: eth0\n","mac_interface_map":[{"mac_address":"52:54:00:00:00:0a","logical_nic_name":"eth0"}]}]`, shown["static_network_config"].(string))
	change(c, infraEnv, func(e *agentv1.InfraEnv) { e.Spec.ImageType = "minimal-iso" })
	c.until(infraEnv, "the image is whole where networks are stated", func() bool {
		return strings.Contains(infraEnv.Status.Conditions[0].Message, "but it is the full image")
	})

	// The service starts again: nothing changes.
	c.eventOf(infraEnv, corev1.EventTypeNormal, agentv1.ReasonInfraEnvAvailable, "", "")
	c.stop()
	require.NoError(t, c.user.Get(t.Context(), client.ObjectKeyFromObject(infraEnv), infraEnv))
	before, writes := infraEnv.DeepCopy(), c.writes.Load()
	c.start(c.base[len("http://"):])
	change(c, infraEnv, func(e *agentv1.InfraEnv) { e.Spec.AgentLabels = map[string]string{"a": "b"} })
	require.Eventually(t, func() bool {
		_, shown := call(t, http.MethodGet, c.base+"/api/assisted-install/v2/infra-envs/"+string(infraEnv.UID), "")
		return shown["updated_at"] != shown["created_at"]
	}, kubePatience, 50*time.Millisecond)
	require.NoError(t, c.user.Get(t.Context(), client.ObjectKeyFromObject(infraEnv), infraEnv))
	assert.Equal(t, before.Status, infraEnv.Status)
	assert.Equal(t, writes, c.writes.Load(), "the image and its address stay as they are")
}

func TestAnInfraEnvSaysWhyItsImageCannotBeHad(t *testing.T) {
	t.Parallel()
	c := newCluster(t, func(o *Options) {
		o.LiveImages = imagetest.List(t, map[string]string{"images/pxeboot/rootfs.img": "root"})
	})
	infraEnv := c.infraEnv("rack")
	says := func(want string) {
		t.Helper()
		c.until(infraEnv, want, func() bool {
			found := agentv1.FindCondition(infraEnv.Status.Conditions, agentv1.ConditionImageCreated)
			return found.Status == corev1.ConditionFalse && found.Reason == agentv1.ReasonImageCreationError && found.Message == "Failed to create image: "+want
		})
		assert.Empty(t, infraEnv.Status.ISODownloadURL)
	}
	change(c, infraEnv, func(e *agentv1.InfraEnv) { e.Spec.OSImageVersion = "nope" })
	says("no live image of version nope is configured for x86_64: choose live, or add it to the list of live images")
	change(c, infraEnv, func(e *agentv1.InfraEnv) { e.Spec.OSImageVersion, e.Spec.ImageType = "live", "minimal-iso" })
	says("this live image has no minimal form: use image type full-iso")
	change(c, infraEnv, func(e *agentv1.InfraEnv) {
		e.Spec.ImageType = "full-iso"
		e.Spec.KernelArguments = []agentv1.KernelArgument{{Operation: "append", Value: "a=b"}}
	})
	says("kernel arguments take 3 bytes, the live image has room for 0: use none")
	change(c, infraEnv, func(e *agentv1.InfraEnv) { e.Spec.KernelArguments = nil })
	c.until(infraEnv, "the image is there", func() bool { return infraEnv.Status.ISODownloadURL != "" })
	response, _ := get(t, infraEnv.Status.ISODownloadURL)
	assert.Equal(t, http.StatusOK, response.StatusCode)

	// The others of the rack have an image, and theirs.
	c.create(&agentv1.NMStateConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "a", Labels: map[string]string{"for": "rack"}},
		Spec: agentv1.NMStateConfigSpec{
			Interfaces: []agentv1.NMStateInterface{{Name: "eth0", MacAddress: "52:54:00:00:00:0A"}},
			NetConfig:  &runtime.RawExtension{Raw: []byte(`{"interfaces":[{"name":"eth0","type":"ethernet","state":"up","ipv4":{"enabled":true,"address":[{"ip":"here","prefix-length":24}]}}]}`)},
		},
	})
	change(c, infraEnv, func(e *agentv1.InfraEnv) {
		e.Spec.NMStateConfigLabelSelector = metav1.LabelSelector{MatchLabels: map[string]string{"for": "rack"}}
	})
	c.until(infraEnv, "the network is named", func() bool {
		found := agentv1.FindCondition(infraEnv.Status.Conditions, agentv1.ConditionImageCreated)
		return found.Status == corev1.ConditionTrue && strings.Contains(found.Message, "the network that is stated for 52:54:00:00:00:0a is left out until its NMStateConfig is mended: interface \"eth0\"")
	})

	foreign := infraEnv.DeepCopy()
	foreign.ObjectMeta = metav1.ObjectMeta{Namespace: c.namespace, Name: "arm"}
	foreign.Spec = agentv1.InfraEnvSpec{PullSecretRef: infraEnv.Spec.PullSecretRef, CPUArchitecture: "aarch64"}
	c.create(foreign)
	c.until(foreign, "the architecture is named", func() bool {
		found := agentv1.FindCondition(foreign.Status.Conditions, agentv1.ConditionImageCreated)
		return found != nil && found.Message == "Failed to create image: no live image is configured for aarch64: choose another architecture, or add one to the list of live images"
	})
}

func TestAnInfraEnvSaysThatItsLiveImageIsAway(t *testing.T) {
	t.Parallel()
	c := newCluster(t, func(o *Options) {
		content, err := os.ReadFile(o.LiveImages)
		require.NoError(t, err)
		var list []image.Version
		require.NoError(t, json.Unmarshal(content, &list))
		list[0].URL = "/nowhere"
		content, err = json.Marshal(list)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(o.LiveImages, content, 0o600))
	})
	infraEnv := c.infraEnv("rack")
	assert.Contains(t, infraEnv.Status.Conditions[0].Message, "but it cannot be had at the moment: the live image live/x86_64 cannot be fetched: no such file or directory; it is tried again")
	assert.NotEmpty(t, infraEnv.Status.ISODownloadURL, "the URL works again when the live image is back")
}

func TestAnImageFollowsItsNetworks(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	infraEnv := c.infraEnv("rack", func(s *agentv1.InfraEnvSpec) {
		s.NMStateConfigLabelSelector = metav1.LabelSelector{MatchLabels: map[string]string{"for": "rack"}}
	})
	tag := func() string {
		response, _ := get(t, infraEnv.Status.ISODownloadURL)
		require.Equal(t, http.StatusOK, response.StatusCode)
		return response.Header.Get("ETag")
	}
	without := tag()
	states := func(want string) {
		t.Helper()
		require.Eventually(t, func() bool {
			_, shown := call(t, http.MethodGet, c.base+"/api/assisted-install/v2/infra-envs/"+string(infraEnv.UID), "")
			stated, _ := shown["static_network_config"].(string)
			return want == "" && stated == "" || want != "" && strings.Contains(stated, want)
		}, kubePatience, 50*time.Millisecond, want)
	}
	config := &agentv1.NMStateConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "a", Labels: map[string]string{"for": "rack"}},
		Spec: agentv1.NMStateConfigSpec{
			Interfaces: []agentv1.NMStateInterface{{Name: "eth0", MacAddress: "52:54:00:00:00:0A"}},
			NetConfig:  &runtime.RawExtension{Raw: []byte(`{"interfaces":[{"name":"eth0","type":"ethernet","mtu":1500}]}`)},
		},
	}
	c.create(config)
	states("mtu: 1500")
	with := tag()
	assert.NotEqual(t, without, with)
	change(c, config, func(n *agentv1.NMStateConfig) {
		n.Spec.NetConfig.Raw = []byte(`{"interfaces":[{"name":"eth0","type":"ethernet","mtu":9000}]}`)
	})
	states("mtu: 9000")
	assert.NotEqual(t, with, tag())
	change(c, config, func(n *agentv1.NMStateConfig) { n.Labels["for"] = "other" })
	states("")
	assert.Equal(t, without, tag())
	change(c, config, func(n *agentv1.NMStateConfig) { n.Labels["for"] = "rack" })
	states("mtu: 9000")
	require.NoError(t, c.user.Delete(t.Context(), config))
	states("")
	assert.Equal(t, without, tag())
}

// Classes of assisted-service have a finalizer, which goes when their label has gone, or is another's.
func TestClassesThatContradictOrAgree(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	class := func(name, value, query string) *agentv1.AgentClassification {
		made := &agentv1.AgentClassification{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name, Finalizers: []string{agentv1.ClassificationFinalizer}},
			Spec:       agentv1.AgentClassificationSpec{LabelKey: "size", LabelValue: value, Query: query},
		}
		c.create(made)
		return made
	}
	first, second, twin, broken := class("a", "large", ".cpu.count >= 1"), class("b", "small", "true"), class("c", "large", "true"), class("d", "odd", ".[")
	c.until(broken, "the query cannot be read", func() bool {
		return len(broken.Status.Conditions) > 0 && strings.Contains(broken.Status.Conditions[0].Message, "the query cannot be read") && strings.Contains(broken.Status.Conditions[0].Message, "spec.query")
	})
	agent := c.agent(c.boot(c.infraEnv("rack"), 1, 0))
	sized := func(want string) {
		t.Helper()
		c.until(agent, "it is "+want, func() bool { return agent.Labels[agentv1.ClassificationPrefix+"size"] == want })
	}
	sized("large")
	c.until(first, "it matches", func() bool { return first.Status.MatchedCount == 1 })
	require.NoError(t, c.user.Delete(t.Context(), twin))
	c.gone(twin)
	sized("large")
	require.NoError(t, c.user.Delete(t.Context(), first))
	sized("small")
	c.gone(first)
	require.NoError(t, c.user.Delete(t.Context(), second))
	sized("QUERYERROR-d")
	c.gone(second)
	require.NoError(t, c.user.Delete(t.Context(), broken))
	sized("")
	c.gone(broken)
}

func TestAgentsAreClassified(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	class := &agentv1.AgentClassification{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "large"},
		Spec:       agentv1.AgentClassificationSpec{LabelKey: "size", LabelValue: "large", Query: ".cpu.count >= 64"},
	}
	c.create(class)
	broken := class.DeepCopy()
	broken.ResourceVersion, broken.Name, broken.Spec.LabelKey, broken.Spec.Query = "", "broken", "other", ".cpu | error"
	c.create(broken)
	agent := c.agent(c.boot(c.infraEnv("rack"), 1, 0))
	c.until(broken, "the failure is counted", func() bool {
		return broken.Status.ErrorCount == 1 && broken.Status.Conditions[0].Reason == agentv1.ReasonHasQueryErrors
	})
	c.until(agent, "the failure shows", func() bool { return agent.Labels[agentv1.ClassificationPrefix+"other"] == "QUERYERROR-broken" })
	assert.Empty(t, agent.Labels[agentv1.ClassificationPrefix+"size"])
	change(c, class, func(a *agentv1.AgentClassification) { a.Spec.Query = ".cpu.count >= 16" })
	c.until(agent, "the Agent is large", func() bool { return agent.Labels[agentv1.ClassificationPrefix+"size"] == "large" })
	c.until(class, "the Agent is counted", func() bool { return class.Status.MatchedCount == 1 })
	require.NoError(t, c.user.Delete(t.Context(), class))
	c.until(agent, "the label is gone", func() bool { return agent.Labels[agentv1.ClassificationPrefix+"size"] == "" })
}

func TestAnswersOfTheAPIServerThatAreLostDoNoHarm(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	infraEnv := c.infraEnv("rack")
	first, _ := c.deployment()
	second, install := c.deployment()
	c.lossy.Store(true)
	m := c.boot(infraEnv, 1, 0)
	agent := c.agent(m)
	change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName, a.Spec.Approved = reference(first), true })
	c.says(agent, agentv1.ConditionRequirementsMet, agentv1.ReasonAgentIsReady)
	change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = reference(second) })
	c.until(agent, "the Agent is in the other cluster", func() bool {
		return agent.Labels[agentv1.ClusterNamespaceLabel] == second.Namespace && is(agent, agentv1.ConditionRequirementsMet, agentv1.ReasonAgentIsReady)
	})
	require.NoError(t, c.user.Delete(t.Context(), install))
	c.gone(install)
	c.until(agent, "the Agent is free", func() bool {
		return agent.Spec.ClusterDeploymentName == nil && is(agent, agentv1.ConditionBound, agentv1.ReasonUnbound) && agent.Labels[agentv1.ClusterNamespaceLabel] == ""
	})
	var agents agentv1.AgentList
	require.NoError(t, c.user.List(t.Context(), &agents, client.InNamespace(c.namespace)))
	assert.Len(t, agents.Items, 1)
	m.stop()
	require.NoError(t, c.user.Delete(t.Context(), infraEnv))
	c.gone(infraEnv)
	c.gone(agent)
}

func TestRevokedTokensStayRevokedWhenTheDatabaseIsLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	infraEnv := c.infraEnv("rack")
	id := string(infraEnv.UID)
	address := c.base + "/api/assisted-install/v2/infra-envs/" + id
	old := c.token(infraEnv)
	code, _ := call(t, http.MethodPost, address+"/regenerate-signing-key", "")
	require.Equal(t, http.StatusNoContent, code)
	c.until(infraEnv, "the rotation is remembered", func() bool { return infraEnv.Annotations[agentv1.TokenGenerationAnnotation] == "2" })
	current := c.token(infraEnv)
	c.stop()
	c.options.Database = filepath.Join(t.TempDir(), "b.db")
	c.start(strings.TrimPrefix(c.base, "http://"))
	require.Eventually(t, func() bool {
		code, _ := call(t, http.MethodGet, address, "")
		return code == http.StatusOK
	}, kubePatience, 50*time.Millisecond, "the InfraEnv is there again")

	register := func(token string) error {
		connection, err := agent.NewConnection(c.base, uuid.MustParse(id), token, http.DefaultClient)
		require.NoError(t, err)
		_, err = connection.Register(t.Context(), agent.Identity{HostID: uuid.New(), Fingerprint: "f", BootID: "b"}, "test")
		return err
	}
	refused, is := errors.AsType[*agent.Refusal](register(old))
	require.True(t, is)
	assert.Equal(t, http.StatusUnauthorized, refused.Status)
	require.NoError(t, register(current))
}

func TestAnnotationsRevokeTokensOfHosts(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	infraEnv := c.infraEnv("rack")
	m := c.boot(infraEnv, 1, 0)
	one := c.agent(m)
	c.says(one, agentv1.ConditionValidated, agentv1.ReasonValidationsPassing)
	registered := func() string {
		_, host := call(t, http.MethodGet, c.base+"/api/assisted-install/v2/infra-envs/"+string(infraEnv.UID)+"/hosts/"+m.HostID().String(), "")
		return fmt.Sprint(host["registered_at"])
	}
	for name, revoke := range map[string]func() (client.Object, string){
		"of the Agent": func() (client.Object, string) {
			change(c, one, func(a *agentv1.Agent) { a.Annotations[agentv1.RevokeTokensAnnotation] = "now" })
			return one, agentv1.RevokeTokensAnnotation
		},
		"of the InfraEnv": func() (client.Object, string) {
			change(c, infraEnv, func(e *agentv1.InfraEnv) { e.Annotations = map[string]string{agentv1.RevokeHostTokensAnnotation: ""} })
			return infraEnv, agentv1.RevokeHostTokensAnnotation
		},
	} {
		before := registered()
		object, annotation := revoke()
		c.until(object, name+": the annotation is gone", func() bool {
			return !metav1.HasAnnotation(metav1.ObjectMeta{Annotations: object.GetAnnotations()}, annotation)
		})
		require.Eventually(t, func() bool { return registered() != before }, kubePatience, 50*time.Millisecond, "%s: the agent has to register again", name)
	}
	c.says(one, agentv1.ConditionValidated, agentv1.ReasonValidationsPassing)
}

func TestTwoReplicasServeOneDatabase(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	c := newCluster(t, func(o *Options) { o.Database = server.URL })
	defer c.stop() // while there is a database
	first := c.base
	c.start("127.0.0.1:0") // as the second replica: both serve custom resources
	defer c.stop()
	infraEnv := c.infraEnv("rack")
	deployment, _ := c.deployment()
	const machines = 6
	bases := []string{first, c.base}
	booted := make([]*machine, 0, machines)
	for i := range machines {
		c.base = bases[i%2]
		booted = append(booted, c.boot(infraEnv, i, 0))
	}
	for _, m := range booted {
		agent := c.agent(m)
		change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = reference(deployment) })
	}
	for _, m := range booted {
		c.says(c.agent(m), agentv1.ConditionRequirementsMet, agentv1.ReasonAgentIsNotApproved)
		require.Eventually(t, func() bool { return m.received(api.StepTypeDomainResolution) > 0 }, kubePatience, 50*time.Millisecond, "the agent is told by its replica")
	}
	var agents agentv1.AgentList
	require.NoError(t, c.user.List(t.Context(), &agents, client.InNamespace(c.namespace)))
	assert.Len(t, agents.Items, machines)
}
