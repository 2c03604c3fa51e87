// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/controlplanetest"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/check"
)

// allOptions are those of an operator that serves all namespaces, and there what has the label of this environment.
func (w *testEnv) allOptions() Options {
	options := testOptions("")
	options.WatchFilter = w.namespace
	return options
}

func (w *testEnv) ofThisTestEnv() map[string]string {
	return map[string]string{ipamv1.WatchFilterLabel: w.namespace}
}

// tenant makes another namespace.
func (w *testEnv) tenant(labels map[string]string) *corev1.Namespace {
	w.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "team-", Labels: labels}}
	require.NoError(w.t, w.user.Create(w.t.Context(), namespace))
	return namespace
}

// sharedPool makes a pool of ten addresses that other namespaces may have claims of.
func (w *testEnv) sharedPool(name string, change func(*ipamv1.IPPool)) *ipamv1.IPPool {
	w.t.Helper()
	pool := &ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Labels: w.ofThisTestEnv()}}
	pool.Spec = ipamv1.IPPoolSpec{
		NamePrefix: name, Prefix: 24, Gateway: addr("10.0.0.1"), DNSServers: []ipamv1.IPAddressStr{"10.0.0.2"},
		Pools:             []ipamv1.Pool{span("10.0.0.10", "10.0.0.19")},
		AllowedNamespaces: &ipamv1.AllowedNamespaces{From: ipamv1.FromAll},
	}
	change(pool)
	require.NoError(w.t, w.user.Create(w.t.Context(), pool))
	return pool
}

// claimIn makes a claim of another namespace on a pool of this one.
func (w *testEnv) claimIn(namespace, name, pool string) *ipamv1.IPClaim {
	w.t.Helper()
	claim := &ipamv1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: w.ofThisTestEnv()}}
	claim.Spec.Pool = ipamv1.ObjectReference{Namespace: w.namespace, Name: pool}
	require.NoError(w.t, w.user.Create(w.t.Context(), claim))
	return claim
}

// served waits until a claim has an address, and returns it.
func (w *testEnv) served(claim *ipamv1.IPClaim) *ipamv1.IPAddress {
	w.t.Helper()
	address := &ipamv1.IPAddress{}
	w.eventually(claim.Name+" has no address", func() bool {
		if w.user.Get(w.t.Context(), client.ObjectKeyFromObject(claim), claim) != nil || claim.Status.Address == nil {
			return false
		}
		return w.user.Get(w.t.Context(), types.NamespacedName{Namespace: claim.Status.Address.Namespace, Name: claim.Status.Address.Name}, address) == nil
	})
	return address
}

// waits waits until a claim is refused for a reason, and returns the message.
func (w *testEnv) waits(claim *ipamv1.IPClaim, reason string) string {
	w.t.Helper()
	message := ""
	w.eventually(claim.Name+" does not wait for "+reason, func() bool {
		require.NoError(w.t, w.user.Get(w.t.Context(), client.ObjectKeyFromObject(claim), claim))
		for _, condition := range claim.Status.Conditions {
			if condition.Reason == reason {
				message = condition.Message
				return true
			}
		}
		return false
	})
	return message
}

