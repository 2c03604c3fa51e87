// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/lockorder"
	"github.com/muster-io/muster/agent-service/internal/machineplan"
	"github.com/muster-io/muster/agent-service/internal/postgrestest"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// asked is a request for hosts.
func asked(count int, change ...func(*domain.NewAllocation)) domain.NewAllocation {
	request := domain.NewAllocation{Count: count, Selector: labels.Everything()}
	for _, one := range change {
		one(&request)
	}
	return request
}

func (w *testEnv) labelled(e *domain.InfraEnv, hostname string, set map[string]string, memory int64) domain.HostKey {
	w.t.Helper()
	key := w.register(e, hostname)
	require.NoError(w.t, w.ReportStep(w.t.Context(), key, agentproto.StepReply{
		Type: agentproto.StepInventory, Output: machine(hostname, func(i *hardware.Inventory) { i.Memory.PhysicalBytes = memory << 30 }),
	}))
	_, err := w.UpdateHost(w.t.Context(), admin, key, func(s *domain.HostSettings) error { s.NodeLabels = set; return nil })
	require.NoError(w.t, err)
	return key
}

func keysIn(a *domain.Allocation) []domain.HostKey {
	var keys []domain.HostKey
	for i := range a.Hosts {
		keys = append(keys, a.Hosts[i].HostKey)
	}
	return keys
}

func TestHostsAreReservedAllOrNone(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	e, c := w.infraEnv(alice), w.cluster(alice)
	small := w.labelled(e, "n1", map[string]string{"rack": "a"}, 32)
	large := w.labelled(e, "n2", map[string]string{"rack": "a"}, 64)
	w.labelled(e, "n3", map[string]string{"rack": "b"}, 64)
	w.labelled(w.infraEnv(bob), "n4", map[string]string{"rack": "a"}, 64)
	ofRackA := func(r *domain.NewAllocation) { r.Selector = labels.SelectorFromSet(labels.Set{"rack": "a"}) }
	with64 := func(r *domain.NewAllocation) { r.Minimum = machineplan.MinimumOf(0, 64, 0) }

	_, err := w.Allocate(t.Context(), alice, asked(2, ofRackA, with64))
	require.Equal(t, "TooFewHosts", domain.ReasonOf(err))
	require.Equal(t, domain.Conflict, domain.KindOf(err))
	require.EqualError(t, err, "1 of 2 hosts can be allocated: 2 hosts match; 1 too small: 32 of 64 GiB, 1 free")
	_, err = w.BindHost(t.Context(), alice, large, c.ID, false)
	require.NoError(t, err, "none is reserved")
	_, err = w.UnbindHost(t.Context(), alice, large)
	require.NoError(t, err)
	_, err = w.UpdateHost(t.Context(), alice, large, func(s *domain.HostSettings) error { s.NodeLabels = map[string]string{"rack": "a"}; return nil })
	require.NoError(t, err)

	made, err := w.Allocate(t.Context(), alice, asked(1, ofRackA))
	require.NoError(t, err)
	assert.Equal(t, []domain.HostKey{small}, keysIn(made), "the tightest fit")
	assert.WithinDuration(t, w.clock().Add(domain.DefaultReservation), made.Until, time.Second)
	second, err := w.Allocate(t.Context(), alice, asked(1, ofRackA))
	require.NoError(t, err)
	assert.Equal(t, []domain.HostKey{large}, keysIn(second), "the other one is reserved")
	_, err = w.Allocate(t.Context(), alice, asked(1, ofRackA))
	require.EqualError(t, err, "0 of 1 hosts can be allocated: 2 hosts match; 2 reserved")
	_, err = w.Allocate(t.Context(), bob, asked(2))
	require.EqualError(t, err, "1 of 2 hosts can be allocated: 1 host matches; 1 free", "hosts of others are not counted")
}

