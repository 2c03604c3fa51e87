// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rack_test walks the whole way with a real machine, emulated by QEMU, and back: it is not registered, boots the image of an InfraEnv, is bound to a cluster of
// a pool by its MachinePool, is installed with the node image, and is Ready in the kubeconfig of the claim that gets the cluster.
package rack_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-io/muster/apis/addresstest"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/machinetest"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/apis/porttest"
	"github.com/muster-io/muster/e2e/access"
	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/environment"
)

const namespace = "metal"

// rack is Muster on this machine, reached by emulated machines at the address of this machine.
type rack struct {
	*testing.T
	local *environment.Local
	admin *rest.Config
	user  client.Client
	// machine is there once it was switched on.
	machine *machinetest.Machine
	// disk is the one that is installed to, other one that must not be written to.
	disk, other string
}

// signature is what another disk begins with.
var signature = bytes.Repeat([]byte("another disk"), 1<<10)

func newRack(t *testing.T) *rack {
	t.Helper()
	machinetest.NeedCores(t, "MUSTER_RACK_TESTS")
	address := addresstest.Reachable()
	needtest.Part(t, address != "", "this machine has no address but loopback: machines could not reach what runs here")
	for name, made := range map[string]string{"live/live.iso": "make live-image", "node/node.img.zst": "make node-image"} {
		path, err := checkout.Path("bin", name)
		require.NoError(t, err)
		needtest.File(t, path, "there is no bin/"+name+" to boot: "+made+" builds it")
	}
	log.SetLogger(logr.Discard())
	environment.HostedListenAddress = address
	port, err := porttest.Find()
	require.NoError(t, err)
	r := &rack{T: t}
	service := environment.AgentService()
	before := service.Args
	service.Args = func(dir string) []string {
		at := address + ":" + port
		return append(before(dir), "--listen="+at, "--base-url=http://"+at, "--os-images="+r.systems(dir, address), "--host-minimums="+r.minimums(dir))
	}
	r.local, err = environment.NewLocal(t.Context(), environment.LocalOptions{
		Operators: []environment.Operator{environment.PoolOperator(), service}, UnsafeNoFsync: true, Say: func(s string) { t.Log(s) },
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			r.report()
		}
		assert.NoError(t, r.local.Close(context.WithoutCancel(t.Context())))
	})
	r.admin, err = environment.Config(r.local)
	require.NoError(t, err)
	scheme := kruntime.NewScheme()
	for _, add := range []func(*kruntime.Scheme) error{clientgoscheme.AddToScheme, agentv1.AddToScheme, hivev1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	r.user, err = client.New(r.admin, client.Options{Scheme: scheme})
	require.NoError(t, err)
	r.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	return r
}

// report prints the end of what the operators say.
func (r *rack) report() {
	for _, operator := range []string{"pool-operator", "agent-service"} {
		text, err := os.ReadFile(r.local.Log(operator))
		if err == nil {
			r.Logf("%s: …%s", operator, text[max(0, len(text)-8192):])
		}
	}
}

// systems serves the node image to machines and returns the list that names it.
func (r *rack) systems(dir, address string) string {
	r.Helper()
	path, err := checkout.Path("bin", "node", "node.img.zst")
	require.NoError(r, err)
	file, err := os.Open(path)
	require.NoError(r, err)
	sum := sha256.New()
	_, err = io.Copy(sum, file)
	require.NoError(r, errors.Join(err, file.Close()))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { http.ServeFile(w, q, path) }))
	require.NoError(r, server.Listener.Close())
	server.Listener, err = environment.Listen(r.Context(), address)
	require.NoError(r, err)
	server.Start()
	r.Cleanup(server.Close)
	return r.write(dir, "nodes.json", []map[string]string{{
		"version": "1.37.2", "cpuArchitecture": "x86_64", "url": server.URL + "/node.img.zst", "sha256": hex.EncodeToString(sum.Sum(nil)),
	}})
}

func (r *rack) minimums(dir string) string {
	small := map[string]int{"cpus": 1, "memoryGiB": 1, "diskGB": 4}
	return r.write(dir, "minimums.json", map[string]any{"auto-assign": small, "master": small, "worker": small})
}

