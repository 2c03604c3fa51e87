// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// labelledPool makes a pool of a few addresses with the label zone.
func (w *testEnv) labelledPool(name, zone, first, last string) *ipamv1.IPPool {
	w.t.Helper()
	pool := &ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Labels: map[string]string{"zone": zone}}}
	pool.Spec = ipamv1.IPPoolSpec{NamePrefix: name, Prefix: 24, Pools: []ipamv1.Pool{span(first, last)}}
	require.NoError(w.t, w.user.Create(w.t.Context(), pool))
	return pool
}

func (w *testEnv) choosing(name, zone string) *ipamv1.IPClaim {
	w.t.Helper()
	claim := w.newClaim(name, "")
	claim.Spec.PoolSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": zone}}
	require.NoError(w.t, w.user.Create(w.t.Context(), claim))
	return claim
}

// widen makes a pool of one address one of nine. A claim that is made before the operator knows that chooses another pool.
func (w *testEnv) widen(pool *ipamv1.IPPool) {
	w.t.Helper()
	w.merge(pool, `{"spec":{"pools":[{"start":"10.1.0.1","end":"10.1.0.9"}]}}`)
	w.eventually("the pool is not wider", func() bool {
		total := w.getPool(pool.Name).Status.Total
		return total != nil && *total == 9
	})
}

