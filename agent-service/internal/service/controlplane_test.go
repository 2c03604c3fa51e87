// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	ignitionv3 "github.com/coreos/ignition/v2/config/v3_2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/join"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/lockorder"
	"github.com/muster-io/muster/agent-service/internal/service"
	"github.com/muster-io/muster/agent-service/internal/store"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// nodeVersion is that of an image that runs control planes.
const nodeVersion = "v1.37.2"

// resource is the custom resource of a cluster.
var resource = domain.KubeRef{Namespace: "metal", Name: "c"}

// newPlaneEnv is a service that has such an image; it logs to the buffer.
func newPlaneEnv(t *testing.T) (*testEnv, *bytes.Buffer) {
	t.Helper()
	w := newTestEnv(t)
	path := filepath.Join(t.TempDir(), "planes.db")
	s, err := store.Open(t.Context(), path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	log := &bytes.Buffer{}
	w.store, w.log = s, zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.Lock(zapcore.AddSync(log)), zap.DebugLevel))
	w.Service = service.New(lockorder.Check(w.store), service.Options{
		Now: w.clock, Log: w.log, BaseURL: "https://muster.example.com",
		OSImages: []agentproto.OSImage{{Version: nodeVersion, URL: "https://images.example.com/node.img.zst", SHA256: fmt.Sprintf("%064d", 7), ControlPlane: true}},
	})
	service.Tick(t.Context(), w.Service)
	return w, log
}

// planeCluster makes a cluster with a control plane and workers, all of them bound and ready.
func (w *testEnv) planeCluster(hosts int, change ...func(*domain.ClusterSettings)) (*domain.Cluster, []domain.HostKey) {
	w.t.Helper()
	e := w.infraEnv(alice)
	settings := domain.ClusterSettings{
		OpenshiftVersion: nodeVersion, ControlPlaneCount: 1, WorkerCount: hosts - 1, MachineNetworks: []string{"192.0.2.0/24"}, BaseDNSDomain: "example.org", PullSecret: `{"auths":{"secret":{}}}`,
	}
	for _, one := range change {
		one(&settings)
	}
	c, err := w.CreateCluster(w.t.Context(), alice, domain.NewCluster{Name: "c", Kube: resource, ClusterSettings: settings})
	require.NoError(w.t, err)
	var keys []domain.HostKey
	for i := range hosts {
		name := "n" + string(rune('a'+i))
		key := w.register(e, name)
		w.reply(key, agentproto.StepInventory, 0, machine(name, at(fmt.Sprintf("192.0.2.%d/24", 7+i))))
		_, err := w.UpdateHost(w.t.Context(), alice, key, func(s *domain.HostSettings) error {
			if s.Role = "worker"; i < settings.ControlPlaneCount {
				s.Role = "master"
			}
			return nil
		})
		require.NoError(w.t, err)
		_, err = w.BindHost(w.t.Context(), alice, key, c.ID, false)
		require.NoError(w.t, err)
		keys = append(keys, key)
	}
	return c, keys
}

// at gives a machine one address.
func at(address string) func(*hardware.Inventory) {
	return func(i *hardware.Inventory) { i.Interfaces[0].IPV4Addresses = []string{address} }
}

// three are settings of a cluster with three control planes.
func three(s *domain.ClusterSettings) {
	s.ControlPlaneCount, s.WorkerCount, s.APIVIPs = 3, s.WorkerCount-2, []string{"192.0.2.100"}
}

// files are those of first-boot data.
func (w *testEnv) files(key domain.HostKey) map[string]string {
	w.t.Helper()
	data, _, err := w.FirstBoot(w.t.Context(), key)
	require.NoError(w.t, err)
	config, report, err := ignitionv3.Parse(data)
	require.NoError(w.t, err, report.String())
	files := map[string]string{}
	for _, f := range config.Storage.Files {
		content, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(*f.Contents.Source, "data:;base64,"))
		require.NoError(w.t, err)
		files[f.Path] = string(content)
		if f.Path == join.ControlPlanePath {
			assert.Equal(w.t, 0o600, *f.Mode)
		}
	}
	return files
}

// nodeReady says that a host is a Ready node, as the controller of nodes does.
func (w *testEnv) nodeReady(c *domain.Cluster, key domain.HostKey) {
	w.t.Helper()
	require.NoError(w.t, w.NoteNode(w.t.Context(), key, c.ID, domain.Node{Name: "n", Seen: true, Ready: true}))
}