func (r *rack) write(dir, name string, value any) string {
	r.Helper()
	content, err := json.Marshal(value)
	require.NoError(r, err)
	path := filepath.Join(dir, name)
	require.NoError(r, os.WriteFile(path, content, 0o600))
	return path
}

func (r *rack) create(object client.Object) {
	r.Helper()
	require.NoError(r, r.user.Create(r.Context(), object))
}

// see reads an object until it is as wanted.
func (r *rack) see(object client.Object, what string, wanted func() bool) {
	r.Helper()
	r.machine.Until(r, what, func() error {
		if err := r.user.Get(r.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		if wanted() {
			return nil
		}
		content, err := json.Marshal(object)
		if err != nil {
			return err
		}
		return fmt.Errorf("it is …%s", content[max(0, len(content)-6144):])
	})
}

// pool makes a pool of one cluster with one machine.
func (r *rack) pool() *hivev1.ClusterPool {
	r.Helper()
	r.create(&hivev1.ClusterImageSet{ObjectMeta: metav1.ObjectMeta{Name: "v1.37.2"}, Spec: hivev1.ClusterImageSetSpec{ReleaseImage: "muster.local/control-plane:1.37.2"}})
	pool := &hivev1.ClusterPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "dev"}, Spec: hivev1.ClusterPoolSpec{
		Size: 1, RunningCount: 1, BaseDomain: "clusters.example.com", ImageSetRef: hivev1.ClusterImageSetReference{Name: "v1.37.2"},
		Platform: hivev1.Platform{Hosted: &hivev1.HostedPlatform{Nodes: &hivev1.HostedNodes{}}},
		MachinePools: []hivev1.ClusterPoolMachinePool{{
			Name: "worker", Replicas: 1, Labels: map[string]string{"tier": "web"}, Platform: hivev1.MachinePoolPlatform{AgentBareMetal: &hivev1.AgentBareMetalMachinePool{}},
		}},
	}}
	r.create(pool)
	return pool
}

// machines is the MachinePool of the only cluster of the pool, once it says what it waits for.
func (r *rack) machines() *hivev1.MachinePool {
	r.Helper()
	var pools hivev1.MachinePoolList
	r.machine.Until(r, "the cluster lacks a machine", func() error {
		if err := r.user.List(r.Context(), &pools); err != nil {
			return err
		}
		if len(pools.Items) == 1 && hivev1.FindCondition(pools.Items[0].Status.Conditions, hivev1.MachinePoolMachinesAvailable) != nil {
			c := hivev1.FindCondition(pools.Items[0].Status.Conditions, hivev1.MachinePoolMachinesAvailable)
			if c.Reason == hivev1.ReasonNoSuitableAgents {
				return nil
			}
		}
		return fmt.Errorf("%d MachinePools: %+v", len(pools.Items), pools.Items)
	})
	return &pools.Items[0]
}

// claim gets a cluster of the pool.
func (r *rack) claim() *hivev1.ClusterClaim {
	r.Helper()
	claim := &hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mine"}, Spec: hivev1.ClusterClaimSpec{
		ClusterPoolName: "dev", Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "alice"}},
	}}
	r.create(claim)
	r.see(claim, "the claim is Ready", func() bool { return hivev1.IsConditionTrue(claim.Status.Conditions, hivev1.ClusterClaimReady) })
	return claim
}

