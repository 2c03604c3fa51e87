// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/postgrestest"
	"github.com/muster-io/muster/agent-service/internal/store"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

var admin = domain.Scope{Principal: domain.Principal{Admin: true}}

// TestContract is what both databases keep.
func TestContract(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) {
		contract(t, func(t *testing.T) string { return filepath.Join(t.TempDir(), "a b?.db") })
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		server := postgrestest.Start(t)
		contract(t, func(t *testing.T) string {
			db, err := store.Open(t.Context(), server.URL)
			require.NoError(t, err)
			require.NoError(t, db.Wipe(t.Context()))
			require.NoError(t, db.Close())
			return server.URL
		})
	})
}

func contract(t *testing.T, address func(t *testing.T) string) {
	for name, test := range map[string]func(t *testing.T, s *store.Store, address string){
		"objects are kept whole":                      keepsObjects,
		"a host is known by InfraEnv and id":          keysOfHosts,
		"a failed transaction leaves nothing":         rollsBack,
		"the slower update runs again":                runsAgain,
		"a cancelled caller is the cause":             endsWithItsCaller,
		"each is undone alone":                        undoesEachAlone,
		"a cancelled update waits no longer":          waitsNoLongerThanItsCaller,
		"events are folded, scoped and searched":      foldsEvents,
		"events are seen in their order":              followsEvents,
		"an event that is repeated is seen once":      followsRepetitions,
		"old events are deleted in parts":             prunesEvents,
		"a host reports so many events":               trimsEvents,
		"lists are owned and paged":                   ownsLists,
		"hosts are chosen by labels":                  choosesByLabels,
		"clusters are found by name and state":        findsClusters,
		"files go with their cluster":                 keepsFiles,
		"heartbeats are saved in few statements":      savesHeartbeats,
		"a second process finds everything":           opensAgain,
		"a later version's database is refused":       refusesLater,
		"a known object is not read again":            recalls,
		"what is known is what is stored":             recallsWhatIsStored,
		"an owner of objects cannot be deleted first": refusesOrphans,
	} {
		t.Run(name, func(t *testing.T) {
			where := address(t)
			s, err := store.Open(t.Context(), where)
			require.NoError(t, err)
			defer s.Close() //nolint:errcheck // the test is over
			test(t, s, where)
		})
	}
}

func update(t *testing.T, s *store.Store, do func(ctx context.Context, tx transaction.Tx)) {
	t.Helper()
	require.NoError(t, s.Update(t.Context(), func(ctx context.Context, tx transaction.Tx) error {
		do(ctx, tx)
		return nil
	}))
}

func infraEnv(owner domain.Owner) *domain.InfraEnv {
	return &domain.InfraEnv{
		ID: uuid.NewString(), Name: "e", Owner: owner, CreatedAt: time.Now(), InfraEnvSettings: domain.InfraEnvSettings{PullSecret: "s", AgentLabels: map[string]string{"a": "b"}},
	}
}

func host(e *domain.InfraEnv) *domain.Host {
	return &domain.Host{
		HostKey: domain.HostKey{InfraEnvID: e.ID, HostID: uuid.NewString()}, Owner: e.Owner, State: lifecycle.KnownUnbound, CreatedAt: time.Now(),
		HostSettings: domain.HostSettings{Role: "worker", NodeLabels: map[string]string{"x": "y"}, NodeTaints: []domain.Taint{{Key: "x", Effect: "NoExecute"}}},
	}
}

// A program of a former version starts no work on what it would misread, and loses nothing of it.
func refusesLater(t *testing.T, s *store.Store, address string) {
	e := infraEnv(domain.Owner{User: "u"})
	update(t, s, func(ctx context.Context, tx transaction.Tx) { require.NoError(t, tx.PutInfraEnv(ctx, e)) })
	require.NoError(t, s.ChangeAsLaterVersion(t.Context(), 1000))
	_, err := store.Open(t.Context(), address)
	require.ErrorContains(t, err, "start the later version, or restore the backup of before the upgrade")
	assert.Empty(t, domain.KindOf(err), "nothing to wait for")
	require.NoError(t, s.ChangeAsLaterVersion(t.Context(), 1))
	again, err := store.Open(t.Context(), address)
	require.NoError(t, err)
	defer again.Close() //nolint:errcheck // the test is over
	require.NoError(t, again.View(t.Context(), func(ctx context.Context, r transaction.Reader) error {
		got, err := r.InfraEnv(ctx, e.ID)
		require.NoError(t, err)
		assert.Equal(t, e.InfraEnvSettings, got.InfraEnvSettings)
		return nil
	}))
}

func keepsObjects(t *testing.T, s *store.Store, _ string) {
	e := infraEnv(domain.Owner{User: "u"})
	c := &domain.Cluster{ID: uuid.NewString(), Name: "c", CreatedAt: time.Now(), ClusterSettings: domain.ClusterSettings{MachineNetworks: []string{"192.0.2.0/24"}}}
	h := host(e)
	h.ClusterID = c.ID
	update(t, s, func(ctx context.Context, tx transaction.Tx) {
		require.NoError(t, tx.PutInfraEnv(ctx, e))
		require.NoError(t, tx.PutCluster(ctx, c))
		require.NoError(t, tx.PutHost(ctx, h))
		require.NoError(t, tx.PutInventory(ctx, h.HostKey, []byte(`{"a":1}`)))
		require.NoError(t, tx.PutInventory(ctx, h.HostKey, []byte(`{"a":2}`)))
	})
	require.NoError(t, s.View(t.Context(), func(ctx context.Context, r transaction.Reader) error {
		gotE, err := r.InfraEnv(ctx, e.ID)
		require.NoError(t, err)
		assert.Equal(t, e.InfraEnvSettings, gotE.InfraEnvSettings)
		gotC, err := r.Cluster(ctx, c.ID)
		require.NoError(t, err)
		assert.Equal(t, c.ClusterSettings, gotC.ClusterSettings)
		gotH, err := r.Host(ctx, h.HostKey)
		require.NoError(t, err)
		assert.Equal(t, h.HostSettings, gotH.HostSettings)
		assert.Equal(t, int64(1), gotH.Revision)
		inventory, err := r.Inventory(ctx, h.HostKey)
		require.NoError(t, err)
		assert.JSONEq(t, `{"a":2}`, string(inventory))
		without := domain.HostKey{InfraEnvID: e.ID, HostID: uuid.NewString()}
		inventories, err := r.Inventories(ctx, []domain.HostKey{h.HostKey, without, {InfraEnvID: uuid.NewString(), HostID: h.HostID}})
		require.NoError(t, err)
		assert.Equal(t, map[domain.HostKey][]byte{h.HostKey: []byte(`{"a":2}`)}, inventories)
		members, err := r.HostsOfCluster(ctx, c.ID)
		require.NoError(t, err)
		assert.Len(t, members, 1)
		several, err := r.HostsByKey(ctx, []domain.HostKey{h.HostKey, without})
		require.NoError(t, err)
		require.Len(t, several, 1)
		assert.Equal(t, h.HostKey, several[0].HostKey)
		missing, err := r.Host(ctx, domain.HostKey{InfraEnvID: e.ID, HostID: "none"})
		require.NoError(t, err)
		assert.Nil(t, missing)
		return nil
	}))
}

