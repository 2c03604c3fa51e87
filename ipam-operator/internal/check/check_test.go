// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

func pool(name string, status ipamv1.IPPoolStatus) *ipamv1.IPPool {
	return &ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: ipamv1.IPPoolSpec{NamePrefix: "p"}, Status: status}
}

func claim(name, address string) *ipamv1.IPClaim {
	c := &ipamv1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
	if address != "" {
		c.Status.Address = &ipamv1.ObjectReference{Name: address}
	}
	return c
}

func address(name, ip, claim string) *ipamv1.IPAddress {
	return &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, Finalizers: []string{ipamv1.IPAddressFinalizer},
			OwnerReferences: []metav1.OwnerReference{{Kind: "IPClaim", Name: claim, UID: types.UID("uid-" + claim)}},
		},
		Spec: ipamv1.IPAddressSpec{Address: ipamv1.IPAddressStr(ip), Claim: ipamv1.ObjectReference{Name: claim}, Pool: ipamv1.ObjectReference{Name: "p"}},
	}
}

// released is an address that was deleted some time ago and still has its finalizer.
func released(a *ipamv1.IPAddress, ago time.Duration) *ipamv1.IPAddress {
	a.DeletionTimestamp = new(metav1.NewTime(time.Now().Add(-ago)))
	return a
}

// sticky makes a pool keep addresses for claims that are made again.
func sticky(p *ipamv1.IPPool, d time.Duration) *ipamv1.IPPool {
	p.Spec.StickyFor = &metav1.Duration{Duration: d}
	return p
}

func prefix(a *ipamv1.IPAddress, length int) *ipamv1.IPAddress {
	a.Spec.PrefixLength = length
	return a
}

func quota(p *ipamv1.IPPool, n int64) *ipamv1.IPPool {
	p.Spec.MaxAddressesPerNamespace = n
	return p
}

// ofOtherNamespace makes a claim one of the namespace team that names a pool of the namespace ns.
func ofOtherNamespace(c *ipamv1.IPClaim, pool string) *ipamv1.IPClaim {
	c.Namespace, c.Spec.Pool = "team", ipamv1.ObjectReference{Namespace: "ns", Name: pool}
	return c
}

// tenant makes an address that of a claim of the namespace team.
func tenant(a *ipamv1.IPAddress, claim types.UID) *ipamv1.IPAddress {
	a.OwnerReferences = []metav1.OwnerReference{{Kind: "IPPool", Name: "p", UID: "uid-p"}}
	a.Spec.Claim.Namespace, a.Spec.Claim.UID = "team", string(claim)
	return a
}

// TestANamespaceAlone looks at one namespace only: what its objects refer to in others is no contradiction.
func TestANamespaceAlone(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, ipamv1.AddToScheme(scheme))
	require.NoError(t, infrav1.AddToScheme(scheme))
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		pool("p", ipamv1.IPPoolStatus{}), ofOtherNamespace(claim("a", "p-10-0-0-1"), "p"), tenant(address("p-10-0-0-1", "10.0.0.1", "a"), "uid-a"),
	).Build()
	for _, namespace := range []string{"ns", "team"} {
		findings, err := Run(t.Context(), reader, namespace)
		require.NoError(t, err)
		assert.Empty(t, findings, namespace)
	}
}

func ofUID(p *ipamv1.IPPool, uid types.UID) *ipamv1.IPPool {
	p.UID = uid
	return p
}

// ofPool makes a pool of a UID the owner of an address.
func ofPool(a *ipamv1.IPAddress, uid types.UID) *ipamv1.IPAddress {
	a.OwnerReferences = append(a.OwnerReferences, metav1.OwnerReference{APIVersion: ipamv1.GroupVersion.String(), Kind: ipamv1.IPPoolKind, Name: a.Spec.Pool.Name, UID: uid})
	return a
}