// TestAPoolForManyNamespaces shows what a claim of another namespace gets, and that no right crosses.
func TestAPoolForManyNamespaces(t *testing.T) {
	w := newTestEnv(t)
	w.operatorWith(w.allOptions(), nil)
	team := w.tenant(nil)
	pool := w.sharedPool("p", func(p *ipamv1.IPPool) {
		p.Spec.PreAllocations = map[string]ipamv1.IPAddressStr{"c": "10.0.0.10", team.Name + "/d": "10.0.0.19"}
	})
	closed := w.sharedPool("closed", func(p *ipamv1.IPPool) { p.Spec.AllowedNamespaces = nil })

	claim := w.claimIn(team.Name, "c", pool.Name)
	address := w.served(claim)
	assert.Equal(t, w.namespace, address.Namespace, "the address is beside its pool")
	assert.Equal(t, "10.0.0.11", string(address.Spec.Address), "the preallocation of the name is for a claim of the pool's namespace")
	assert.Equal(t, team.Name, address.Labels[ipamv1.ClaimNamespaceLabel])
	assert.Equal(t, string(claim.UID), address.Spec.Claim.UID)
	require.Len(t, address.OwnerReferences, 1, "an owner of another namespace would have the garbage collector remove it")
	assert.Equal(t, address.Spec.Address, *claim.Status.IPAddress)
	assert.Equal(t, 24, claim.Status.Prefix)
	assert.Equal(t, "10.0.0.1", string(*claim.Status.Gateway))
	assert.Equal(t, []ipamv1.IPAddressStr{"10.0.0.2"}, claim.Status.DNSServers)
	d := w.claimIn(team.Name, "d", pool.Name)
	assert.Equal(t, "10.0.0.19", string(w.served(d).Spec.Address))

	refusal := w.waits(w.claimIn(team.Name, "refused", closed.Name), ipamv1.ReasonNamespaceNotAllowed)
	absent := w.waits(w.claimIn(team.Name, "absent", "absent"), ipamv1.ReasonNamespaceNotAllowed)
	assert.Equal(t, strings.ReplaceAll(refusal, "closed", "absent"), absent, "the refusal does not disclose pools of another namespace")

	w.merge(pool, `{"spec":{"allowedNamespaces":null}}`)
	w.eventually("the operator has not seen that the pool is closed", func() bool {
		closed := w.getPool("p")
		return closed.Status.ObservedGeneration == closed.Generation
	})
	w.waits(w.claimIn(team.Name, "late", pool.Name), ipamv1.ReasonNamespaceNotAllowed)
	assert.Equal(t, address.UID, w.served(claim).UID, "a given address stays")
	w.settled()
	w.untilUsed("p", 2)
	assert.Equal(t, address.Spec.Address, w.getPool("p").Status.Allocations[team.Name+"/c"])

	w.delete(claim)
	w.gone(address)
	w.settledIn(team.Name)
}

// settledIn waits until a checker finds nothing in a namespace.
func (w *testEnv) settledIn(namespace string) {
	w.t.Helper()
	w.eventually("the checker finds something", func() bool {
		findings, err := check.Run(w.t.Context(), w.user, namespace)
		return err == nil && len(findings) == 0
	})
}

// TestEverythingThatAClaimOfAnotherNamespaceWaitsForWakes changes each thing alone that the decision about such a claim reads.
func TestEverythingThatAClaimOfAnotherNamespaceWaitsForWakes(t *testing.T) {
	w := newTestEnv(t)
	controlplanetest.Start(t, controlplanetest.WithCRDs(fstest.MapFS{"cluster.yaml": {Data: []byte(clusterCRD)}}))
	w.operatorWith(w.allOptions(), nil)
	paused := map[string]string{ipamv1.PausedAnnotation: ""}
	type setting struct {
		pool  *ipamv1.IPPool
		team  *corev1.Namespace
		claim *ipamv1.IPClaim
		other *ipamv1.IPClaim
	}
	byLabel := func(p *ipamv1.IPPool) {
		p.Spec.AllowedNamespaces = &ipamv1.AllowedNamespaces{From: ipamv1.FromSelector, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}}
	}
	pausedCluster := func(namespace, name string) {
		cluster := clusterOf(namespace, name)
		cluster.Object["spec"] = map[string]any{"paused": true}
		require.NoError(t, w.user.Create(t.Context(), cluster))
	}
	for name, test := range map[string]struct {
		pool   func(*ipamv1.IPPool)
		before func(s *setting)
		reason string // empty: the claim is held
		change func(s *setting)
	}{
		"labels-of-the-namespace": {
			pool: byLabel, reason: ipamv1.ReasonNamespaceNotAllowed,
			change: func(s *setting) { w.merge(s.team, `{"metadata":{"labels":{"team":"a"}}}`) },
		},
		"from-of-the-pool": {
			pool: byLabel, reason: ipamv1.ReasonNamespaceNotAllowed,
			change: func(s *setting) { w.merge(s.pool, `{"spec":{"allowedNamespaces":{"from":"All","selector":null}}}`) },
		},
		"quota-of-the-pool": {
			pool:   func(p *ipamv1.IPPool) { p.Spec.MaxAddressesPerNamespace = 1 },
			before: func(s *setting) { w.served(s.other) }, reason: ipamv1.ReasonQuotaExceeded,
			change: func(s *setting) { w.merge(s.pool, `{"spec":{"maxAddressesPerNamespace":2}}`) },
		},
		"address-of-the-namespace": {
			pool:   func(p *ipamv1.IPPool) { p.Spec.MaxAddressesPerNamespace = 1 },
			before: func(s *setting) { w.served(s.other) }, reason: ipamv1.ReasonQuotaExceeded,
			change: func(s *setting) { w.delete(s.other) },
		},
		"address-of-the-pool": {
			pool:   func(p *ipamv1.IPPool) { p.Spec.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.10")} },
			before: func(s *setting) { w.served(s.other) }, reason: ipamv1.ReasonPoolExhausted,
			change: func(s *setting) { w.delete(s.other) },
		},
		"pause-of-the-pool": {
			pool:   func(p *ipamv1.IPPool) { p.Annotations = paused },
			change: func(s *setting) { w.merge(s.pool, `{"metadata":{"annotations":null}}`) },
		},
		"cluster-of-the-pool": {
			pool:   func(p *ipamv1.IPPool) { p.Labels[ipamv1.ClusterNameLabel] = "of-the-pool" },
			before: func(*setting) { pausedCluster(w.namespace, "of-the-pool") },
			change: func(*setting) { w.pause(clusterOf(w.namespace, "of-the-pool"), false) },
		},
		"cluster-of-the-claim": {
			before: func(s *setting) { pausedCluster(s.team.Name, "of-the-claim") },
			change: func(s *setting) { w.pause(clusterOf(s.team.Name, "of-the-claim"), false) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &setting{team: w.tenant(nil)}
			s.pool = w.sharedPool(name, func(p *ipamv1.IPPool) {
				if test.pool != nil {
					test.pool(p)
				}
			})
			if test.reason != "" {
				s.other = w.claimIn(s.team.Name, "other", name)
			}
			if test.before != nil {
				test.before(s)
			}
			s.claim = &ipamv1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.team.Name, Name: "c", Labels: w.ofThisTestEnv()}}
			s.claim.Labels[ipamv1.ClusterNameLabel] = "of-the-claim"
			s.claim.Spec.Pool = ipamv1.ObjectReference{Namespace: w.namespace, Name: name}
			require.NoError(t, w.user.Create(t.Context(), s.claim))
			if test.reason != "" {
				w.waits(s.claim, test.reason)
			} else {
				free := w.sharedPool("free-"+name, func(*ipamv1.IPPool) {})
				w.served(w.claimIn(w.tenant(nil).Name, "witness", free.Name))
				require.NoError(t, w.user.Get(t.Context(), client.ObjectKeyFromObject(s.claim), s.claim))
				require.Nil(t, s.claim.Status.Address, "the claim is not held up")
			}
			test.change(s)
			w.served(s.claim)
		})
	}
}

