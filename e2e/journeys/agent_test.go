// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package journeys_test

import (
	"context"
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/e2e/access"
	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/environment"
	"github.com/muster-io/muster/e2e/fleet"
)

// Machines are generated, as on the wire as real ones: they know what stands in the image that they boot.

// needLiveImage ends the journey where there is nothing that discovery images could be made of.
func needLiveImage(t *testing.T) {
	t.Helper()
	path, err := checkout.Path("bin", "live", "live.iso")
	require.NoError(t, err)
	needtest.File(t, path, "there is no live image that discovery images are made of: make live-image builds it")
}

func dialer(t *testing.T) fleet.Dial {
	t.Helper()
	dial, err := access.Dialer(administrator)
	require.NoError(t, err)
	return dial
}

func (w *testEnv) pullSecret() {
	w.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "pull"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)},
	})
}

// infraEnv makes an InfraEnv and waits for its image.
func (w *testEnv) infraEnv(name string, change func(*agentv1.InfraEnvSpec)) *agentv1.InfraEnv {
	w.t.Helper()
	env := &agentv1.InfraEnv{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	env.Spec.PullSecretRef.Name = "pull"
	change(&env.Spec)
	w.create(env)
	w.t.Cleanup(func() { w.dismantle(env) })
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		w.refresh(c, env)
		require.True(c, agentv1.IsConditionTrue(env.Status.Conditions, agentv1.ConditionImageCreated), "%+v", env.Status.Conditions)
	}, patience, interval, "InfraEnv %s has no image", name)
	return env
}

// dismantle deletes an InfraEnv and the clusters of the journey that have its hosts.
func (w *testEnv) dismantle(env *agentv1.InfraEnv) {
	ctx := context.WithoutCancel(w.ctx)
	in := client.InNamespace(w.namespace)
	if w.t.Failed() {
		agents, installs := &agentv1.AgentList{}, &hiveextv1.AgentClusterInstallList{}
		_ = w.admin.List(ctx, agents, in)
		_ = w.admin.List(ctx, installs, in)
		for i := range agents.Items {
			w.t.Logf("agent %s: %+v", agents.Items[i].Name, agents.Items[i].Status.Conditions)
		}
		for i := range installs.Items {
			w.t.Logf("installation %s: %+v", installs.Items[i].Name, installs.Items[i].Status.Conditions)
		}
	}
	require.NoError(w.t, w.admin.DeleteAllOf(ctx, &hiveextv1.AgentClusterInstall{}, in))
	require.NoError(w.t, w.admin.DeleteAllOf(ctx, &hivev1.ClusterDeployment{}, in))
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		installs := &hiveextv1.AgentClusterInstallList{}
		require.NoError(c, w.admin.List(ctx, installs, in))
		assert.Empty(c, installs.Items)
	}, patience, interval, "installations of the journey are still there")
	require.NoError(w.t, client.IgnoreNotFound(w.admin.Delete(ctx, env)))
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		envs := &agentv1.InfraEnvList{}
		require.NoError(c, w.admin.List(ctx, envs, in))
		assert.NotContains(c, names(envs.Items), env.Name)
	}, patience, interval, "InfraEnv %s is still there", env.Name)
}

func names(envs []agentv1.InfraEnv) []string {
	var out []string
	for i := range envs {
		out = append(out, envs[i].Name)
	}
	return out
}

// boot switches machines on that boot an image. More are further flags of the agent.
func (w *testEnv) boot(image fleet.Image, seed string, machines int, more ...string) *fleet.Fleet {
	w.t.Helper()
	running, err := fleet.Boot(w.ctx, image, dialer(w.t), w.namespace+"-"+seed, machines, more...)
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Log(running.Log())
		}
		running.Stop()
	})
	return running
}

func (w *testEnv) image(env *agentv1.InfraEnv) fleet.Image {
	w.t.Helper()
	image, err := fleet.Read(w.ctx, dialer(w.t), env.Status.BootArtifacts.InitrdURL)
	require.NoError(w.t, err)
	assert.Equal(w.t, string(env.UID), image.InfraEnv)
	return image
}