// A cluster whose image runs control planes is installed when its nodes are Ready. Until then its key is with the service and with one host, and afterwards with that host alone.
func TestAHostBringsUpTheControlPlane(t *testing.T) {
	t.Parallel()
	w, _ := newPlaneEnv(t)
	c, keys := w.planeCluster(2)
	w.install(c, keys)
	files := w.files(keys[0])
	plane, err := join.ReadControlPlane([]byte(files[join.ControlPlanePath]))
	require.NoError(t, err)
	assert.Equal(t, "https://192.0.2.7:6443", plane.Server, "the address of the host in the machine network")
	assert.Equal(t, []string{"api.c.example.org"}, plane.Names)
	assert.Contains(t, plane.Objects, "clusterIP: 10.96.0.10")
	h, err := w.GetHost(t.Context(), admin, keys[0])
	require.NoError(t, err)
	assert.Equal(t, domain.WipeInstalledDisk, h.Wipe, "its disk has the key of the cluster")

	for _, key := range keys {
		w.progress(key, lifecycle.StageWriting, lifecycle.StageRebooting, lifecycle.StageDone)
	}
	assert.Equal(t, lifecycle.ClusterFinalizing, w.clusterState(c.ID), "its nodes are not Ready")
	_, err = w.Kubeconfig(t.Context(), alice, c.ID)
	assert.Equal(t, "ClusterNotInstalled", domain.ReasonOf(err))
	w.nodeReady(c, keys[0])
	assert.Equal(t, lifecycle.ClusterFinalizing, w.clusterState(c.ID))
	w.nodeReady(c, keys[1])
	assert.Equal(t, lifecycle.ClusterInstalled, w.clusterState(c.ID))
	kubeconfig, err := w.Kubeconfig(t.Context(), alice, c.ID)
	require.NoError(t, err)
	assert.Contains(t, string(kubeconfig), "server: https://192.0.2.7:6443")
	kept, err := w.stored(c.ID)
	require.NoError(t, err)
	assert.NotContains(t, kept, strings.Split(plane.CAKey, "\n")[1], "the key of the authority is forgotten")
	assert.NotContains(t, kept, "admin")
	assert.Contains(t, kept, "nodeManager")
}

// stored is what the store has of the control plane of a cluster.
func (w *testEnv) stored(id string) (content string, err error) {
	err = w.store.View(w.t.Context(), func(ctx context.Context, r transaction.Reader) error {
		body, err := r.File(ctx, id, "control-plane")
		content = string(body)
		return err
	})
	return content, err
}

// Each place at which a user, a tenant, a worker or an operator of the service could look is searched for the keys of a cluster.
func TestTheKeyOfAClusterIsWithItsHostAlone(t *testing.T) {
	t.Parallel()
	w, log := newPlaneEnv(t)
	c, keys := w.planeCluster(3)
	w.install(c, keys)
	plane, err := join.ReadControlPlane([]byte(w.files(keys[0])[join.ControlPlanePath]))
	require.NoError(t, err)
	_, manager, err := w.ControlPlane(t.Context(), domain.Kubernetes, c.ID)
	require.NoError(t, err)
	key := strings.Split(plane.CAKey, "\n")[1]
	credentials := manager[strings.Index(manager, "client-key-data: ")+len("client-key-data: "):][60:120] // behind the PEM header, which is no secret

	places := map[string]any{}
	for _, worker := range keys[1:] {
		files := w.files(worker)
		assert.NotContains(t, files, join.ControlPlanePath)
		places["first-boot data of worker "+worker.HostID] = files
	}
	_, _, err = w.ControlPlane(t.Context(), bob, c.ID)
	assert.Equal(t, domain.NotFound, domain.KindOf(err), "another tenant")
	cluster, err := w.GetCluster(t.Context(), alice, c.ID)
	require.NoError(t, err)
	places["the cluster"] = cluster
	hosts, err := w.ListHosts(t.Context(), admin, domain.HostFilter{ClusterID: c.ID})
	require.NoError(t, err)
	places["its hosts"] = hosts
	manifests, err := w.ListManifests(t.Context(), alice, c.ID)
	require.NoError(t, err)
	assert.Empty(t, manifests)
	logs, err := w.ListLogs(t.Context(), alice, c.ID)
	require.NoError(t, err)
	assert.Empty(t, logs)
	for name, read := range map[string]func(name string) ([]byte, error){
		"as a manifest": func(name string) ([]byte, error) { return w.Manifest(t.Context(), alice, c.ID, name) },
		"as a log":      func(name string) ([]byte, error) { return w.Logs(t.Context(), alice, c.ID, name) },
	} {
		for _, file := range []string{"control-plane", "manifests/../control-plane", "logs/../control-plane", "/control-plane"} {
			content, err := read(file)
			assert.Equal(t, domain.NotFound, domain.KindOf(err), "%s %s", file, name)
			places[file+" "+name] = content
		}
	}
	config, err := w.InstallConfig(t.Context(), alice, c.ID)
	require.NoError(t, err)
	places["the installer's configuration"] = string(config)

	w.steps(keys[0])
	w.reply(keys[0], agentproto.StepInstall, 1, "no space left")
	require.Equal(t, lifecycle.ClusterFailed, w.clusterState(c.ID))
	kept, err := w.stored(c.ID)
	require.NoError(t, err)
	assert.Empty(t, kept, "a failed installation leaves nothing")
	events, err := w.ListEvents(t.Context(), admin, domain.EventFilter{})
	require.NoError(t, err)
	require.NotEmpty(t, events.Items)
	places["events"], places["the log"] = events, log.String()
	for place, content := range places {
		text, err := json.Marshal(content)
		require.NoError(t, err)
		for _, form := range []string{string(text), fmt.Sprintf("%+v", content)} {
			assert.NotContains(t, form, key, place)
			assert.NotContains(t, form, credentials, place)
		}
	}

	_, _, err = w.FirstBoot(t.Context(), keys[0])
	assert.Equal(t, domain.Conflict, domain.KindOf(err), "a host that does not install any more")
	w.reinstall(c, keys)
	again, err := join.ReadControlPlane([]byte(w.files(keys[0])[join.ControlPlanePath]))
	require.NoError(t, err)
	assert.NotEqual(t, plane.CA, again.CA, "machines of the failed installation cannot join the next one")
}