func TestAClaimChoosesItsPoolByLabels(t *testing.T) {
	w := newTestEnv(t)
	w.operator(nil)
	w.waits(w.choosing("early", "a"), ipamv1.ReasonPoolNotReady)
	second := w.labelledPool("second", "b", "10.2.0.1", "10.2.0.1")
	w.labelledPool("first", "a", "10.1.0.1", "10.1.0.1")
	assert.Equal(t, "first", w.address("early").Spec.Pool.Name, "a pool that appears is chosen")
	w.waits(w.choosing("next", "a"), ipamv1.ReasonPoolExhausted)
	w.merge(second, `{"metadata":{"labels":{"zone":"a"}}}`)
	assert.Equal(t, "second", w.address("next").Spec.Pool.Name, "a pool that gets the label is the next one")

	w.waits(w.choosing("last", "a"), ipamv1.ReasonPoolExhausted)
	w.delete(w.getClaim("next"))
	assert.Equal(t, "second", w.address("last").Spec.Pool.Name, "an address of the second pool wakes a claim that waits in the queue of the first one")
	w.merge(second, `{"metadata":{"labels":null}}`)
	w.delete(w.getClaim("last"))
	w.untilUsed("second", 0)
	w.settled()

	both := w.newClaim("both", "first")
	both.Spec.PoolSelector = &metav1.LabelSelector{}
	require.ErrorContains(t, w.user.Create(t.Context(), both), "pool.name must name an IPPool, or poolSelector choose one, and not both")
	err := w.user.Patch(t.Context(), w.getClaim("early"), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"poolSelector":{"matchLabels":{"zone":"b"}}}}`)))
	require.ErrorContains(t, err, "poolSelector cannot be modified; create another claim")
}

// A pool that is paused gives nothing: the next one does, and where there is none, the claim waits.
func TestAChoosingClaimPassesAPausedPool(t *testing.T) {
	w := newTestEnv(t)
	w.operator(nil)
	first, second := w.labelledPool("first", "a", "10.1.0.1", "10.1.0.9"), w.labelledPool("second", "a", "10.2.0.1", "10.2.0.1")
	const pause = `{"metadata":{"annotations":{"` + ipamv1.PausedAnnotation + `":""}}}`
	w.merge(first, pause)
	w.choosing("one", "a")
	assert.Equal(t, "second", w.address("one").Spec.Pool.Name)
	w.merge(second, pause)
	claim := w.choosing("two", "a")
	w.settled()
	w.merge(second, `{"metadata":{"annotations":null},"spec":{"pools":[{"start":"10.2.0.1","end":"10.2.0.9"}]}}`)
	assert.Equal(t, "second", w.address(claim.Name).Spec.Pool.Name)
}

// A pool that gives nothing for now does not keep a claim from what another one gets back: the claim waits for a pool that is in use.
func TestAChoosingClaimWaitsForAPoolThatServesIt(t *testing.T) {
	w := newTestEnv(t)
	w.operator(nil)
	for name, stop := range map[string]func(first *ipamv1.IPPool){
		"paused": func(first *ipamv1.IPPool) {
			w.merge(first, `{"metadata":{"annotations":{"`+ipamv1.PausedAnnotation+`":""}}}`)
		},
		"deleted": func(first *ipamv1.IPPool) { w.delete(first) },
	} {
		first := w.labelledPool(name+"-1", name, "10.1.0.1", "10.1.0.1")
		w.choosing(name+"-first", name)
		require.Equal(t, first.Name, w.address(name+"-first").Spec.Pool.Name)
		second := w.labelledPool(name+"-2", name, "10.2.0.1", "10.2.0.1")
		holder := w.choosing(name+"-second", name)
		require.Equal(t, second.Name, w.address(holder.Name).Spec.Pool.Name)
		stop(first)
		claim := w.choosing(name+"-waits", name)
		w.eventually("it waits for the pool that is "+name, func() bool { return strings.Contains(w.waits(claim, ipamv1.ReasonPoolExhausted), second.Name) })
		w.delete(holder)
		assert.Equal(t, second.Name, w.address(claim.Name).Spec.Pool.Name, name)
	}
}

// Of the pools that a claim of a prefix chooses from, one that hands out no such prefixes is none.
func TestAChoosingClaimOfAPrefixWaitsForAPoolThatHasPrefixes(t *testing.T) {
	w := newTestEnv(t)
	w.operator(nil)
	w.labelledPool("first", "a", "10.1.0.1", "10.1.0.9")
	second := w.labelledPool("second", "a", "10.2.0.1", "10.2.0.9")
	w.merge(second, `{"spec":{"pools":[{"subnet":"10.3.0.0/28","allocationPrefixLength":29}]}}`)
	choose := func(name, ip string) *ipamv1.IPClaim {
		claim := w.newClaim(name, "")
		claim.Spec.PoolSelector, claim.Spec.PrefixLength = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "a"}}, 29
		if ip != "" {
			claim.Annotations = map[string]string{ipamv1.RequestedAddressAnnotation: ip}
		}
		require.NoError(t, w.user.Create(t.Context(), claim))
		return claim
	}
	choose("asks", "10.3.0.8")
	assert.Equal(t, "10.3.0.8", string(w.address("asks").Spec.Address), "a prefix that it asks for is that of one pool")
	holder := choose("one", "")
	require.Equal(t, "10.3.0.0", string(w.address("one").Spec.Address))
	w.waits(choose("waits", ""), ipamv1.ReasonPoolExhausted)
	w.delete(holder)
	assert.Equal(t, "10.3.0.0", string(w.address("waits").Spec.Address))
	w.settled()
}

// A pool that comes first by name and has something free is not chosen where another one keeps the address of a former claim of the name.
func TestAChoosingClaimThatIsMadeAgainGetsItsFormerAddress(t *testing.T) {
	w := newTestEnv(t)
	w.operator(nil)
	first, second := w.labelledPool("first", "a", "10.1.0.1", "10.1.0.1"), w.labelledPool("second", "a", "10.2.0.1", "10.2.0.9")
	w.merge(second, `{"spec":{"stickyFor":"1h"}}`)
	w.choosing("a", "a")
	require.Equal(t, "first", w.address("a").Spec.Pool.Name)
	claim := w.choosing("b", "a")
	before := w.address("b").Spec
	require.Equal(t, "second", before.Pool.Name)
	w.widen(first)
	w.choosing("c", "a")
	require.Equal(t, "first", w.address("c").Spec.Pool.Name)

	w.delete(claim)
	w.gone(claim)
	w.choosing("b", "a")
	assert.Equal(t, before.Address, w.address("b").Spec.Address)
	w.settled()
}

// A claim that chooses its pool inherits nothing of a former one of its name whose address cools down.
func TestAChoosingClaimThatIsMadeAgainIsAnotherClaim(t *testing.T) {
	w := newTestEnv(t)
	w.operator(nil)
	first, second := w.labelledPool("first", "a", "10.1.0.1", "10.1.0.1"), w.labelledPool("second", "a", "10.2.0.1", "10.2.0.9")
	w.merge(second, `{"spec":{"addressReuseGracePeriodSeconds":3600}}`)
	w.choosing("a", "a")
	require.Equal(t, "first", w.address("a").Spec.Pool.Name)
	claim := w.choosing("b", "a")
	require.Equal(t, "second", w.address("b").Spec.Pool.Name)
	w.widen(first)
	w.choosing("c", "a")
	require.Equal(t, "first", w.address("c").Spec.Pool.Name)
	w.delete(claim)
	w.gone(claim)
	w.choosing("b", "a")
	assert.Equal(t, "first", w.address("b").Spec.Pool.Name)
	w.settled()
}

// TestTwoReplicasFallOver lets two replicas without leader election serve more claims than two pools have addresses for: each claim has one address, and every address
// is used.
func TestTwoReplicasFallOver(t *testing.T) {
	w := newTestEnv(t)
	w.labelledPool("first", "a", "10.1.0.1", "10.1.0.6")
	w.labelledPool("second", "a", "10.2.0.1", "10.2.0.6")
	for range 2 {
		w.operator(nil)
	}
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() { w.choosing(fmt.Sprintf("c%d", i), "a") })
	}
	group.Wait()
	served := func() (out []string) {
		list := &ipamv1.IPClaimList{}
		require.NoError(t, w.user.List(t.Context(), list, client.InNamespace(w.namespace)))
		for i := range list.Items {
			if list.Items[i].Status.Address != nil && list.Items[i].DeletionTimestamp.IsZero() {
				out = append(out, list.Items[i].Name)
			}
		}
		return out
	}
	for range 2 {
		w.eventually("not every address is used", func() bool { return len(served()) == 12 })
		w.settled()
		for _, name := range served()[:4] {
			w.delete(w.getClaim(name))
		}
	}
	w.eventually("not every claim is served", func() bool { return len(served()) == 12 })
	w.settled()
}
