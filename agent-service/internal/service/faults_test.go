// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/lockorder"
	"github.com/muster-io/muster/agent-service/internal/postgrestest"
	"github.com/muster-io/muster/agent-service/internal/service"
	"github.com/muster-io/muster/agent-service/internal/store"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

func TestASilentHostIsSeenWithinItsTimeOut(t *testing.T) {
	w := newTestEnv(t)
	e := w.infraEnv(alice)
	dead, alive := w.register(e, "dead"), w.register(e, "alive")
	w.pass(179*time.Second, func() { w.steps(alive) })
	assert.Equal(t, lifecycle.KnownUnbound, w.state(dead))
	w.pass(10*time.Second, func() { w.steps(alive) })
	assert.Equal(t, lifecycle.DisconnectedUnbound, w.state(dead))
	assert.Equal(t, lifecycle.KnownUnbound, w.state(alive))
	w.steps(dead)
	assert.Equal(t, lifecycle.KnownUnbound, w.state(dead), "it came back with what is known of it")
}

func TestABoundHostThatIsAwayIsBoundAndFreedWhenItComesBack(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.cluster(alice)
	key := w.register(w.infraEnv(alice), "n1")
	w.pass(4 * time.Minute)
	h, err := w.BindHost(t.Context(), alice, key, c.ID, false)
	require.NoError(t, err)
	assert.Equal(t, lifecycle.Binding, h.State)
	w.steps(key)
	assert.Equal(t, lifecycle.Known, w.state(key))
	w.pass(4 * time.Minute)
	assert.Equal(t, lifecycle.Disconnected, w.state(key))
	h, err = w.UnbindHost(t.Context(), alice, key)
	require.NoError(t, err)
	assert.Equal(t, lifecycle.Unbinding, h.State)
	w.pass(4 * time.Minute)
	assert.Equal(t, lifecycle.DisconnectedUnbound, w.state(key), "unbinding does not last for ever")
}

func TestJumpsOfTheClockDisconnectNoHost(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	key := w.register(w.infraEnv(alice), "n1")
	for _, jump := range []time.Duration{time.Hour, -48 * time.Hour, 24 * time.Hour} {
		w.jump(jump)
		service.Tick(t.Context(), w.Service)
		assert.Equal(t, lifecycle.KnownUnbound, w.state(key), jump)
	}
	w.steps(key)
	w.pass(170 * time.Second)
	assert.Equal(t, lifecycle.KnownUnbound, w.state(key))
}

func TestARestartRestartsTheTimeOuts(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	e := w.infraEnv(alice)
	key := w.register(e, "n1")
	w.jump(time.Hour)
	w.Service = w.restart()
	service.Tick(t.Context(), w.Service)
	assert.Equal(t, lifecycle.KnownUnbound, w.state(key))
	w.pass(170 * time.Second)
	assert.Equal(t, lifecycle.KnownUnbound, w.state(key))
	w.pass(20 * time.Second)
	assert.Equal(t, lifecycle.DisconnectedUnbound, w.state(key))
	w.Service = w.restart()
	service.Tick(t.Context(), w.Service)
	assert.Equal(t, lifecycle.DisconnectedUnbound, w.state(key))
	w.steps(key)
	assert.Equal(t, lifecycle.KnownUnbound, w.state(key))
}

func TestAHostThatReportsBeforeAllHostsAreLoadedIsNotSilent(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, keys := w.ready(2)
	w.install(c, keys)
	for _, stage := range []lifecycle.Stage{lifecycle.StageStarting, lifecycle.StageInstalling, lifecycle.StageWriting, lifecycle.StageRebooting, lifecycle.StageDone} {
		for _, key := range keys {
			w.Service = w.begin()
			w.progress(key, stage)
		}
	}
	assert.Equal(t, lifecycle.ClusterInstalled, w.clusterState(c.ID))

	bound, free := w.ready(1)
	w.Service = w.begin()
	_, err := w.UpdateCluster(t.Context(), alice, bound.ID, func(s *domain.ClusterSettings) error { s.BaseDNSDomain = "example.com"; return nil })
	require.NoError(t, err)
	_, err = w.UpdateHost(t.Context(), alice, free[0], func(s *domain.HostSettings) error { s.RequestedHostname = "other"; return nil })
	require.NoError(t, err)
	assert.Equal(t, lifecycle.Known, w.state(free[0]))
	w.Service = w.begin()
	h, err := w.UnbindHost(t.Context(), alice, free[0])
	require.NoError(t, err)
	assert.Equal(t, lifecycle.KnownUnbound, h.State)
}