// reinstall resets a cluster that failed, and installs it again.
func (w *testEnv) reinstall(c *domain.Cluster, keys []domain.HostKey) {
	w.t.Helper()
	_, err := w.ResetCluster(w.t.Context(), alice, c.ID)
	require.NoError(w.t, err)
	for i, key := range keys {
		_, err := w.RegisterHost(w.t.Context(), key.InfraEnvID, domain.NewHost{HostID: key.HostID, BootID: "2"})
		require.NoError(w.t, err)
		name := "n" + string(rune('a'+i))
		w.reply(key, agentproto.StepInventory, 0, machine(name))
	}
	w.install(c, keys)
}

func TestOtherNumbersOfControlPlanesAreRefused(t *testing.T) {
	t.Parallel()
	w, _ := newPlaneEnv(t)
	for _, count := range []int{0, 2, 4, 5} {
		_, err := w.CreateCluster(t.Context(), alice, domain.NewCluster{Name: "c", Kube: resource, ClusterSettings: domain.ClusterSettings{OpenshiftVersion: nodeVersion, ControlPlaneCount: count, WorkerCount: 1}})
		assert.Equal(t, "ControlPlaneCountUnsupported", domain.ReasonOf(err), count)
		require.ErrorContains(t, err, "set the number of control plane machines to 1 or 3 (provisionRequirements.controlPlaneAgents, control_plane_count)")
	}
	for _, settings := range []domain.ClusterSettings{{OpenshiftVersion: nodeVersion, Imported: true}, {OpenshiftVersion: "4.18", ControlPlaneCount: 5}} {
		_, err := w.CreateCluster(t.Context(), alice, domain.NewCluster{Name: "c", Kube: resource, ClusterSettings: settings})
		require.NoError(t, err, "it has its control plane elsewhere, or an image that runs none")
	}
	_, err := w.CreateCluster(t.Context(), alice, domain.NewCluster{Name: "c", ClusterSettings: domain.ClusterSettings{OpenshiftVersion: nodeVersion, ControlPlaneCount: 5}})
	require.NoError(t, err, "it is no custom resource: its hosts join nothing")
	c, _ := w.planeCluster(0, func(s *domain.ClusterSettings) { s.WorkerCount = 0 })
	_, err = w.UpdateCluster(t.Context(), alice, c.ID, func(s *domain.ClusterSettings) error { s.ControlPlaneCount = 2; return nil })
	assert.Equal(t, "ControlPlaneCountUnsupported", domain.ReasonOf(err))
}

