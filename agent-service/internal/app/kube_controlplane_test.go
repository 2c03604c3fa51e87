// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate/csr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/internal/controlplane"
	"github.com/muster-io/muster/agent-service/internal/join"
	"github.com/muster-io/muster/agent-service/internal/supervise"
	"github.com/muster-io/muster/apis/addresstest"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/apis/pki"
)

// supervisedPlane is the control plane of first-boot data, with a directory for its data.
type supervisedPlane struct {
	*join.ControlPlane
	dir string
	say func(format string, values ...any)
}

// start runs the programs of the first-boot data as the first process of the node image does, until the test ends.
func (p supervisedPlane) start(t *testing.T) {
	t.Helper()
	found, err := exec.CommandContext(t.Context(), "../../../hack/controlplane/build", "--dir").Output()
	require.NoError(t, err)
	programs := strings.TrimSpace(string(found))
	for _, name := range controlplane.Programs() {
		needtest.File(t, filepath.Join(programs, name), "there is no "+name+": hack/controlplane/build "+name+" builds it")
	}
	machine := controlplane.Machine{
		ControlPlane: p.ControlPlane, Dir: filepath.Join(p.dir, "control-plane"), Programs: programs, Manifests: filepath.Join(p.dir, "manifests"),
		Process: func(directory, path string, arguments ...string) func(context.Context) error {
			return func(ctx context.Context) error { return p.process(ctx, directory, path, arguments) }
		},
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var ended sync.WaitGroup
	ended.Go(func() { assert.NoError(t, supervise.Supervisor{Programs: machine.Supervised(), Say: p.say}.Run(ctx)) })
	t.Cleanup(func() { cancel(); ended.Wait() })
}

// process is a program whose output is kept with the data.
func (p supervisedPlane) process(ctx context.Context, directory, path string, arguments []string) error {
	log, err := os.OpenFile(filepath.Join(p.dir, filepath.Base(path)+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // it is a log
	command := exec.CommandContext(ctx, path, arguments...)
	command.Dir, command.Stdout, command.Stderr = directory, log, log
	command.Cancel, command.WaitDelay = func() error { return command.Process.Signal(os.Interrupt) }, 20*time.Second
	return command.Run()
}

// kubelet makes the Node of a machine with what it was given, and says that it is Ready, as its kubelet does. It asks until its token counts.
func kubelet(t *testing.T, values *join.Values) {
	t.Helper()
	config := &rest.Config{Host: values.Server, BearerToken: values.Token, TLSClientConfig: rest.TLSClientConfig{CAData: []byte(values.CA), ServerName: values.TLSServerName}}
	bootstrap, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	key, err := pki.NewKey()
	require.NoError(t, err)
	asked, err := certutil.MakeCSR(key, &pkix.Name{CommonName: "system:node:" + values.NodeName, Organization: []string{"system:nodes"}}, nil, nil)
	require.NoError(t, err)
	var certificate []byte
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		name, uid, err := csr.RequestCertificateWithContext(t.Context(), bootstrap, asked, "", certificatesv1.KubeAPIServerClientKubeletSignerName, nil,
			[]certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}, key)
		require.NoError(c, err)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		certificate, err = csr.WaitForCertificate(ctx, bootstrap, name, uid)
		require.NoError(c, err)
	}, kubePatience, 200*time.Millisecond, "node %s gets no certificate", values.NodeName)
	config.BearerToken, config.CertData = "", certificate
	config.KeyData, err = pki.EncodeKey(key)
	require.NoError(t, err)
	own, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: values.NodeName, Labels: values.Labels}}
	for _, taint := range values.Taints {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: taint.Key, Value: taint.Value, Effect: corev1.TaintEffect(taint.Effect)})
	}
	node, err = own.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	require.NoError(t, err)
	patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","lastHeartbeatTime":%q}]}}`, metav1.Now().UTC().Format(time.RFC3339))
	_, err = own.CoreV1().Nodes().PatchStatus(t.Context(), node.Name, patch)
	require.NoError(t, err)
}

// runsControlPlanes is the image of an operating system whose version is that of Kubernetes, which says that it runs control planes.
func runsControlPlanes(t *testing.T) func(*Options) {
	t.Helper()
	add := withSystem(t)
	return func(o *Options) {
		add(o)
		content, err := os.ReadFile(o.OSImages)
		require.NoError(t, err)
		var images []map[string]any
		require.NoError(t, json.Unmarshal(content, &images))
		for _, image := range images {
			image["controlPlane"], image["version"] = true, "v1.37.2"
		}
		content, err = json.Marshal(images)
		require.NoError(t, err)
		o.OSImages = filepath.Join(t.TempDir(), "planes.json")
		require.NoError(t, os.WriteFile(o.OSImages, content, 0o600))
	}
}