func TestASilentHostWhoseAgentStartsAgainIsBack(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	_, keys := w.ready(1)
	keys = append(keys, w.register(w.infraEnv(alice), "free"))
	w.pass(4 * time.Minute)
	for i, names := range [][2]lifecycle.State{{lifecycle.Disconnected, lifecycle.Known}, {lifecycle.DisconnectedUnbound, lifecycle.KnownUnbound}} {
		require.Equal(t, names[0], w.state(keys[i]))
		_, err := w.RegisterHost(t.Context(), keys[i].InfraEnvID, domain.NewHost{HostID: keys[i].HostID, AgentVersion: "test", BootID: "1"})
		require.NoError(t, err)
		w.steps(keys[i])
		assert.Equal(t, names[1], w.state(keys[i]))
	}
}

func TestAnOutageOfTheDatabaseDisconnectsNoHost(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	db, err := store.Open(t.Context(), strings.Replace(server.URL, "postgres@", "postgres:secret@", 1))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	core, logs := observer.New(zap.InfoLevel)
	w := &testEnv{t: t, store: db, now: time.Now(), log: zap.New(core)}
	w.Service = w.restart()
	e := w.infraEnv(alice)
	key := w.register(e, "n1")
	w.pass(2 * time.Minute)
	server.Down()
	_, err = w.GetHost(t.Context(), alice, key)
	require.Equal(t, domain.Unavailable, domain.KindOf(err))
	_, err = w.RegisterHost(t.Context(), e.ID, domain.NewHost{HostID: uuid.NewString()})
	require.Equal(t, domain.Unavailable, domain.KindOf(err))
	w.pass(5 * time.Minute) // no host polls: their requests fail elsewhere, too
	server.Up()
	require.Eventually(t, func() bool { return db.Ping(t.Context()) == nil }, patience, 10*time.Millisecond)
	w.pass(20 * time.Second)
	assert.Equal(t, lifecycle.KnownUnbound, w.state(key))
	w.pass(60 * time.Second)
	assert.Equal(t, lifecycle.DisconnectedUnbound, w.state(key), "time goes on afterwards")

	away := logs.FilterMessage("the database cannot be reached or written").FilterLevelExact(zap.ErrorLevel).All()
	require.NotEmpty(t, away, "the log says why")
	for _, line := range away {
		assert.NotContains(t, line.ContextMap()["error"], "try again", "the cause is told, not the refusal")
		assert.NotContains(t, line.ContextMap()["error"], "secret")
	}
	assert.Len(t, logs.FilterMessage("the database is back").All(), len(away), "once each time")
}

func TestALargeInventoryIsBoundedAndFlagged(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	e := w.infraEnv(alice)
	key, other := w.register(e, "n1"), w.register(e, "n2")
	var inventory hardware.Inventory
	require.NoError(t, json.Unmarshal([]byte(machine("n1")), &inventory))
	for i := range 15000 {
		inventory.Disks = append(inventory.Disks, hardware.Disk{Name: fmt.Sprintf("sd%d", i), Path: fmt.Sprintf("/dev/sd%d", i), SizeBytes: 1e9, Smart: strings.Repeat("s", 300)})
	}
	large, err := json.Marshal(inventory)
	require.NoError(t, err)
	require.Greater(t, len(large), 5<<20)
	w.reply(key, agentproto.StepInventory, 0, string(large))
	h, err := w.GetHost(t.Context(), alice, key)
	require.NoError(t, err)
	assert.Equal(t, lifecycle.KnownUnbound, h.State)
	assert.Equal(t, "partial", h.Summary.Truncation)
	assert.Equal(t, 15001, h.Summary.DiskCount)
	kept, err := w.Inventory(t.Context(), alice, key)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(kept), hardware.MaxBytes)
	require.NoError(t, json.Unmarshal(kept, &inventory))
	assert.Equal(t, "partial", inventory.Truncation.Type)
	assert.Equal(t, lifecycle.KnownUnbound, w.state(other))
	err = w.ReportStep(t.Context(), key, agentproto.StepReply{Type: agentproto.StepInventory, Output: "{"})
	assert.Equal(t, domain.Invalid, domain.KindOf(err))
}

