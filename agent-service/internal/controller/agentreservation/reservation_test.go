// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentreservation_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-io/muster/agent-service/internal/controller/agentreservation"
	"github.com/muster-io/muster/agent-service/internal/domain"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/apis/faultinject"
)

var errDied = errors.New("the process died")

// harness is a namespace with free Agents, and their hosts in a service.
type harness struct {
	*testing.T
	api   client.WithWatch
	clock *clocktesting.FakePassiveClock
	hosts map[domain.HostKey]*domain.Host
	key   client.ObjectKey
	// writes counts effects; the one of the number die is done or not, and its answer is lost.
	writes, die int
	lost        bool
}

func name(i int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", i) }

func newHarness(t *testing.T, agents int) *harness {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, agentv1.AddToScheme(scheme))
	h := &harness{T: t, clock: clocktesting.NewFakePassiveClock(time.Now().Truncate(time.Second)), hosts: map[domain.HostKey]*domain.Host{}, key: client.ObjectKey{Namespace: "metal", Name: "r"}}
	objects := []client.Object{&agentv1.AgentReservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "r", UID: "1"},
		Spec:       agentv1.AgentReservationSpec{Count: 2, Duration: &metav1.Duration{Duration: time.Hour}},
	}}
	for i := range agents {
		objects = append(objects, &agentv1.Agent{ObjectMeta: metav1.ObjectMeta{
			Namespace: "metal", Name: name(i), OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "InfraEnv", Name: "e", UID: "e"}},
		}})
		key := domain.HostKey{InfraEnvID: "e", HostID: name(i)}
		h.hosts[key] = &domain.Host{HostKey: key}
	}
	effect := func(do func() error) error {
		if h.writes++; h.writes == h.die {
			if h.lost {
				_ = do()
			}
			return errDied
		}
		return do()
	}
	h.api = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&agentv1.AgentReservation{}, &agentv1.Agent{}).Build(), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			return effect(func() error { return c.Patch(ctx, o, p, options...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, options ...client.SubResourcePatchOption) error {
			return effect(func() error { return c.SubResource(sub).Patch(ctx, o, p, options...) })
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
			return effect(func() error {
				// The API server creates nothing by its status.
				if err := c.Get(ctx, h.key, &agentv1.AgentReservation{}); err != nil {
					return err
				}
				return c.SubResource(sub).Apply(ctx, o, options...)
			})
		},
	})
	return h
}

// Allocate implements agentreservation.Service: all or none, and the same for the same ID.
func (h *harness) Allocate(_ context.Context, by domain.Principal, r domain.NewAllocation) (*domain.Allocation, error) {
	if h.writes++; h.writes == h.die && !h.lost {
		return nil, errDied
	}
	made := &domain.Allocation{ID: r.ID, Until: h.clock.Now().Add(r.Reserve)}
	var free []*domain.Host
	for key, host := range h.hosts {
		candidate, there := r.Among[key]
		switch {
		case host.Reservation.ID == r.ID && host.Reservation.Holds(h.clock.Now()):
			made.Hosts, made.Until = append(made.Hosts, *host), host.Reservation.Until
		case there && !candidate.Bound && host.ClusterID == "" && !host.Reservation.Holds(h.clock.Now()):
			free = append(free, host)
		}
	}
	if len(made.Hosts) == 0 {
		if len(free) < r.Count {
			return nil, domain.Refuse(domain.Conflict, "TooFewHosts", "%d of %d Agents can be reserved", len(free), r.Count)
		}
		for _, host := range free[:r.Count] {
			host.Reservation = domain.Reservation{ID: r.ID, By: by.Owner(), Until: made.Until, Kube: r.Kube}
			made.Hosts = append(made.Hosts, *host)
		}
	}
	if h.writes == h.die {
		return nil, errDied
	}
	return made, nil
}

// EndAllocation implements agentreservation.Service.
func (h *harness) EndAllocation(_ context.Context, _ domain.Principal, id string) error {
	if h.writes++; h.writes == h.die && !h.lost {
		return errDied
	}
	for _, host := range h.hosts {
		if host.Reservation.ID == id {
			host.Reservation = domain.Reservation{}
		}
	}
	if h.writes == h.die {
		return errDied
	}
	return nil
}

// GetHost implements agentreservation.Service.
func (h *harness) GetHost(_ context.Context, _ domain.Principal, key domain.HostKey) (*domain.Host, error) {
	host := h.hosts[key]
	if host == nil {
		return nil, domain.RefuseUnknown("Host", key.HostID)
	}
	return new(*host), nil
}