func TestThreeControlPlanesNeedAnAddressOfTheAPI(t *testing.T) {
	t.Parallel()
	w, _ := newPlaneEnv(t)
	for name, test := range map[string]struct {
		change       func(*domain.ClusterSettings)
		reason, says string
	}{
		"no address":      {func(s *domain.ClusterSettings) { s.APIVIPs = nil }, "APIAddressRequired", "state one address in their network (apiVIPs, api_vips), not 0"},
		"two addresses":   {func(s *domain.ClusterSettings) { s.APIVIPs = append(s.APIVIPs, "2001:db8::1") }, "APIAddressRequired", "not 2"},
		"another network": {func(s *domain.ClusterSettings) { s.APIVIPs = []string{"198.51.100.1"} }, "APIAddressElsewhere", "198.51.100.1 of the API is in none of the networks of the machines, 192.0.2.0/24"},
		"a load balancer": {func(s *domain.ClusterSettings) { s.UserManagedNetworking = true }, "UserManagedNetworkingUnsupported", "leave out userManagedNetworking"},
	} {
		settings := domain.ClusterSettings{OpenshiftVersion: nodeVersion, MachineNetworks: []string{"192.0.2.0/24"}, WorkerCount: 2}
		three(&settings)
		_, err := w.CreateCluster(t.Context(), alice, domain.NewCluster{Name: "c", Kube: resource, ClusterSettings: settings})
		require.NoError(t, err)
		test.change(&settings)
		_, err = w.CreateCluster(t.Context(), alice, domain.NewCluster{Name: "c", Kube: resource, ClusterSettings: settings})
		assert.Equal(t, test.reason, domain.ReasonOf(err), name)
		require.ErrorContains(t, err, test.says, name)
	}
}

func TestAControlPlaneThatItsHostCannotServeIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason string
		hosts  int
		change func(*domain.ClusterSettings)
	}{
		"the API at another address":      {"APIAddressElsewhere", 1, func(s *domain.ClusterSettings) { s.APIVIPs = []string{"192.0.2.200"} }},
		"machines in the network of pods": {"NetworksOverlap", 1, func(s *domain.ClusterSettings) { s.MachineNetworks, s.ClusterNetworks = nil, []string{"192.0.2.0/24"} }},
		"few Services":                    {"NetworkTooSmall", 1, func(s *domain.ClusterSettings) { s.ServiceNetworks = []string{"10.96.0.0/30"} }},
		"three, the API at one of them":   {"APIAddressTaken", 4, func(s *domain.ClusterSettings) { three(s); s.APIVIPs = []string{"192.0.2.8"} }},
		"three, the API at a worker":      {"APIAddressTaken", 4, func(s *domain.ClusterSettings) { three(s); s.APIVIPs = []string{"192.0.2.10"} }},
		"three, the API out of reach": {"APIAddressElsewhere", 4, func(s *domain.ClusterSettings) {
			three(s)
			s.MachineNetworks, s.APIVIPs = append(s.MachineNetworks, "198.51.100.0/24"), []string{"198.51.100.1"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := newPlaneEnv(t)
			c, _ := w.planeCluster(test.hosts, test.change)
			_, err := w.InstallCluster(t.Context(), alice, c.ID)
			assert.Equal(t, test.reason, domain.ReasonOf(err), "%v", err)
			assert.Equal(t, lifecycle.ClusterReady, w.clusterState(c.ID), "nothing has begun")
		})
	}
}