// Agents of assisted-service report all that smartctl says of each disk, with the time of day in it.
func TestWhatSmartctlSaysOfADiskEachMinuteIsNotWritten(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	key := w.register(w.infraEnv(alice), "n1")
	report := func(clock int64, passed bool) time.Time {
		var inventory hardware.Inventory
		require.NoError(t, json.Unmarshal([]byte(machine("n1")), &inventory))
		inventory.Timestamp = clock
		for i := range inventory.Disks {
			inventory.Disks[i].Smart = fmt.Sprintf(`{"local_time":{"time_t":%d},"smart_status":{"passed":%t}}`, clock, passed)
		}
		output, err := json.Marshal(inventory)
		require.NoError(t, err)
		w.reply(key, agentproto.StepInventory, 0, string(output))
		h, err := w.GetHost(t.Context(), alice, key)
		require.NoError(t, err)
		w.jump(time.Second)
		return h.InventoryAt
	}
	now := w.clock().Unix()
	first := report(now, true)
	for i := range int64(3) {
		assert.Equal(t, first, report(now+i+1, true))
	}
	assert.Greater(t, report(now+4, false), first, "a disk begins to fail")
}

func TestNamesOfTimeServersAreBounded(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	key := w.register(w.infraEnv(alice), "n1")
	w.reply(key, agentproto.StepNTP, 0, `{"ntp_sources":[{"source_name":"`+strings.Repeat("a", 6<<20)+`","source_state":"`+strings.Repeat("b", 1<<20)+`"}]}`)
	h, err := w.GetHost(t.Context(), alice, key)
	require.NoError(t, err)
	require.Len(t, h.NTPSources, 1)
	assert.Less(t, len(h.NTPSources[0].Name)+len(h.NTPSources[0].State), 300)
}

func TestALoopOfRegistrationsIsFolded(t *testing.T) {
	w := newTestEnv(t)
	key := w.register(w.infraEnv(alice), "n1")
	for range 100 {
		_, err := w.RegisterHost(t.Context(), key.InfraEnvID, domain.NewHost{HostID: key.HostID, BootID: "1"})
		require.NoError(t, err)
		require.Equal(t, lifecycle.KnownUnbound, w.state(key), "the same boot keeps what is known")
	}
	found, err := w.ListEvents(t.Context(), alice, domain.EventFilter{InfraEnvID: key.InfraEnvID})
	require.NoError(t, err)
	assert.Less(t, found.Total, 10)
}

func TestTwoLiveMachinesWithOneSerialAreReported(t *testing.T) {
	w := newTestEnv(t)
	e := w.infraEnv(alice)
	id := uuid.NewString()
	_, err := w.RegisterHost(t.Context(), e.ID, domain.NewHost{HostID: id, Fingerprint: "one"})
	require.NoError(t, err)
	_, err = w.RegisterHost(t.Context(), e.ID, domain.NewHost{HostID: id, Fingerprint: "two"})
	assert.Equal(t, "IdentityInUse", domain.ReasonOf(err))
	assert.Contains(t, w.events(domain.EventFilter{InfraEnvID: e.ID}), "host_registration_failed")
	_, err = w.RegisterHost(t.Context(), e.ID, domain.NewHost{HostID: id, Fingerprint: "one"})
	require.NoError(t, err)
}

func TestALiveMachineIsNotTakenOverWithoutItsFingerprint(t *testing.T) {
	w := newTestEnv(t)
	e, foreign := w.infraEnv(alice), w.infraEnv(alice)
	key := w.register(e, "n1")
	_, err := w.RegisterHost(t.Context(), e.ID, domain.NewHost{HostID: key.HostID, AgentVersion: "test", BootID: "1", Fingerprint: "one"})
	require.NoError(t, err, "a host without a fingerprint may send one")
	for _, infraEnv := range []*domain.InfraEnv{e, foreign} {
		_, err := w.RegisterHost(t.Context(), infraEnv.ID, domain.NewHost{HostID: key.HostID})
		assert.Equal(t, "IdentityInUse", domain.ReasonOf(err))
		assert.Contains(t, w.events(domain.EventFilter{InfraEnvID: infraEnv.ID}), "host_registration_failed")
		assert.Equal(t, lifecycle.KnownUnbound, w.state(key))
	}
	w.pass(4 * time.Minute)
	for _, infraEnv := range []*domain.InfraEnv{foreign, e} {
		_, err = w.RegisterHost(t.Context(), infraEnv.ID, domain.NewHost{HostID: key.HostID})
		require.NoError(t, err, "it was silent for too long")
	}
}

