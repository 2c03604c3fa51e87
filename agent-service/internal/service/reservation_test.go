// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lockorder"
	"github.com/muster-io/muster/agent-service/internal/postgrestest"
	"github.com/muster-io/muster/agent-service/internal/service"
)

// ofReservation makes a request that of an AgentReservation of the namespace "metal", among hosts whose Agents all have the label pool=a.
func ofReservation(id string, among ...domain.HostKey) func(*domain.NewAllocation) {
	return func(r *domain.NewAllocation) {
		r.ID, r.Kube, r.Among = id, domain.KubeRef{Namespace: "metal", Name: "r-" + id[:4]}, map[domain.HostKey]domain.Candidate{}
		r.Selector = labels.SelectorFromSet(labels.Set{"pool": "a"})
		for _, key := range among {
			r.Among[key] = domain.Candidate{Labels: labels.Set{"pool": "a"}}
		}
	}
}

func kubeInfraEnv(t *testing.T, s *service.Service, namespace string) *domain.InfraEnv {
	t.Helper()
	e, err := s.CreateInfraEnv(t.Context(), domain.Kubernetes, domain.NewInfraEnv{
		ID: uuid.NewString(), Name: "rack", Kube: domain.KubeRef{Namespace: namespace, Name: "rack"}, InfraEnvSettings: domain.InfraEnvSettings{PullSecret: `{"auths":{}}`},
	})
	require.NoError(t, err)
	return e
}

func approve(t *testing.T, s *service.Service, key domain.HostKey) {
	t.Helper()
	_, err := s.UpdateHost(t.Context(), domain.Kubernetes, key, func(settings *domain.HostSettings) error { settings.Approved = true; return nil })
	require.NoError(t, err)
}

// reservedBy returns the hosts that an allocation holds.
func reservedBy(t *testing.T, s *service.Service, id string) (held []domain.HostKey) {
	t.Helper()
	list, err := s.ListHosts(t.Context(), domain.Kubernetes, domain.HostFilter{})
	require.NoError(t, err)
	for i := range list.Items {
		if list.Items[i].Reservation.ID == id && list.Items[i].Reservation.Holds(s.Now()) {
			held = append(held, list.Items[i].HostKey)
		}
	}
	return held
}

func TestAReservationIsTheSameHoweverOftenItIsAskedFor(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	e := kubeInfraEnv(t, w.Service, "metal")
	first, second, third := w.register(e, "n1"), w.register(e, "n2"), w.register(e, "n3")
	foreign := w.register(kubeInfraEnv(t, w.Service, "other"), "n4")
	for _, key := range []domain.HostKey{first, second, third, foreign} {
		approve(t, w.Service, key)
	}
	id := uuid.NewString()
	request := asked(2, ofReservation(id, first, second, third, foreign))
	made, err := w.Allocate(t.Context(), domain.Kubernetes, request)
	require.NoError(t, err)
	again, err := w.Allocate(t.Context(), domain.Kubernetes, request)
	require.NoError(t, err)
	assert.Equal(t, keysIn(made), keysIn(again))
	assert.Equal(t, made.Until, again.Until)
	assert.ElementsMatch(t, keysIn(made), reservedBy(t, w.Service, id))
	assert.Contains(t, made.Hosts[0].Reservation.Sentence(), "reserved by AgentReservation r-"+id[:4]+" until ")

	other := asked(2, ofReservation(uuid.NewString(), first, second, third, foreign))
	_, err = w.Allocate(t.Context(), domain.Kubernetes, other)
	require.EqualError(t, err, "1 of 2 Agents can be reserved: 3 Agents match; 2 reserved, 1 free", "the one of another namespace is not counted")

	// Machines that are bound leave it; where it is asked for again, none is kept of the rest, and all are chosen anew.
	require.NoError(t, w.EndAllocation(t.Context(), domain.Kubernetes, id))
	assert.Empty(t, reservedBy(t, w.Service, id))
	one, err := w.Allocate(t.Context(), domain.Kubernetes, asked(1, ofReservation(id, first, second, third)))
	require.NoError(t, err)
	require.Len(t, one.Hosts, 1)
	three, err := w.Allocate(t.Context(), domain.Kubernetes, asked(3, ofReservation(id, first, second, third)))
	require.NoError(t, err)
	assert.Len(t, three.Hosts, 3)
	w.jump(domain.DefaultReservation + time.Second)
	assert.Empty(t, reservedBy(t, w.Service, id), "it ends by its time")
}

func TestAnAgentThatIsTakenIsNotReserved(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	key := w.register(kubeInfraEnv(t, w.Service, "metal"), "n1")
	for want, says := range map[string]domain.Candidate{
		"1 Agent matches; 1 bound": {Labels: labels.Set{"pool": "a"}, Bound: true}, "1 Agent matches; 1 reserved": {Labels: labels.Set{"pool": "a"}, Reserved: true}, "no Agent matches": {},
	} {
		request := asked(1, ofReservation(uuid.NewString()))
		request.Among[key] = says
		_, err := w.Allocate(t.Context(), domain.Kubernetes, request)
		require.EqualError(t, err, "0 of 1 Agents can be reserved: "+want)
	}
}

// TestReplicasThatServeOneReservationTogetherKeepTheSameHosts lets two replicas on PostgreSQL ask for the same reservations at the same moment.
func TestReplicasThatServeOneReservationTogetherKeepTheSameHosts(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	one, two := run(t, lockorder.Check(open(t, server.URL))), run(t, lockorder.Check(open(t, server.URL)))
	e := kubeInfraEnv(t, one, "metal")
	const hosts, each, reservations = 24, 3, 8
	var keys []domain.HostKey
	for i := range hosts {
		key := domain.HostKey{InfraEnvID: e.ID, HostID: uuid.NewString()}
		_, err := one.RegisterHost(t.Context(), e.ID, domain.NewHost{HostID: key.HostID, AgentVersion: "test", BootID: "1"})
		require.NoError(t, err)
		require.NoError(t, one.ReportStep(t.Context(), key, agentproto.StepReply{Type: agentproto.StepInventory, Output: machine(fmt.Sprintf("n%d", i))}))
		approve(t, one, key)
		keys = append(keys, key)
	}
	var wait sync.WaitGroup
	ids := make([]string, reservations)
	for i := range ids {
		ids[i] = uuid.NewString()
		for _, replica := range []*service.Service{one, two} {
			wait.Go(func() {
				_, err := replica.Allocate(t.Context(), domain.Kubernetes, asked(each, ofReservation(ids[i], keys...)))
				if err != nil {
					assert.Equal(t, "TooFewHosts", domain.ReasonOf(err), err)
				}
			})
		}
	}
	wait.Wait()
	holders := map[domain.HostKey]string{}
	for _, id := range ids { // what the later passes find: replicas ask until there is nothing to do
		made, err := two.Allocate(t.Context(), domain.Kubernetes, asked(each, ofReservation(id, keys...)))
		require.NoError(t, err)
		held := reservedBy(t, one, id)
		assert.ElementsMatch(t, keysIn(made), held)
		assert.Len(t, held, each)
		for _, key := range held {
			assert.Empty(t, holders[key])
			holders[key] = id
		}
	}
	assert.Len(t, holders, hosts)
	assert.NotContains(t, server.Log(), "deadlock")
}
