// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/space"
)

// woken are the names of the claims in a queue.
func woken(q Queue) (names []string) {
	for q.Len() > 0 {
		item, _ := q.Get()
		names = append(names, item.Name)
		q.Done(item)
	}
	return names
}

func newQueue(t *testing.T) Queue {
	t.Helper()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(q.ShutDown)
	return q
}

func TestAsManyClaimsAreWokenAsAddressesAreFree(t *testing.T) {
	s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.3")})
	var claims []*ipamv1.IPClaim
	for i := range 6 {
		claim := s.claim(fmt.Sprintf("c%d", i), func(c *ipamv1.IPClaim) {
			c.CreationTimestamp.Time = epoch.Add(-time.Duration(i) * time.Minute) // the last one is the oldest
		})
		s.reconciler.records.wait(key(claim.Name), claim.UID, allocate.WhyExhausted, allocate.Refuse{})
		s.reconciler.Line.Enter(space.Queue{Pool: key("p")}, waiterOf(claim))
		claims = append(claims, claim)
	}
	leaving := s.claim("leaving", func(c *ipamv1.IPClaim) { c.Finalizers = append(c.Finalizers, "example.com/kept") })
	require.NoError(t, s.client.Delete(t.Context(), leaving)) // it needs no address
	s.reconciler.records.wait(key("c4"), claims[4].UID, allocate.WhyRefused, allocate.Refuse{})
	s.reconciler.records.serve(key("c1"))
	s.reconciler.Line.Leave(claims[1].UID)
	s.reconciler.Line.Leave(claims[4].UID)
	q := newQueue(t)
	for _, ip := range []string{"10.0.0.1", "10.0.0.2"} { // one signal for both
		record := recordOf(s.address("p-"+ip, ip, "other"))
		s.index.Observe(record)
		s.reconciler.forgetAddress(record)
	}
	s.index.Observe(recordOf(s.address("p-3", "10.0.0.3", "other")))
	require.Len(t, s.reconciler.nudges, 1)
	s.reconciler.freedHandler().Generic(t.Context(), <-s.reconciler.nudges, q)
	assert.Equal(t, []string{"c5", "c3", "c1"}, woken(q), "the two oldest that any address helps, and one of which nothing is known")

	s.reconciler.freedHandler().Generic(t.Context(), event.GenericEvent{}, q)
	assert.Empty(t, woken(q), "no address was released")
}

// TestARefusedClaimOfAnotherKindIsWokenByAnotherLayout has a claim that looked between the change of a pool and its new layout.
func TestARefusedClaimOfAnotherKindIsWokenByAnotherLayout(t *testing.T) {
	s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.3")})
	claim := s.claim("refused")
	s.reconciler.records.wait(key(claim.Name), claim.UID, allocate.WhyRefused, allocate.Refuse{})
	q := newQueue(t)
	s.reconciler.FreedBy(key("p"), map[netip.Addr]bool{netip.MustParseAddr("10.0.0.2"): true})
	s.reconciler.freedHandler().Generic(t.Context(), <-s.reconciler.nudges, q)
	assert.Empty(t, woken(q), "an address more does not help it")
	s.reconciler.FreedBy(key("p"), nil)
	s.reconciler.freedHandler().Generic(t.Context(), <-s.reconciler.nudges, q)
	assert.Equal(t, []string{"refused"}, woken(q))
	s.reconciler.Freed(key("p"), netip.Addr{})
	s.reconciler.freedHandler().Generic(t.Context(), <-s.reconciler.nudges, q)
	assert.Empty(t, woken(q), "the layout is the same")
}

func TestClaimsThatAreBeingDeletedAreNotReadForEachFreeAddress(t *testing.T) {
	s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.3")})
	s.claim("waiting")
	require.NoError(t, s.client.Delete(t.Context(), s.claim("leaving")))
	names := func(claims []ipamv1.IPClaim) (list []string) {
		for i := range claims {
			list = append(list, claims[i].Name)
		}
		return list
	}
	assert.Equal(t, []string{"waiting"}, names(s.reconciler.waitingInPool(t.Context(), key("p"))))
	assert.ElementsMatch(t, []string{"leaving", "waiting"}, names(s.reconciler.pendingInPool(t.Context(), key("p"))))
}