func keysOfHosts(t *testing.T, s *store.Store, _ string) {
	one, two := infraEnv(domain.Owner{}), infraEnv(domain.Owner{})
	first := host(one)
	second := host(two)
	second.HostID = first.HostID
	update(t, s, func(ctx context.Context, tx transaction.Tx) {
		require.NoError(t, tx.PutInfraEnv(ctx, one))
		require.NoError(t, tx.PutInfraEnv(ctx, two))
		require.NoError(t, tx.PutHost(ctx, first))
		require.NoError(t, tx.PutHost(ctx, second))
	})
	update(t, s, func(ctx context.Context, tx transaction.Tx) { require.NoError(t, tx.DeleteHosts(ctx, first.HostKey)) })
	require.NoError(t, s.View(t.Context(), func(ctx context.Context, r transaction.Reader) error {
		same, err := r.SameMachine(ctx, first.HostID, domain.Owner{}, "")
		require.NoError(t, err)
		require.Len(t, same, 1)
		assert.Equal(t, two.ID, same[0].InfraEnvID)
		return nil
	}))
}

func rollsBack(t *testing.T, s *store.Store, _ string) {
	e := infraEnv(domain.Owner{})
	stop := errors.New("stop")
	err := s.Update(t.Context(), func(ctx context.Context, tx transaction.Tx) error {
		require.NoError(t, tx.PutInfraEnv(ctx, e))
		require.NoError(t, tx.AddEvent(ctx, domain.Event{Name: "n", InfraEnvID: e.ID, At: time.Now(), ForInfraEnv: true}))
		return stop
	})
	require.ErrorIs(t, err, stop)
	require.NoError(t, s.View(t.Context(), func(ctx context.Context, r transaction.Reader) error {
		got, err := r.InfraEnv(ctx, e.ID)
		require.NoError(t, err)
		assert.Nil(t, got)
		events, err := r.Events(ctx, domain.EventFilter{InfraEnvID: e.ID})
		require.NoError(t, err)
		assert.Empty(t, events.Items)
		return nil
	}))
}

