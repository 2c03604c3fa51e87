// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rack_test walks the whole way with two real machines, emulated by QEMU, and back: they are not registered, boot the image of an InfraEnv, are bound to a
// cluster of a pool by its MachinePool, are installed with the node image, and are Ready in the kubeconfig of the claim that gets the cluster, where they run pods.
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
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/machinetest"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/apis/netnstest"
	"github.com/muster-io/muster/apis/porttest"
	"github.com/muster-io/muster/e2e/access"
	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/environment"
	"github.com/muster-io/muster/e2e/tutorial"
)

const namespace = "metal"

func TestMain(m *testing.M) { netnstest.Main(m) }

// rack is Muster on this machine, and emulated machines on a link with it.
type rack struct {
	*testing.T
	local    *environment.Local
	admin    *rest.Config
	user     client.Client
	machines []*machine
}

// machine is one of the rack, from when it was switched on.
type machine struct {
	*machinetest.Machine
	hardware machinetest.Hardware
	// disk is the one that is installed to, other one that must not be written to.
	disk, other string
	number      int
	// agent is its own, once it has one, and node the name of its Node, once it has joined.
	agent *agentv1.Agent
	node  string
}

// count is how many machines there are.
const count = 2

// signature is what another disk begins with.
var signature = bytes.Repeat([]byte("another disk"), 1<<10)

