// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/lockorder"
	"github.com/muster-io/muster/agent-service/internal/postgrestest"
	"github.com/muster-io/muster/agent-service/internal/service"
	"github.com/muster-io/muster/agent-service/internal/store"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// open opens a store until the test ends.
func open(t *testing.T, address string) *store.Store {
	t.Helper()
	db, err := store.Open(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// replicas are two services on one PostgreSQL. The clock of the second one is wrong by what apart says.
func replicas(t *testing.T, apart *atomic.Int64) (one, two *testEnv) {
	t.Helper()
	server := postgrestest.Start(t)
	one = &testEnv{t: t, now: time.Now()}
	two = &testEnv{t: t}
	for w, clock := range map[*testEnv]func() time.Time{one: one.clock, two: func() time.Time { return one.clock().Add(time.Duration(apart.Load())) }} {
		w.store = open(t, server.URL)
		w.Service = service.New(lockorder.Check(w.store), service.Options{Now: clock})
		service.Tick(t.Context(), w.Service)
	}
	return one, two
}

func TestDifferentClocksOfReplicasDisconnectNoHost(t *testing.T) {
	t.Parallel()
	var apart atomic.Int64
	one, two := replicas(t, &apart)
	e := two.infraEnv(alice)
	key, dead := two.register(e, "n1"), two.register(e, "n2")
	for _, k := range []domain.HostKey{key, dead} {
		one.steps(k)
	}
	polling := func() {
		service.Tick(t.Context(), two.Service)
		two.steps(key)
		require.Equal(t, lifecycle.KnownUnbound, two.state(key), "the clock is wrong by %s", time.Duration(apart.Load()))
	}
	for _, jump := range []time.Duration{0, -5 * time.Second, -45 * time.Second, 24 * time.Hour, -time.Hour} {
		apart.Store(int64(jump))
		one.pass(200*time.Second, polling)
	}
	assert.Equal(t, lifecycle.DisconnectedUnbound, two.state(dead))
	assert.True(t, one.Seen(key).Connected)
	assert.NotContains(t, fmt.Sprint(one.events(domain.EventFilter{InfraEnvID: e.ID, HostIDs: []string{key.HostID}, Severities: []string{domain.Warning}})), "status")
}

func TestEachReplicaSeesThatAHostIsSilentThatPolledAnother(t *testing.T) {
	t.Parallel()
	one, two := replicas(t, new(atomic.Int64))
	key := two.register(two.infraEnv(alice), "n1")
	one.pass(100*time.Second, func() {
		service.Tick(t.Context(), two.Service)
		two.steps(key)
	})
	one.pass(4 * time.Minute) // the other one is gone, and so is the host
	assert.Equal(t, lifecycle.DisconnectedUnbound, one.state(key))
}

// TestAHostThatDiesWithItsReplicaIsSeenDead is a host that polled only one replica, less than a save of heartbeats before that replica is killed.
func TestAHostThatDiesWithItsReplicaIsSeenDead(t *testing.T) {
	t.Parallel()
	const timeOut = 3*time.Minute + 10*time.Second
	one, two := replicas(t, new(atomic.Int64))
	news := one.Subscribe()
	defer news.Close()
	var listening sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer listening.Wait()
	defer cancel()
	listening.Go(func() { assert.NoError(t, service.Listen(ctx, one.Service)) })
	_, err := news.Next(t.Context())
	require.NoError(t, err, "it listens")
	service.Tick(t.Context(), one.Service)
	known := func(key domain.HostKey) {
		t.Helper()
		require.Eventually(t, func() bool {
			service.Tick(t.Context(), one.Service)
			return one.Seen(key).Connected
		}, 30*time.Second, 10*time.Millisecond)
	}

	key := two.register(two.infraEnv(alice), "n1")
	known(key)
	one.pass(timeOut) // the other one is killed, and saved nothing
	require.Equal(t, lifecycle.DisconnectedUnbound, one.state(key), "it registered at the other replica")

	two.steps(key)
	require.Equal(t, lifecycle.KnownUnbound, two.state(key))
	known(key)
	one.pass(timeOut)
	assert.Equal(t, lifecycle.DisconnectedUnbound, one.state(key), "it came back at the other replica")
}

func TestAHostThatIsBackAtOneReplicaIsBackAtAll(t *testing.T) {
	t.Parallel()
	one, two := replicas(t, new(atomic.Int64))
	c, keys := two.ready(1)
	one.steps(keys[0])
	one.pass(4*time.Minute, func() { service.Tick(t.Context(), two.Service) })
	require.Equal(t, lifecycle.Disconnected, two.state(keys[0]))
	two.steps(keys[0])
	require.Equal(t, lifecycle.Known, two.state(keys[0]))
	_, err := one.UpdateCluster(t.Context(), alice, c.ID, func(s *domain.ClusterSettings) error { s.BaseDNSDomain = "example.com"; return nil })
	require.NoError(t, err)
	one.pass(time.Second)
	assert.Equal(t, lifecycle.Known, two.state(keys[0]))
}

func TestAMachineThatAppearsElsewhereIsDisconnectedAtAllReplicas(t *testing.T) {
	t.Parallel()
	one, two := replicas(t, new(atomic.Int64))
	news := two.Subscribe()
	defer news.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { assert.NoError(t, two.Run(ctx)) })
	_, err := news.Next(t.Context())
	require.NoError(t, err, "it listens")

	_, keys := two.ready(2)
	_, err = one.RegisterHost(t.Context(), one.infraEnv(alice).ID, domain.NewHost{HostID: keys[0].HostID})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !two.Seen(keys[0]).Connected }, patience, 10*time.Millisecond)
	two.reply(keys[1], agentproto.StepNTP, 0, `{"ntp_sources":[{"source_name":"ntp.example.com","source_state":"synced"}]}`)
	assert.Equal(t, lifecycle.Disconnected, two.state(keys[0]), "a report of another host of the cluster does not bring it back")
	two.steps(keys[0])
	assert.Equal(t, lifecycle.Known, two.state(keys[0]), "a host that polls is connected")
}

