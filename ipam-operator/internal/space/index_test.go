// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package space

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/ipset"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func name(n string) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: n} }

func claimName(n string) ClaimName { return ClaimName{"IPClaim", name(n)} }

func layout(prefix, first, last string) *allocate.Layout {
	return allocate.Parse(&ipamv1.IPPoolSpec{
		NamePrefix: prefix, AllocationStrategy: ipamv1.SequentialAllocation,
		Pools: []ipamv1.Pool{{Start: new(ipamv1.IPAddressStr(first)), End: new(ipamv1.IPAddressStr(last))}},
	}, ipamv1.RandomAllocation)
}

func takenBy(prefix, pool, ip string) Record {
	addr := netip.MustParseAddr(ip)
	return Record{Key: Key{"g", name(allocate.AddressName(prefix, addr))}, Pool: name(pool), IP: addr, UID: types.UID(ip)}
}

func (x *Index) plan(pool, claim string) allocate.Decision {
	return x.Decide(name(pool), types.UID(claim), func(free *allocate.Free) allocate.Decision {
		return allocate.Plan(allocate.Snapshot{
			Claim: allocate.Claim{Name: claim}, Pool: allocate.Pool{Name: pool, Found: free != nil, Finalized: true, Free: free},
			Random: ipset.Number{Lo: rand.Uint64()},
		})
	})
}

func (x *Index) free(pool string) int64 {
	free, _ := x.Free(name(pool), 0)
	return free
}

func chosen(t *testing.T, d allocate.Decision) string {
	t.Helper()
	create, ok := d.Action.(allocate.Create)
	require.True(t, ok, "%#v", d)
	return create.IP.String()
}

func TestTwoClaimsOfOneProcessNeverChooseTheSame(t *testing.T) {
	x := New()
	x.SetPool(name("p"), layout("p", "10.0.0.1", "10.0.0.2"))
	assert.Equal(t, "10.0.0.1", chosen(t, x.plan("p", "a")))
	assert.Equal(t, "10.0.0.2", chosen(t, x.plan("p", "b")))
	assert.Equal(t, "10.0.0.1", chosen(t, x.plan("p", "a")), "an attempt without an answer is made again")
	assert.Equal(t, allocate.WhyExhausted, x.plan("p", "c").Why)
	x.GiveUp("b")
	assert.Equal(t, "10.0.0.2", chosen(t, x.plan("p", "c")))
}

func TestAnUnseenAddressIsTakenUntilAReadShowsOtherwise(t *testing.T) {
	x := New()
	x.SetPool(name("p"), layout("p", "10.0.0.1", "10.0.0.1"))
	chosen(t, x.plan("p", "a"))
	x.Made(takenBy("p", "p", "10.0.0.1"), Claim{claimName("a"), "a"}, now)
	assert.True(t, x.IsServed("a"))
	assert.False(t, x.GiveUp("a").IsValid(), "the object stands for it")
	made, ok := x.MadeFor("a")
	assert.True(t, ok)
	assert.Equal(t, "p-10-0-0-1", made.Key.Name)
	assert.Zero(t, x.free("p"))
	old, younger := x.Unseen(name("p"), now)
	assert.Empty(t, old)
	assert.True(t, younger)
	old, _ = x.Unseen(name("p"), now.Add(time.Second))
	assert.Len(t, old, 1)
	x.Learn(takenBy("p", "p", "10.0.0.1"), now)
	_, ok = x.MadeFor("a")
	assert.True(t, ok, "a read shows nothing else")
	assert.Len(t, x.MadeForName(claimName("a")), 1)
	assert.Empty(t, x.MadeForName(claimName("b")))
	x.Observe(takenBy("p", "p", "10.0.0.1"))
	_, ok = x.MadeFor("a")
	assert.False(t, ok, "the cache shows it now")
	assert.Empty(t, x.MadeForName(claimName("a")))
	assert.Empty(t, x.madeByName, "nothing is remembered of an address that the cache shows")
	x.Learn(takenBy("p", "p", "10.0.0.1"), now)
	old, younger = x.Unseen(name("p"), now.Add(time.Second))
	assert.True(t, len(old) == 0 && !younger, "a seen object stays seen")
	assert.Equal(t, []types.NamespacedName{name("p")}, x.Forget(takenBy("p", "p", "10.0.0.1").Key))
	assert.NotZero(t, x.free("p"))
}