func TestTwoMachinesWithOneIDAndNoFingerprintAreNotMerged(t *testing.T) {
	w := newTestEnv(t)
	e := w.infraEnv(alice)
	key := domain.HostKey{InfraEnvID: e.ID, HostID: uuid.NewString()}
	report := func(mac string) {
		w.reply(key, agentproto.StepInventory, 0, machine("n1", func(i *hardware.Inventory) { i.Interfaces[0].MACAddress = mac }))
	}
	for _, mac := range []string{"52:54:00:00:00:01", "52:54:00:00:00:02"} { // the second one is switched on later
		_, err := w.RegisterHost(t.Context(), e.ID, domain.NewHost{HostID: key.HostID, AgentVersion: "quay.io/agent:1"})
		require.NoError(t, err)
		w.steps(key)
		report(mac)
		assert.Equal(t, lifecycle.KnownUnbound, w.state(key))
	}
	report("52:54:00:00:00:01")
	h, err := w.GetHost(t.Context(), alice, key)
	require.NoError(t, err)
	assert.Equal(t, lifecycle.InsufficientUnbound, h.State)
	assert.Contains(t, h.StateInfo, "one has network card 52:54:00:00:00:02, the other 52:54:00:00:00:01")
	assert.Equal(t, []string{"52:54:00:00:00:02"}, h.Summary.MACAddresses)
	assert.Contains(t, w.events(domain.EventFilter{InfraEnvID: e.ID}), "host_identity_in_use")
	report("52:54:00:00:00:02")
	assert.Equal(t, lifecycle.InsufficientUnbound, w.state(key), "the other one is there still")
	w.pass(6*time.Minute, func() { w.steps(key) })
	report("52:54:00:00:00:02")
	assert.Equal(t, lifecycle.KnownUnbound, w.state(key), "it was switched off")
}

// TestAMachineOfAnotherOwnerDoesNotChangeAHost registers another owner's machine with an id that is in use.
func TestAMachineOfAnotherOwnerDoesNotChangeAHost(t *testing.T) {
	w := newTestEnv(t)
	mine, foreign := w.infraEnv(alice), w.infraEnv(bob)
	kube := func(namespace string) *domain.InfraEnv {
		e, err := w.CreateInfraEnv(t.Context(), domain.Kubernetes, domain.NewInfraEnv{Name: "env", Kube: domain.KubeRef{Namespace: namespace, Name: "env"}})
		require.NoError(t, err)
		return e
	}
	for name, envs := range map[string][2]*domain.InfraEnv{"over REST": {mine, foreign}, "in another namespace": {kube("a"), kube("b")}} {
		t.Run(name, func(t *testing.T) {
			for _, fingerprint := range []string{"", "one"} {
				key := w.register(envs[0], "n1")
				_, err := w.RegisterHost(t.Context(), key.InfraEnvID, domain.NewHost{HostID: key.HostID, AgentVersion: "test", BootID: "1", Fingerprint: fingerprint})
				require.NoError(t, err)
				state := w.state(key)
				for _, other := range []string{"", "one", "two"} {
					_, err = w.RegisterHost(t.Context(), envs[1].ID, domain.NewHost{HostID: key.HostID, Fingerprint: other})
					if domain.ReasonOf(err) != "IdentityInUse" { // its own machine may be in the way there
						require.NoError(t, err, "it is not blocked either")
					}
					assert.Equal(t, state, w.state(key))
					assert.True(t, w.Seen(key).Connected)
				}
			}
		})
	}
}

func TestAThousandHostsBoundAtOnceAreEachInTheirCluster(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	e := w.infraEnv(alice)
	n := 1000
	if testing.Short() {
		n = 100
	}
	want := map[domain.HostKey]string{}
	for range n {
		want[w.register(e, "n1")] = w.cluster(alice).ID
	}
	var wait sync.WaitGroup
	for key, cluster := range want {
		wait.Go(func() {
			_, err := w.BindHost(t.Context(), alice, key, cluster, false)
			assert.NoError(t, err)
		})
	}
	wait.Wait()
	hosts, err := w.ListHosts(t.Context(), alice, domain.HostFilter{Page: domain.Page{Limit: n}})
	require.NoError(t, err)
	require.Len(t, hosts.Items, n)
	for _, h := range hosts.Items {
		assert.Equal(t, want[h.HostKey], h.ClusterID)
		assert.Equal(t, lifecycle.Known, h.State)
	}
}