func TestReplicasShareHostsAndHeartbeats(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	first := open(t, server.URL)
	one, two := run(t, first), run(t, open(t, server.URL))
	w := &testEnv{t: t, store: first, now: time.Now(), Service: one}
	e, c := w.infraEnv(alice), w.cluster(alice)
	key := w.register(e, "n1")
	w.steps(key)
	answered := make(chan service.Instructions, 1)
	go func() {
		for {
			got, err := one.NextInstructions(t.Context(), key, service.MaxHold)
			if err != nil || len(got.Steps) > 0 && strings.HasPrefix(string(got.Steps[0].Type), "inv") {
				answered <- got
				return
			}
		}
	}()
	require.Eventually(t, func() bool { return one.Held.Load() == 1 }, patience, time.Millisecond)
	h, err := two.BindHost(t.Context(), alice, key, c.ID, false)
	require.NoError(t, err)
	assert.Equal(t, c.ID, h.ClusterID)
	assert.NotEmpty(t, (<-answered).Steps, "a bind at one replica answers a poll that is held at another")
	for _, at := range []*service.Service{two, one, two} { // an agent behind a load balancer
		h, err := at.RegisterHost(t.Context(), e.ID, domain.NewHost{HostID: key.HostID, AgentVersion: "test", BootID: "1"})
		require.NoError(t, err)
		for _, other := range []*service.Service{one, two} {
			held, err := other.HoldsStamps(t.Context(), key, h.Stamps)
			require.NoError(t, err)
			assert.True(t, held, "every replica takes a token that another one made just now")
		}
	}
}