func TestPoolsWithOnePrefixShareTheirAddresses(t *testing.T) {
	x := New()
	x.SetPool(name("p"), layout("same", "10.0.0.1", "10.0.0.2"))
	x.Observe(takenBy("same", "p", "10.0.0.1"))
	x.SetPool(name("q"), layout("same", "10.0.0.1", "10.0.0.2"))
	x.SetPool(name("other"), layout("other", "10.0.0.1", "10.0.0.2"))
	assert.Equal(t, "10.0.0.2", chosen(t, x.plan("q", "a")))
	assert.Equal(t, "10.0.0.1", chosen(t, x.plan("other", "b")))
	assert.ElementsMatch(t, []types.NamespacedName{name("p"), name("q")}, x.Forget(takenBy("same", "p", "10.0.0.1").Key))
}

func TestTwoObjectsOfOneAddressFreeItTogether(t *testing.T) {
	x := New()
	x.SetPool(name("p"), layout("p", "10.0.0.1", "10.0.0.1"))
	one, two := takenBy("p", "p", "10.0.0.1"), takenBy("p", "p", "10.0.0.1")
	two.Key.Group = "h"
	x.Observe(one)
	x.Observe(two)
	assert.Empty(t, x.Forget(one.Key))
	assert.Zero(t, x.free("p"))
	assert.NotEmpty(t, x.Forget(two.Key))
}

func TestAnAddressLeftToAClaimIsReserved(t *testing.T) {
	x := New()
	nothing := func(*allocate.Free) allocate.Decision {
		return allocate.Decision{Action: allocate.Nothing{}, Why: allocate.WhyPaused}
	}
	again := func(free *allocate.Free) allocate.Decision {
		return allocate.Plan(allocate.Snapshot{
			Claim: allocate.Claim{Name: "a", Bound: "p-10-0-0-1"}, Pool: allocate.Pool{Name: "p", Found: true, Finalized: true, Free: free},
		})
	}
	address := takenBy("p", "p", "10.0.0.1")
	x.SetPool(name("p"), layout("p", "10.0.0.1", "10.0.0.1"))
	x.Observe(address)
	assert.Empty(t, x.Leave(address.Key, "a"))
	assert.Equal(t, allocate.WhyExhausted, x.plan("p", "b").Why)
	x.Decide(name("p"), "a", nothing)
	x.SetPool(name("p"), layout("p", "10.0.0.1", "10.0.0.1"))
	assert.Equal(t, allocate.WhyExhausted, x.plan("p", "b").Why, "a pause changes nothing")
	assert.Equal(t, allocate.WhyRestored, x.Decide(name("p"), "a", again).Why)
	assert.True(t, x.GiveUp("a").IsValid())

	x.Observe(address)
	x.Leave(address.Key, "a")
	x.Learn(address, now)
	assert.NotEmpty(t, x.Forget(address.Key), "once it is back it is an address like any other")

	x.Observe(address)
	x.Leave(address.Key, "a")
	assert.True(t, x.GiveUp("a").IsValid(), "the claim is gone, too")

	x.Observe(address)
	x.Leave(address.Key, "a")
	x.DropPool(name("p"))
	x.SetPool(name("p"), layout("p", "10.0.0.1", "10.0.0.1"))
	assert.Equal(t, "10.0.0.1", chosen(t, x.plan("p", "b")), "a pool that comes back begins anew")
}