// clusterOf is a Cluster by its name.
func clusterOf(namespace, name string) *unstructured.Unstructured {
	cluster := &unstructured.Unstructured{}
	cluster.SetAPIVersion("cluster.x-k8s.io/v1beta1")
	cluster.SetKind("Cluster")
	cluster.SetNamespace(namespace)
	cluster.SetName(name)
	return cluster
}

// TestTheQuotaHoldsWithTwoReplicas lets two replicas without leader election serve more claims of a namespace at once than it may have.
func TestTheQuotaHoldsWithTwoReplicas(t *testing.T) {
	const limit, claims = 5, 40
	w := newTestEnv(t)
	pool := w.sharedPool("p", func(p *ipamv1.IPPool) {
		p.Spec.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.250")}
		p.Spec.MaxAddressesPerNamespace = limit
		p.Spec.AllocationStrategy = ipamv1.RandomAllocation
	})
	team := w.tenant(nil)
	for range 2 {
		w.operatorWith(w.allOptions(), nil)
	}
	w.eventually("the pool is not ready", func() bool { return len(w.getPool(pool.Name).Finalizers) > 0 })
	var group sync.WaitGroup
	for i := range claims {
		group.Go(func() { w.claimIn(team.Name, fmt.Sprintf("c%d", i), pool.Name) })
	}
	group.Wait()
	bound := func() (out []string) {
		list := &ipamv1.IPClaimList{}
		require.NoError(t, w.user.List(t.Context(), list, client.InNamespace(team.Name)))
		for i := range list.Items {
			if list.Items[i].Status.Address != nil && list.Items[i].DeletionTimestamp.IsZero() {
				out = append(out, list.Items[i].Name)
			}
		}
		return out
	}
	for range 3 { // what is given back is given again
		w.eventually("the quota is not used up", func() bool {
			require.LessOrEqual(t, len(bound()), limit)
			return len(bound()) == limit
		})
		for _, name := range bound()[:2] {
			w.delete(&ipamv1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: team.Name, Name: name}})
		}
	}
	w.settled()
}