func endsWithItsCaller(t *testing.T, s *store.Store, _ string) {
	e := infraEnv(domain.Owner{})
	ctx, cancel := context.WithCancel(t.Context())
	err := s.Update(ctx, func(ctx context.Context, tx transaction.Tx) error {
		require.NoError(t, tx.PutInfraEnv(ctx, e))
		cancel()
		for range 1000 {
			if _, err := tx.InfraEnv(context.WithoutCancel(ctx), e.ID); err != nil {
				return nil //nolint:nilerr // the transaction has been rolled back already: its commit is what is looked at
			}
		}
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	isThere(t, s, false, e)
}

// memory is one object of each kind, as a service remembers them.
type memory struct {
	infraEnv *domain.InfraEnv
	cluster  *domain.Cluster
	host     *domain.Host
}

func (m memory) KnownInfraEnv(string) *domain.InfraEnv     { return m.infraEnv }
func (m memory) KnownCluster(string) *domain.Cluster       { return m.cluster }
func (m memory) KnownHost(key domain.HostKey) *domain.Host { return m.host }

// recalls shows that an object comes from memory, where it is marked, only while that is what is stored.
func recalls(t *testing.T, s *store.Store, _ string) {
	m := memory{infraEnv: infraEnv(domain.Owner{}), cluster: &domain.Cluster{ID: uuid.NewString(), Name: "c", CreatedAt: time.Now()}}
	m.host = host(m.infraEnv)
	m.host.ClusterID = m.cluster.ID
	update(t, s, func(ctx context.Context, tx transaction.Tx) {
		require.NoError(t, tx.PutInfraEnv(ctx, m.infraEnv))
		require.NoError(t, tx.PutCluster(ctx, m.cluster))
		require.NoError(t, tx.PutHost(ctx, m.host))
	})
	m.infraEnv.Name, m.cluster.Name, m.host.Fingerprint = "in memory", "in memory", "in memory"
	read := func() (names [4]string) {
		update(t, s, func(ctx context.Context, tx transaction.Tx) {
			tx.Recall(m)
			e, err := tx.InfraEnv(ctx, m.infraEnv.ID)
			require.NoError(t, err)
			c, err := tx.Cluster(ctx, m.cluster.ID)
			require.NoError(t, err)
			h, err := tx.Host(ctx, m.host.HostKey)
			require.NoError(t, err)
			members, err := tx.HostsOfCluster(ctx, m.cluster.ID)
			require.NoError(t, err)
			require.Len(t, members, 1)
			names = [4]string{e.Name, c.Name, h.Fingerprint, members[0].Fingerprint}
			assert.NotSame(t, m.infraEnv, e, "a caller may change what it reads")
			assert.NotSame(t, m.cluster, c)
			assert.NotSame(t, m.host, h)
			assert.Equal(t, members[0].Fingerprint == "in memory", m.host == members[0], "members are shared with memory")
		})
		return names
	}
	view := func() (name string) {
		require.NoError(t, s.View(t.Context(), func(ctx context.Context, r transaction.Reader) error {
			r.Recall(m)
			h, err := r.Host(ctx, m.host.HostKey)
			name = h.Fingerprint
			assert.NotSame(t, m.host, h)
			return err
		}))
		return name
	}
	known, stored := [4]string{"in memory", "in memory", "in memory", "in memory"}, [4]string{"e", "c", "", ""}
	assert.Equal(t, known, read())
	assert.Equal(t, "in memory", view())
	m.infraEnv.Revision, m.cluster.Revision, m.host.Revision = 7, 7, 7
	assert.Equal(t, stored, read(), "of another revision")
	assert.Empty(t, view(), "of another revision")
	m.infraEnv.Revision, m.cluster.Revision, m.host.Revision = 1, 1, 1
	assert.Equal(t, known, read())
	m.infraEnv.CreatedAt, m.cluster.CreatedAt, m.host.CreatedAt = time.Unix(1, 0), time.Unix(1, 0), time.Unix(1, 0)
	assert.Equal(t, stored, read(), "of another object with the same id")
}

// committed is what updates left, as a service remembers it.
type committed struct {
	mu       sync.Mutex
	clusters map[string]*domain.Cluster
	hosts    map[domain.HostKey]*domain.Host
}

func (m *committed) KnownInfraEnv(string) *domain.InfraEnv { return nil }

func (m *committed) KnownCluster(id string) *domain.Cluster {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clusters[id]
}

func (m *committed) KnownHost(key domain.HostKey) *domain.Host {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hosts[key]
}

// recallsWhatIsStored is many updates at once of few hosts that come, go and change their clusters. Some updates are undone. Each finds with what is in memory what it
// finds without.
func recallsWhatIsStored(t *testing.T, s *store.Store, _ string) {
	m := &committed{clusters: map[string]*domain.Cluster{}, hosts: map[domain.HostKey]*domain.Host{}}
	e := infraEnv(domain.Owner{})
	var clusters []string
	var keys []domain.HostKey
	update(t, s, func(ctx context.Context, tx transaction.Tx) {
		require.NoError(t, tx.PutInfraEnv(ctx, e))
		for range 3 {
			c := &domain.Cluster{ID: uuid.NewString(), Name: "c", CreatedAt: time.Now()}
			clusters = append(clusters, c.ID)
			require.NoError(t, tx.PutCluster(ctx, c))
		}
	})
	for range 6 {
		keys = append(keys, host(e).HostKey)
	}
	look := func(ctx context.Context, tx transaction.Tx) (seen []string) {
		say := func(h *domain.Host, err error) {
			require.NoError(t, err)
			if h != nil {
				seen = append(seen, fmt.Sprintf("host %s in %s: %d %s", h.HostID, h.ClusterID, h.Revision, h.Fingerprint))
			}
		}
		for _, id := range clusters {
			c, err := tx.Cluster(ctx, id)
			require.NoError(t, err)
			members, err := tx.HostsOfCluster(ctx, id)
			seen = append(seen, fmt.Sprintf("cluster %s: %d %s", c.ID, c.Revision, c.Name))
			for _, h := range members {
				say(h, err)
			}
		}
		for _, key := range keys {
			say(tx.Host(ctx, key))
		}
		return seen
	}
	stop := errors.New("stop")
	change := func(ctx context.Context, tx transaction.Tx, n int) error {
		require.NoError(t, tx.LockClusters(ctx, clusters...))
		compare := func() {
			tx.Recall(m)
			known := look(ctx, tx)
			tx.Recall(nil)
			require.Equal(t, look(ctx, tx), known)
			tx.Recall(m)
		}
		compare()
		key, what := keys[n%len(keys)], fmt.Sprint(n)
		h, err := tx.Host(ctx, key)
		require.NoError(t, err)
		c, err := tx.Cluster(ctx, clusters[n%len(clusters)])
		require.NoError(t, err)
		c.Name = what
		require.NoError(t, tx.PutCluster(ctx, c))
		if h != nil && n%5 == 0 {
			require.NoError(t, tx.DeleteHosts(ctx, key))
			h = nil
		} else {
			if h == nil {
				h = host(e)
				h.HostKey = key
			}
			h.Fingerprint, h.ClusterID = what, append(slices.Clone(clusters), "")[n/7%4]
			require.NoError(t, tx.PutHost(ctx, h))
		}
		compare()
		if n%3 == 0 {
			return stop
		}
		tx.AfterCommit(func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.hosts[key], m.clusters[c.ID] = h, c
		})
		return nil
	}
	var wait sync.WaitGroup
	for worker := range 4 {
		wait.Go(func() {
			for i := range 60 {
				n := (worker*60 + i) * 7919 % 1009
				err := s.Update(t.Context(), func(ctx context.Context, tx transaction.Tx) error { return change(ctx, tx, n) })
				if n%3 == 0 {
					assert.ErrorIs(t, err, stop)
				} else {
					assert.NoError(t, err)
				}
			}
		})
	}
	wait.Wait()
}

// isThere looks for InfraEnvs.
func isThere(t *testing.T, s *store.Store, want bool, envs ...*domain.InfraEnv) {
	t.Helper()
	require.NoError(t, s.View(t.Context(), func(ctx context.Context, r transaction.Reader) error {
		for _, e := range envs {
			got, err := r.InfraEnv(ctx, e.ID)
			require.NoError(t, err)
			assert.Equal(t, want, got != nil)
		}
		return nil
	}))
}

// undoesEachAlone is many updates at once, some of which fail, panic, end their goroutine, or are given up.
func undoesEachAlone(t *testing.T, s *store.Store, _ string) {
	stop := errors.New("stop")
	ends := []func(cancel context.CancelFunc) error{
		func(context.CancelFunc) error { return nil },
		func(context.CancelFunc) error { return stop },
		func(context.CancelFunc) error { panic(stop) },
		func(context.CancelFunc) error { runtime.Goexit(); return nil },
		func(cancel context.CancelFunc) error { cancel(); return nil },
	}
	var kept, undone []*domain.InfraEnv
	var wait sync.WaitGroup
	for i := range 40 * len(ends) {
		e, end := infraEnv(domain.Owner{}), ends[i%len(ends)]
		if i%len(ends) == 0 {
			kept = append(kept, e)
		} else {
			undone = append(undone, e)
		}
		wait.Go(func() {
			defer func() {
				if panicked := recover(); panicked != nil {
					assert.Contains(t, fmt.Sprint(panicked), stop.Error())
				}
			}()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			err := s.Update(ctx, func(ctx context.Context, tx transaction.Tx) error {
				return errors.Join(tx.PutInfraEnv(ctx, e), end(cancel))
			})
			assert.Equal(t, i%len(ends) == 0, err == nil, "%v", err)
		})
	}
	wait.Wait()
	isThere(t, s, true, kept...)
	isThere(t, s, false, undone...)
}

// waitsNoLongerThanItsCaller is an update that is given up while another one has its turn.
func waitsNoLongerThanItsCaller(t *testing.T, s *store.Store, _ string) {
	first, second, third := infraEnv(domain.Owner{}), infraEnv(domain.Owner{}), infraEnv(domain.Owner{})
	put := func(e *domain.InfraEnv) func(context.Context, transaction.Tx) error {
		return func(ctx context.Context, tx transaction.Tx) error { return tx.PutInfraEnv(ctx, e) }
	}
	begun, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		ended <- s.Update(t.Context(), func(ctx context.Context, tx transaction.Tx) error {
			close(begun)
			<-goOn
			return put(first)(ctx, tx)
		})
	}()
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	given := s.Update(ctx, func(ctx context.Context, tx transaction.Tx) error {
		err := put(second)(ctx, tx)
		<-ctx.Done()
		return err
	})
	require.ErrorIs(t, given, context.Canceled)
	close(goOn)
	require.NoError(t, <-ended)
	require.NoError(t, s.Update(t.Context(), put(third)))
	isThere(t, s, true, first, third)
	isThere(t, s, false, second)
}

