// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/e2e/access"
	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/environment"
	"github.com/muster-io/muster/e2e/estate"
	"github.com/muster-io/muster/e2e/fleet"
)

// site is what runs while its operators are upgraded: a claimed cluster with data of its user, and machines.
type site struct {
	*estate.Cluster
	kubeconfig []byte
	// programs is the directory of those of the release.
	programs string
}

// What runs goes on while the programs of the last release are replaced: a hosted cluster has its data, at its address; machines do not register again, one that is
// being installed is installed, and one that was bound is installed by the new programs.
func TestWhatRunsGoesOnThroughAnUpgrade(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	image, err := checkout.Path("bin", "live", "live.iso")
	require.NoError(t, err)
	needtest.File(t, image, "there is no live image that machines boot: make live-image builds it")
	releases, err := filepath.Glob("testdata/v*")
	require.NoError(t, err)
	former := buildFormer(t, releases[len(releases)-1])
	s := newSite(t, former)
	s.claimCluster()
	agents := s.bootMachines(3)
	installing, held := s.agentCluster("installing", false), s.agentCluster("held", true)
	s.bind(agents[0], installing)
	s.bind(agents[1], held)
	s.untilState(agents[1], "known")
	s.untilState(agents[0], "preparing-for-installation", "preparing-successful", "installing", "installing-in-progress", "installed")
	before := s.uids()

	for _, operator := range []environment.Operator{environment.PoolOperator(), environment.AgentService()} {
		s.Local.StopOperator(operator.Name)
	}
	applyDirectory(t, s.Local, "deploy/overlays/local")
	for _, operator := range []environment.Operator{environment.PoolOperator(), environment.AgentService()} {
		require.NoError(t, s.Local.StartOperator(t.Context(), operator))
	}

	assert.Equal(t, []byte("kept"), s.enter().Data["note"], "the cluster of the claim has its data, at the address in its kubeconfig")
	s.untilState(agents[0], "installed")
	s.untilState(agents[2], "known-unbound")
	require.NoError(t, s.Patch(t.Context(), &hiveextv1.AgentClusterInstall{ObjectMeta: held}, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"holdInstallation":false}}`))))
	s.untilState(agents[1], "installed")
	assert.Equal(t, before, s.uids(), "nothing is made anew")
	require.NoError(t, s.Local.Failed())
}

// newSite starts the programs of a release with what they install.
func newSite(t *testing.T, former former) *site {
	t.Helper()
	root, err := checkout.Root()
	require.NoError(t, err)
	overlay, err := filepath.Rel(root, filepath.Join(former.dir, "deploy", "overlays", "local"))
	require.NoError(t, err)
	local, err := environment.NewLocal(t.Context(), environment.LocalOptions{Overlay: overlay, UnsafeNoFsync: true, Prepared: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, local.Close(context.WithoutCancel(t.Context()))) })
	s := &site{Cluster: estate.New(t, local), programs: former.programs()}
	pools := environment.PoolOperator()
	ofPools := pools.Args
	pools.Args = func(dir string) []string { return append(ofPools(dir), "--hosted-bin-dir="+controlPlane(t)) }
	pools.Program = filepath.Join(former.programs(), pools.Name)
	require.NoError(t, local.StartOperator(t.Context(), pools))
	service := environment.AgentService()
	args := service.Args
	service.Args = func(dir string) []string {
		return slices.DeleteFunc(args(dir), func(arg string) bool { return arg == "--console" }) // the release has none
	}
	service.Program = filepath.Join(former.programs(), service.Name)
	require.NoError(t, local.StartOperator(t.Context(), service))
	s.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: estate.Team}})
	s.Make(&corev1.Secret{
		ObjectMeta: estate.Named("pull"), Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)},
	})
	return s
}

// controlPlane is the directory of the programs that hosted clusters run: a release pins others, which are not built for it.
func controlPlane(t *testing.T) string {
	t.Helper()
	program, err := checkout.Binary("controlplane")
	require.NoError(t, err)
	said, err := exec.CommandContext(t.Context(), program, "binaries").Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(said)) {
		if path, is := strings.CutPrefix(strings.TrimSpace(line), "kube-apiserver "); is {
			return filepath.Dir(path)
		}
	}
	t.Fatalf("bin/controlplane names no kube-apiserver: %s", said)
	return ""
}

// claimCluster claims a hosted cluster, and leaves something in it.
func (s *site) claimCluster() {
	s.Helper()
	s.Make(&hivev1.ClusterImageSet{ObjectMeta: metav1.ObjectMeta{Name: "release"}, Spec: hivev1.ClusterImageSetSpec{ReleaseImage: "muster.local/control-plane:v1"}})
	s.Make(&hivev1.ClusterPool{ObjectMeta: estate.Named("hosted"), Spec: hivev1.ClusterPoolSpec{
		Size: 0, BaseDomain: "example.com", ImageSetRef: hivev1.ClusterImageSetReference{Name: "release"}, Platform: hivev1.Platform{Hosted: &hivev1.HostedPlatform{}},
	}})
	claim := &hivev1.ClusterClaim{ObjectMeta: estate.Named("mine"), Spec: hivev1.ClusterClaimSpec{ClusterPoolName: "hosted"}}
	s.Make(claim)
	require.EventuallyWithT(s, func(c *assert.CollectT) {
		require.NoError(c, s.Get(s.Context(), client.ObjectKeyFromObject(claim), claim))
		require.True(c, hivev1.IsConditionTrue(claim.Status.Conditions, hivev1.ClusterClaimRunning), "%+v", claim.Status.Conditions)
		var err error
		s.kubeconfig, err = access.Kubeconfig(s.Context(), s.Client, claim.Spec.Namespace)
		require.NoError(c, err)
	}, estate.Patience, estate.Interval)
	_, err := s.inside().CoreV1().Secrets("default").Create(s.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "note"}, StringData: map[string]string{"note": "kept"}}, metav1.CreateOptions{})
	require.NoError(s, err)
}

// inside is the claimed cluster, reached with the kubeconfig that its user got first.
func (s *site) inside() kubernetes.Interface {
	s.Helper()
	host, err := environment.Config(s.Local)
	require.NoError(s, err)
	config, err := access.Config(s.kubeconfig, host)
	require.NoError(s, err)
	inside, err := kubernetes.NewForConfig(config)
	require.NoError(s, err)
	return inside
}

// enter reads what the user left in the cluster, once it answers.
func (s *site) enter() *corev1.Secret {
	s.Helper()
	var note *corev1.Secret
	require.EventuallyWithT(s, func(c *assert.CollectT) {
		var err error
		note, err = s.inside().CoreV1().Secrets("default").Get(s.Context(), "note", metav1.GetOptions{})
		require.NoError(c, err)
	}, estate.Patience, estate.Interval)
	return note
}

// bootMachines boots machines from the image of an InfraEnv, and returns the names of their Agents.
func (s *site) bootMachines(machines int) []string {
	s.Helper()
	env := &agentv1.InfraEnv{ObjectMeta: estate.Named("rack")}
	env.Spec.PullSecretRef.Name = "pull"
	env.Spec.AgentApproval = &agentv1.AgentApproval{AutoApprove: true}
	s.Make(env)
	require.EventuallyWithT(s, func(c *assert.CollectT) {
		require.NoError(c, s.Get(s.Context(), client.ObjectKeyFromObject(env), env))
		require.NotEmpty(c, env.Status.BootArtifacts.InitrdURL, "%+v", env.Status.Conditions)
	}, estate.Patience, estate.Interval)
	config, err := environment.Config(s.Local)
	require.NoError(s, err)
	dial, err := access.Dialer(config)
	require.NoError(s, err)
	image, err := fleet.Read(s.Context(), dial, env.Status.BootArtifacts.InitrdURL)
	require.NoError(s, err)
	s.startAgents(image, machines)
	list := &agentv1.AgentList{}
	require.EventuallyWithT(s, func(c *assert.CollectT) {
		require.NoError(c, s.List(s.Context(), list, client.InNamespace(estate.Team)))
		require.Len(c, list.Items, machines)
	}, estate.Patience, estate.Interval)
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
		s.untilState(list.Items[i].Name, "known-unbound")
	}
	return names
}

// startAgents starts generated machines with the agent of the release, which machines have that booted its image.
func (s *site) startAgents(image fleet.Image, machines int) {
	s.Helper()
	token := filepath.Join(s.TempDir(), "token")
	require.NoError(s, os.WriteFile(token, []byte(image.Token), 0o600))
	cmd := exec.CommandContext(s.Context(), filepath.Join(s.programs, "agent"), "--url="+image.URL, "--infra-env-id="+image.InfraEnv, "--token-file="+token,
		"--simulate="+strconv.Itoa(machines), "--seed=upgrade", "--boot=100ms")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	require.NoError(s, cmd.Start())
	s.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if s.Failed() {
			s.Log(said.String())
		}
	})
}

// agentCluster makes a cluster that one machine is enough for.
func (s *site) agentCluster(name string, held bool) metav1.ObjectMeta {
	s.Helper()
	s.Make(&hivev1.ClusterDeployment{ObjectMeta: estate.Named(name), Spec: hivev1.ClusterDeploymentSpec{
		ClusterName: name, BaseDomain: "example.org", PullSecretRef: &hivev1.LocalObjectReference{Name: "pull"},
		Platform: hivev1.Platform{AgentBareMetal: &hivev1.AgentBareMetalPlatform{AgentSelector: &metav1.LabelSelector{}}},
		ClusterInstallRef: &hivev1.ClusterInstallLocalReference{
			Group: hiveextv1.GroupVersion.Group, Version: hiveextv1.GroupVersion.Version, Kind: "AgentClusterInstall", Name: name,
		},
	}})
	s.Make(&hiveextv1.AgentClusterInstall{ObjectMeta: estate.Named(name), Spec: hiveextv1.AgentClusterInstallSpec{
		ClusterDeploymentRef: hivev1.LocalObjectReference{Name: name}, ProvisionRequirements: hiveextv1.ProvisionRequirements{ControlPlaneAgents: 1},
		Networking:       hiveextv1.Networking{MachineNetwork: []hiveextv1.MachineNetworkEntry{{CIDR: "10.0.0.0/8"}}, UserManagedNetworking: new(true)},
		HoldInstallation: held,
	}})
	return estate.Named(name)
}

func (s *site) bind(agent string, cluster metav1.ObjectMeta) {
	s.Helper()
	patch := []byte(`{"spec":{"clusterDeploymentName":{"namespace":"` + cluster.Namespace + `","name":"` + cluster.Name + `"}}}`)
	require.NoError(s, s.Patch(s.Context(), &agentv1.Agent{ObjectMeta: estate.Named(agent)}, client.RawPatch(types.MergePatchType, patch)))
}

// untilState waits until a machine is in one of the states.
func (s *site) untilState(agent string, states ...string) {
	s.Helper()
	found := &agentv1.Agent{}
	require.EventuallyWithT(s, func(c *assert.CollectT) {
		require.NoError(c, s.Get(s.Context(), client.ObjectKey{Namespace: estate.Team, Name: agent}, found))
		assert.Contains(c, states, found.Status.DebugInfo.State, found.Status.DebugInfo.StateInfo)
	}, estate.Patience, estate.Interval, "agent %s", agent)
}

// uids are those of clusters and machines, by kind and name.
func (s *site) uids() map[string]types.UID {
	s.Helper()
	out := map[string]types.UID{}
	clusters, agents := &hivev1.ClusterDeploymentList{}, &agentv1.AgentList{}
	require.NoError(s, s.List(s.Context(), clusters))
	require.NoError(s, s.List(s.Context(), agents))
	for i := range clusters.Items {
		out["ClusterDeployment/"+clusters.Items[i].Name] = clusters.Items[i].UID
	}
	for i := range agents.Items {
		out["Agent/"+agents.Items[i].Name] = agents.Items[i].UID
	}
	return out
}