// TestARestoredAddressOfAnotherNamespaceStaysWithItsClaim restores a claim and its address without owners and status.
func TestARestoredAddressOfAnotherNamespaceStaysWithItsClaim(t *testing.T) {
	w := newTestEnv(t)
	team := w.tenant(nil)
	stop := w.operatorWith(w.allOptions(), nil)
	w.sharedPool("p", func(p *ipamv1.IPPool) { p.Spec.AllocationStrategy = ipamv1.RandomAllocation })
	claim := w.claimIn(team.Name, "c", "p")
	address := w.served(claim)
	stop()
	for _, obj := range []client.Object{claim, address} {
		w.force(obj)
		w.gone(obj)
		obj.SetResourceVersion("")
		obj.SetUID("")
		obj.SetOwnerReferences(nil)
		obj.SetDeletionTimestamp(nil)
	}
	claim.Status = ipamv1.IPClaimStatus{}
	w.operatorWith(w.allOptions(), nil)
	address.Finalizers = []string{ipamv1.IPAddressFinalizer}
	require.NoError(t, w.user.Create(t.Context(), address))
	require.NoError(t, w.user.Create(t.Context(), claim))
	restored := w.served(claim)
	assert.Equal(t, address.Name, restored.Name)
	w.eventually("the claim does not own its address", func() bool {
		require.NoError(t, w.user.Get(t.Context(), client.ObjectKeyFromObject(restored), restored))
		return restored.Spec.Claim.UID == string(claim.UID) && len(restored.OwnerReferences) == 1
	})
	w.settled()
}

// TestATenantLeaksNoAddresses removes claims with their finalizers whose Cluster is not there: those whose Cluster never was, and one whose Cluster was moved away.
func TestATenantLeaksNoAddresses(t *testing.T) {
	w := newTestEnv(t)
	controlplanetest.Start(t, controlplanetest.WithCRDs(fstest.MapFS{"cluster.yaml": {Data: []byte(clusterCRD)}}))
	w.operatorWith(w.allOptions(), nil)
	w.sharedPool("p", func(*ipamv1.IPPool) {})
	team, other := w.tenant(nil), w.tenant(nil)
	claimOf := func(namespace, name, cluster string) *ipamv1.IPClaim {
		claim := &ipamv1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: w.ofThisTestEnv()}}
		claim.Labels[ipamv1.ClusterNameLabel] = cluster
		claim.Spec.Pool = ipamv1.ObjectReference{Namespace: w.namespace, Name: "p"}
		require.NoError(t, w.user.Create(t.Context(), claim))
		return claim
	}
	for _, namespace := range []*corev1.Namespace{team, other} {
		require.NoError(t, w.user.Create(t.Context(), clusterOf(namespace.Name, "there")))
	}
	never := claimOf(team.Name, "never", "never")
	late := claimOf(team.Name, "late", "late")
	moved, left := claimOf(team.Name, "moved", "there"), claimOf(other.Name, "left", "there")
	addresses := map[string]*ipamv1.IPAddress{}
	for _, claim := range []*ipamv1.IPClaim{never, late, moved, left} {
		addresses[claim.Name] = w.served(claim)
	}
	assert.Contains(t, addresses["never"].Annotations, ipamv1.ClusterAbsentAnnotation)
	require.NoError(t, w.user.Create(t.Context(), clusterOf(team.Name, "late")))
	for _, name := range []string{"late", "moved", "left"} {
		w.eventually("the mark stays on the address "+name, func() bool {
			require.NoError(t, w.user.Get(t.Context(), client.ObjectKeyFromObject(addresses[name]), addresses[name]))
			_, marked := addresses[name].Annotations[ipamv1.ClusterAbsentAnnotation]
			return !marked
		})
	}

	for _, cluster := range []*unstructured.Unstructured{clusterOf(team.Name, "there"), clusterOf(team.Name, "late"), clusterOf(other.Name, "there")} {
		w.delete(cluster)
		w.gone(cluster)
	}
	for _, claim := range []*ipamv1.IPClaim{late, moved, left, never} {
		w.mark(claim) // the operator leaves the claim alone, as one that a mover takes away
		w.force(claim)
		w.gone(claim)
	}
	w.gone(addresses["never"])
	for _, name := range []string{"late", "moved", "left"} {
		require.NoError(t, w.user.Get(t.Context(), client.ObjectKeyFromObject(addresses[name]), addresses[name]), "something uses it elsewhere")
	}

	w.delete(other)
	w.gone(addresses["left"])
	require.NoError(t, w.user.Get(t.Context(), client.ObjectKeyFromObject(addresses["moved"]), addresses["moved"]))
	w.delete(addresses["moved"])
	w.gone(addresses["moved"])
	w.delete(addresses["late"])
	w.gone(addresses["late"])
	w.settled()
}