func runsAgain(t *testing.T, s *store.Store, _ string) {
	e := infraEnv(domain.Owner{})
	h := host(e)
	h.StateInfo = ""
	update(t, s, func(ctx context.Context, tx transaction.Tx) {
		require.NoError(t, tx.PutInfraEnv(ctx, e))
		require.NoError(t, tx.PutHost(ctx, h))
	})
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() {
			assert.NoError(t, s.Update(t.Context(), func(ctx context.Context, tx transaction.Tx) error {
				got, err := tx.Host(ctx, h.HostKey)
				if err != nil {
					return err
				}
				got.StateInfo += "x"
				return tx.PutHost(ctx, got)
			}))
		})
	}
	wait.Wait()
	require.NoError(t, s.View(t.Context(), func(ctx context.Context, r transaction.Reader) error {
		got, err := r.Host(ctx, h.HostKey)
		require.NoError(t, err)
		assert.Len(t, got.StateInfo, 20)
		assert.Equal(t, int64(21), got.Revision)
		return nil
	}))
	// Two that make the same object: one makes it, the other one finds it.
	made := infraEnv(domain.Owner{})
	for range 5 {
		wait.Go(func() {
			assert.NoError(t, s.Update(t.Context(), func(ctx context.Context, tx transaction.Tx) error {
				if there, err := tx.InfraEnv(ctx, made.ID); err != nil || there != nil {
					return err
				}
				copied := *made
				return tx.PutInfraEnv(ctx, &copied)
			}))
		})
	}
	wait.Wait()
}

func foldsEvents(t *testing.T, s *store.Store, _ string) {
	at := time.Now().Truncate(time.Millisecond)
	event := func(name, message, cluster string, when time.Time) domain.Event {
		return domain.Event{Name: name, Message: message, InfraEnvID: "e", HostID: "h", ClusterID: cluster, Severity: "info", Category: "user", At: when, ForInfraEnv: cluster == "", ForCluster: cluster != ""}
	}
	update(t, s, func(ctx context.Context, tx transaction.Tx) {
		for i := range 50 {
			require.NoError(t, tx.AddEvent(ctx, event("register", "Registered", "", at.Add(time.Duration(i)*time.Second))))
		}
		require.NoError(t, tx.AddEvent(ctx, event("status", "100% secret", "c", at.Add(time.Minute))))
		require.NoError(t, tx.AddEvent(ctx, event("register", "Registered", "", at.Add(5*time.Hour))))
	})
	require.NoError(t, s.View(t.Context(), func(ctx context.Context, r transaction.Reader) error {
		env, err := r.Events(ctx, domain.EventFilter{InfraEnvID: "e"})
		require.NoError(t, err)
		require.Len(t, env.Items, 2, "the tenant's event is not the administrator's")
		assert.Equal(t, int64(50), env.Items[0].Count)
		assert.True(t, at.Equal(env.Items[0].At))
		assert.True(t, at.Add(49*time.Second).Equal(env.Items[0].LastAt))
		cluster, err := r.Events(ctx, domain.EventFilter{ClusterID: "c", Message: "100% S", Severities: []string{"info"}, HostIDs: []string{"h"}})
		require.NoError(t, err)
		require.Len(t, cluster.Items, 1)
		named, err := r.Events(ctx, domain.EventFilter{InfraEnvID: "e", HostIDs: []string{"h"}, Names: []string{"register", "deregister"}})
		require.NoError(t, err)
		assert.Len(t, named.Items, 2)
		other, err := r.Events(ctx, domain.EventFilter{InfraEnvID: "e", HostIDs: []string{"h"}, Names: []string{"deregister"}})
		require.NoError(t, err)
		assert.Empty(t, other.Items)
		assert.Zero(t, other.Total)
		none, err := r.Events(ctx, domain.EventFilter{ClusterID: "c", Message: "100_"})
		require.NoError(t, err)
		assert.Empty(t, none.Items)
		later, err := r.Events(ctx, domain.EventFilter{InfraEnvID: "e", AfterPosition: new(env.Items[0].Position)})
		require.NoError(t, err)
		assert.Len(t, later.Items, 1)
		last, err := r.Events(ctx, domain.EventFilter{InfraEnvID: "e", Descending: true, Page: domain.Page{Limit: 1}})
		require.NoError(t, err)
		assert.Equal(t, 2, last.Total)
		require.Len(t, last.Items, 1)
		assert.Equal(t, int64(1), last.Items[0].Count)
		return nil
	}))
}

// prunesEvents shows that the oldest go first, that one transaction deletes no more than it may, and that who follows events misses none.
func prunesEvents(t *testing.T, s *store.Store, _ string) {
	now := time.Now()
	add := func(message string, at time.Time) {
		update(t, s, func(ctx context.Context, tx transaction.Tx) {
			require.NoError(t, tx.AddEvent(ctx, domain.Event{Name: "n", InfraEnvID: "e", Message: message, At: at, ForInfraEnv: true}))
		})
	}
	for i := range 10 {
		add(fmt.Sprintf("old %d", i), now.Add(-time.Hour+time.Duration(i)*time.Second))
	}
	add("new", now)
	left := func(after *int64) (messages []string, last int64) {
		require.NoError(t, s.View(t.Context(), func(ctx context.Context, r transaction.Reader) error {
			list, err := r.Events(ctx, domain.EventFilter{InfraEnvID: "e", AfterPosition: after})
			for _, e := range list.Items {
				messages, last = append(messages, e.Message), e.Position
			}
			return err
		}))
		return messages, last
	}
	prune := func(before time.Time) int {
		n, err := s.PruneEvents(t.Context(), before, 6)
		require.NoError(t, err)
		return n
	}
	assert.Equal(t, 6, prune(now.Add(-time.Minute)))
	messages, _ := left(nil)
	assert.Equal(t, []string{"old 6", "old 7", "old 8", "old 9", "new"}, messages)
	assert.Equal(t, 4, prune(now.Add(-time.Minute)))
	assert.Zero(t, prune(now.Add(-time.Minute)))
	add("last", now.Add(time.Second))
	_, seen := left(nil)
	assert.Equal(t, 1, prune(now.Add(time.Hour)))
	add("later", now.Add(2*time.Second))
	messages, _ = left(&seen)
	assert.Equal(t, []string{"later"}, messages, "positions go on after events that were deleted")
}