// TestAgainstAModel lets pools, addresses and attempts come and go at random and compares what is free with a list.
func TestAgainstAModel(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 9))
		x := New()
		objects := map[Key]Record{}
		attempts := map[string]string{}
		x.SetPool(name("p"), layout("p", "10.0.0.0", "10.0.0.15"))
		for range 200 {
			ip := netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(20))}).String()
			claim := string(rune('a' + random.IntN(8)))
			switch random.IntN(6) {
			case 0:
				x.Observe(takenBy("p", "p", ip))
				objects[takenBy("p", "p", ip).Key] = takenBy("p", "p", ip)
			case 1:
				x.Forget(takenBy("p", "p", ip).Key)
				delete(objects, takenBy("p", "p", ip).Key)
			case 2:
				x.GiveUp(types.UID(claim))
				delete(attempts, claim)
			case 3:
				x.SetPool(name("p"), layout("p", "10.0.0.0", "10.0.0.15"))
			case 4:
				delete(attempts, claim)
				if create, ok := x.plan("p", claim).Action.(allocate.Create); ok {
					attempts[claim] = create.IP.String()
				}
			case 5:
				x.Learn(takenBy("p", "p", ip), now)
				objects[takenBy("p", "p", ip).Key] = takenBy("p", "p", ip)
			}
			used := map[string]bool{}
			for _, r := range objects {
				used[r.IP.String()] = true
			}
			for _, ip := range attempts {
				used[ip] = true
			}
			counts, ok := x.Counts(name("p"))
			require.True(t, ok)
			require.Equal(t, int64(len(used)), counts.Used)
		}
	}
}

func TestTheNextAddressThatCoolsDown(t *testing.T) {
	x, cooling := New(), layout("p", "10.0.0.1", "10.0.0.9")
	cooling.CoolDown = time.Minute
	x.SetPool(name("p"), cooling)
	assert.Zero(t, x.NextFree(name("p"), now))
	for ip, at := range map[string]time.Time{"10.0.0.1": now.Add(time.Second), "10.0.0.2": now, "10.0.0.3": {}, "10.0.0.4": now.Add(-time.Hour)} {
		r := takenBy("p", "p", ip)
		r.Released = at
		x.Observe(r)
	}
	assert.Equal(t, now.Add(time.Minute), x.NextFree(name("p"), now))
	x.Forget(takenBy("p", "p", "10.0.0.2").Key)
	assert.Equal(t, now.Add(time.Minute+time.Second), x.NextFree(name("p"), now))
	x.Observe(takenBy("p", "p", "10.0.0.1"))
	assert.Zero(t, x.NextFree(name("p"), now), "its claim has it again")
	assert.Zero(t, x.NextFree(name("other"), now))
}

// TestAnAddressOfAnotherNamespaceCountsOnce follows one from the attempt to its end: it counts for its namespace all the while, and never twice.
func TestAnAddressOfAnotherNamespaceCountsOnce(t *testing.T) {
	x := New()
	limited := allocate.Parse(&ipamv1.IPPoolSpec{
		NamePrefix: "p", AllocationStrategy: ipamv1.SequentialAllocation, MaxAddressesPerNamespace: 2,
		Pools: []ipamv1.Pool{{Start: new(ipamv1.IPAddressStr("10.0.0.1")), End: new(ipamv1.IPAddressStr("10.0.0.9"))}},
	}, ipamv1.RandomAllocation)
	x.SetPool(name("p"), limited)
	room := func() int64 { return x.Room(name("p"), "team") }
	require.Equal(t, int64(2), room())
	take := func(free *allocate.Free) allocate.Decision {
		return allocate.Decision{Action: allocate.Create{IP: netip.MustParseAddr("10.0.0.1"), Tenant: "team"}, Why: allocate.WhyChosen}
	}
	x.Decide(name("p"), "claim", take)
	assert.Equal(t, int64(1), room(), "the attempt counts")
	record := takenBy("p", "p", "10.0.0.1")
	record.Tenant = "team"
	x.Observe(record) // the watch is faster
	assert.Equal(t, int64(1), room())
	x.Made(record, Claim{claimName("claim"), "claim"}, now)
	x.GiveUp("claim")
	assert.Equal(t, int64(1), room())
	x.SetPool(name("p"), limited)
	assert.Equal(t, int64(1), room(), "a new layout forgets nothing")
	assert.Equal(t, int64(2), x.Room(name("p"), "other"))
	x.Forget(record.Key)
	assert.Equal(t, int64(2), room())
	x.Decide(name("p"), "claim", take)
	assert.True(t, x.GiveUp("claim").IsValid())
	assert.Equal(t, int64(2), room(), "no object was written")
}