func TestHeartbeatsCostHardlyAnyStatements(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	e := w.infraEnv(alice)
	var keys []domain.HostKey
	for range 100 {
		keys = append(keys, w.register(e, "n"+uuid.NewString()))
	}
	for _, key := range keys {
		w.steps(key)
	}
	before, polls := w.store.Statements.Load(), w.Polls.Load()
	for range 5 {
		w.pass(time.Minute)
		for _, key := range keys {
			w.steps(key)
		}
	}
	assert.Less(t, float64(w.store.Statements.Load()-before)/float64(w.Polls.Load()-polls), 0.1)
}

func TestForbiddenObjectsAnswerLikeUnknownOnes(t *testing.T) {
	w := newTestEnv(t)
	e, c := w.infraEnv(alice), w.cluster(alice)
	key := w.register(e, "n1")
	unknown := uuid.NewString()
	same := func(forbidden, missing error, id string) {
		t.Helper()
		require.Equal(t, domain.NotFound, domain.KindOf(forbidden))
		assert.Equal(t, strings.ReplaceAll(missing.Error(), unknown, id), forbidden.Error())
	}
	_, forbidden := w.GetInfraEnv(t.Context(), bob, e.ID)
	_, missing := w.GetInfraEnv(t.Context(), bob, unknown)
	same(forbidden, missing, e.ID)
	_, forbidden = w.GetHost(t.Context(), bob, key)
	_, missing = w.GetHost(t.Context(), bob, domain.HostKey{InfraEnvID: e.ID, HostID: unknown})
	same(forbidden, missing, key.HostID)
	_, forbidden = w.GetCluster(t.Context(), bob, c.ID)
	_, missing = w.GetCluster(t.Context(), bob, unknown)
	same(forbidden, missing, c.ID)
	mine := w.cluster(bob)
	_, err := w.BindHost(t.Context(), bob, key, mine.ID, false)
	assert.Equal(t, domain.NotFound, domain.KindOf(err))
	_, err = w.BindHost(t.Context(), alice, key, mine.ID, false)
	assert.Equal(t, domain.NotFound, domain.KindOf(err))
	_, err = w.ListEvents(t.Context(), bob, domain.EventFilter{InfraEnvID: e.ID})
	assert.Equal(t, domain.NotFound, domain.KindOf(err))
	hosts, err := w.ListHosts(t.Context(), bob, domain.HostFilter{})
	require.NoError(t, err)
	assert.Empty(t, hosts.Items)
	h, err := w.GetHost(t.Context(), alice, key)
	require.NoError(t, err)
	assert.Equal(t, domain.Owner{User: "alice", Organization: "a"}, h.Owner, "hosts inherit the owner")
}

func TestSettingsAreClearedAsWellAsSet(t *testing.T) {
	w := newTestEnv(t)
	e := w.infraEnv(alice)
	set, err := w.UpdateInfraEnv(t.Context(), alice, e.ID, func(s *domain.InfraEnvSettings) error { s.SSHAuthorizedKey = "ssh"; return nil })
	require.NoError(t, err)
	same, err := w.UpdateInfraEnv(t.Context(), alice, e.ID, func(s *domain.InfraEnvSettings) error { s.SSHAuthorizedKey = "ssh"; return nil })
	require.NoError(t, err)
	assert.Equal(t, set.ImageUpdatedAt.UTC(), same.ImageUpdatedAt.UTC(), "without a change the image stays")
	cleared, err := w.UpdateInfraEnv(t.Context(), alice, e.ID, func(s *domain.InfraEnvSettings) error { s.SSHAuthorizedKey = ""; return nil })
	require.NoError(t, err)
	assert.Empty(t, cleared.SSHAuthorizedKey)
	_, err = w.UpdateInfraEnv(t.Context(), alice, e.ID, func(s *domain.InfraEnvSettings) error { s.ClusterID = "x"; return nil })
	assert.Equal(t, "ClusterImmutable", domain.ReasonOf(err))
}

func TestTokensOfImagesAreRevokedAtOnce(t *testing.T) {
	w := newTestEnv(t)
	e := w.infraEnv(alice)
	before, err := w.TokenGenerations(t.Context(), e.ID)
	require.NoError(t, err)
	_, err = w.RotateTokens(t.Context(), alice, e.ID, false)
	require.NoError(t, err)
	after, err := w.TokenGenerations(t.Context(), e.ID)
	require.NoError(t, err)
	assert.Equal(t, before.ImageGeneration+1, after.ImageGeneration)
	assert.Equal(t, before.HostGeneration, after.HostGeneration, "running hosts keep working")
}