// trimsEvents shows that a host that reports many events pushes out only its own.
func trimsEvents(t *testing.T, s *store.Store, _ string) {
	at := time.Now()
	event := func(host, message string, reported bool) domain.Event {
		return domain.Event{Name: "n", InfraEnvID: "e", HostID: host, Message: message, At: at, ForInfraEnv: true, Reported: reported}
	}
	update(t, s, func(ctx context.Context, tx transaction.Tx) {
		for i := range 5 {
			require.NoError(t, tx.AddEvent(ctx, event("loud", fmt.Sprintf("service %d", i), false)))
			require.NoError(t, tx.AddEvent(ctx, event("other", fmt.Sprintf("other %d", i), true)))
		}
	})
	for i := range domain.ReportedEvents + 20 {
		update(t, s, func(ctx context.Context, tx transaction.Tx) {
			require.NoError(t, tx.AddEvent(ctx, event("loud", fmt.Sprintf("reported %d", i), true)))
		})
	}
	require.NoError(t, s.View(t.Context(), func(ctx context.Context, r transaction.Reader) error {
		loud, err := r.Events(ctx, domain.EventFilter{InfraEnvID: "e", HostIDs: []string{"loud"}, AfterPosition: new(int64)})
		require.NoError(t, err)
		require.Len(t, loud.Items, 5+domain.ReportedEvents)
		assert.Equal(t, "service 0", loud.Items[0].Message)
		assert.Equal(t, "reported 20", loud.Items[5].Message)
		assert.True(t, loud.Items[5].Reported)
		other, err := r.Events(ctx, domain.EventFilter{InfraEnvID: "e", HostIDs: []string{"other"}})
		assert.Len(t, other.Items, 5)
		return err
	}))
}

// followsRepetitions is a reader that sees each event once, also where repetitions came at the same time in another order.
func followsRepetitions(t *testing.T, s *store.Store, _ string) {
	at := time.Now()
	for i, names := range [][]string{{"one", "two"}, {"two", "one"}} {
		update(t, s, func(ctx context.Context, tx transaction.Tx) {
			for _, name := range names {
				require.NoError(t, tx.AddEvent(ctx, domain.Event{Name: name, InfraEnvID: "e", At: at.Add(time.Duration(i) * time.Minute), ForInfraEnv: true}))
			}
		})
	}
	require.NoError(t, s.View(t.Context(), func(ctx context.Context, r transaction.Reader) error {
		first, err := r.Events(ctx, domain.EventFilter{InfraEnvID: "e", AfterPosition: new(int64)})
		require.NoError(t, err)
		require.Len(t, first.Items, 2)
		assert.Equal(t, "one", first.Items[1].Name, "it was repeated last")
		next, err := r.Events(ctx, domain.EventFilter{InfraEnvID: "e", AfterPosition: new(first.Items[1].Position)})
		assert.Empty(t, next.Items)
		return err
	}))
}

// followsEvents is a reader that asks for what came after the last event that it saw, while many write.
func followsEvents(t *testing.T, s *store.Store, _ string) {
	const writers, updates, each = 16, 10, 3
	var wait sync.WaitGroup
	for i := range writers {
		wait.Go(func() {
			for j := range updates {
				update(t, s, func(ctx context.Context, tx transaction.Tx) {
					for k := range each {
						require.NoError(t, tx.AddEvent(ctx, domain.Event{Name: "n", InfraEnvID: "e", Message: fmt.Sprint(i, j, k), At: time.Now(), ForInfraEnv: true}))
					}
				})
			}
		})
	}
	all := make(chan struct{})
	go func() { wait.Wait(); close(all) }()
	seen := map[string]bool{}
	filter := domain.EventFilter{InfraEnvID: "e", AfterPosition: new(int64)}
	for last := false; ; {
		select {
		case <-all:
			last = true
		default:
		}
		more := 0
		require.NoError(t, s.View(t.Context(), func(ctx context.Context, r transaction.Reader) error {
			list, err := r.Events(ctx, filter)
			for _, e := range list.Items {
				assert.Greater(t, e.Position, *filter.AfterPosition)
				filter.AfterPosition, seen[e.Message] = new(e.Position), true
			}
			more = len(list.Items)
			return err
		}))
		if last && more == 0 {
			break
		}
	}
	assert.Len(t, seen, writers*updates*each)
}