// pass is one reconcile, by a process that has just started.
func (h *harness) pass() (ctrl.Result, error) {
	r := agentreservation.New(agentreservation.Deps{Client: h.api, Live: h.api, Service: h, Recorder: events.NewFakeRecorder(100), Clock: h.clock})
	return r.Reconcile(h.Context(), ctrl.Request{NamespacedName: types.NamespacedName(h.key)})
}

// show lets Agents say what the service holds, as their controller does.
func (h *harness) show() {
	h.Helper()
	for key, host := range h.hosts {
		agent := h.agent(key.HostID)
		agent.Status.Conditions = nil
		if host.Reservation.Holds(h.clock.Now()) {
			agent.Status.Conditions = []agentv1.Condition{{Type: agentv1.ConditionReserved, Status: corev1.ConditionTrue, Reason: agentv1.ReasonAllocated, Message: host.Reservation.Sentence()}}
		}
		require.NoError(h, h.api.Status().Update(h.Context(), agent))
	}
}

func (h *harness) agent(name string) *agentv1.Agent {
	h.Helper()
	agent := &agentv1.Agent{}
	require.NoError(h, h.api.Get(h.Context(), client.ObjectKey{Namespace: "metal", Name: name}, agent))
	return agent
}

// bind is what another client does to an Agent.
func (h *harness) bind(name string) {
	h.Helper()
	agent := h.agent(name)
	agent.Spec.ClusterDeploymentName = &agentv1.ClusterReference{Name: "blue", Namespace: "team"}
	require.NoError(h, h.api.Update(h.Context(), agent))
}

func (h *harness) held() (names []string) {
	for key, host := range h.hosts {
		if host.Reservation.Holds(h.clock.Now()) {
			names = append(names, key.HostID)
		}
	}
	return names
}

func (h *harness) reservation() *agentv1.AgentReservation {
	h.Helper()
	found := &agentv1.AgentReservation{}
	require.NoError(h, h.api.Get(h.Context(), h.key, found))
	return found
}

func (h *harness) ready() agentv1.Condition {
	h.Helper()
	return *agentv1.FindCondition(h.reservation().Status.Conditions, agentv1.ConditionReady)
}

// settle passes until the reservation counts.
func (h *harness) settle() {
	h.Helper()
	for range 20 {
		_, err := h.pass()
		if err != nil {
			require.ErrorIs(h, err, errDied)
		}
		h.show()
		if said := h.reservation().Status; err == nil && said.ReservedUntil != nil && agentv1.IsConditionTrue(said.Conditions, agentv1.ConditionReady) {
			return
		}
	}
	require.Fail(h, "it does not settle", "%+v", h.reservation().Status)
}

func TestAReservationSurvivesADeathAtEveryWrite(t *testing.T) {
	for _, lost := range []bool{false, true} {
		for die := 1; ; die++ {
			h := newHarness(t, 3)
			h.die, h.lost = die, lost
			h.settle()
			assert.Len(t, h.held(), 2, "death at write %d", die)
			assert.ElementsMatch(t, h.held(), h.reservation().Status.Agents, "death at write %d", die)
			require.NoError(t, h.api.Delete(t.Context(), h.reservation()))
			for range 20 {
				if _, err := h.pass(); err != nil {
					require.ErrorIs(t, err, errDied)
					continue
				}
				if err := h.api.Get(t.Context(), h.key, &agentv1.AgentReservation{}); apierrors.IsNotFound(err) {
					break
				}
			}
			assert.True(t, apierrors.IsNotFound(h.api.Get(t.Context(), h.key, &agentv1.AgentReservation{})), "death at write %d", die)
			assert.Empty(t, h.held(), "death at write %d", die)
			if h.writes < die {
				require.Greater(t, die, 5, "writes were made to die at")
				break
			}
		}
	}
}