// untilAgents waits until machines of an InfraEnv are valid and connected.
func (w *testEnv) untilAgents(env *agentv1.InfraEnv, machines int) []agentv1.Agent {
	w.t.Helper()
	list := &agentv1.AgentList{}
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		require.NoError(c, w.admin.List(w.ctx, list, client.InNamespace(w.namespace), client.MatchingLabels{agentv1.InfraEnvLabel: env.Name}))
		require.Len(c, list.Items, machines)
		for i := range list.Items {
			requireAgent(c, &list.Items[i], agentv1.ConditionConnected, agentv1.ReasonAgentIsConnected)
			requireAgent(c, &list.Items[i], agentv1.ConditionValidated, agentv1.ReasonValidationsPassing)
			require.NotZero(c, list.Items[i].Status.Inventory.CPU.Count)
		}
	}, patience, interval, "the machines of %s do not become Agents", env.Name)
	return list.Items
}

func requireAgent(c require.TestingT, agent *agentv1.Agent, kind, reason string) {
	found := agentv1.FindCondition(agent.Status.Conditions, kind)
	require.NotNil(c, found, "condition %s", kind)
	require.Equal(c, reason, found.Reason, "condition %s: %s", kind, found.Message)
}

func (w *testEnv) untilAgent(agent *agentv1.Agent, kind, reason string) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		w.refresh(c, agent)
		requireAgent(c, agent, kind, reason)
	}, patience, interval, "agent %s", agent.Name)
}

// agentCluster makes a cluster that takes discovered machines. It installs as soon as it has them, unless it is held.
func (w *testEnv) agentCluster(name string, held bool) (*hivev1.ClusterDeployment, *hiveextv1.AgentClusterInstall) {
	w.t.Helper()
	meta := metav1.ObjectMeta{Namespace: w.namespace, Name: name}
	cluster := &hivev1.ClusterDeployment{ObjectMeta: meta, Spec: hivev1.ClusterDeploymentSpec{
		ClusterName: name, BaseDomain: "example.org", PullSecretRef: &hivev1.LocalObjectReference{Name: "pull"},
		Platform: hivev1.Platform{AgentBareMetal: &hivev1.AgentBareMetalPlatform{}},
		ClusterInstallRef: &hivev1.ClusterInstallLocalReference{
			Group: hiveextv1.GroupVersion.Group, Version: hiveextv1.GroupVersion.Version, Kind: "AgentClusterInstall", Name: name,
		},
	}}
	w.create(cluster)
	install := &hiveextv1.AgentClusterInstall{ObjectMeta: meta, Spec: hiveextv1.AgentClusterInstallSpec{
		ClusterDeploymentRef: hivev1.LocalObjectReference{Name: name}, ProvisionRequirements: hiveextv1.ProvisionRequirements{ControlPlaneAgents: 1},
		Networking:       hiveextv1.Networking{MachineNetwork: []hiveextv1.MachineNetworkEntry{{CIDR: "10.0.0.0/8"}}, UserManagedNetworking: new(true)},
		HoldInstallation: held,
	}}
	w.create(install)
	return cluster, install
}

func (w *testEnv) bind(agent *agentv1.Agent, cluster *hivev1.ClusterDeployment) {
	w.t.Helper()
	w.update(agent, func() {
		agent.Spec.ClusterDeploymentName = nil
		if cluster != nil {
			agent.Spec.ClusterDeploymentName = &agentv1.ClusterReference{Namespace: cluster.Namespace, Name: cluster.Name}
		}
	})
}

// untilBound waits until a machine is in a cluster, and fit for it.
func (w *testEnv) untilBound(agent *agentv1.Agent, cluster string) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		w.refresh(c, agent)
		requireAgent(c, agent, agentv1.ConditionSpecSynced, agentv1.ReasonSyncOK)
		requireAgent(c, agent, agentv1.ConditionBound, agentv1.ReasonBound)
		requireAgent(c, agent, agentv1.ConditionValidated, agentv1.ReasonValidationsPassing)
	}, patience, interval, "agent %s is not in %s", agent.Name, cluster)
}