// findsClusters: a name is text, whatever its case.
func findsClusters(t *testing.T, s *store.Store, address string) {
	update(t, s, func(ctx context.Context, tx transaction.Tx) {
		for i, name := range []string{"edge-one", "Edge_Two", "core", "É50%"} {
			c := &domain.Cluster{ID: uuid.NewString(), Name: name, CreatedAt: time.Now().Add(time.Duration(i) * time.Second), Status: lifecycle.ClusterReady}
			c.Owner = domain.Owner{User: map[bool]string{true: "u", false: "v"}[i < 2]}
			require.NoError(t, tx.PutCluster(ctx, c))
		}
	})
	require.NoError(t, s.View(t.Context(), func(ctx context.Context, r transaction.Reader) error {
		counts := map[string]int{"EDGE": 2, "edge_": 1, "e%o": 0, "50%": 1, "É5": 1, `\`: 0, "'": 0, "?": 0}
		if !strings.Contains(address, "://") { // PostgreSQL folds the letters of its locale, and that of tests has those of ASCII
			counts["é5"] = 1
		}
		for text, want := range counts {
			found, err := r.Clusters(ctx, admin, domain.ClusterFilter{Search: text})
			require.NoError(t, err, text)
			assert.Equal(t, want, found.Total, text)
		}
		found, err := r.Clusters(ctx, domain.Scope{Principal: domain.Principal{User: "u"}}, domain.ClusterFilter{
			Search: "e", States: []lifecycle.ClusterState{lifecycle.ClusterReady, lifecycle.ClusterAddingHosts}, Page: domain.Page{Limit: 1, Offset: 1},
		})
		require.NoError(t, err)
		require.Len(t, found.Items, 1)
		assert.Equal(t, "Edge_Two", found.Items[0].Name)
		assert.Equal(t, 2, found.Total)
		found, err = r.Clusters(ctx, admin, domain.ClusterFilter{States: []lifecycle.ClusterState{lifecycle.ClusterAddingHosts}})
		require.NoError(t, err)
		assert.Zero(t, found.Total)
		return nil
	}))
}

func ownsLists(t *testing.T, s *store.Store, _ string) {
	update(t, s, func(ctx context.Context, tx transaction.Tx) {
		for _, owner := range []domain.Owner{{User: "u", Organization: "o"}, {User: "v", Organization: "o"}, {User: "u"}, {User: "w"}, {}} {
			e := infraEnv(owner)
			require.NoError(t, tx.PutInfraEnv(ctx, e))
			require.NoError(t, tx.PutHost(ctx, host(e)))
		}
	})
	var used domain.HostKey
	update(t, s, func(ctx context.Context, tx transaction.Tx) {
		c, e := &domain.Cluster{ID: uuid.NewString(), Name: "used", CreatedAt: time.Now()}, infraEnv(domain.Owner{User: "w"})
		c.Owner = domain.Owner{User: "creator"}
		require.NoError(t, tx.PutCluster(ctx, c))
		require.NoError(t, tx.PutInfraEnv(ctx, e))
		h := host(e)
		h.ClusterID, used = c.ID, h.HostKey
		h.RequestedHostname, h.FreeHostname, h.Summary.SerialNumber = "Secret_Name", "rack-7", "S1"
		require.NoError(t, tx.PutHost(ctx, h))
	})
	// A host is found by what those who ask may see of it: what it is called in a cluster is the creator's.
	require.NoError(t, s.View(t.Context(), func(ctx context.Context, r transaction.Reader) error {
		for text, want := range map[string]map[string]int{
			"secret_n": {"creator": 1, "w": 0, "": 0}, "RACK-7": {"creator": 1, "w": 1}, "s1": {"creator": 1, "w": 1, "u": 0}, used.HostID[:8]: {"w": 1}, "secret%name": {"creator": 0}, "rack_7": {"w": 0},
		} {
			for who, count := range want {
				hosts, err := r.Hosts(ctx, domain.Scope{Principal: domain.Principal{User: who}}, domain.HostFilter{Search: text})
				require.NoError(t, err)
				assert.Equal(t, count, hosts.Total, "%s looks for %s", who, text)
			}
		}
		hosts, err := r.Hosts(ctx, admin, domain.HostFilter{Search: "secret_n"})
		require.NoError(t, err)
		assert.Equal(t, 1, hosts.Total)
		return nil
	}))
	require.NoError(t, s.View(t.Context(), func(ctx context.Context, r transaction.Reader) error {
		for who, want := range map[string]int{"creator": 1, "w": 2, "u": 1, "": 0} {
			hosts, err := r.Hosts(ctx, domain.Scope{Principal: domain.Principal{User: who}}, domain.HostFilter{})
			require.NoError(t, err)
			assert.Len(t, hosts.Items, want, who)
			assert.Equal(t, want, hosts.Total)
			if who == "creator" {
				assert.Equal(t, used, hosts.Items[0].HostKey, "it is in their cluster")
			}
			none, err := r.Hosts(ctx, domain.Scope{Principal: domain.Principal{User: who}}, domain.HostFilter{HostID: "unknown"})
			require.NoError(t, err)
			assert.Empty(t, none.Items)
		}
		return nil
	}))
	update(t, s, func(ctx context.Context, tx transaction.Tx) {
		require.NoError(t, tx.DeleteHosts(ctx, used))
		require.NoError(t, tx.DeleteInfraEnv(ctx, used.InfraEnvID))
	})
	require.NoError(t, s.View(t.Context(), func(ctx context.Context, r transaction.Reader) error {
		for _, c := range []struct {
			who  domain.Principal
			want int
		}{
			{domain.Principal{Admin: true}, 5},
			{domain.Principal{User: "x", Organization: "o"}, 2},
			{domain.Principal{User: "u"}, 1},
			{domain.Principal{User: "stranger"}, 0},
			{domain.Principal{}, 0},
		} {
			envs, err := r.InfraEnvs(ctx, domain.Scope{Principal: c.who}, domain.InfraEnvFilter{})
			require.NoError(t, err)
			assert.Len(t, envs.Items, c.want, c.who)
			for _, e := range envs.Items {
				assert.True(t, c.who.Owns(e.Owner))
			}
			hosts, err := r.Hosts(ctx, domain.Scope{Principal: c.who}, domain.HostFilter{States: []lifecycle.State{lifecycle.KnownUnbound}, Roles: []string{"worker"}, Unbound: true})
			require.NoError(t, err)
			assert.Len(t, hosts.Items, c.want, c.who)
			counts, err := r.CountHosts(ctx, domain.Scope{Principal: c.who}, domain.HostFilter{States: []lifecycle.State{lifecycle.KnownUnbound}, Page: domain.Page{Limit: 1}})
			require.NoError(t, err)
			assert.Equal(t, c.want, counts[lifecycle.KnownUnbound], c.who)
			assert.LessOrEqual(t, len(counts), 1, c.who)
		}
		seen := map[string]bool{}
		for offset := 0; offset < 5; offset += 2 {
			page, err := r.InfraEnvs(ctx, admin, domain.InfraEnvFilter{Page: domain.Page{Limit: 2, Offset: offset}})
			require.NoError(t, err)
			assert.Equal(t, 5, page.Total)
			for _, e := range page.Items {
				seen[e.ID] = true
			}
		}
		assert.Len(t, seen, 5)
		return nil
	}))
}

func savesHeartbeats(t *testing.T, s *store.Store, _ string) {
	var polls []domain.Poll
	for range 2500 {
		polls = append(polls, domain.Poll{HostKey: domain.HostKey{InfraEnvID: "e", HostID: uuid.NewString()}, Ago: time.Hour})
	}
	before := s.Statements.Load()
	require.NoError(t, s.SavePolls(t.Context(), polls))
	assert.Equal(t, int64(3), s.Statements.Load()-before)
	all, mark, err := s.PollsSince(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, all, 2500)
	saved := map[domain.HostKey]int64{}
	for _, p := range all {
		assert.Equal(t, time.Hour, p.Ago.Round(time.Hour))
		saved[p.HostKey] = p.Saved
	}
	found, mark, err := s.PollsSince(t.Context(), mark)
	require.NoError(t, err)
	assert.Empty(t, found)
	for range 2 {
		require.NoError(t, s.SavePolls(t.Context(), []domain.Poll{{HostKey: polls[0].HostKey}}))
		found, mark, err = s.PollsSince(t.Context(), mark)
		require.NoError(t, err)
		require.Len(t, found, 1)
		assert.Equal(t, polls[0].HostKey, found[0].HostKey)
		assert.Less(t, found[0].Ago, time.Hour)
		assert.Greater(t, found[0].Saved, saved[found[0].HostKey])
		saved[found[0].HostKey] = found[0].Saved
	}
}

func opensAgain(t *testing.T, s *store.Store, address string) {
	e := infraEnv(domain.Owner{})
	update(t, s, func(ctx context.Context, tx transaction.Tx) { require.NoError(t, tx.PutInfraEnv(ctx, e)) })
	again, err := store.Open(t.Context(), address)
	require.NoError(t, err)
	defer again.Close() //nolint:errcheck // the test is over
	require.NoError(t, again.View(t.Context(), func(ctx context.Context, r transaction.Reader) error {
		got, err := r.InfraEnv(ctx, e.ID)
		require.NoError(t, err)
		assert.NotNil(t, got)
		return nil
	}))
}

func refusesOrphans(t *testing.T, s *store.Store, _ string) {
	e := infraEnv(domain.Owner{})
	h := host(e)
	update(t, s, func(ctx context.Context, tx transaction.Tx) {
		require.NoError(t, tx.PutInfraEnv(ctx, e))
		require.NoError(t, tx.PutHost(ctx, h))
	})
	require.Error(t, s.Update(t.Context(), func(ctx context.Context, tx transaction.Tx) error { return tx.DeleteInfraEnv(ctx, e.ID) }))
}

// TestReplicasTellEachOther needs the database of several replicas.
func TestReplicasTellEachOther(t *testing.T) {
	server := postgrestest.Start(t)
	one, err := store.Open(t.Context(), server.URL)
	require.NoError(t, err)
	defer one.Close() //nolint:errcheck // the test is over
	two, err := store.Open(t.Context(), server.URL)
	require.NoError(t, err)
	defer two.Close() //nolint:errcheck // the test is over
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	received := make(chan []domain.Change, 100)
	go func() { assert.NoError(t, two.Listen(ctx, func(c []domain.Change) { received <- c }, func() {})) }()
	assert.Equal(t, domain.EverythingChanged, (<-received)[0].Kind)
	change := domain.Change{Kind: domain.HostChanged, Host: domain.HostKey{InfraEnvID: "e", HostID: "h"}, ID: "e"}
	update(t, one, func(_ context.Context, tx transaction.Tx) { tx.Announce(change) })
	assert.Equal(t, []domain.Change{change}, <-received)

	// While the database is away the answer is a refusal that says so; afterwards it is unknown what was missed.
	server.Down()
	err = one.Ping(t.Context())
	assert.Equal(t, domain.Unavailable, domain.KindOf(err))
	err = one.Update(t.Context(), func(ctx context.Context, tx transaction.Tx) error {
		return tx.AddEvent(ctx, domain.Event{At: time.Now()})
	})
	assert.Equal(t, domain.Unavailable, domain.KindOf(err), "%v", err)
	server.Up()
	assert.Equal(t, domain.EverythingChanged, (<-received)[0].Kind)
	require.Eventually(t, func() bool { return one.Ping(t.Context()) == nil }, 60*time.Second, 10*time.Millisecond)
}

// relay forwards connections to a server. Where it is armed, it breaks the next connection that commits, and passes the commit on when hold is closed.
type relay struct {
	server string
	armed  atomic.Bool
	hold   chan struct{}
}

// listen returns the address of the relay.
func (r *relay) listen(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go r.serve(client)
		}
	}()
	return listener.Addr().String()
}

func (r *relay) serve(client net.Conn) {
	defer client.Close() //nolint:errcheck // nothing is left to lose
	server, err := net.Dial("tcp", r.server)
	if err != nil {
		return
	}
	defer server.Close() //nolint:errcheck // nothing is left to lose
	answered := make(chan struct{})
	var lost atomic.Bool
	go func() {
		defer close(answered)
		defer client.Close() //nolint:errcheck // nothing is left to lose
		answer := make([]byte, 1<<16)
		for {
			n, err := server.Read(answer)
			if err != nil || lost.Load() {
				return
			}
			_, _ = client.Write(answer[:n])
		}
	}()
	request := make([]byte, 1<<16)
	for {
		n, err := client.Read(request)
		if err != nil {
			return
		}
		if bytes.Contains(request[:n], []byte("commit")) && r.armed.CompareAndSwap(true, false) {
			lost.Store(true)
			if r.hold != nil {
				_ = client.Close()
				<-r.hold
			}
			_, _ = server.Write(request[:n])
			<-answered
			return
		}
		_, _ = server.Write(request[:n])
	}
}

// TestACommitWithoutAnAnswerIsNews loses the answer of a commit: the memory of this replica does not know what was written.
func TestACommitWithoutAnAnswerIsNews(t *testing.T) {
	server := postgrestest.Start(t)
	address, err := url.Parse(server.URL)
	require.NoError(t, err)
	for name, between := range map[string]*relay{
		"committed before the error": {server: address.Host},
		"committed after the error":  {server: address.Host, hold: make(chan struct{})},
	} {
		t.Run(name, func(t *testing.T) {
			through := *address
			through.Host = between.listen(t)
			s, err := store.Open(t.Context(), through.String())
			require.NoError(t, err)
			defer s.Close() //nolint:errcheck // the test is over
			received := make(chan []domain.Change, 100)
			listening, stop := context.WithCancel(t.Context())
			defer stop()
			go func() { assert.NoError(t, s.Listen(listening, func(c []domain.Change) { received <- c }, func() {})) }()
			assert.Equal(t, domain.EverythingChanged, (<-received)[0].Kind)
			put := func() (domain.Change, error) {
				e := infraEnv(domain.Owner{})
				change := domain.Change{Kind: domain.InfraEnvChanged, ID: e.ID}
				return change, s.Update(t.Context(), func(ctx context.Context, tx transaction.Tx) error {
					tx.Announce(change)
					return tx.PutInfraEnv(ctx, e)
				})
			}

			_, err = put()
			require.NoError(t, err)
			between.armed.Store(true)
			change, err := put()
			assert.Equal(t, domain.Unavailable, domain.KindOf(err), "%v", err)
			hear := func() { // news of what was committed before may come in between
				for !slices.Contains(<-received, change) {
				}
			}
			hear() // whether it was committed is not known
			if between.hold != nil {
				close(between.hold)
				hear() // it is committed now
			}
			require.NoError(t, s.View(t.Context(), func(ctx context.Context, r transaction.Reader) error {
				_, err := r.InfraEnv(ctx, change.ID)
				return err
			}))
		})
	}
}

// TestRotatedCredentialsAreUsed as Vault gives them: another user and password, and the former ones end.
func TestRotatedCredentialsAreUsed(t *testing.T) {
	server := postgrestest.Start(t)
	administer := func(statements ...string) {
		t.Helper()
		admin, err := pgx.Connect(t.Context(), server.URL)
		require.NoError(t, err)
		defer admin.Close(t.Context()) //nolint:errcheck // the statements are done
		for _, text := range statements {
			_, err = admin.Exec(t.Context(), text)
			require.NoError(t, err, text)
		}
	}
	const end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
	as := func(user string) string { return strings.Replace(server.URL, "postgres@", user+":secret@", 1) }
	administer("CREATE ROLE former LOGIN SUPERUSER", "CREATE ROLE renewed LOGIN SUPERUSER", "CREATE DATABASE another")
	var address atomic.Value
	address.Store(as("former"))
	s, err := store.Open(t.Context(), as("former"), store.Reread(func() (string, error) {
		text, _ := address.Load().(string)
		if text == "" {
			return "", os.ErrNotExist
		}
		return text, nil
	}))
	require.NoError(t, err)
	defer s.Close() //nolint:errcheck // the test is over
	connected := make(chan struct{}, 100)
	ctx, stop := context.WithCancel(t.Context())
	var listening sync.WaitGroup
	listening.Go(func() {
		_ = s.Listen(ctx, func([]domain.Change) { connected <- struct{}{} }, func() {})
	})
	defer listening.Wait()
	defer stop()
	listens := func() {
		t.Helper()
		select {
		case <-connected:
		case <-time.After(30 * time.Second):
			require.Fail(t, "nothing listens")
		}
	}
	write := func() error {
		return s.Update(t.Context(), func(ctx context.Context, tx transaction.Tx) error {
			return tx.AddEvent(ctx, domain.Event{At: time.Now()})
		})
	}
	writes := func() {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) { require.NoError(c, write()) }, 30*time.Second, 10*time.Millisecond)
	}
	writes()
	listens()

	administer("ALTER ROLE former NOLOGIN", end)
	require.Eventually(t, func() bool { return domain.KindOf(write()) == domain.Unavailable }, 30*time.Second, 10*time.Millisecond)
	for len(connected) > 0 {
		<-connected
	}
	address.Store(as("renewed"))
	writes()
	listens()

	administer("ALTER ROLE former LOGIN", "ALTER ROLE renewed NOLOGIN")
	for name, text := range map[string]string{"no address": "", "no URL": "postgres://%", "another database": strings.Replace(as("former"), "/postgres?", "/another?", 1)} {
		address.Store(text)
		administer(end)
		writes()
		t.Log("with", name, "the former address counts")
	}
}

// TestAReadOnlyServerIsAway is a failover: the address leads to a standby for a while, to which sessions stay open.
func TestAReadOnlyServerIsAway(t *testing.T) {
	server := postgrestest.Start(t)
	s, err := store.Open(t.Context(), server.URL)
	require.NoError(t, err)
	defer s.Close() //nolint:errcheck // the test is over
	write := func() error {
		return s.Update(t.Context(), func(ctx context.Context, tx transaction.Tx) error {
			return tx.AddEvent(ctx, domain.Event{At: time.Now()})
		})
	}
	administer := func(statements ...string) {
		t.Helper()
		admin, err := pgx.Connect(t.Context(), server.URL)
		require.NoError(t, err)
		defer admin.Close(t.Context()) //nolint:errcheck // the statements are done
		for _, text := range statements {
			_, err = admin.Exec(t.Context(), text)
			require.NoError(t, err, text)
		}
	}
	refused := func() {
		t.Helper()
		for range 3 {
			assert.Equal(t, domain.Unavailable, domain.KindOf(write()))
			assert.Equal(t, domain.Unavailable, domain.KindOf(s.Ping(t.Context())), "it answers, and keeps nothing")
		}
	}
	// hold opens sessions, which are idle afterwards. Those that the server ended are noticed by that.
	hold := func() {
		var wait sync.WaitGroup
		for range 5 {
			wait.Go(func() {
				_ = s.View(t.Context(), func(ctx context.Context, r transaction.Reader) error {
					_, err := r.Events(ctx, domain.EventFilter{InfraEnvID: "e"})
					return err
				})
			})
		}
		wait.Wait()
	}
	require.NoError(t, write())

	server.Down()
	server.Demote()
	server.Up()
	refused()
	hold()
	administer("SELECT pg_promote()")
	require.Eventually(t, func() bool { return s.Ping(t.Context()) == nil && write() == nil }, 30*time.Second, 10*time.Millisecond)

	// Sessions of before stay those of a server that writes nothing, as behind a proxy or a name that leads to another server by now.
	administer("ALTER DATABASE postgres SET default_transaction_read_only = on", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
	hold()
	hold()
	refused()
	administer("SET default_transaction_read_only = off", "ALTER DATABASE postgres RESET default_transaction_read_only")
	require.Eventually(t, func() bool { return write() == nil }, 10*time.Second, 10*time.Millisecond, "each session that writes nothing is given up")
}

func keepsFiles(t *testing.T, s *store.Store, _ string) {
	c := &domain.Cluster{ID: uuid.NewString(), Name: "c", CreatedAt: time.Now()}
	at := time.Now()
	update(t, s, func(ctx context.Context, tx transaction.Tx) {
		require.NoError(t, tx.PutCluster(ctx, c))
		require.NoError(t, tx.PutFile(ctx, c.ID, "b", []byte("old"), at))
		require.NoError(t, tx.PutFile(ctx, c.ID, "b", []byte("new\x00"), at.Add(time.Second)))
		require.NoError(t, tx.PutFile(ctx, c.ID, "a", nil, at))
		require.NoError(t, tx.PutFile(ctx, c.ID, "gone", []byte("x"), at))
		require.NoError(t, tx.DeleteFile(ctx, c.ID, "gone"))
	})
	look := func(want ...string) {
		t.Helper()
		require.NoError(t, s.View(t.Context(), func(ctx context.Context, r transaction.Reader) error {
			files, err := r.Files(ctx, c.ID)
			require.NoError(t, err)
			var names []string
			for _, f := range files {
				names = append(names, f.Name)
			}
			assert.Equal(t, want, names)
			body, err := r.File(ctx, c.ID, "b")
			require.NoError(t, err)
			assert.Equal(t, len(want) > 0, string(body) == "new\x00")
			return nil
		}))
	}
	look("a", "b")
	update(t, s, func(ctx context.Context, tx transaction.Tx) { require.NoError(t, tx.DeleteCluster(ctx, c.ID)) })
	look()
}