func TestAMachineThatIsBoundBeforeTheReservationCountsLetsNoneBeKept(t *testing.T) {
	h := newHarness(t, 2)
	_, err := h.pass()
	require.NoError(t, err)
	assert.Equal(t, agentv1.ReasonReserving, h.ready().Reason)
	assert.Len(t, h.held(), 2)
	h.bind(name(0)) // by a client that has not seen the condition yet
	h.show()
	_, err = h.pass()
	require.NoError(t, err)
	assert.Equal(t, "1 of 2 machines were bound, or went, before the reservation counted: others are chosen", h.ready().Message)
	assert.Empty(t, h.held())
	result, err := h.pass()
	require.NoError(t, err)
	assert.Equal(t, agentv1.ReasonTooFewAgents, h.ready().Reason)
	assert.Equal(t, "1 of 2 Agents can be reserved", h.ready().Message)
	assert.Positive(t, result.RequeueAfter)
	assert.Empty(t, h.held())
}

func TestAReservationCountsOnlyWhenAllAgentsSayIt(t *testing.T) {
	h := newHarness(t, 2)
	for range 3 {
		_, err := h.pass()
		require.NoError(t, err)
		assert.Equal(t, corev1.ConditionFalse, h.ready().Status)
	}
	assert.Equal(t, "0 of 2 machines say that they are reserved", h.ready().Message)
	h.show()
	_, err := h.pass()
	require.NoError(t, err)
	assert.Equal(t, corev1.ConditionTrue, h.ready().Status)
}

func TestAReservationExpiresAndSaysSo(t *testing.T) {
	h := newHarness(t, 3)
	h.settle()
	result, err := h.pass()
	require.NoError(t, err)
	assert.Equal(t, time.Hour, result.RequeueAfter)
	until := h.reservation().Status.ReservedUntil.UTC().Format(time.RFC3339)
	h.clock.SetTime(h.clock.Now().Add(time.Hour))
	result, err = h.pass()
	require.NoError(t, err)
	assert.Zero(t, result, "it is over")
	assert.Equal(t, agentv1.ReasonReservationExpired, h.ready().Reason)
	assert.Equal(t, "The reservation of 2 machines ended at "+until+": create another AgentReservation", h.ready().Message)
	assert.Zero(t, h.reservation().Status.Reserved)
	_, err = h.pass()
	require.NoError(t, err)
	assert.Empty(t, h.held(), "nothing is reserved again")
}

func TestAReservationThatWasEndedIsNotMadeAgain(t *testing.T) {
	h := newHarness(t, 3)
	h.settle()
	require.NoError(t, h.EndAllocation(t.Context(), domain.Kubernetes, "1"))
	_, err := h.pass()
	require.NoError(t, err)
	assert.Equal(t, agentv1.ReasonReservationEnded, h.ready().Reason)
	assert.Empty(t, h.held())
}

// A replica that lost its Lease, and does not know it, reserves for an object that is gone by now.
func TestAReplicaThatComesLateLeavesNothingReserved(t *testing.T) {
	h := newHarness(t, 2)
	late := &gone{WithWatch: h.api}
	r := agentreservation.New(agentreservation.Deps{Client: late, Live: h.api, Service: h, Recorder: events.NewFakeRecorder(100), Clock: h.clock})
	late.object = h.reservation()
	late.object.Finalizers = []string{agentv1.ReservationFinalizer}
	require.NoError(t, h.api.Delete(t.Context(), h.reservation()))
	_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName(h.key)})
	require.NoError(t, err)
	assert.Empty(t, h.held())
}

// While an API server does not serve the kind, it answers 404 as for an object that is gone.
func TestAReservationKeepsItsMachinesWhileItsKindIsNotServed(t *testing.T) {
	h := newHarness(t, 3)
	h.settle()
	require.Len(t, h.held(), 2)
	unserved := func() error {
		return faultinject.NotServed(schema.GroupResource{Group: agentv1.GroupVersion.Group, Resource: "agentreservations"})
	}
	api := interceptor.NewClient(h.api, interceptor.Funcs{SubResourceApply: func(context.Context, client.Client, string, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
		return unserved()
	}})
	live := interceptor.NewClient(h.api, interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return unserved()
	}})
	h.bind(h.held()[0]) // there is something to report
	r := agentreservation.New(agentreservation.Deps{Client: api, Live: live, Service: h, Recorder: events.NewFakeRecorder(100), Clock: h.clock})
	_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: h.key})
	require.ErrorContains(t, err, "could not find the requested resource")
	assert.NotEmpty(t, h.held())
}

// gone is a cache that still shows an object.
type gone struct {
	client.WithWatch
	object *agentv1.AgentReservation
}

func (g *gone) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if found, is := into.(*agentv1.AgentReservation); is {
		g.object.DeepCopyInto(found)
		return nil
	}
	return g.WithWatch.Get(ctx, key, into, options...)
}