func TestAnInfraEnvWaitsForItsBoundHosts(t *testing.T) {
	w := newTestEnv(t)
	e, c := w.infraEnv(alice), w.cluster(alice)
	key := w.register(e, "n1")
	_, err := w.BindHost(t.Context(), alice, key, c.ID, false)
	require.NoError(t, err)
	require.Equal(t, "HostsBound", domain.ReasonOf(w.DeleteInfraEnv(t.Context(), alice, e.ID, false)))
	require.NoError(t, w.DeleteInfraEnv(t.Context(), alice, e.ID, true))
	_, err = w.GetHost(t.Context(), alice, key)
	assert.Equal(t, domain.NotFound, domain.KindOf(err))
	_, err = w.NextInstructions(t.Context(), key, 0)
	assert.Equal(t, domain.NotFound, domain.KindOf(err))
	assert.Equal(t, lifecycle.ClusterInsufficient, w.clusterState(c.ID))
}

// TestAnInfraEnvWithManyHostsIsDeletedInBoundedTransactions is one with more hosts than a transaction deletes, some of them bound.
func TestAnInfraEnvWithManyHostsIsDeletedInBoundedTransactions(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]func() string{
		"SQLite": func() string { return filepath.Join(t.TempDir(), "agents.db") }, "PostgreSQL": func() string { return postgrestest.Start(t).URL },
	} {
		t.Run(name, func(t *testing.T) {
			db := open(t, address())
			w := &testEnv{t: t, store: db, now: time.Now()}
			counted := &deletions{Store: lockorder.Check(db)}
			w.Service = service.New(counted, service.Options{Now: w.clock})
			service.Tick(t.Context(), w.Service)
			e, c := w.infraEnv(alice), w.cluster(alice)
			const hosts = 1000
			for from := range hosts / 100 {
				require.NoError(t, db.Update(t.Context(), func(ctx context.Context, tx transaction.Tx) error {
					for i := 100 * from; i < 100*(from+1); i++ {
						h := &domain.Host{HostKey: domain.HostKey{InfraEnvID: e.ID, HostID: uuid.NewString()}, Owner: e.Owner, State: lifecycle.KnownUnbound, CreatedAt: w.now}
						if i%100 == 0 {
							h.State, h.ClusterID = lifecycle.Known, c.ID
						}
						if err := tx.PutHost(ctx, h); err != nil {
							return err
						}
					}
					return nil
				}))
			}
			require.Equal(t, "HostsBound", domain.ReasonOf(w.DeleteInfraEnv(t.Context(), alice, e.ID, false)))
			before := db.Statements.Load()
			require.NoError(t, w.DeleteInfraEnv(t.Context(), alice, e.ID, true))
			assert.Less(t, db.Statements.Load()-before, int64(hosts/4), "statements do not grow with each host")
			deleted := 0
			for _, rows := range counted.rows {
				assert.LessOrEqual(t, rows, 200, "a transaction deletes a bounded number of hosts")
				deleted += rows
			}
			assert.Equal(t, hosts, deleted)
			assert.GreaterOrEqual(t, len(counted.rows), 5)
			left, err := w.ListHosts(t.Context(), admin, domain.HostFilter{InfraEnvID: e.ID})
			require.NoError(t, err)
			assert.Zero(t, left.Total)
			_, err = w.GetInfraEnv(t.Context(), alice, e.ID)
			assert.Equal(t, domain.NotFound, domain.KindOf(err))
		})
	}
}

func TestAnInfraEnvThatIsBeingDeletedTakesNoHosts(t *testing.T) {
	w := newTestEnv(t)
	e := w.infraEnv(alice)
	require.NoError(t, w.store.Update(t.Context(), func(ctx context.Context, tx transaction.Tx) error {
		marked, err := tx.InfraEnv(ctx, e.ID)
		require.NoError(t, err)
		marked.Deleting = true
		return tx.PutInfraEnv(ctx, marked)
	}))
	_, err := w.RegisterHost(t.Context(), e.ID, domain.NewHost{HostID: uuid.NewString()})
	assert.Equal(t, "InfraEnvDeleting", domain.ReasonOf(err))
	w.Service = w.restart()
	_, err = w.GetInfraEnv(t.Context(), alice, e.ID)
	assert.Equal(t, domain.NotFound, domain.KindOf(err), "a begun deletion ends after a restart")
}

func TestAClusterThatGoesFreesItsHosts(t *testing.T) {
	w := newTestEnv(t)
	c, keys := w.ready(2)
	require.NoError(t, w.DeleteCluster(t.Context(), alice, c.ID, false))
	for _, key := range keys {
		assert.Equal(t, lifecycle.KnownUnbound, w.state(key))
	}
}