// newRack is one with pool-operator, agent-service and what more operators are given.
func newRack(t *testing.T, more ...environment.Operator) (*rack, *netnstest.Link) {
	t.Helper()
	machinetest.NeedCores(t, "MUSTER_RACK_TESTS")
	address := netnstest.Address
	for name, made := range map[string]string{"live/live.iso": "make live-image", "node/node.img.zst": "make node-image"} {
		path, err := checkout.Path("bin", name)
		require.NoError(t, err)
		needtest.File(t, path, "there is no bin/"+name+" to boot: "+made+" builds it")
	}
	log.SetLogger(logr.Discard())
	environment.HostedListenAddress = address
	port, err := porttest.Find()
	require.NoError(t, err)
	link := netnstest.NewLink(t)
	r := &rack{T: t}
	service := environment.AgentService()
	before := service.Args
	service.Args = func(dir string) []string {
		at := address + ":" + port
		return append(before(dir), "--listen="+at, "--base-url=http://"+at, "--os-images="+r.systems(dir, address), "--host-minimums="+r.minimums(dir))
	}
	r.local, err = environment.NewLocal(t.Context(), environment.LocalOptions{
		Operators: append(more, environment.PoolOperator(), service), UnsafeNoFsync: true, Say: func(s string) { t.Log(s) },
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
	for _, add := range []func(*kruntime.Scheme) error{clientgoscheme.AddToScheme, agentv1.AddToScheme, hivev1.AddToScheme, metal3v1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	r.user, err = client.New(r.admin, client.Options{Scheme: scheme})
	require.NoError(t, err)
	r.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	return r, link
}

// report prints the end of what the operators say.
func (r *rack) report() {
	for _, operator := range []string{"pool-operator", "agent-service", "discovery-operator"} {
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

// waits waits until something holds while all machines that were switched on stay on.
func (r *rack) waits(what string, holds func() error) {
	r.Helper()
	var on []*machinetest.Machine
	for _, m := range r.machines {
		on = append(on, m.Machine)
	}
	machinetest.Until(r, what, holds, on...)
}

// see reads an object until it is as wanted.
func (r *rack) see(object client.Object, what string, wanted func() bool) {
	r.Helper()
	r.waits(what, func() error {
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

// read is the first object of a kind of the page that readers follow.
func read[O client.Object](r *rack, kind string, object O) O {
	r.Helper()
	page, err := tutorial.Read("rack.md")
	require.NoError(r, err)
	require.NoError(r, page.Into(kind, object))
	return object
}

// pool makes a pool of one cluster with all machines.
func (r *rack) pool() *hivev1.ClusterPool {
	r.Helper()
	r.create(read(r, "ClusterImageSet", &hivev1.ClusterImageSet{}))
	pool := read(r, "ClusterPool", &hivev1.ClusterPool{})
	require.Equal(r, int64(count), pool.Spec.MachinePools[0].Replicas)
	r.create(pool)
	return pool
}

// machinePool is that of the only cluster of the pool, once it says what it waits for.
func (r *rack) machinePool() *hivev1.MachinePool {
	r.Helper()
	var pools hivev1.MachinePoolList
	r.waits("the cluster lacks machines", func() error {
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
	claim := read(r, "ClusterClaim", &hivev1.ClusterClaim{})
	r.create(claim)
	r.see(claim, "the claim is Ready", func() bool { return hivev1.IsConditionTrue(claim.Status.Conditions, hivev1.ClusterClaimReady) })
	return claim
}

// infraEnv makes an InfraEnv whose machines trust a certificate, and returns the path of its image.
func (r *rack) infraEnv(trust string) string {
	r.Helper()
	r.create(read(r, "Secret", &corev1.Secret{}))
	infraEnv := read(r, "InfraEnv", &agentv1.InfraEnv{})
	infraEnv.Spec.AdditionalTrustBundle = trust
	r.create(infraEnv)
	r.see(infraEnv, "the InfraEnv has an image", func() bool { return infraEnv.Status.ISODownloadURL != "" })
	return r.download(infraEnv.Status.ISODownloadURL)
}

// powerOn boots all machines from an image, and waits for their Agents.
func (r *rack) powerOn(link *netnstest.Link, iso string) {
	r.Helper()
	for number := 1; number <= count; number++ {
		r.machines = append(r.machines, r.newMachine(number, link, iso))
	}
	r.waits("machines that were not registered are Agents", func() error {
		var agents agentv1.AgentList
		if err := r.user.List(r.Context(), &agents, client.InNamespace(namespace)); err != nil {
			return err
		}
		found := 0
		for i := range agents.Items {
			if number := numberOf(&agents.Items[i]); number > 0 {
				r.machines[number-1].agent = &agents.Items[i]
				found++
			}
		}
		if found < count {
			return fmt.Errorf("%d of %d Agents", found, count)
		}
		return nil
	})
}

// newMachine switches a machine on that has two disks, and boots from an image.
func (r *rack) newMachine(number int, link *netnstest.Link, iso string) *machine {
	r.Helper()
	m := r.makeMachine(number, link, iso)
	m.Machine = machinetest.PowerOn(r, m.hardware)
	return m
}

// makeMachine is a machine that is off.
func (r *rack) makeMachine(number int, link *netnstest.Link, iso string) *machine {
	r.Helper()
	m := &machine{number: number, disk: machinetest.BlankDisk(r), other: filepath.Join(r.TempDir(), "other.img")}
	require.NoError(r, os.WriteFile(m.other, signature, 0o600))
	require.NoError(r, os.Truncate(m.other, 9<<30)) // the smaller disk is installed to
	m.hardware = machinetest.Hardware{Number: number, Tap: link.Tap(r), Disk: m.disk, ISO: iso, More: []string{
		"-drive", "file=" + m.other + ",format=raw,if=none,id=other,cache=unsafe", "-device", "virtio-blk-pci,drive=other,serial=OTHER",
	}}
	return m
}

// numberOf is that of the machine of an Agent, by the address of its card; 0 until the Agent has it.
func numberOf(agent *agentv1.Agent) int {
	number := 0
	for _, card := range agent.Status.Inventory.Interfaces {
		_, _ = fmt.Sscanf(strings.ToLower(card.MacAddress), "52:54:00:00:00:%x", &number)
	}
	return number
}

// all waits until every machine's Agent is as wanted.
func (r *rack) all(what string, wanted func(*agentv1.Agent) bool) {
	r.Helper()
	for _, m := range r.machines {
		r.see(m.agent, fmt.Sprintf("machine %d: %s", m.number, what), func() bool { return wanted(m.agent) })
	}
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

// inside is a client of the claimed cluster with the kubeconfig that a subject of the claim reads, and the same user with kubectl.
func (r *rack) inside(namespace string) (client.Client, user) {
	r.Helper()
	config := rest.CopyConfig(r.admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: "alice", Groups: []string{"system:authenticated"}}
	alice, err := client.New(config, client.Options{Scheme: r.user.Scheme()})
	require.NoError(r, err)
	var kubeconfig []byte
	r.waits("the user reads the kubeconfig", func() (err error) {
		kubeconfig, err = access.Kubeconfig(r.Context(), alice, namespace)
		return err
	})
	hosted, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	require.NoError(r, err)
	inside, err := client.New(hosted, client.Options{Scheme: r.user.Scheme()})
	require.NoError(r, err)
	return inside, r.newUser(kubeconfig)
}

func TestUnregisteredMachinesBecomeNodesOfAClaimedCluster(t *testing.T) {
	r, link := newRack(t)
	served := newImages(t)
	pool := r.pool()
	machines := r.machinePool()
	r.powerOn(link, r.infraEnv(served.trust))
	r.all("the MachinePool binds it", func(a *agentv1.Agent) bool { return a.Labels[agentv1.MachinePoolLabel] == machines.Name })
	r.all("its disk is being written", func(a *agentv1.Agent) bool { return a.Status.Progress.CurrentStage == "Writing image to disk" })
	require.NoError(t, r.user.Get(t.Context(), client.ObjectKeyFromObject(pool), pool))
	assert.Zero(t, pool.Status.Ready, "a cluster that lacks its nodes is not ready")
	r.see(machines, "the MachinePool is Ready", func() bool { return hivev1.IsConditionTrue(machines.Status.Conditions, hivev1.MachinePoolReady) })
	r.see(pool, "the pool has a ready cluster", func() bool { return pool.Status.Ready == 1 })

	claim := r.claim()
	inside, user := r.inside(claim.Spec.Namespace)
	r.joined(inside)
	user.works(served.web)

	// No other cluster shall take a machine while its disks are looked at.
	r.scale(pool, 0)
	r.scale(machines, count-1)
	released := r.released()
	r.waits("its Node is gone", func() error {
		err := inside.Get(r.Context(), client.ObjectKey{Name: released.node}, &corev1.Node{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("there is a Node"))
	})
	r.see(released.agent, "it restarts", func() bool { return released.agent.Status.DebugInfo.State == "reclaiming-rebooting" })
	r.comesBack(released)
	r.scale(machines, count)
	r.see(machines, "the MachinePool is Ready again", func() bool { return machines.Status.ReadyReplicas == count })
	user.until("the Deployment runs again", "rollout", "status", "deployment/web", "--timeout=1s")

	require.NoError(t, r.user.Delete(t.Context(), claim))
	r.waits("the cluster is gone", func() error {
		err := r.user.Get(t.Context(), client.ObjectKey{Namespace: claim.Spec.Namespace, Name: claim.Spec.Namespace}, &hivev1.ClusterDeployment{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("there is a ClusterDeployment"))
	})
	r.comesBack(r.machines...)
	r.scale(pool, 1)
	r.see(pool, "the pool has a ready cluster again, on the same machines", func() bool { return pool.Status.Ready == 1 })
}

// The walk of one machine, with which the demo ends: it becomes the node of a claimed cluster, and is wiped and free when the claim is gone.
func TestOneUnregisteredMachineBecomesANode(t *testing.T) {
	if os.Getenv("MUSTER_RACK_DEMO") == "" {
		t.Skip("two machines go the same way in another test; MUSTER_RACK_DEMO=1 walks with one")
	}
	r, link := newRack(t)
	r.create(read(r, "ClusterImageSet", &hivev1.ClusterImageSet{}))
	pool := read(r, "ClusterPool", &hivev1.ClusterPool{})
	pool.Spec.MachinePools[0].Replicas = 1
	r.create(pool)
	machines := r.machinePool()
	m := r.newMachine(1, link, r.infraEnv(""))
	r.machines = []*machine{m}
	m.agent = r.onlyAgent()
	r.see(m.agent, "its disk is being written", func() bool { return m.agent.Status.Progress.CurrentStage == "Writing image to disk" })
	r.see(machines, "the MachinePool is Ready", func() bool { return hivev1.IsConditionTrue(machines.Status.Conditions, hivev1.MachinePoolReady) })
	r.see(pool, "the pool has a ready cluster", func() bool { return pool.Status.Ready == 1 })
	claim := r.claim()
	inside, user := r.inside(claim.Spec.Namespace)
	t.Log("\n" + user.until("the user of the claim sees the node", "get", "nodes", "-o", "wide"))
	node := &corev1.Node{}
	require.NoError(t, inside.Get(t.Context(), client.ObjectKey{Name: m.agent.Spec.Hostname}, node))
	assert.True(t, isReady(node), "%+v", node.Status.Conditions)
	r.scale(pool, 0)
	require.NoError(t, r.user.Delete(t.Context(), claim))
	r.comesBack(m)
}

// joined looks at the nodes of the claimed cluster, and at what joining leaves behind.
func (r *rack) joined(inside client.Client) {
	r.Helper()
	var nodes corev1.NodeList
	require.NoError(r, inside.List(r.Context(), &nodes))
	require.Len(r, nodes.Items, count)
	for i := range nodes.Items {
		node := &nodes.Items[i]
		ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		assert.True(r, ready, "the claim has Ready nodes: %v", node.Status.Conditions)
		assert.Equal(r, "web", node.Labels["tier"])
		assert.Equal(r, "v1.37.2", node.Status.NodeInfo.KubeletVersion)
	}
	r.all("it belongs to the cluster", func(a *agentv1.Agent) bool { return a.Status.DebugInfo.State == "added-to-existing-cluster" })
	r.waits("the bootstrap tokens are gone", func() error {
		var secrets corev1.SecretList
		if err := inside.List(r.Context(), &secrets, client.InNamespace(metav1.NamespaceSystem)); err != nil {
			return err
		}
		for i := range secrets.Items {
			if secrets.Items[i].Type == corev1.SecretTypeBootstrapToken {
				return errors.New("there is a bootstrap token")
			}
		}
		return nil
	})
	r.all("its Agent says that the node is Ready", func(a *agentv1.Agent) bool {
		return agentv1.IsConditionTrue(a.Status.Conditions, agentv1.ConditionJoined)
	})
	for _, m := range r.machines {
		m.node = m.agent.Spec.Hostname
	}
}

// released is the first machine that is being released.
func (r *rack) released() *machine {
	r.Helper()
	var found *machine
	r.waits("a machine is released", func() error {
		for _, m := range r.machines {
			if err := r.user.Get(r.Context(), client.ObjectKeyFromObject(m.agent), m.agent); err != nil {
				return err
			}
			if m.agent.Spec.ClusterDeploymentName == nil {
				found = m
				return nil
			}
		}
		return errors.New("all machines are in the cluster")
	})
	return found
}

// scale sets how many clusters a pool has, or how many machines a MachinePool.
func (r *rack) scale(object client.Object, replicas int32) {
	r.Helper()
	require.NoError(r, r.user.SubResource("scale").Update(r.Context(), object, client.WithSubResourceBody(&autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName()}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas},
	})))
}

// comesBack waits for machines that are released: they restart into the discovery image without hands, are wiped, and are free.
func (r *rack) comesBack(machines ...*machine) {
	r.Helper()
	for _, m := range machines {
		r.see(m.agent, fmt.Sprintf("machine %d: it is free", m.number), func() bool {
			return agentv1.IsConditionTrue(m.agent.Status.Conditions, agentv1.ConditionReleased) && m.agent.Status.DebugInfo.State == "known-unbound" && m.agent.Labels[agentv1.MachinePoolLabel] == ""
		})
		m.assertWiped(r.T)
	}
}

// assertWiped looks at the disks from outside.
func (m *machine) assertWiped(t *testing.T) {
	t.Helper()
	const edge = 64 << 20
	disk, err := os.Open(m.disk)
	require.NoError(t, err)
	defer func() { _ = disk.Close() }()
	info, err := disk.Stat()
	require.NoError(t, err)
	for _, at := range []int64{0, info.Size() - edge} {
		content := make([]byte, edge)
		_, err := disk.ReadAt(content, at)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(content, make([]byte, edge)), "there is something at byte %d of the disk", at)
	}
	if wipefs, err := exec.LookPath("wipefs"); err == nil {
		found, err := exec.CommandContext(t.Context(), wipefs, "--no-act", m.disk).CombinedOutput()
		require.NoError(t, err)
		assert.Empty(t, string(found), "there is a signature")
	}
	other, err := os.Open(m.other)
	require.NoError(t, err)
	defer func() { _ = other.Close() }()
	content := make([]byte, len(signature))
	_, err = io.ReadFull(other, content)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(signature, content), "the other disk was written to")
}
