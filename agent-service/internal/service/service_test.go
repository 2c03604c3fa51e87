// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/join"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/lockorder"
	"github.com/muster-io/muster/agent-service/internal/service"
	"github.com/muster-io/muster/agent-service/internal/store"
)

// patience is for machines that are busy with other things.
const patience = 3 * time.Minute

var (
	admin = domain.Principal{User: "admin", Admin: true}
	alice = domain.Principal{User: "alice", Organization: "a"}
	bob   = domain.Principal{User: "bob", Organization: "b"}
)

// testEnv is a service with a clock that stands still unless it is told otherwise.
type testEnv struct {
	*service.Service
	t     *testing.T
	store *store.Store
	mu    sync.Mutex
	now   time.Time
	log   *zap.Logger
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "agents.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	w := &testEnv{t: t, store: s, now: time.Now()}
	w.Service = w.restart()
	return w
}

// restart is another process on the same store.
func (w *testEnv) restart() *service.Service {
	s := w.begin()
	service.Tick(w.t.Context(), s)
	return s
}

// begin is another process that has loaded nothing yet.
func (w *testEnv) begin() *service.Service {
	return service.New(lockorder.Check(w.store), service.Options{
		Now:     w.clock,
		Log:     w.log,
		BaseURL: "https://muster.example.com",
		BootArtifacts: func(context.Context, *domain.InfraEnv) (agentproto.BootArtifactsArgs, error) {
			return agentproto.BootArtifactsArgs{KernelURL: "http://k", KernelSHA256: "11", InitrdURL: "http://i", InitrdSHA256: "22"}, nil
		},
		Rejoin: func(_ context.Context, h *domain.Host, _ *domain.Cluster) (*join.Values, error) {
			return &join.Values{Server: "https://192.0.2.1:6443", Token: bootstrapToken + h.Node.Rejoin.Stamp}, nil
		},
		OSImages: []agentproto.OSImage{{Version: "4.18", URL: "https://images.example.com/disk.raw.gz", SHA256: fmt.Sprintf("%064d", 7)}},
	})
}

func (w *testEnv) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// jump moves the clock at once, as a suspended machine or a user who sets the time does.
func (w *testEnv) jump(d time.Duration) {
	w.mu.Lock()
	w.now = w.now.Add(d)
	w.mu.Unlock()
}

// pass lets time pass, second by second.
func (w *testEnv) pass(d time.Duration, each ...func()) {
	for range int(d / time.Second) {
		w.jump(time.Second)
		service.Tick(w.t.Context(), w.Service)
		for _, do := range each {
			do()
		}
	}
}

func (w *testEnv) infraEnv(by domain.Principal) *domain.InfraEnv {
	w.t.Helper()
	e, err := w.CreateInfraEnv(w.t.Context(), by, domain.NewInfraEnv{Name: "env", InfraEnvSettings: domain.InfraEnvSettings{PullSecret: `{"auths":{}}`}})
	require.NoError(w.t, err)
	return e
}

func (w *testEnv) cluster(by domain.Principal, change ...func(*domain.ClusterSettings)) *domain.Cluster {
	w.t.Helper()
	settings := domain.ClusterSettings{OpenshiftVersion: "4.18", ControlPlaneCount: 1, PullSecret: `{"auths":{"secret":{}}}`}
	for _, c := range change {
		c(&settings)
	}
	c, err := w.CreateCluster(w.t.Context(), by, domain.NewCluster{Name: "c", ClusterSettings: settings})
	require.NoError(w.t, err)
	return c
}

func machine(hostname string, change ...func(*hardware.Inventory)) string {
	inventory := hardware.Inventory{
		Hostname: hostname, CPU: hardware.CPU{Architecture: "x86_64", Count: 8}, Memory: hardware.Memory{PhysicalBytes: 32 << 30},
		Disks:      []hardware.Disk{{Name: "sda", ID: "/dev/disk/by-id/1", Path: "/dev/sda", SizeBytes: 200e9, InstallationEligibility: hardware.Eligibility{Eligible: true}}},
		Interfaces: []hardware.Interface{{Name: "eth0", MACAddress: "52:54:00:00:00:01", IPV4Addresses: []string{"192.0.2.7/24"}}},
		Routes:     []hardware.Route{{Destination: "0.0.0.0", Gateway: "192.0.2.1"}},
	}
	for _, one := range change {
		one(&inventory)
	}
	out, err := json.Marshal(inventory)
	if err != nil {
		panic(err)
	}
	return string(out)
}

// register makes a host that is known and connected.
func (w *testEnv) register(e *domain.InfraEnv, hostname string) domain.HostKey {
	w.t.Helper()
	key := domain.HostKey{InfraEnvID: e.ID, HostID: uuid.NewString()}
	_, err := w.RegisterHost(w.t.Context(), e.ID, domain.NewHost{HostID: key.HostID, AgentVersion: "test", BootID: "1"})
	require.NoError(w.t, err)
	require.Contains(w.t, w.steps(key), agentproto.StepInventory)
	require.NoError(w.t, w.ReportStep(w.t.Context(), key, agentproto.StepReply{Type: agentproto.StepInventory, Output: machine(hostname)}))
	return key
}