// appears makes an InfraEnv, boots a machine from its image, and returns its Agent.
func (r *rack) appears() *agentv1.Agent {
	r.Helper()
	r.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pull"}, Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)},
	})
	infraEnv := &agentv1.InfraEnv{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "rack"}, Spec: agentv1.InfraEnvSpec{
		PullSecretRef: agentv1.SecretReference{Name: "pull"}, AgentApproval: &agentv1.AgentApproval{AutoApprove: true},
		OnRelease: &agentv1.ReleasePolicy{Wipe: agentv1.WipeInstalledDisk},
		AllowedClusters: &agentv1.AllowedClusters{Namespaces: &agentv1.ClusterNamespaces{From: agentv1.FromSelector, Selector: &metav1.LabelSelector{
			MatchLabels: map[string]string{hivev1.LabelNamespaceClusterPoolName: "dev", hivev1.LabelNamespaceClusterPoolNamespace: namespace},
		}}},
	}}
	r.create(infraEnv)
	r.see(infraEnv, "the InfraEnv has an image", func() bool { return infraEnv.Status.ISODownloadURL != "" })
	r.disk, r.other = machinetest.BlankDisk(r), filepath.Join(r.TempDir(), "other.img")
	require.NoError(r, os.WriteFile(r.other, signature, 0o600))
	require.NoError(r, os.Truncate(r.other, 9<<30)) // the smaller disk is installed to
	r.machine = machinetest.PowerOn(r, machinetest.Hardware{Disk: r.disk, ISO: r.download(infraEnv.Status.ISODownloadURL), More: []string{
		"-drive", "file=" + r.other + ",format=raw,if=none,id=other,cache=unsafe", "-device", "virtio-blk-pci,drive=other,serial=OTHER",
	}})
	var agents agentv1.AgentList
	r.machine.Until(r, "a machine that was not registered is an Agent", func() error {
		if err := r.user.List(r.Context(), &agents, client.InNamespace(namespace)); err != nil || len(agents.Items) == 1 {
			return err
		}
		return errors.New("no Agent")
	})
	return &agents.Items[0]
}

func (r *rack) download(address string) string {
	r.Helper()
	path := filepath.Join(r.TempDir(), "discovery.iso")
	file, err := os.Create(path)
	require.NoError(r, err)
	request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, address, http.NoBody)
	require.NoError(r, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(r, err)
	_, err = io.Copy(file, response.Body)
	require.NoError(r, errors.Join(err, response.Body.Close(), file.Close()))
	require.Equal(r, http.StatusOK, response.StatusCode)
	return path
}

// inside is a client of the claimed cluster with the kubeconfig that a subject of the claim reads.
func (r *rack) inside(namespace string) client.Client {
	r.Helper()
	config := rest.CopyConfig(r.admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: "alice", Groups: []string{"system:authenticated"}}
	alice, err := client.New(config, client.Options{Scheme: r.user.Scheme()})
	require.NoError(r, err)
	var kubeconfig []byte
	r.machine.Until(r, "the user reads the kubeconfig", func() (err error) {
		kubeconfig, err = access.Kubeconfig(r.Context(), alice, namespace)
		return err
	})
	hosted, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	require.NoError(r, err)
	inside, err := client.New(hosted, client.Options{Scheme: r.user.Scheme()})
	require.NoError(r, err)
	return inside
}