// Three hosts get what they share and one member each, and a worker nothing of it. The cluster is installed when all of them are Ready, and the service has no key of it afterwards.
func TestThreeHostsBringUpTheControlPlane(t *testing.T) {
	t.Parallel()
	w, log := newPlaneEnv(t)
	c, keys := w.planeCluster(4, three)
	w.install(c, keys)
	var planes []*join.ControlPlane
	for i, key := range keys[:3] {
		plane, err := join.ReadControlPlane([]byte(w.files(key)[join.ControlPlanePath]))
		require.NoError(t, err)
		assert.Equal(t, "https://192.0.2.100:6443", plane.Server, "the address belongs to no host")
		require.NotNil(t, plane.Group)
		assert.Equal(t, join.Member{Name: "n" + string(rune('a'+i)), Address: netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", 7+i))}, plane.Group.Own())
		h, err := w.GetHost(t.Context(), admin, key)
		require.NoError(t, err)
		assert.Equal(t, domain.WipeInstalledDisk, h.Wipe, "its disk has the key of the cluster")
		assert.True(t, h.Bootstrap, "its cluster does not hibernate")
		planes = append(planes, plane)
	}
	for _, other := range planes[1:] {
		assert.Equal(t, planes[0].CA, other.CA)
		assert.Equal(t, planes[0].Group.Shared, other.Group.Shared)
		assert.Equal(t, planes[0].Group.Members, other.Group.Members)
	}
	secrets := secretsOf(planes[0])
	worker := w.files(keys[3])
	assert.NotContains(t, worker, join.ControlPlanePath)
	places := map[string]any{"first-boot data of the worker": worker}

	for _, key := range keys {
		w.progress(key, lifecycle.StageWriting, lifecycle.StageRebooting, lifecycle.StageDone)
	}
	for _, key := range []domain.HostKey{keys[3], keys[0], keys[2]} {
		w.nodeReady(c, key)
		assert.Equal(t, lifecycle.ClusterFinalizing, w.clusterState(c.ID), "a control plane is not Ready")
	}
	w.nodeReady(c, keys[1])
	assert.Equal(t, lifecycle.ClusterInstalled, w.clusterState(c.ID))
	kept, err := w.stored(c.ID)
	require.NoError(t, err)
	assert.Contains(t, kept, "nodeManager")
	places["the store"] = kept
	cluster, err := w.GetCluster(t.Context(), alice, c.ID)
	require.NoError(t, err)
	places["the cluster"] = cluster
	events, err := w.ListEvents(t.Context(), admin, domain.EventFilter{})
	require.NoError(t, err)
	places["events"], places["the log"] = events, log.String()
	for place, content := range places {
		text, err := json.Marshal(content)
		require.NoError(t, err)
		for name, secret := range secrets {
			assert.NotContains(t, string(text)+fmt.Sprintf("%+v", content), secret, "%s in %s", name, place)
		}
	}
}

// secretsOf are parts of the private keys of a control plane, by name.
func secretsOf(plane *join.ControlPlane) map[string]string {
	secrets := map[string]string{}
	for name, key := range map[string]string{
		"cluster": plane.CAKey, "service accounts": plane.Group.ServiceAccountKey, "front proxy": plane.Group.FrontProxy.CAKey, "etcd": plane.Group.Etcd.CAKey,
	} {
		secrets[name] = strings.Split(key, "\n")[1]
	}
	return secrets
}

// Each of the machines is wiped when it is released, and one that joins again later is a worker.
func TestEachMachineOfAControlPlaneIsWiped(t *testing.T) {
	t.Parallel()
	w, _ := newPlaneEnv(t)
	c, keys := w.planeCluster(3, three)
	w.install(c, keys)
	for _, key := range keys {
		w.progress(key, lifecycle.StageWriting, lifecycle.StageRebooting, lifecycle.StageDone)
		w.nodeReady(c, key)
	}
	require.Equal(t, lifecycle.ClusterInstalled, w.clusterState(c.ID))
	cluster, err := w.GetCluster(t.Context(), alice, c.ID)
	require.NoError(t, err)
	require.NoError(t, w.DeleteCluster(t.Context(), alice, c.ID, false))
	for _, key := range keys {
		h, err := w.GetHost(t.Context(), admin, key)
		require.NoError(t, err)
		assert.True(t, h.Release.Underway(), h.State)
		assert.Equal(t, domain.WipeInstalledDisk, h.Release.Wipe)
		again := *h
		again.DayTwo = true
		assert.True(t, cluster.ControlPlane.RunsOn(h))
		assert.False(t, cluster.ControlPlane.RunsOn(&again))
		assert.Nil(t, cluster.ControlPlane.Member(&again))
	}
}

// The installed system keeps the name that it was installed with, and its cluster is rid of the Node of that name.
func TestANodeKeepsItsName(t *testing.T) {
	t.Parallel()
	w, _ := newPlaneEnv(t)
	c, keys := w.planeCluster(1)
	rename := func(name string) error {
		_, err := w.UpdateHost(t.Context(), alice, keys[0], func(s *domain.HostSettings) error { s.RequestedHostname = name; return nil })
		return err
	}
	require.NoError(t, rename("worker-1"))
	w.install(c, keys)
	w.progress(keys[0], lifecycle.StageWriting, lifecycle.StageRebooting, lifecycle.StageDone)
	require.NoError(t, w.NoteNode(t.Context(), keys[0], c.ID, domain.Node{Name: "worker-1", Seen: true, Ready: true}))

	for _, name := range []string{"other", ""} {
		assert.Equal(t, "HostnameInUse", domain.ReasonOf(rename(name)))
	}
	require.NoError(t, rename("Worker-1"), "it is the name of the Node")
	h, err := w.ApplyDesired(t.Context(), domain.Kubernetes, keys[0], service.DesiredHost{HostSettings: domain.HostSettings{RequestedHostname: "free"}})
	require.NoError(t, err, "it is released first")
	assert.Equal(t, "worker-1", h.Release.NodeName)
	assert.Equal(t, "free", h.RequestedHostname)
}