// steps polls without being held.
func (w *testEnv) steps(key domain.HostKey) []agentproto.StepType {
	w.t.Helper()
	got, err := w.NextInstructions(w.t.Context(), key, 0)
	require.NoError(w.t, err)
	var types []agentproto.StepType
	for _, s := range got.Steps {
		types = append(types, s.Type)
	}
	return types
}

func (w *testEnv) state(key domain.HostKey) lifecycle.State {
	w.t.Helper()
	h, err := w.GetHost(w.t.Context(), admin, key)
	require.NoError(w.t, err)
	return h.State
}

func (w *testEnv) events(filter domain.EventFilter) []string {
	w.t.Helper()
	found, err := w.ListEvents(w.t.Context(), admin, filter)
	require.NoError(w.t, err)
	var names []string
	for _, e := range found.Items {
		names = append(names, e.Name)
	}
	return names
}

func TestAHostIsDiscoveredBoundMovedAndFreed(t *testing.T) {
	w := newTestEnv(t)
	e, one, two := w.infraEnv(alice), w.cluster(alice), w.cluster(alice)
	key := w.register(e, "n1")
	assert.Equal(t, lifecycle.KnownUnbound, w.state(key))
	h, err := w.BindHost(t.Context(), alice, key, one.ID, false)
	require.NoError(t, err)
	assert.Equal(t, lifecycle.Known, h.State, h.StateInfo)
	assert.Equal(t, "n1", h.Summary.Hostname, "binding keeps the inventory")
	c, err := w.GetCluster(t.Context(), alice, one.ID)
	require.NoError(t, err)
	assert.Equal(t, lifecycle.ClusterReady, c.Status)

	_, err = w.BindHost(t.Context(), alice, key, two.ID, false)
	assert.Equal(t, "HostBoundAlready", domain.ReasonOf(err))
	h, err = w.BindHost(t.Context(), alice, key, one.ID, true)
	require.NoError(t, err)
	assert.Equal(t, one.ID, h.ClusterID)

	h, err = w.MoveHost(t.Context(), alice, key, two.ID)
	require.NoError(t, err)
	assert.Equal(t, lifecycle.Known, h.State)
	assert.Equal(t, two.ID, h.ClusterID)
	c, err = w.GetCluster(t.Context(), alice, one.ID)
	require.NoError(t, err)
	assert.Equal(t, lifecycle.ClusterInsufficient, c.Status, "the source follows at once")
	assert.Zero(t, c.HostCount)

	h, err = w.UnbindHost(t.Context(), alice, key)
	require.NoError(t, err)
	assert.Equal(t, lifecycle.KnownUnbound, h.State)
	_, err = w.UnbindHost(t.Context(), alice, key)
	assert.Equal(t, "HostNotBound", domain.ReasonOf(err))
	assert.Equal(t, []string{"host_bind_succeeded", "host_unbind_succeeded"}, lastAndFirst(w.events(domain.EventFilter{ClusterID: two.ID, HostIDs: []string{key.HostID}})))
	assert.NotContains(t, w.events(domain.EventFilter{ClusterID: two.ID}), "host_registration_succeeded", "a creator sees the bound period only")
}

func TestTheNameOfAHostInAClusterStaysInTheCluster(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	e, one, two := w.infraEnv(alice), w.cluster(alice), w.cluster(alice)
	key := w.register(e, "n1")
	name := func(hostname string) {
		t.Helper()
		_, err := w.UpdateHost(t.Context(), alice, key, func(s *domain.HostSettings) error { s.RequestedHostname = hostname; return nil })
		require.NoError(t, err)
	}
	name("rack-7")
	h, err := w.BindHost(t.Context(), alice, key, one.ID, false)
	require.NoError(t, err)
	assert.Equal(t, "rack-7", h.Hostname())
	name("tenant-a-db")
	h, err = w.MoveHost(t.Context(), alice, key, two.ID)
	require.NoError(t, err)
	assert.Equal(t, "rack-7", h.Hostname())
	name("tenant-b-db")
	h, err = w.UnbindHost(t.Context(), alice, key)
	require.NoError(t, err)
	assert.Equal(t, "rack-7", h.Hostname(), "the name that it has by itself is kept")
	_, err = w.BindHost(t.Context(), alice, key, one.ID, false)
	require.NoError(t, err)
	name("tenant-a-db")
	require.NoError(t, w.DeleteHost(t.Context(), alice, key))
	for filter, foreign := range map[string]domain.EventFilter{"tenant": {InfraEnvID: e.ID}, "tenant-a": {ClusterID: two.ID}, "tenant-b": {ClusterID: one.ID}} {
		found, err := w.ListEvents(t.Context(), admin, foreign)
		require.NoError(t, err)
		require.NotEmpty(t, found.Items)
		for _, event := range found.Items {
			assert.NotContains(t, event.Message, filter)
		}
	}
}