func TestAReservedHostIsBoundByTheUserWhoReservedItOrAfterTheEnd(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	colleague := domain.Principal{User: "anna", Organization: "a"}
	e, c := w.infraEnv(alice), w.cluster(alice)
	key := w.register(e, "n1")
	made, err := w.Allocate(t.Context(), alice, asked(1, func(r *domain.NewAllocation) { r.Reserve = 5 * time.Minute }))
	require.NoError(t, err)
	for _, other := range []domain.Principal{colleague, domain.Kubernetes} {
		_, err = w.BindHost(t.Context(), other, key, c.ID, false)
		require.Equal(t, "HostReserved", domain.ReasonOf(err))
		assert.Contains(t, err.Error(), made.Until.Format(time.RFC3339))
		dry, err := w.CheckBind(t.Context(), other, key, c.ID)
		require.NoError(t, err)
		assert.Equal(t, "HostReserved", dry.Reason)
	}
	_, err = w.BindHost(t.Context(), alice, key, c.ID, false)
	require.NoError(t, err)
	freed, err := w.UnbindHost(t.Context(), alice, key)
	require.NoError(t, err)
	assert.Zero(t, freed.Reservation, "it ends with the binding")

	_, err = w.Allocate(t.Context(), alice, asked(1, func(r *domain.NewAllocation) { r.Reserve = time.Minute }))
	require.NoError(t, err)
	w.jump(time.Minute + time.Second)
	_, err = w.BindHost(t.Context(), colleague, key, c.ID, false)
	require.NoError(t, err, "the reservation has ended")
	_, err = w.UnbindHost(t.Context(), alice, key)
	require.NoError(t, err)

	made, err = w.Allocate(t.Context(), alice, asked(1))
	require.NoError(t, err)
	assert.Equal(t, domain.NotFound, domain.KindOf(w.EndAllocation(t.Context(), bob, made.ID)))
	require.NoError(t, w.EndAllocation(t.Context(), colleague, made.ID), "an owner of the hosts ends it")
	assert.Equal(t, domain.NotFound, domain.KindOf(w.EndAllocation(t.Context(), alice, made.ID)))
	_, err = w.Allocate(t.Context(), colleague, asked(1))
	require.NoError(t, err)
}

func TestHostsAreBoundToAClusterTogetherAndSpread(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	e, c := w.infraEnv(alice), w.cluster(alice)
	for i, rack := range []string{"a", "a", "a", "b", "b"} {
		w.labelled(e, fmt.Sprintf("n%d", i), map[string]string{"rack": rack}, 32)
	}
	byRack := func(r *domain.NewAllocation) { r.ClusterID, r.SpreadBy = c.ID, "rack" }
	racks := func(a *domain.Allocation) map[string]int {
		count := map[string]int{}
		for i := range a.Hosts {
			assert.Equal(t, c.ID, a.Hosts[i].ClusterID)
			count[a.Hosts[i].NodeLabels["rack"]]++
		}
		return count
	}
	one, err := w.Allocate(t.Context(), alice, asked(1, byRack))
	require.NoError(t, err)
	assert.Zero(t, one.Until)
	two, err := w.Allocate(t.Context(), alice, asked(3, byRack))
	require.NoError(t, err)
	together := racks(one)
	for rack, n := range racks(two) {
		together[rack] += n
	}
	assert.Equal(t, map[string]int{"a": 2, "b": 2}, together, "with those that the cluster has")
	bound, err := w.GetCluster(t.Context(), alice, c.ID)
	require.NoError(t, err)
	assert.Equal(t, 4, bound.HostCount)

	_, err = w.Allocate(t.Context(), alice, asked(2, byRack))
	require.EqualError(t, err, "1 of 2 hosts can be allocated: 5 hosts match; 4 bound, 1 free")
	_, err = w.Allocate(t.Context(), bob, asked(1, byRack))
	assert.Equal(t, domain.NotFound, domain.KindOf(err), "the cluster is of another user")
	arm := w.cluster(alice, func(s *domain.ClusterSettings) { s.CPUArchitecture = "aarch64" })
	_, err = w.Allocate(t.Context(), alice, asked(1, func(r *domain.NewAllocation) { r.ClusterID = arm.ID }))
	assert.ErrorContains(t, err, "1 not for this cluster: architecture x86_64 where the cluster has aarch64")
}