// planeAddress is an address of this machine at which an API server can listen.
func planeAddress(t *testing.T) string {
	t.Helper()
	address := addresstest.Reachable()
	needtest.Part(t, address != "", "this machine has no address but loopback: nodes could not reach a control plane on it")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(address, "6443"))
	needtest.Part(t, err == nil, "the port 6443 of this machine, which a control plane listens at, is taken")
	require.NoError(t, listener.Close())
	return address
}

// A cluster of two machines, of which one runs the control plane, is installed: its programs run here, with the very first-boot data that the service rendered, and end in a
// cluster whose administrator sees Ready nodes.
func TestMachinesBecomeAClusterOfTheirOwn(t *testing.T) {
	address := planeAddress(t)
	c := newCluster(t, runsControlPlanes(t))
	infraEnv := c.infraEnv("rack")
	network := netip.PrefixFrom(netip.MustParseAddr(address), 16).Masked()
	version := &hivev1.ClusterImageSet{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}, Spec: hivev1.ClusterImageSetSpec{ReleaseImage: "muster.local/node:v1.37.2"}}
	c.create(version)
	deployment, install := c.deployment(func(s *hiveextv1.AgentClusterInstallSpec) {
		s.ProvisionRequirements = hiveextv1.ProvisionRequirements{ControlPlaneAgents: 1, WorkerAgents: 1}
		s.Networking = hiveextv1.Networking{MachineNetwork: []hiveextv1.MachineNetworkEntry{{CIDR: network.String()}}}
		s.ImageSetRef, s.HoldInstallation = &hivev1.ClusterImageSetReference{Name: version.Name}, false
	})
	roles := []string{"master", "worker"}
	machines := make([]*machine, len(roles))
	for i, role := range roles {
		at := address
		if role == "worker" { // no process is there
			at = network.Addr().Next().String()
		}
		machines[i] = c.boot(infraEnv, i+1, 0, func(m *machine) { m.addresses = []string{at + "/16"} })
		change(c, c.agent(machines[i]), func(a *agentv1.Agent) {
			a.Spec.ClusterDeploymentName, a.Spec.Approved, a.Spec.Hostname, a.Spec.Role = reference(deployment), true, role+"-0", role
		})
	}
	joins := make([]*join.Values, len(roles))
	for i := range roles {
		require.Eventually(t, func() bool { joins[i] = machines[i].installed.join(t); return joins[i] != nil }, kubePatience, 50*time.Millisecond)
	}
	plane, err := join.ReadControlPlane(machines[0].installed.file(t, join.ControlPlanePath))
	require.NoError(t, err)
	assert.Nil(t, machines[1].installed.file(t, join.ControlPlanePath), "a worker gets nothing of the control plane")
	assert.NotContains(t, string(machines[1].installed.data), keyOf(plane))
	assert.Equal(t, "https://"+address+":6443", joins[1].Server)

	completed := func() *hivev1.Condition {
		return hivev1.FindCondition(install.Status.Conditions, hivev1.ClusterInstallCompleted)
	}
	c.until(install, "the installation waits for the nodes", func() bool {
		return completed() != nil && strings.Contains(completed().Message, "these nodes are Ready: ") && strings.Contains(completed().Message, "worker-0")
	})
	c.stop() // another process goes on: no host changes any more
	c.start(strings.TrimPrefix(c.base, "http://"))
	supervisedPlane{ControlPlane: plane, dir: t.TempDir(), say: t.Logf}.start(t)
	kubelet(t, joins[0])
	kubelet(t, joins[1])
	c.until(install, "the cluster is installed", func() bool { return completed() != nil && completed().Status == corev1.ConditionTrue })
	c.until(install, "its credentials are named", func() bool {
		return install.Spec.ClusterMetadata != nil && install.Spec.ClusterMetadata.NodeAccessSecretRef != nil
	})
	assertUsable(t, c, install)
	assertLimited(t, c, install)
	assertHidden(t, c, plane, deployment)
}

// keyOf is a part of the key of the cluster's authority.
func keyOf(plane *join.ControlPlane) string { return strings.Split(plane.CAKey, "\n")[1] }