func lastAndFirst(names []string) []string {
	var edges []string
	for _, n := range names {
		if n == "host_bind_succeeded" || n == "host_unbind_succeeded" {
			edges = append(edges, n)
		}
	}
	return edges
}

func TestAHeldPollIsAnsweredAtOnceByABind(t *testing.T) {
	w := newTestEnv(t)
	e, c := w.infraEnv(alice), w.cluster(alice)
	key := w.register(e, "n1")
	w.steps(key)
	answered := make(chan service.Instructions, 1)
	go func() {
		got, err := w.NextInstructions(t.Context(), key, service.MaxHold)
		assert.NoError(t, err)
		answered <- got
	}()
	require.Eventually(t, func() bool { return w.Held.Load() == 1 }, patience, time.Millisecond)
	_, err := w.BindHost(t.Context(), alice, key, c.ID, false)
	require.NoError(t, err)
	got := <-answered
	require.NotEmpty(t, got.Steps)
	assert.False(t, got.Exit)

	// A change that came before the poll is told at once, too.
	_, err = w.UnbindHost(t.Context(), alice, key)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got, err = w.NextInstructions(ctx, key, service.MaxHold)
	require.NoError(t, err)
	assert.NotEmpty(t, got.Steps)
}

func TestAMachineInTwoInfraEnvsIsTwoHosts(t *testing.T) {
	w := newTestEnv(t)
	first, second := w.infraEnv(alice), w.infraEnv(alice)
	key := w.register(first, "n1")
	other := domain.HostKey{InfraEnvID: second.ID, HostID: key.HostID}
	_, err := w.RegisterHost(t.Context(), second.ID, domain.NewHost{HostID: key.HostID})
	require.NoError(t, err)
	assert.Equal(t, lifecycle.DisconnectedUnbound, w.state(key))
	assert.Equal(t, lifecycle.DiscoveringUnbound, w.state(other))
	assert.False(t, w.Seen(key).Connected)
	w.steps(key)
	assert.Equal(t, lifecycle.KnownUnbound, w.state(key), "a host that polls is connected")
}

func TestTheClusterOfAMachineThatAppearsElsewhereFollowsAtOnce(t *testing.T) {
	w := newTestEnv(t)
	elsewhere := w.infraEnv(alice)
	leave := func(key domain.HostKey) {
		t.Helper()
		_, err := w.RegisterHost(t.Context(), elsewhere.ID, domain.NewHost{HostID: key.HostID})
		require.NoError(t, err)
	}
	c, keys := w.ready(2)
	leave(keys[0])
	assert.Equal(t, lifecycle.Disconnected, w.state(keys[0]))
	assert.Equal(t, lifecycle.Known, w.state(keys[1]))
	assert.Equal(t, lifecycle.ClusterInsufficient, w.clusterState(c.ID))

	c, keys = w.ready(2)
	w.install(c, keys)
	w.progress(keys[0], lifecycle.StageWriting)
	leave(keys[0])
	assert.Equal(t, lifecycle.Failed, w.state(keys[0]))
	assert.Equal(t, lifecycle.ClusterFailed, w.clusterState(c.ID))
}

func TestAHostWhoseMediumCameBackIsConnectedAgain(t *testing.T) {
	w := newTestEnv(t)
	key := w.register(w.infraEnv(alice), "n1")
	for range 2 {
		require.Contains(t, w.steps(key), agentproto.StepInventory)
		require.NoError(t, w.ReportStep(t.Context(), key, agentproto.StepReply{Type: agentproto.StepInventory, ExitCode: 256}))
		require.Equal(t, lifecycle.DisconnectedUnbound, w.state(key))
		require.Contains(t, w.steps(key), agentproto.StepInventory)
		require.Equal(t, lifecycle.DisconnectedUnbound, w.state(key), "polls do not read it")
		require.NoError(t, w.ReportStep(t.Context(), key, agentproto.StepReply{Type: agentproto.StepInventory, Output: machine("n1")}))
		assert.Equal(t, lifecycle.KnownUnbound, w.state(key), "the same inventory as before says that it can be read")
		w.jump(time.Second)
	}
}

func TestTwentyBindsAtOnceHaveOneWinner(t *testing.T) {
	w := newTestEnv(t)
	key := w.register(w.infraEnv(alice), "n1")
	var clusters []string
	for range 20 {
		clusters = append(clusters, w.cluster(alice).ID)
	}
	var mu sync.Mutex
	var won []string
	conflicts := 0
	var wait sync.WaitGroup
	for _, id := range clusters {
		wait.Go(func() {
			_, err := w.BindHost(t.Context(), alice, key, id, false)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won = append(won, id)
			} else if domain.KindOf(err) == domain.Conflict {
				conflicts++
			}
		})
	}
	wait.Wait()
	require.Len(t, won, 1)
	assert.Equal(t, 19, conflicts)
	h, err := w.GetHost(t.Context(), alice, key)
	require.NoError(t, err)
	assert.Equal(t, won[0], h.ClusterID)
}
