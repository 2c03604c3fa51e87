// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metal_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/addresstest"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/machinetest"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/e2e/access"
	"github.com/muster-io/muster/e2e/environment"
	"github.com/muster-io/muster/e2e/fleet"
	"github.com/muster-io/muster/e2e/ironic"
)

// poweredSite is a site with a real Ironic, and two machines in its rack. Ironic switches the one through its management controller, and the other one has none.
type poweredSite struct {
	*site
	ironic  *ironic.Ironic
	machine *machinetest.Managed
	fleet   *fleet.Fleet
	// agents are those of the two machines, that of the switched one first.
	agents []agentv1.Agent
}

func newPoweredSite(t *testing.T) *poweredSite {
	t.Helper()
	machinetest.NeedCores(t, "MUSTER_IPMI_TESTS")
	needtest.Part(t, addresstest.Reachable() != "", "this machine has no address but loopback: nodes could not reach a cluster on it")
	environment.HostedListenAddress = addresstest.Reachable()
	s := &poweredSite{machine: machinetest.NewManaged(t)}
	s.machine.Start(t, nil, "-nic", "none")
	var err error
	s.ironic, err = ironic.New("IRONIC_DRIVERS=fake-hardware,ipmi", "IRONIC_WAIT=240")
	require.NoError(t, err)
	t.Cleanup(func() { s.ironic.Close(t.Context()) })
	_, err = s.ironic.Run(t.Context(), "", "up")
	needtest.NoError(t, err)
	t.Setenv("IRONIC_ENDPOINT", s.ironic.Endpoint)
	t.Setenv("IRONIC_INSPECTOR_ENDPOINT", s.ironic.Inspector)
	t.Setenv("METAL3_AUTH_ROOT_DIR", t.TempDir())
	s.site = newSite(t, managing("--provisioner=ironic"), environment.AgentService(), environment.PoolOperator())
	return s
}

// boots switches the machines on, which boot the image of an InfraEnv by the hands of their user.
func (s *poweredSite) boots(env *agentv1.InfraEnv) {
	s.Helper()
	dial := (&net.Dialer{}).DialContext
	image, err := fleet.Read(s.Context(), dial, env.Status.BootArtifacts.InitrdURL)
	require.NoError(s, err)
	s.machine.SwitchOn(s)
	s.fleet, err = fleet.Boot(s.Context(), image, dial, "power", 2)
	require.NoError(s, err)
	s.Cleanup(func() {
		if s.Failed() {
			s.Log(s.fleet.Log())
		}
		s.fleet.Stop()
	})
	s.holds("the machines are Agents", func() bool {
		var list agentv1.AgentList
		require.NoError(s, s.user.List(s.Context(), &list, client.InNamespace(namespace)))
		s.agents = list.Items
		return len(s.agents) == 2 && !slices.ContainsFunc(s.agents, func(a agentv1.Agent) bool { return len(a.Status.Inventory.Interfaces) == 0 })
	})
}

// holds waits for what is not the state of one object.
func (s *poweredSite) holds(what string, is func() bool) {
	s.Helper()
	for began := time.Now(); !is(); <-time.After(interval) {
		require.Less(s, time.Since(began), patience, what)
	}
}

// managed has the first machine report to Ironic, which does not know it, and makes a managed host of it. The machine goes on running.
func (s *poweredSite) managed(env *agentv1.InfraEnv) *metal3v1.BareMetalHost {
	s.Helper()
	running := s.machine.Process()
	report, err := s.ironic.Run(s.Context(), "", "enroll", "-n", "1", "1")
	require.NoError(s, err)
	mac := strings.ToLower(s.agents[0].Status.Inventory.Interfaces[0].MacAddress)
	report = strings.NewReplacer("52:54:00:00:00:01", mac, "52-54-00-00-00-01", strings.ReplaceAll(mac, ":", "-")).Replace(report)
	_, err = s.ironic.Run(s.Context(), report, "enroll", "-")
	require.NoError(s, err)
	host := s.discovered("node-00001", func(d *metal3v1.BareMetalHostDiscoverySpec) {
		d.HostTemplate.Labels = map[string]metal3v1.TemplateValue{agentv1.InfraEnvLabel: metal3v1.TemplateValue(env.Name)}
	})
	s.until(&s.agents[0], "the Agent is linked with the host", func() bool { return s.agents[0].Labels[agentv1.BareMetalHostLabel] == host.Name })
	s.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bmc"}, StringData: map[string]string{"username": machinetest.User, "password": machinetest.Password},
	})
	s.patch(host, `{"spec":{"bmc":{"address":"`+s.machine.Address+`","credentialsName":"bmc"}}}`)
	s.until(host, "the power of the host is managed", func() bool {
		return host.Status.Provisioning.State == metal3v1.StateAvailable && host.Status.PoweredOn && host.Status.OperationalStatus == metal3v1.OperationalStatusOK
	})
	assert.Nil(s, host.Spec.Image, "its machine runs the image already")
	assert.Equal(s, running, s.machine.Process(), "and is not restarted")
	return host
}

