// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/controlplanetest"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// mark does what a mover does to an object before it deletes it.
func (w *testEnv) mark(obj client.Object) {
	w.t.Helper()
	patch := `{"metadata":{"annotations":{"` + ipamv1.DeleteForMoveAnnotation + `":""}}}`
	require.NoError(w.t, w.user.Patch(w.t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// force removes an object with its finalizers.
func (w *testEnv) force(obj client.Object) {
	w.t.Helper()
	w.delete(obj)
	err := w.user.Patch(w.t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	require.NoError(w.t, client.IgnoreNotFound(err))
}

// TestAMoveThatWasCutOff leaves behind what a mover has marked: while the Cluster is paused nothing of it is touched, and when it goes on again every
// claim has the address that it had.
func TestAMoveThatWasCutOff(t *testing.T) {
	w := newTestEnv(t)
	w.installContract()
	controlplanetest.Start(t, controlplanetest.WithCRDs(fstest.MapFS{"cluster.yaml": {Data: []byte(clusterCRD)}}))
	w.operator(nil)
	cluster := w.cluster("c", false)
	w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.200")}
		s.ClusterName = new("c")
		s.AllocationStrategy = ipamv1.RandomAllocation
	})
	w.pool("free", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.1.0.10", "10.1.0.200")} })
	had := map[string]string{}
	for _, name := range []string{"gone", "leaving", "marked"} {
		w.claim(name, "p")
		had[name] = w.address(name).Name
		w.eventually(name+" has no finalizer", func() bool { return len(w.getClaim(name).Finalizers) == 1 })
	}
	w.addressClaim("contract", "p", nil)
	contract := w.contractAddress("contract")
	released := w.claim("released", "p")
	w.address("released")
	w.eventually("the claim has no finalizer", func() bool { return len(w.getClaim("released").Finalizers) == 1 })

	w.pause(cluster, true)
	w.follower("c")
	w.force(w.address("gone"))
	leaving := w.address("leaving")
	w.mark(leaving)
	w.delete(leaving)
	w.mark(contract)
	w.delete(contract)
	w.mark(w.getClaim("marked"))
	w.mark(released)
	w.delete(released)
	w.claim("witness", "free")
	w.address("witness")
	require.NoError(t, w.user.Get(t.Context(), client.ObjectKeyFromObject(leaving), leaving), "marked objects are left to the mover")
	require.NoError(t, w.user.Get(t.Context(), client.ObjectKeyFromObject(contract), contract), "marked objects are left to the mover")
	require.NotNil(t, w.getClaim("released"))
	err := w.user.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: had["gone"]}, &ipamv1.IPAddress{})
	require.True(t, apierrors.IsNotFound(err), "no address is allocated while the Cluster is paused")

	w.pause(cluster, false)
	w.gone(released)
	w.settled()
	w.eventually("an address is still being deleted", func() bool {
		for _, name := range had {
			address := &ipamv1.IPAddress{}
			err := w.user.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, address)
			if err != nil || address.DeletionTimestamp != nil {
				return false
			}
		}
		again := w.contractObject("IPAddress", contract.GetName())
		return w.user.Get(t.Context(), client.ObjectKeyFromObject(again), again) == nil && again.GetDeletionTimestamp() == nil
	})
	for name, address := range had {
		assert.Equal(t, address, w.address(name).Name)
	}
	w.delete(w.getClaim("marked"))
	w.eventually("a mark keeps a claim for ever", func() bool { return w.getClaim("marked") == nil })
	w.settled()
}