func TestAHostThatIsDeletedIsForgottenByAllReplicas(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	first := open(t, server.URL)
	one, two := run(t, first), run(t, open(t, server.URL))
	w := &testEnv{t: t, store: first, Service: one}
	e := w.infraEnv(alice)
	key := w.register(e, "n1")
	_, err := two.NextInstructions(t.Context(), key, 0)
	require.NoError(t, err)
	require.NoError(t, w.DeleteHost(t.Context(), alice, key))
	require.Eventually(t, func() bool {
		states, _ := two.Census()
		return len(states) == 0
	}, patience, 10*time.Millisecond)
}

// run runs a service on a store until the test ends.
func run(t *testing.T, db transaction.Store) *service.Service {
	t.Helper()
	s := service.New(db, service.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, s.Run(ctx)) })
	t.Cleanup(func() { cancel(); running.Wait() })
	require.Eventually(t, func() bool { return s.Ready(t.Context()) == nil }, patience, 10*time.Millisecond)
	return s
}

// TestAReplicaThatHearsNothingTrustsNoMemory is a replica whose connection for news is refused, or silent, while another one deletes hosts and revokes tokens.
func TestAReplicaThatHearsNothingTrustsNoMemory(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		begin, end func(t *testing.T, db *pgx.Conn, listening int)
	}{
		"refused": {func(t *testing.T, db *pgx.Conn, listening int) {
			execute(t, db, "ALTER ROLE other NOLOGIN")
			execute(t, db, fmt.Sprintf("SELECT pg_terminate_backend(%d)", listening))
		}, func(t *testing.T, db *pgx.Conn, _ int) { execute(t, db, "ALTER ROLE other LOGIN") }},
		"silent": {
			func(t *testing.T, _ *pgx.Conn, listening int) {
				require.NoError(t, syscall.Kill(listening, syscall.SIGSTOP))
			},
			func(t *testing.T, _ *pgx.Conn, listening int) {
				require.NoError(t, syscall.Kill(listening, syscall.SIGCONT))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := postgrestest.Start(t)
			db, err := pgx.Connect(t.Context(), server.URL)
			require.NoError(t, err)
			t.Cleanup(func() { _ = db.Close(context.WithoutCancel(t.Context())) })
			execute(t, db, "CREATE ROLE other SUPERUSER LOGIN")
			one := run(t, open(t, strings.Replace(server.URL, "postgres@", "other@", 1)))
			w := &testEnv{t: t, store: open(t, server.URL)}
			w.Service = run(t, w.store)
			e := w.infraEnv(alice)
			keys := []domain.HostKey{w.register(e, "n1"), w.register(e, "n2")}
			for _, key := range keys {
				_, err := one.NextInstructions(t.Context(), key, 0)
				require.NoError(t, err)
			}
			before, err := one.TokenGenerations(t.Context(), e.ID)
			require.NoError(t, err)

			var listening int
			require.Eventually(t, func() bool {
				return db.QueryRow(t.Context(), "SELECT pid FROM pg_stat_activity WHERE usename = 'other' AND application_name = 'agent-service listening' AND state = 'idle'").Scan(&listening) == nil
			}, patience, 10*time.Millisecond)
			test.begin(t, db, listening)
			_, err = w.RotateTokens(t.Context(), alice, e.ID, false)
			require.NoError(t, err)
			for _, key := range keys {
				require.NoError(t, w.DeleteHost(t.Context(), alice, key))
			}
			require.Eventually(t, func() bool {
				now, err := one.TokenGenerations(t.Context(), e.ID)
				_, polled := one.NextInstructions(t.Context(), keys[0], 0)
				return err == nil && now.ImageGeneration == before.ImageGeneration+1 && domain.KindOf(polled) == domain.NotFound
			}, patience, 10*time.Millisecond)
			test.end(t, db, listening)
			require.Eventually(t, func() bool {
				states, _ := one.Census()
				return len(states) == 0
			}, patience, 10*time.Millisecond, "hosts that were deleted are forgotten")
		})
	}
}

func execute(t *testing.T, db *pgx.Conn, statement string) {
	t.Helper()
	_, err := db.Exec(t.Context(), statement)
	require.NoError(t, err)
}