func TestAnUnregisteredMachineBecomesANodeOfAClaimedCluster(t *testing.T) {
	r := newRack(t)
	pool := r.pool()
	machines := r.machines()
	agent := r.appears()
	r.see(agent, "the MachinePool binds it", func() bool { return agent.Labels[agentv1.MachinePoolLabel] == machines.Name })
	r.see(agent, "the disk is being written", func() bool { return agent.Status.Progress.CurrentStage == "Writing image to disk" })
	require.NoError(t, r.user.Get(t.Context(), client.ObjectKeyFromObject(pool), pool))
	assert.Zero(t, pool.Status.Ready, "a cluster that lacks its nodes is not ready")
	r.see(machines, "the MachinePool is Ready", func() bool { return hivev1.IsConditionTrue(machines.Status.Conditions, hivev1.MachinePoolReady) })
	r.see(pool, "the pool has a ready cluster", func() bool { return pool.Status.Ready == 1 })

	claim := r.claim()
	inside := r.inside(claim.Spec.Namespace)
	node := &corev1.Node{}
	require.NoError(t, inside.Get(t.Context(), client.ObjectKey{Name: machines.Status.Machines[0].Node}, node))
	ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	assert.True(t, ready, "the claim has a Ready node: %v", node.Status.Conditions)
	assert.Equal(t, "web", node.Labels["tier"])
	assert.Equal(t, "v1.37.2", node.Status.NodeInfo.KubeletVersion)
	r.see(agent, "the host belongs to the cluster", func() bool { return agent.Status.DebugInfo.State == "added-to-existing-cluster" })
	r.machine.Until(r, "the bootstrap token is gone", func() error {
		var secrets corev1.SecretList
		if err := inside.List(t.Context(), &secrets, client.InNamespace(metav1.NamespaceSystem)); err != nil {
			return err
		}
		for i := range secrets.Items {
			if secrets.Items[i].Type == corev1.SecretTypeBootstrapToken {
				return errors.New("there is a bootstrap token")
			}
		}
		return nil
	})
	r.see(agent, "the Agent says that its node is Ready", func() bool { return agentv1.IsConditionTrue(agent.Status.Conditions, agentv1.ConditionJoined) })

	// No other cluster shall take the machine while its disks are looked at.
	r.scale(pool, 0)
	r.scale(machines, 0)
	r.machine.Until(r, "the Node is gone", func() error {
		err := inside.Get(r.Context(), client.ObjectKeyFromObject(node), node)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("there is a Node"))
	})
	r.see(agent, "the machine restarts", func() bool { return agent.Status.DebugInfo.State == "reclaiming-rebooting" })
	r.comesBack(agent)
	r.scale(machines, 1)
	r.see(machines, "the MachinePool is Ready again", func() bool { return machines.Status.ReadyReplicas == 1 })

	require.NoError(t, r.user.Delete(t.Context(), claim))
	r.machine.Until(r, "the cluster is gone", func() error {
		err := r.user.Get(t.Context(), client.ObjectKey{Namespace: claim.Spec.Namespace, Name: claim.Spec.Namespace}, &hivev1.ClusterDeployment{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("there is a ClusterDeployment"))
	})
	r.comesBack(agent)
	r.scale(pool, 1)
	r.see(agent, "the machine is written for the next cluster", func() bool { return agent.Status.Progress.CurrentStage == "Writing image to disk" })
}

// scale sets how many clusters a pool has, or how many machines a MachinePool.
func (r *rack) scale(object client.Object, replicas int32) {
	r.Helper()
	require.NoError(r, r.user.SubResource("scale").Update(r.Context(), object, client.WithSubResourceBody(&autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName()}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas},
	})))
}

// comesBack waits for a machine that is released: it restarts into the discovery image without hands, is wiped, and is free.
func (r *rack) comesBack(agent *agentv1.Agent) {
	r.Helper()
	r.see(agent, "the machine is free", func() bool {
		return agentv1.IsConditionTrue(agent.Status.Conditions, agentv1.ConditionReleased) && agent.Status.DebugInfo.State == "known-unbound" && agent.Labels[agentv1.MachinePoolLabel] == ""
	})
	r.assertWiped()
}

// assertWiped looks at the disks from outside.
func (r *rack) assertWiped() {
	r.Helper()
	const edge = 64 << 20
	disk, err := os.Open(r.disk)
	require.NoError(r, err)
	defer func() { _ = disk.Close() }()
	info, err := disk.Stat()
	require.NoError(r, err)
	for _, at := range []int64{0, info.Size() - edge} {
		content := make([]byte, edge)
		_, err := disk.ReadAt(content, at)
		require.NoError(r, err)
		assert.True(r, bytes.Equal(content, make([]byte, edge)), "there is something at byte %d of the disk", at)
	}
	if wipefs, err := exec.LookPath("wipefs"); err == nil {
		found, err := exec.CommandContext(r.Context(), wipefs, "--no-act", r.disk).CombinedOutput()
		require.NoError(r, err)
		assert.Empty(r, string(found), "there is a signature")
	}
	other, err := os.Open(r.other)
	require.NoError(r, err)
	defer func() { _ = other.Close() }()
	content := make([]byte, len(signature))
	_, err = io.ReadFull(other, content)
	require.NoError(r, err)
	assert.True(r, bytes.Equal(signature, content), "the other disk was written to")
}