// TestAPoolThatMovesByItsLabel may be ahead of the Cluster: its claims wait.
func TestAPoolThatMovesByItsLabel(t *testing.T) {
	w := newTestEnv(t)
	controlplanetest.Start(t, controlplanetest.WithCRDs(fstest.MapFS{"cluster.yaml": {Data: []byte(clusterCRD)}}))
	w.operator(nil)
	pool := &ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "p", Labels: map[string]string{"clusterctl.cluster.x-k8s.io/move": ""}}}
	pool.Spec = ipamv1.IPPoolSpec{NamePrefix: "p", Pools: []ipamv1.Pool{span("10.0.0.10", "10.0.0.20")}}
	require.NoError(t, w.user.Create(t.Context(), pool))
	claim := w.newClaim("a", "p")
	claim.Labels[ipamv1.ClusterNameLabel] = "c"
	require.NoError(t, w.user.Create(t.Context(), claim))
	w.claim("without-cluster", "p")
	w.address("without-cluster")
	w.eventually("the claim is not told that its Cluster is missing", func() bool {
		got := w.getClaim("a")
		return len(got.Status.Conditions) == 1 && got.Status.Conditions[0].Reason == ipamv1.ReasonClusterNotFound
	})
	cluster := w.cluster("c", true)
	w.claim("witness", "p")
	w.address("witness")
	assert.Nil(t, w.getClaim("a").Status.Address)
	w.pause(cluster, false)
	w.address("a")
}

// TestAMovedClaimKeepsItsAddressBeforeTheWatchShowsIt brings a claim and its address as a mover does, without a status, while the watch of addresses is
// behind; then the Cluster goes on.
func TestAMovedClaimKeepsItsAddressBeforeTheWatchShowsIt(t *testing.T) {
	w := newTestEnv(t)
	controlplanetest.Start(t, controlplanetest.WithCRDs(fstest.MapFS{"cluster.yaml": {Data: []byte(clusterCRD)}}))
	hide, show := w.operatorWithLateAddresses()
	cluster := w.cluster("c", true)
	pool := w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.200")}
		s.ClusterName = new("c")
		s.AllocationStrategy = ipamv1.RandomAllocation
	})
	w.eventually("the pool is not seen", func() bool { return len(w.getPool("p").Finalizers) == 1 })
	hide()
	var moved []*ipamv1.IPAddress
	for i, name := range []string{"a", "b"} {
		claim := w.claim(name, "p")
		address := &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: fmt.Sprint("p-10-0-0-10", i), Finalizers: []string{ipamv1.IPAddressFinalizer},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: ipamv1.GroupVersion.String(), Kind: ipamv1.IPPoolKind, Name: pool.Name, UID: pool.UID},
				{APIVersion: ipamv1.GroupVersion.String(), Kind: ipamv1.IPClaimKind, Name: claim.Name, UID: claim.UID},
			},
		}}
		address.Spec = ipamv1.IPAddressSpec{
			Address: ipamv1.IPAddressStr(fmt.Sprint("10.0.0.10", i)), Pool: ipamv1.ObjectReference{Name: "p"}, Claim: ipamv1.ObjectReference{Name: name}, Prefix: 24,
		}
		require.NoError(t, w.user.Create(t.Context(), address))
		moved = append(moved, address)
	}
	// The claims have been looked at when one that is not held up has been told something.
	w.claim("witness", "none")
	w.eventually("the witness is not told anything", func() bool { return len(w.getClaim("witness").Status.Conditions) == 1 })

	w.pause(cluster, false)
	assert.Equal(t, moved[0].Name, w.address("a").Name)
	assert.Equal(t, moved[1].Name, w.address("b").Name)
	show()
	w.delete(w.getClaim("witness"))
	w.settled()
	list := &ipamv1.IPAddressList{}
	require.NoError(t, w.user.List(t.Context(), list, client.InNamespace(w.namespace)))
	assert.Len(t, list.Items, 2)
}