// claimed is a claimed cluster of a pool whose nodes are the machines, and a configuration of its administrator.
func (s *poweredSite) claimed() (cluster *hivev1.ClusterDeployment, admin *rest.Config) {
	s.Helper()
	set := &hivev1.ClusterImageSet{ObjectMeta: metav1.ObjectMeta{Name: "systems"}, Spec: hivev1.ClusterImageSetSpec{ReleaseImage: "muster.local/control-plane:" + environment.SystemVersion}}
	s.create(set)
	pool := &hivev1.ClusterPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "dev"}, Spec: hivev1.ClusterPoolSpec{
		Size: 1, RunningCount: 1, BaseDomain: "clusters.example.com", ImageSetRef: hivev1.ClusterImageSetReference{Name: set.Name},
		Platform: hivev1.Platform{Hosted: &hivev1.HostedPlatform{Nodes: &hivev1.HostedNodes{}}},
		MachinePools: []hivev1.ClusterPoolMachinePool{{
			Name: "worker", Replicas: int64(len(s.agents)), Platform: hivev1.MachinePoolPlatform{AgentBareMetal: &hivev1.AgentBareMetalMachinePool{}},
		}},
	}}
	s.create(pool)
	for i := range s.agents {
		agent := &s.agents[i]
		s.until(agent, "the machine is installed", func() bool { return agent.Status.DebugInfo.State == "added-to-existing-cluster" })
		ctx, cancel := context.WithTimeout(s.Context(), patience)
		kubelet, err := s.fleet.Join(ctx, agent.Name)
		cancel()
		require.NoError(s, err)
		on := func() bool { return true }
		if i == 0 {
			on = s.machine.On
		}
		s.beats(kubelet, on)
	}
	s.until(pool, "the pool has a ready cluster", func() bool { return pool.Status.Ready == 1 })
	claim := &hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mine"}, Spec: hivev1.ClusterClaimSpec{
		ClusterPoolName: pool.Name, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "alice"}},
	}}
	s.create(claim)
	s.until(claim, "the claim is Ready", func() bool { return hivev1.IsConditionTrue(claim.Status.Conditions, hivev1.ClusterClaimReady) })
	kubeconfig, err := access.Kubeconfig(s.Context(), s.alice(), claim.Spec.Namespace)
	require.NoError(s, err)
	admin, err = clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	require.NoError(s, err)
	return &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Spec.Namespace, Name: claim.Spec.Namespace}}, admin
}