// An infrastructure admin makes one image without a cluster and boots machines from it. Later a user who may edit in the namespace takes one of them for a
// cluster, and gives it back; the others stay free.
func TestMachinesOfOneImageAreTakenLater(t *testing.T) {
	needLiveImage(t)
	w := newTestEnv(t)
	w.pullSecret()
	env := w.infraEnv("shared", func(s *agentv1.InfraEnvSpec) { s.AgentLabels = map[string]string{"rack": "a"} })
	assert.LessOrEqual(t, len(env.Status.ISODownloadURL), 200, "firmware takes no longer addresses")
	w.boot(w.image(env), "shared", 3)
	agents := w.untilAgents(env, 3)
	for i := range agents {
		assert.Equal(t, "a", agents[i].Labels["rack"])
		assert.Nil(t, agents[i].Spec.ClusterDeploymentName)
		requireAgent(t, &agents[i], agentv1.ConditionBound, agentv1.ReasonUnbound)
		assert.False(t, agents[i].Spec.Approved, "no user has approved it yet")
	}

	cluster, _ := w.agentCluster("blue", true)
	w.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "creator"}, Subjects: []rbacv1.Subject{user("creator")},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
	})
	creator := *w
	creator.admin = w.as("creator")
	taken := &agents[0]
	inventory := taken.Status.Inventory
	creator.bind(taken, cluster)
	creator.untilBound(taken, "blue")
	assert.Equal(t, inventory.CPU, taken.Status.Inventory.CPU, "the inventory of the machine is kept")
	for i := range agents[1:] {
		w.refresh(t, &agents[1+i])
		requireAgent(t, &agents[1+i], agentv1.ConditionBound, agentv1.ReasonUnbound)
	}
	creator.bind(taken, nil)
	w.untilAgent(taken, agentv1.ConditionBound, agentv1.ReasonUnbound)
	w.untilAgents(env, 3)
}

// A machine goes from one cluster to another by one change; the cluster that it left knows at once.
func TestAMachineMovesBetweenClusters(t *testing.T) {
	needLiveImage(t)
	w := newTestEnv(t)
	w.pullSecret()
	env := w.infraEnv("moving", func(s *agentv1.InfraEnvSpec) { s.AgentApproval = &agentv1.AgentApproval{AutoApprove: true} })
	w.boot(w.image(env), "moving", 1)
	agent := &w.untilAgents(env, 1)[0]
	first, from := w.agentCluster("first", true)
	second, to := w.agentCluster("second", true)
	ready := func(install *hiveextv1.AgentClusterInstall, machines int) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			w.refresh(c, install)
			assert.Equal(c, machines, install.Status.ControlPlaneAgentsReady, "%+v", install.Status.Conditions)
		}, patience, interval, "cluster %s does not count %d machines", install.Name, machines)
	}
	w.bind(agent, first)
	w.untilBound(agent, "first")
	ready(from, 1)
	ready(to, 0)
	w.bind(agent, second)
	ready(to, 1)
	ready(from, 0)
	w.untilBound(agent, "second")

	w.bind(agent, &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "nowhere"}})
	w.untilAgent(agent, agentv1.ConditionSpecSynced, agentv1.ReasonInputError)
	requireAgent(t, agent, agentv1.ConditionBound, agentv1.ReasonBound)
	ready(to, 1)
}

// Machines are installed with an image at the factory, and are switched on where they stand, weeks later. Meanwhile the service was restarted and the InfraEnv
// changed; the image is as good as on the first day.
func TestAnImageIsBootedLongAfterItWasMade(t *testing.T) {
	needLiveImage(t)
	w := newTestEnvAlone(t)
	w.pullSecret()
	env := w.infraEnv("shipped", func(*agentv1.InfraEnvSpec) {})
	image := w.image(env)
	if local != nil {
		operator := environment.AgentService()
		local.KillOperator(operator.ID())
		require.NoError(t, local.StartOperator(w.ctx, operator))
	}
	w.update(env, func() { env.Spec.AgentLabels = map[string]string{"site": "far"} })
	shipped := w.boot(image, "shipped", 2)
	agents := w.untilAgents(env, 2)

	// One that restarts keeps its place.
	cluster, _ := w.agentCluster("far", true)
	w.bind(&agents[0], cluster)
	w.untilBound(&agents[0], "far")
	shipped.Stop()
	w.boot(image, "shipped", 2)
	w.untilBound(&agents[0], "far")
	requireAgent(t, &w.untilAgents(env, 2)[0], agentv1.ConditionConnected, agentv1.ReasonAgentIsConnected)
}