// TestAMovedClaimOfTheContractKeepsItsAddressBeforeTheWatchShowsIt is the same for claims of Cluster API that come from a cluster of the former manager, whose addresses have no locks.
func TestAMovedClaimOfTheContractKeepsItsAddressBeforeTheWatchShowsIt(t *testing.T) {
	w := newTestEnv(t)
	w.installContract()
	controlplanetest.Start(t, controlplanetest.WithCRDs(fstest.MapFS{"cluster.yaml": {Data: []byte(clusterCRD)}}))
	hide, show := w.operatorWithLateAddresses()
	cluster := w.cluster("c", true)
	pool := w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.200")}
		s.ClusterName = new("c")
	})
	w.eventually("the pool is not seen", func() bool { return len(w.getPool("p").Finalizers) == 1 })
	hide()
	var moved []*unstructured.Unstructured
	for i, name := range []string{"a", "b"} {
		claim := w.addressClaim(name, "p", nil)
		address := w.contractObject("IPAddress", fmt.Sprint("p-10-0-0-10", i))
		address.SetFinalizers([]string{ipamv1.ContractAddressFinalizer})
		address.SetOwnerReferences([]metav1.OwnerReference{
			{APIVersion: ipamv1.GroupVersion.String(), Kind: ipamv1.IPPoolKind, Name: pool.Name, UID: pool.UID},
			{APIVersion: claim.GetAPIVersion(), Kind: "IPAddressClaim", Name: name, UID: claim.GetUID()},
		})
		address.Object["spec"] = map[string]any{
			"address": fmt.Sprint("10.0.0.10", i), "prefix": int64(24), "claimRef": map[string]any{"name": name},
			"poolRef": map[string]any{"apiGroup": "ipam.metal3.io", "kind": "IPPool", "name": "p"},
		}
		require.NoError(t, w.user.Create(t.Context(), address))
		moved = append(moved, address)
	}
	// The claims have been looked at when one that is not held up has been told something.
	witness := w.addressClaim("witness", "none", nil)
	w.eventually("the witness is not told anything", func() bool { return w.contractReason("witness") != "" })

	w.pause(cluster, false)
	assert.Equal(t, moved[0].GetName(), w.contractAddress("a").GetName())
	assert.Equal(t, moved[1].GetName(), w.contractAddress("b").GetName())
	show()
	w.delete(witness)
	w.settled()
}

// operatorWithLateAddresses runs a replica whose watches of addresses show nothing new after hide, until show is called or the test ends.
func (w *site) operatorWithLateAddresses() (hide, show func()) {
	w.t.Helper()
	var late atomic.Bool
	shown := make(chan struct{})
	show = sync.OnceFunc(func() { close(shown) })
	w.operator(func(next http.RoundTripper) http.RoundTripper {
		return tripperFunc(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil && req.URL.Query().Get("watch") != "" && strings.HasSuffix(req.URL.Path, "/ipaddresses") {
				resp.Body = &behind{ReadCloser: resp.Body, late: &late, until: shown}
			}
			return resp, err
		})
	})
	w.t.Cleanup(show)
	return func() { late.Store(true) }, show
}

// behind is a watch that is late for a while.
type behind struct {
	io.ReadCloser
	late  *atomic.Bool
	until chan struct{}
}

// Read implements io.Reader.
func (b *behind) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.late.Load() {
		<-b.until
	}
	return n, err
}

// TestAddressesThatAMoverTookAreNotGivenAgain lets a move be cut off when a claim and its address are gone here, and of another claim the address: they live on
// elsewhere. The Cluster then goes on, and others wait for addresses.
func TestAddressesThatAMoverTookAreNotGivenAgain(t *testing.T) {
	w := newTestEnv(t)
	controlplanetest.Start(t, controlplanetest.WithCRDs(fstest.MapFS{"cluster.yaml": {Data: []byte(clusterCRD)}}))
	w.operator(nil)
	cluster := w.cluster("c", false)
	w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.11")}
		s.ClusterName = new("c")
	})
	w.pool("free", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.1.0.10", "10.1.0.200")} })
	moved, stays := w.claim("moved", "p"), w.claim("stays", "p")
	took, had := w.address("moved"), w.address("stays")
	w.claim("waits", "p")
	w.refused("waits", "Exhausted IP Pools")

	w.pause(cluster, true)
	w.follower("c")
	for _, obj := range []client.Object{took, had, moved} {
		w.mark(obj)
		w.force(obj)
		w.gone(obj)
	}
	w.pause(cluster, false)

	again := w.address(stays.Name)
	assert.Equal(t, had.Name, again.Name)
	assert.NotEqual(t, had.UID, again.UID)
	w.claim("late", "p")
	w.refused("late", "Exhausted IP Pools")
	assert.Nil(t, w.getClaim("waits").Status.Address)

	w.delete(w.getClaim("stays"))
	w.eventually("the released address is not free", func() bool {
		for _, name := range []string{"waits", "late"} {
			if address := w.getClaim(name).Status.Address; address != nil {
				return assert.Equal(t, had.Name, address.Name)
			}
		}
		return false
	})
	w.settled()
}