func TestSubscriptionsHearEveryChangeOnce(t *testing.T) {
	w := newTestEnv(t)
	sub := w.Subscribe()
	defer sub.Close()
	e := w.infraEnv(alice)
	key := w.register(e, "n1")
	changes, err := sub.Next(t.Context())
	require.NoError(t, err)
	assert.ElementsMatch(t, []domain.Change{
		{Kind: domain.InfraEnvChanged, ID: e.ID}, {Kind: domain.HostChanged, Host: key, ID: e.ID},
	}, changes)
}

func TestSubscriptionsHearOfEventsThatChangeNothingElse(t *testing.T) {
	w := newTestEnv(t)
	e := w.infraEnv(alice)
	key := w.register(e, "n1")
	_, err := w.RegisterHost(t.Context(), e.ID, domain.NewHost{HostID: key.HostID, Fingerprint: "one"})
	require.NoError(t, err)
	sub := w.Subscribe()
	defer sub.Close()
	for name, tell := range map[string]func() error{
		"it is reported": func() error {
			return w.ReportEvent(t.Context(), key, domain.Event{Name: "n", Severity: domain.Info, Message: "m"})
		},
		"a registration is refused": func() error {
			_, err := w.RegisterHost(t.Context(), e.ID, domain.NewHost{HostID: key.HostID, Fingerprint: "two"})
			assert.Equal(t, "IdentityInUse", domain.ReasonOf(err))
			return nil
		},
	} {
		require.NoError(t, tell(), name)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		changes, err := sub.Next(ctx)
		cancel()
		require.NoError(t, err, name)
		assert.Equal(t, []domain.Change{{Kind: domain.EventAdded}}, changes, name)
	}
}

func TestAnEventIsKeptAsItWasReported(t *testing.T) {
	w := newTestEnv(t)
	key := w.register(w.infraEnv(alice), "n1")
	at := w.clock()
	w.jump(time.Hour)
	for _, event := range []domain.Event{
		{Name: "disk", Severity: domain.Warning, Message: "slow", Category: "metrics", Props: json.RawMessage(`{"ms":7}`), At: at.Add(time.Minute)},
		{Name: "disk", Severity: domain.Warning, Message: "slow", Props: json.RawMessage(`{"ms":8}`), At: w.clock().Add(24 * time.Hour)},
	} {
		require.NoError(t, w.ReportEvent(t.Context(), key, event))
	}
	found, err := w.ListEvents(t.Context(), alice, domain.EventFilter{InfraEnvID: key.InfraEnvID, Severities: []string{domain.Warning}})
	require.NoError(t, err)
	require.Len(t, found.Items, 2)
	first, second := found.Items[0], found.Items[1]
	assert.Equal(t, "metrics", first.Category)
	assert.JSONEq(t, `{"ms":7}`, string(first.Props))
	assert.WithinDuration(t, at.Add(time.Minute), first.LastAt, time.Millisecond)
	assert.Equal(t, "user", second.Category)
	assert.JSONEq(t, `{"ms":8}`, string(second.Props))
	assert.WithinDuration(t, w.clock(), second.LastAt, time.Millisecond, "an event of the future gets the present time")
	for _, refused := range []domain.Event{
		{Name: "n", Severity: domain.Info, Message: "m", Category: "other"},
		{Name: "n", Severity: domain.Info, Message: "m", Props: json.RawMessage(`"` + strings.Repeat("x", 64<<10) + `"`)},
	} {
		assert.Equal(t, domain.Invalid, domain.KindOf(w.ReportEvent(t.Context(), key, refused)))
	}
}

func TestEventsThatAHostReportsAreBounded(t *testing.T) {
	w := newTestEnv(t)
	e := w.infraEnv(alice)
	key, other := w.register(e, "n1"), w.register(e, "n2")
	report := func(key domain.HostKey, name string) error {
		return w.ReportEvent(t.Context(), key, domain.Event{Name: name, Severity: domain.Info, Message: name})
	}
	for _, name := range []string{"host_status_updated", "Host_bind_succeeded", "cluster_status_updated", "infra_env_deregistered", "image_info_updated"} {
		assert.Equal(t, "EventReserved", domain.ReasonOf(report(key, name)), "the service's own")
	}
	for i := range 30 {
		require.NoError(t, report(key, "n"+strconv.Itoa(i)))
	}
	refused := report(key, "one more")
	assert.Equal(t, domain.TooMany, domain.KindOf(refused))
	var refusal *domain.Error
	require.ErrorAs(t, refused, &refusal)
	assert.Positive(t, refusal.RetryAfter)
	require.NoError(t, report(other, "n"), "other hosts may")
	w.jump(refusal.RetryAfter)
	require.NoError(t, report(key, "one more"))
	require.Error(t, report(key, "and another"))
}