// As always: an image that belongs to a cluster. Its machines are bound when they register, approved at once, and install; the cluster is ready for its user.
func TestTheImageOfAClusterInstallsIt(t *testing.T) {
	needLiveImage(t)
	w := newTestEnv(t)
	if foreign {
		t.Skip("the content of the ConfigMap agent-service-systems of this cluster is unknown")
	}
	w.pullSecret()
	cluster, install := w.agentCluster("edge", false)
	env := w.infraEnv("edge", func(s *agentv1.InfraEnvSpec) {
		s.ClusterRef = &agentv1.ClusterReference{Namespace: cluster.Namespace, Name: cluster.Name}
		s.AgentApproval = &agentv1.AgentApproval{AutoApprove: true}
	})
	w.boot(w.image(env), "edge", 1)
	w.untilReady("infraenv/"+env.Name, "agentclusterinstall/"+install.Name)
	w.refresh(t, install)
	requireCondition(t, install.Status.Conditions, hivev1.ClusterInstallCompleted, corev1.ConditionTrue, "InstallationCompleted")
	list := &agentv1.AgentList{}
	require.NoError(t, w.admin.List(w.ctx, list, client.InNamespace(w.namespace), client.MatchingLabels{agentv1.InfraEnvLabel: env.Name}))
	require.Len(t, list.Items, 1)
	agent := &list.Items[0]
	w.untilReady("agent/" + agent.Name)
	w.untilAgent(agent, agentv1.ConditionInstalled, agentv1.ReasonInstallationCompleted)
	assert.Equal(t, "Done", string(agent.Status.Progress.CurrentStage))
	assert.Equal(t, cluster.Name, agent.Spec.ClusterDeploymentName.Name)

	// Machines of such an image have no other cluster to go to.
	w.bind(agent, nil)
	w.untilAgent(agent, agentv1.ConditionSpecSynced, agentv1.ReasonInputError)
	requireAgent(t, agent, agentv1.ConditionBound, agentv1.ReasonBound)
}

// Metrics are for whom the cluster lets read them, and REST for whom it knows.
func TestAgentServiceReviewsTokensWithTheCluster(t *testing.T) {
	w := newTestEnv(t)
	if foreign {
		t.Skip("the issuer of tokens of this cluster is unknown")
	}
	token := func(name string) (*corev1.ServiceAccount, string) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
		w.create(account)
		token, err := environment.Token(w.ctx, administrator, w.namespace, name)
		require.NoError(t, err)
		return account, token
	}
	account, scrapes := token("scraper")
	_, other := token("other")
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "agent-service-metrics-reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: account.Name}},
	}
	w.create(binding)
	t.Cleanup(func() { assert.NoError(t, w.admin.Delete(context.WithoutCancel(t.Context()), binding)) })
	rest, metrics := endpoints(t)
	assert.Equal(t, http.StatusUnauthorized, w.get(metrics, ""))
	assert.Equal(t, http.StatusForbidden, w.get(metrics, other))
	require.Eventually(t, func() bool { return w.get(metrics, scrapes) == http.StatusOK }, patience, interval)

	envs := rest + "/api/assisted-install/v2/infra-envs"
	assert.Equal(t, http.StatusUnauthorized, w.get(envs, ""))
	assert.Equal(t, http.StatusUnauthorized, w.get(envs, scrapes), "it is for the API server, not for this service")
	answer := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"agent-service"}}}
	require.NoError(t, w.admin.SubResource("token").Create(w.ctx, account, answer))
	assert.Equal(t, http.StatusOK, w.get(envs, answer.Status.Token))
}

// endpoints are the addresses of agent-service: REST, and its metrics.
func endpoints(t *testing.T) (rest, metrics string) {
	t.Helper()
	if local == nil {
		return "http://agent-service.muster-agent-service.svc", "https://agent-service-metrics.muster-agent-service.svc:8443/metrics"
	}
	address, err := local.MetricsAddress("agent-service")
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(local.Dir, "agent-service", "address"))
	require.NoError(t, err)
	return "http://" + string(text), "https://" + address + "/metrics"
}

// get returns the status of an answer, 0 for none. The certificate of metrics is self-signed.
func (w *testEnv) get(address, token string) int {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		w.t.Log(err)
		return 0
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dialer(w.t), DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := client.Do(request)
	if err != nil {
		w.t.Log(err)
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}