func TestRun(t *testing.T) {
	good := func() []client.Object {
		return []client.Object{
			pool("p", ipamv1.IPPoolStatus{Used: new(int64(1)), Allocations: map[string]ipamv1.IPAddressStr{"a": "10.0.0.1"}}),
			claim("a", "p-10-0-0-1"), address("p-10-0-0-1", "10.0.0.1", "a"),
		}
	}
	for name, test := range map[string]struct {
		objects []client.Object
		want    []string
	}{
		"no findings": {objects: good()},
		"an address made by hand reserves": {objects: []client.Object{
			pool("p", ipamv1.IPPoolStatus{}),
			&ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p-10-0-0-9"}, Spec: ipamv1.IPAddressSpec{Address: "10.0.0.9", Pool: ipamv1.ObjectReference{Name: "p"}}},
		}},
		"orphans": {
			objects: append(good()[:2], address("p-10-0-0-1", "10.0.0.1", "a"), address("p-10-0-0-2", "10.0.0.2", "gone")),
			want: []string{
				"mismatch  IPPool ns/p: status.used is 1, and it has 2 addresses",
				"orphan    IPAddress ns/p-10-0-0-2: its IPClaim gone does not exist",
			},
		},
		"doubles": {
			objects: []client.Object{
				pool("p", ipamv1.IPPoolStatus{}), claim("a", "p-10-0-0-1"), claim("b", "p-10-0-0-1"),
				address("p-10-0-0-1", "10.0.0.1", "a"), address("p-10-0-0-2", "10.0.0.2", "a"), address("x", "10.0.0.2", "b"),
			},
			want: []string{
				"double    IPAddress ns/p-10-0-0-2: IPClaim a has IPAddress p-10-0-0-1 too",
				"double    IPAddress ns/x: has 10.0.0.2, as IPAddress p-10-0-0-2 does",
				"double    IPClaim ns/b: names IPAddress p-10-0-0-1, as IPClaim a does",
				"mismatch  IPAddress ns/x: has 10.0.0.2, whose name in the pool is p-10-0-0-2",
				"mismatch  IPClaim ns/b: its IPAddress p-10-0-0-1 belongs to a",
			},
		},
		"addresses that cool down": {
			objects: []client.Object{
				pool("p", ipamv1.IPPoolStatus{}), claim("there", ""),
				released(address("p-10-0-0-1", "10.0.0.1", "gone"), 30*time.Second), released(address("p-10-0-0-2", "10.0.0.2", "gone"), time.Hour),
				released(address("p-10-0-0-3", "10.0.0.3", "there"), time.Hour),
			},
			want: []string{"orphan    IPAddress ns/p-10-0-0-2: was released and is kept for longer than the 0s of IPPool p"},
		},
		"addresses that are kept for their claims": {
			objects: []client.Object{
				sticky(pool("p", ipamv1.IPPoolStatus{}), 2*time.Hour),
				released(address("p-10-0-0-1", "10.0.0.1", "gone"), time.Hour), released(address("p-10-0-0-2", "10.0.0.2", "gone"), 3*time.Hour),
			},
			want: []string{"orphan    IPAddress ns/p-10-0-0-2: was released and is kept for longer than the 2h0m0s of IPPool p"},
		},
		"addresses that were restored and wait for their claims": {
			objects: []client.Object{
				ofUID(pool("p", ipamv1.IPPoolStatus{}), "uid-p"),
				released(ofPool(address("p-10-0-0-1", "10.0.0.1", "gone"), "uid-p-of-another-life"), 30*time.Minute),
				released(ofPool(address("p-10-0-0-2", "10.0.0.2", "gone"), "uid-p-of-another-life"), 2*time.Hour),
				released(ofPool(address("p-10-0-0-3", "10.0.0.3", "gone"), "uid-p"), 30*time.Minute),
			},
			want: []string{
				"orphan    IPAddress ns/p-10-0-0-2: was released and is kept for longer than the 1h0m0s of IPPool p",
				"orphan    IPAddress ns/p-10-0-0-3: was released and is kept for longer than the 0s of IPPool p",
			},
		},
		"dangling references": {
			objects: []client.Object{claim("a", "p-10-0-0-1"), address("p-10-0-0-2", "10.0.0.2", "a")},
			want: []string{
				"dangling  IPAddress ns/p-10-0-0-2: its IPPool p does not exist",
				"dangling  IPClaim ns/a: its IPAddress p-10-0-0-1 does not exist",
			},
		},
		"claims of other namespaces": {
			objects: []client.Object{
				quota(pool("p", ipamv1.IPPoolStatus{Used: new(int64(4)), Allocations: map[string]ipamv1.IPAddressStr{"team/a": "10.0.0.1"}}), 2),
				ofOtherNamespace(claim("a", "p-10-0-0-1"), "p"), ofOtherNamespace(claim("b", "p-10-0-0-2"), "p"), ofOtherNamespace(claim("c", ""), "other"),
				tenant(address("p-10-0-0-1", "10.0.0.1", "a"), "uid-a"), tenant(address("p-10-0-0-2", "10.0.0.2", "b"), "uid-of-another-life"),
				tenant(address("p-10-0-0-3", "10.0.0.3", "c"), "uid-c"), tenant(address("p-10-0-0-4", "10.0.0.4", "gone"), "uid"),
			},
			want: []string{
				"mismatch  IPAddress ns/p-10-0-0-3: its IPClaim team/c names IPPool ns/other",
				"mismatch  IPPool ns/p: claims of namespace team have 4 of its addresses, and one namespace may have 2",
				"orphan    IPAddress ns/p-10-0-0-2: its IPClaim team/b was deleted and created again",
				"orphan    IPAddress ns/p-10-0-0-4: its IPClaim team/gone does not exist",
			},
		},
		"prefixes that overlap": {
			objects: []client.Object{
				pool("p", ipamv1.IPPoolStatus{}), claim("a", ""), claim("b", ""), claim("c", ""), claim("d", ""),
				prefix(address("p-10-0-0-0", "10.0.0.0", "a"), 28), address("p-10-0-0-5", "10.0.0.5", "b"), prefix(address("p-10-0-0-8", "10.0.0.8", "c"), 29),
				prefix(address("p-10-0-0-16", "10.0.0.16", "d"), 28),
			},
			want: []string{
				"double    IPAddress ns/p-10-0-0-5: has 10.0.0.5/32, which is a part of 10.0.0.0/28 of IPAddress p-10-0-0-0",
				"double    IPAddress ns/p-10-0-0-8: has 10.0.0.8/29, which is a part of 10.0.0.0/28 of IPAddress p-10-0-0-0",
			},
		},
		"a status that is behind": {
			objects: append(good()[1:], pool("p", ipamv1.IPPoolStatus{Used: new(int64(3)), Allocations: map[string]ipamv1.IPAddressStr{"b": "10.0.0.1"}})),
			want: []string{
				"mismatch  IPPool ns/p: status.indexes gives 10.0.0.1 to b, who does not have it",
				"mismatch  IPPool ns/p: status.used is 3, and it has 1 addresses",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			require.NoError(t, ipamv1.AddToScheme(scheme))
			require.NoError(t, infrav1.AddToScheme(scheme))
			require.NoError(t, corev1.AddToScheme(scheme))
			findings, err := Run(t.Context(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(test.objects...).Build(), "")
			require.NoError(t, err)
			var got []string
			for _, finding := range findings {
				got = append(got, finding.String())
			}
			assert.Equal(t, test.want, got)
		})
	}
}