// beats says that a Node is Ready while its machine is on.
func (s *poweredSite) beats(kubelet *fleet.Kubelet, on func() bool) {
	s.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for ctx.Err() == nil {
			if on() {
				one, cancel := context.WithTimeout(ctx, 10*time.Second)
				_ = kubelet.Ready(one) // the API of a cluster that hibernates does not answer
				cancel()
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
	s.Cleanup(func() { cancel(); <-ended })
}

// alice is the user of the claim.
func (s *poweredSite) alice() client.Client {
	s.Helper()
	config := rest.CopyConfig(s.admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: "alice", Groups: []string{"system:authenticated"}}
	alice, err := client.New(config, client.Options{Scheme: s.user.Scheme()})
	require.NoError(s, err)
	return alice
}

// powers has the user of the claim change the power of its cluster, and waits until that is done. The machine never runs without the control plane.
func (s *poweredSite) powers(cluster *hivev1.ClusterDeployment, inside kubernetes.Interface, state hivev1.PowerState) {
	s.Helper()
	require.NoError(s, s.alice().Patch(s.Context(), cluster, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"powerState":"`+string(state)+`"}}`))))
	alone := false
	s.until(cluster, "the cluster is "+string(state), func() bool {
		// When a cluster hibernates its machine may stop between the two looks, and when it resumes its control plane may start: that is no fault.
		switch state {
		case hivev1.PowerStateHibernating:
			alone = alone || stopped(inside) && s.machine.On()
		default:
			alone = alone || s.machine.On() && stopped(inside)
		}
		return cluster.Status.PowerState == state
	})
	assert.False(s, alone, "the machine was on without its control plane")
}

// stopped says that nothing listens at the address of an API server.
func stopped(cluster kubernetes.Interface) bool {
	_, err := cluster.Discovery().ServerVersion()
	return errors.Is(err, syscall.ECONNREFUSED)
}

// nodes are the UIDs of the Nodes of the cluster, by name, all of which are Ready.
func (s *poweredSite) nodes(inside kubernetes.Interface) map[string]string {
	s.Helper()
	list, err := inside.CoreV1().Nodes().List(s.Context(), metav1.ListOptions{})
	require.NoError(s, err)
	found := map[string]string{}
	for i := range list.Items {
		node := &list.Items[i]
		found[node.Name] = string(node.UID)
		assert.True(s, slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}), "Node %s: %+v", node.Name, node.Status.Conditions)
	}
	return found
}

// A claimed cluster hibernates: agent-service says on the BareMetalHost that its machine is off, discovery-operator has a real Ironic switch it off by IPMI, and pool-operator stops the control
// plane when the cluster has missed the Node. It resumes the other way round, and the machines are the same Nodes. The one without a management controller is named, and keeps its power.
func TestTheMachinesOfAHibernatingClusterAreSwitchedByIPMI(t *testing.T) {
	s := newPoweredSite(t)
	env := s.infraEnv("rack", func(spec *agentv1.InfraEnvSpec) {
		spec.AgentApproval = &agentv1.AgentApproval{AutoApprove: true}
		spec.AllowedClusters = &agentv1.AllowedClusters{Namespaces: &agentv1.ClusterNamespaces{From: agentv1.FromAll}}
	})
	s.boots(env)
	host := s.managed(env)
	cluster, admin := s.claimed()
	inside, err := kubernetes.NewForConfig(admin)
	require.NoError(t, err)
	before, installed, boot := s.nodes(inside), s.installations(), s.machine.Process()
	require.Len(t, before, 2)
	s.until(cluster, "the machine without power control is named", func() bool {
		c := hivev1.FindCondition(cluster.Status.Conditions, hivev1.ClusterDeploymentMachinesPowerManaged)
		return c != nil && c.Reason == hivev1.ReasonMachinesWithoutPowerControl && c.Message == "Not stopped and started with the cluster: "+s.agents[1].Spec.Hostname+": it has no BareMetalHost"
	})

	s.powers(cluster, inside, hivev1.PowerStateHibernating)
	assert.False(t, s.machine.On())
	assert.Equal(t, "1 of 2 machines are off", hivev1.FindCondition(cluster.Status.Conditions, hivev1.ClusterDeploymentMachinesStopped).Message)
	require.NoError(t, s.user.Get(t.Context(), client.ObjectKeyFromObject(host), host))
	assert.False(t, host.Spec.Online)
	assert.False(t, host.Status.PoweredOn)
	assert.Equal(t, cluster.Namespace+"/"+cluster.Name, host.Annotations[agentv1.BMHHibernatesAnnotation])

	s.powers(cluster, inside, hivev1.PowerStateRunning)
	assert.True(t, s.machine.On())
	assert.NotEqual(t, boot, s.machine.Process(), "it was started again")
	assert.Equal(t, before, s.nodes(inside), "they are the same Nodes")
	assert.Equal(t, installed, s.installations(), "nothing was installed again")
	require.NoError(t, s.user.Get(t.Context(), client.ObjectKeyFromObject(host), host))
	assert.True(t, host.Spec.Online)
	assert.NotContains(t, host.Annotations, agentv1.BMHHibernatesAnnotation)
}

// installations are what the machines were installed with last, which has a token of its own each time.
func (s *poweredSite) installations() []string {
	s.Helper()
	var found []string
	for i := range s.agents {
		agent := &s.agents[i]
		require.NoError(s, s.user.Get(s.Context(), client.ObjectKeyFromObject(agent), agent))
		assert.Equal(s, "added-to-existing-cluster", agent.Status.DebugInfo.State)
		files, err := s.fleet.FirstBoot(agent.Name)
		require.NoError(s, err)
		for _, path := range []string{"/etc/muster/join.json", "/etc/muster/host.json"} {
			require.NotEmpty(s, files[path], path)
			found = append(found, string(files[path]))
		}
	}
	return found
}