// TestAServedClaimTakesNoTurn frees an address while another one is on its way to the oldest claim.
func TestAServedClaimTakesNoTurn(t *testing.T) {
	for _, at := range []string{"its address is made", "its status is written"} {
		t.Run("while "+at, func(t *testing.T) {
			var s *shell
			q := newQueue(t)
			var next []string
			free := func(ip string) {
				s.reconciler.forgetAddress(recordOf(s.address("p-"+ip, ip, "other")))
				s.reconciler.freedHandler().Generic(t.Context(), <-s.reconciler.nudges, q)
			}
			faults := interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
					if _, isAddress := obj.(*ipamv1.IPAddress); isAddress && at == "its address is made" {
						free("10.0.0.2")
						next = woken(q)
					}
					return c.Create(ctx, obj, opts...)
				},
				SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
					if at == "its status is written" {
						s.index.Observe(recordOf(s.address("p-10-0-0-1", "10.0.0.1", "first"))) // the watch is faster
						free("10.0.0.2")
						next = woken(q)
					}
					return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
				},
			}
			s = newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.2"), faults: faults})
			for _, ip := range []string{"10.0.0.1", "10.0.0.2"} {
				s.index.Observe(recordOf(s.address("p-"+ip, ip, "other")))
			}
			for _, name := range []string{"first", "second"} {
				claim := s.claim(name)
				s.reconciler.records.wait(key(name), claim.UID, allocate.WhyExhausted, allocate.Refuse{})
				s.reconciler.Line.Enter(space.Queue{Pool: key("p")}, waiterOf(claim))
			}
			free("10.0.0.1")
			require.Equal(t, []string{"first"}, woken(q))

			_, err := s.reconcile("first")
			require.NoError(t, err)
			assert.Equal(t, []string{"second"}, next)
			assert.False(t, s.index.IsServed("uid-first"))
			counts, _ := s.index.Counts(key("p"))
			assert.Equal(t, int64(1), counts.Free)
		})
	}
}

func TestAClaimThatAsksForTheAddressIsWoken(t *testing.T) {
	s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.3"), reserved: map[string]ipamv1.IPAddressStr{"reserved": "10.0.0.2"}})
	for _, name := range []string{"reserved", "asks", "asks-for-another"} {
		claim := s.claim(name, func(c *ipamv1.IPClaim) {
			if name != "reserved" {
				c.Annotations = map[string]string{ipamv1.RequestedAddressAnnotation: map[string]string{"asks": "10.0.0.2", "asks-for-another": "10.0.0.3"}[name]}
			}
		})
		s.reconciler.records.wait(key(name), claim.UID, allocate.WhyRefused, allocate.Refuse{})
	}
	q := newQueue(t)
	s.reconciler.Freed(key("p"), netip.MustParseAddr("10.0.0.2"))
	s.reconciler.freedHandler().Generic(t.Context(), <-s.reconciler.nudges, q)
	assert.ElementsMatch(t, []string{"reserved", "asks"}, woken(q))
}

// TestAClaimThatAsksForAnAddressOnItsWayToAnotherIsWoken asks for it while it is, and it does not arrive there.
func TestAClaimThatAsksForAnAddressOnItsWayToAnotherIsWoken(t *testing.T) {
	var s *shell
	faults := interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if _, isAddress := obj.(*ipamv1.IPAddress); !isAddress {
				return c.Create(ctx, obj, opts...)
			}
			if _, err := s.reconcile("asks"); err != nil { //nolint:contextcheck // it is a pass of its own
				return err
			}
			return apierrors.NewForbidden(schema.GroupResource{Resource: "ipaddresses"}, obj.GetName(), errors.New("exceeded quota"))
		},
	}
	s = newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.2"), faults: faults})
	s.claim("any")
	s.claim("asks", func(c *ipamv1.IPClaim) {
		c.Annotations = map[string]string{ipamv1.RequestedAddressAnnotation: "10.0.0.1"}
	})
	_, err := s.reconcile("any")
	require.Error(t, err)
	q := newQueue(t)
	s.reconciler.freedHandler().Generic(t.Context(), <-s.reconciler.nudges, q)
	assert.Contains(t, woken(q), "asks")
}

// TestTheOtherKindIsWokenWhenTheQueueMoves serves a claim that others, of another kind, wait behind.
func TestTheOtherKindIsWokenWhenTheQueueMoves(t *testing.T) {
	s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.1")})
	woken := make(chan types.NamespacedName, 10)
	s.reconciler.WakeWaiting = func(pool types.NamespacedName, _ netip.Addr) { woken <- pool }
	claim := s.claim("first")
	s.reconciler.records.wait(key("first"), claim.UID, allocate.WhyExhausted, allocate.Refuse{Position: 1})
	s.reconciler.Line.Enter(space.Queue{Pool: key("p")}, waiterOf(claim))
	s.reconciler.Line.Enter(space.Queue{Pool: key("p")}, space.Waiter{Created: epoch.Add(time.Hour), Name: key("second"), UID: "uid-of-another-kind"})
	_, err := s.reconcile("first")
	require.NoError(t, err)
	select {
	case pool := <-woken:
		assert.Equal(t, key("p"), pool)
	case <-time.After(time.Minute):
		require.Fail(t, "those behind are not told that they have moved up")
	}
}