// TestNoHostIsInTwoReservationsOfTwoReplicas lets many ask for more hosts than there are, at two replicas on PostgreSQL.
func TestNoHostIsInTwoReservationsOfTwoReplicas(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	one, two := run(t, lockorder.Check(open(t, server.URL))), run(t, lockorder.Check(open(t, server.URL)))
	w := &testEnv{t: t, Service: one, now: time.Now()}
	e, c := w.infraEnv(alice), w.cluster(alice)
	const hosts, each, callers = 30, 4, 12
	for i := range hosts {
		key := domain.HostKey{InfraEnvID: e.ID, HostID: uuid.NewString()}
		_, err := one.RegisterHost(t.Context(), e.ID, domain.NewHost{HostID: key.HostID, AgentVersion: "test", BootID: "1"})
		require.NoError(t, err)
		require.NoError(t, one.ReportStep(t.Context(), key, agentproto.StepReply{Type: agentproto.StepInventory, Output: machine(fmt.Sprintf("n%d", i))}))
	}
	var mu sync.Mutex
	holders := map[domain.HostKey][]string{}
	var wait sync.WaitGroup
	for i := range callers {
		wait.Go(func() {
			service := one
			if i%2 == 1 {
				service = two
			}
			request := asked(each)
			if i%4 == 0 {
				request.ClusterID = c.ID
			}
			made, err := service.Allocate(t.Context(), alice, request)
			if err != nil {
				assert.Equal(t, "TooFewHosts", domain.ReasonOf(err), err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			assert.Len(t, made.Hosts, each)
			for _, key := range keysIn(made) {
				holders[key] = append(holders[key], made.ID)
			}
		})
	}
	wait.Wait()
	assert.Len(t, holders, hosts/each*each, "as many as there are for")
	for key, of := range holders {
		assert.Len(t, of, 1, key)
	}
	assert.NotContains(t, server.Log(), "deadlock")
}

// scans is a store that counts how often a transaction that writes lists hosts, of no cluster in particular.
type scans struct {
	transaction.Store
	number *atomic.Int64
}

type scansTx struct {
	transaction.Tx
	number *atomic.Int64
}

func (s scans) Update(ctx context.Context, do func(context.Context, transaction.Tx) error) error {
	return s.Store.Update(ctx, func(ctx context.Context, tx transaction.Tx) error { return do(ctx, scansTx{tx, s.number}) })
}

func (s scansTx) Hosts(ctx context.Context, scope domain.Scope, filter domain.HostFilter) (domain.List[domain.Host], error) {
	if filter.ClusterID == "" {
		s.number.Add(1)
	}
	return s.Tx.Hosts(ctx, scope, filter)
}

// Others write while hosts are chosen.
func TestAnAllocationLooksForHostsWithoutALock(t *testing.T) {
	t.Parallel()
	counted := scans{open(t, filepath.Join(t.TempDir(), "a.db")), &atomic.Int64{}}
	w := &testEnv{t: t, Service: run(t, counted), now: time.Now()}
	key := domain.HostKey{InfraEnvID: w.infraEnv(alice).ID, HostID: uuid.NewString()}
	_, err := w.RegisterHost(t.Context(), key.InfraEnvID, domain.NewHost{HostID: key.HostID, AgentVersion: "test", BootID: "1"})
	require.NoError(t, err)
	require.NoError(t, w.ReportStep(t.Context(), key, agentproto.StepReply{Type: agentproto.StepInventory, Output: machine("n1")}))
	c := w.cluster(alice)
	before := counted.number.Load()
	made, err := w.Allocate(t.Context(), alice, asked(1))
	require.NoError(t, err)
	require.NoError(t, w.EndAllocation(t.Context(), alice, made.ID))
	_, err = w.Allocate(t.Context(), alice, asked(1, func(r *domain.NewAllocation) { r.ClusterID = c.ID }))
	require.NoError(t, err)
	assert.Equal(t, before, counted.number.Load())
}