func TestEventsAreKeptForATime(t *testing.T) {
	w := newTestEnv(t)
	w.EventRetention = 24 * time.Hour
	e := w.infraEnv(alice)
	w.register(e, "n1")
	w.jump(25 * time.Hour)
	w.register(e, "n2")
	before := len(w.events(domain.EventFilter{InfraEnvID: e.ID}))
	w.pass(2 * time.Minute)
	after := w.events(domain.EventFilter{InfraEnvID: e.ID})
	assert.Less(t, len(after), before)
	assert.Contains(t, after, "host_registration_succeeded", "of the host that registered last")
	assert.NotContains(t, after, "infra_env_registered", "it is too long ago")
	w.EventRetention = 0
	w.jump(1000 * time.Hour)
	w.pass(2 * time.Minute)
	assert.Contains(t, w.events(domain.EventFilter{InfraEnvID: e.ID}), "host_registration_succeeded")
}

// TestAHostThatIsDeletedWhileItChangesIsGone is a change and a deletion at once: whichever comes first, nothing remembers the host.
func TestAHostThatIsDeletedWhileItChangesIsGone(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	e := w.infraEnv(alice)
	var keys []domain.HostKey
	for i := range 100 {
		keys = append(keys, w.register(e, "n"+strconv.Itoa(i)))
	}
	var wait sync.WaitGroup
	for _, key := range keys {
		wait.Go(func() {
			_, err := w.UpdateHost(t.Context(), alice, key, func(s *domain.HostSettings) error { s.RequestedHostname = "other"; return nil })
			if err != nil {
				assert.Equal(t, domain.NotFound, domain.KindOf(err))
			}
		})
		wait.Go(func() { assert.NoError(t, w.DeleteHost(t.Context(), alice, key)) })
	}
	wait.Wait()
	for _, key := range keys {
		_, err := w.NextInstructions(t.Context(), key, 0)
		assert.Equal(t, domain.NotFound, domain.KindOf(err), "the agent registers again")
	}
}

// late is a store that shows what it committed when it is told to, as a goroutine that is kept from going on does.
type late struct {
	transaction.Store
	show func()
}

type lateTx struct {
	transaction.Tx
	store *late
}

func (s *late) Update(ctx context.Context, do func(context.Context, transaction.Tx) error) error {
	return s.Store.Update(ctx, func(ctx context.Context, tx transaction.Tx) error { return do(ctx, lateTx{tx, s}) })
}

func (tx lateTx) AfterCommit(do func()) { tx.store.show = do }

// TestAChangeThatIsShownLateBringsNoHostBack is a change that is shown after a deletion that was committed after it, as can be where several write.
func TestAChangeThatIsShownLateBringsNoHostBack(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	key := w.register(w.infraEnv(alice), "n1")
	slow := &late{Store: w.store}
	s := service.New(slow, service.Options{Now: w.clock})
	service.Tick(t.Context(), s)
	_, err := s.UpdateHost(t.Context(), alice, key, func(settings *domain.HostSettings) error { settings.RequestedHostname = "other"; return nil })
	require.NoError(t, err)
	changed := slow.show
	require.NoError(t, s.DeleteHost(t.Context(), alice, key))
	slow.show()
	changed()
	_, err = s.NextInstructions(t.Context(), key, 0)
	assert.Equal(t, domain.NotFound, domain.KindOf(err), "the agent registers again")
}

func TestMachinesOfAnInfraEnvThatMayComeBackTryAgain(t *testing.T) {
	w := newTestEnv(t)
	w.Service = service.New(w.store, service.Options{Now: w.clock, RestoreTime: time.Minute})
	lost := uuid.NewString()
	for _, when := range []string{"before anything is loaded", "after that"} {
		_, err := w.TokenGenerations(t.Context(), lost)
		assert.Equal(t, domain.Unavailable, domain.KindOf(err), when)
		service.Tick(t.Context(), w.Service)
	}
	assert.False(t, w.StoreAway(), "the database is available")
	w.pass(61 * time.Second)
	_, err := w.TokenGenerations(t.Context(), lost)
	assert.Equal(t, domain.NotFound, domain.KindOf(err), "the host was not restored")
}