// assertUsable lists the nodes with the administrator's kubeconfig.
func assertUsable(t *testing.T, c *cluster, install *hiveextv1.AgentClusterInstall) {
	t.Helper()
	admin, _ := entered(t, c, install, install.Spec.ClusterMetadata.AdminKubeconfigSecretRef.Name)
	require.EventuallyWithT(t, func(collect *assert.CollectT) { // the label of a node is set when its certificate is known
		nodes, err := admin.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		require.NoError(collect, err)
		require.Len(collect, nodes.Items, 2)
		for _, node := range nodes.Items {
			_, labelled := node.Labels["node-role.kubernetes.io/control-plane"]
			assert.Equal(collect, node.Name == "master-0", labelled, node.Name)
			tainted := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "node-role.kubernetes.io/control-plane" })
			assert.Equal(collect, node.Name == "master-0", tainted, node.Name)
			ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			})
			assert.True(collect, ready, node.Name)
			assert.NotEmpty(collect, node.Spec.PodCIDR, node.Name)
		}
		service, err := admin.CoreV1().Services("kube-system").Get(t.Context(), "kube-dns", metav1.GetOptions{})
		require.NoError(collect, err)
		assert.Equal(collect, "10.96.0.10", service.Spec.ClusterIP)
		secrets, err := admin.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeBootstrapToken)})
		require.NoError(collect, err)
		assert.Empty(collect, secrets.Items, "the tokens are gone")
	}, kubePatience, 200*time.Millisecond)
}

// assertLimited attacks with the credentials that agent-service keeps.
func assertLimited(t *testing.T, c *cluster, install *hiveextv1.AgentClusterInstall) {
	t.Helper()
	manager, secret := entered(t, c, install, install.Spec.ClusterMetadata.NodeAccessSecretRef.Name)
	assert.Equal(t, corev1.SecretType(hivev1.SecretTypeNodeAccess), secret.Type)
	_, err := manager.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	_, err = manager.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{})
	assert.True(t, apierrors.IsForbidden(err), "%v", err)
	_, err = manager.CoreV1().Secrets("kube-system").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "any"}}, metav1.CreateOptions{})
	assert.True(t, apierrors.IsForbidden(err), "%v", err)
}

// entered is a client by the kubeconfig of a Secret beside the AgentClusterInstall.
func entered(t *testing.T, c *cluster, install *hiveextv1.AgentClusterInstall, name string) (kubernetes.Interface, *corev1.Secret) {
	t.Helper()
	secret := &corev1.Secret{}
	require.NoError(t, c.user.Get(t.Context(), client.ObjectKey{Namespace: install.Namespace, Name: name}, secret))
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data[hivev1.SecretKeyKubeconfig])
	require.NoError(t, err)
	inside, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return inside, secret
}

// assertHidden looks for the key of the cluster in the objects of the namespaces and in the database of the service.
func assertHidden(t *testing.T, c *cluster, plane *join.ControlPlane, deployment *hivev1.ClusterDeployment) {
	t.Helper()
	key := keyOf(plane)
	for _, list := range []client.ObjectList{&corev1.SecretList{}, &corev1.EventList{}, &hiveextv1.AgentClusterInstallList{}, &agentv1.AgentList{}, &agentv1.InfraEnvList{}, &hivev1.ClusterDeploymentList{}} {
		for _, namespace := range []string{c.namespace, deployment.Namespace} {
			require.NoError(t, c.user.List(t.Context(), list, client.InNamespace(namespace)))
			text, err := json.Marshal(list)
			require.NoError(t, err)
			assert.NotContains(t, string(text), key, "%T in %s", list, namespace)
		}
	}
}

// An image that runs control planes runs one for a cluster, or three with an address that belongs to no machine: another number is refused at once, with what to write instead.
func TestTwoControlPlanesAreRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t, runsControlPlanes(t))
	_, install := c.deployment(func(s *hiveextv1.AgentClusterInstallSpec) { s.ProvisionRequirements.ControlPlaneAgents = 2 })
	synced := func() *hivev1.Condition {
		return hivev1.FindCondition(install.Status.Conditions, agentv1.ConditionSpecSynced)
	}
	refused := func(says string) {
		t.Helper()
		c.until(install, "it is refused", func() bool {
			return synced() != nil && synced().Reason == agentv1.ReasonInputError && strings.Contains(synced().Message, says)
		})
	}
	refused("set the number of control plane machines to 1 or 3 (provisionRequirements.controlPlaneAgents")
	change(c, install, func(i *hiveextv1.AgentClusterInstall) { i.Spec.ProvisionRequirements.ControlPlaneAgents = 3 })
	refused("leave out userManagedNetworking")
	change(c, install, func(i *hiveextv1.AgentClusterInstall) { i.Spec.Networking.UserManagedNetworking = nil })
	refused("state one address in their network (apiVIPs")
	change(c, install, func(i *hiveextv1.AgentClusterInstall) { i.Spec.APIVIPs = []string{"192.0.2.100"} })
	refused("192.0.2.100 of the API is in none of the networks of the machines, 10.0.0.0/8")
	change(c, install, func(i *hiveextv1.AgentClusterInstall) { i.Spec.APIVIPs = []string{"10.0.0.100"} })
	c.until(install, "it is taken", func() bool { return synced().Reason == agentv1.ReasonSyncOK })
}
