// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/ipset"
)

var randomNumber = ipset.Number{Hi: 0x1234567890abcdef, Lo: 0xfedcba0987654321}

func snapshot(change func(*Snapshot, *ipamv1.IPPoolSpec)) Snapshot {
	s := Snapshot{Claim: Claim{Name: "c"}, Pool: Pool{Name: "p", Found: true, Finalized: true}, Random: randomNumber}
	pool := spec(ipamv1.Pool{Start: ip("10.0.0.10"), End: ip("10.0.0.12"), Subnet: subnet("10.0.0.0/24"), Gateway: ip("10.0.0.1")})
	pool.Prefix = 24
	change(&s, &pool)
	free := NewFree(Parse(&pool, ipamv1.RandomAllocation))
	if s.Pool.Free != nil {
		for addr, objects := range s.Pool.Free.taken {
			for range objects {
				free.Take(addr)
			}
		}
	}
	s.Pool.Free = free
	return s
}

// taken says which addresses are taken.
func taken(addrs ...string) *Free {
	f := &Free{taken: map[netip.Addr]int{}}
	for _, addr := range addrs {
		f.taken[netip.MustParseAddr(addr)]++
	}
	return f
}

func owned(name string) Address { return Address{Name: name, UID: "uid-" + name} }

func TestPlan(t *testing.T) {
	network := Network{Prefix: 24, Gateway: ip("10.0.0.1")}
	made := func(addr string, why Why) Decision {
		parsed := netip.MustParseAddr(addr)
		return Decision{Create{IP: parsed, Name: AddressName("p", parsed), Network: network}, why}
	}
	for name, test := range map[string]struct {
		given func(*Snapshot, *ipamv1.IPPoolSpec)
		want  Decision
	}{
		"an address that is kept for a claim of the name goes to it": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) {
				s.Pool.Free, s.Kept = taken("10.0.0.12"), Address{Name: "p-10-0-0-12", UID: "u", IP: netip.MustParseAddr("10.0.0.12")}
			},
			want: Decision{Create{
				IP: netip.MustParseAddr("10.0.0.12"), Name: "p-10-0-0-12", Network: network,
				Replaces: Address{Name: "p-10-0-0-12", UID: "u", IP: netip.MustParseAddr("10.0.0.12")},
			}, WhyRestored},
		},
		"a kept address that another object stands for, too, is not taken over": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) {
				s.Pool.Free, s.Kept = taken("10.0.0.12"), Address{Name: "p-10-0-0-12", UID: "u", IP: netip.MustParseAddr("10.0.0.12")}
				s.Pool.Free.taken[s.Kept.IP]++
			},
			want: made("10.0.0.10", WhyChosen),
		},
		"an address that the claim was about to take over is tried first": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) { s.Claim.Intended = netip.MustParseAddr("10.0.0.12") }, want: made("10.0.0.12", WhyRestored),
		},
		"sequential is the lowest free address": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) { s.Pool.Free = taken("10.0.0.10") }, want: made("10.0.0.11", WhyChosen),
		},
		"a preallocation inside of the subnet is enough": {
			given: func(_ *Snapshot, p *ipamv1.IPPoolSpec) {
				p.PreAllocations = map[string]ipamv1.IPAddressStr{"c": "10.0.0.200"}
			},
			want: made("10.0.0.200", WhyPreallocated),
		},
		"a preallocation outside of everything is refused": {
			given: func(_ *Snapshot, p *ipamv1.IPPoolSpec) {
				p.PreAllocations = map[string]ipamv1.IPAddressStr{"c": "10.0.9.200"}
			},
			want: Decision{Refuse{Error: "Pre-allocated IP out of bounds", Message: "Pre-allocated IP out of bounds: 10.0.9.200 lies in no entry of IPPool p"}, WhyRefused},
		},
		"a preallocation that is taken is refused": {
			given: func(s *Snapshot, p *ipamv1.IPPoolSpec) {
				p.PreAllocations = map[string]ipamv1.IPAddressStr{"c": "10.0.0.11"}
				s.Pool.Free = taken("10.0.0.11")
			},
			want: Decision{Refuse{Error: "Requested IP not available", Message: "Requested IP not available: 10.0.0.11 is taken"}, WhyRefused},
		},
		"a refusal says who holds the address": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) {
				s.Pool.Free, s.Claim.Requested, s.Holder = taken("10.0.0.11"), "10.0.0.11", "IPClaim other"
			},
			want: Decision{Refuse{Error: "Requested IP not available", Message: "Requested IP not available: 10.0.0.11 is taken by IPClaim other"}, WhyRefused},
		},
		"a cool-down is told from exhaustion": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) {
				s.Pool.Free, s.NextFree = taken("10.0.0.10", "10.0.0.11", "10.0.0.12"), time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
			},
			want: Decision{Refuse{
				Error: "Exhausted IP Pools", Position: 1,
				Message: "Exhausted IP Pools: every address of p is taken or reserved, and the first of those that cool down is free at 2026-01-01T12:00:00Z; position 1 in the queue",
			}, WhyExhausted},
		},
		"a preallocation and a request that agree are one": {
			given: func(s *Snapshot, p *ipamv1.IPPoolSpec) {
				p.PreAllocations = map[string]ipamv1.IPAddressStr{"c": "10.0.0.11"}
				s.Claim.Requested = "10.0.0.11"
			},
			want: made("10.0.0.11", WhyPreallocated),
		},
		"a preallocation and another request are refused": {
			given: func(s *Snapshot, p *ipamv1.IPPoolSpec) {
				p.PreAllocations = map[string]ipamv1.IPAddressStr{"c": "10.0.0.11"}
				s.Claim.Requested = "10.0.0.12"
			},
			want: Decision{Refuse{Error: "PreAllocation and requested ip address are conflicting", Message: "PreAllocation and requested ip address are conflicting: the claim asks for 10.0.0.12, the pool has 10.0.0.11 for it"}, WhyRefused},
		},
		"a request for an address preallocated to another claim is refused": {
			given: func(s *Snapshot, p *ipamv1.IPPoolSpec) {
				p.PreAllocations = map[string]ipamv1.IPAddressStr{"other": "10.0.0.11"}
				s.Claim.Requested = "10.0.0.11"
			},
			want: Decision{Refuse{Error: "Requested IP not available", Message: "Requested IP not available: 10.0.0.11 is pre-allocated to claim other"}, WhyRefused},
		},
		"a request for an excluded address is refused": {
			given: func(s *Snapshot, p *ipamv1.IPPoolSpec) {
				p.ExcludedAddresses = []ipamv1.AddressSpan{"10.0.0.11"}
				s.Claim.Requested = "10.0.0.11"
			},
			want: Decision{Refuse{Error: "Requested IP not available", Message: "Requested IP not available: 10.0.0.11 is excluded"}, WhyRefused},
		},
		"a request for the broadcast address is refused": {
			given: func(s *Snapshot, p *ipamv1.IPPoolSpec) {
				p.Pools[0].End = nil
				s.Claim.Requested = "10.0.0.255"
			},
			want: Decision{Refuse{Error: "Requested IP not available", Message: "Requested IP not available: 10.0.0.255 is the broadcast address of 10.0.0.0/24 and is given to no claim"}, WhyRefused},
		},
		"a request for the gateway is refused, though reserved addresses are allocated": {
			given: func(s *Snapshot, p *ipamv1.IPPoolSpec) {
				p.Pools[0].Start, p.AllocateReservedAddresses = nil, true
				s.Claim.Requested = "10.0.0.1"
			},
			want: Decision{Refuse{Error: "Requested IP not available", Message: "Requested IP not available: 10.0.0.1 is a gateway of the pool and is given to no claim"}, WhyRefused},
		},
		"a claim can ask for the broadcast address where reserved addresses are allocated": {
			given: func(s *Snapshot, p *ipamv1.IPPoolSpec) {
				p.Pools[0].End, p.AllocateReservedAddresses = nil, true
				s.Claim.Requested = "10.0.0.255"
			},
			want: made("10.0.0.255", WhyRequested),
		},
		"a claim that needs a prefix is refused where the pool has none": {
			given: func(s *Snapshot, p *ipamv1.IPPoolSpec) {
				p.Prefix, p.Pools[0].Subnet, s.Claim.NeedsPrefix = 0, nil, true
			},
			want: Decision{Refuse{Error: "Invalid prefix value, it must be between 1 and 128", Message: "Invalid prefix value, it must be between 1 and 128: IPPool p states none for 10.0.0.10; write prefix or subnet into it"}, WhyRefused},
		},
		"an annotation that is no address is refused": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) { s.Claim.Requested = "ten" },
			want:  Decision{Refuse{Error: `Invalid ipAddress annotation "ten": not a valid IP address`, Message: `Invalid ipAddress annotation "ten": not a valid IP address`}, WhyRefused},
		},
		"an annotation that is longer than a status can hold is quoted in part": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) { s.Claim.Requested = "x" + strings.Repeat("é", 600) },
			want: Decision{Refuse{
				Error:   `Invalid ipAddress annotation "x` + strings.Repeat("é", 31) + `…": not a valid IP address`,
				Message: `Invalid ipAddress annotation "x` + strings.Repeat("é", 31) + `…": not a valid IP address`,
			}, WhyRefused},
		},
		"a pool without a free address refuses": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) { s.Pool.Free = taken("10.0.0.10", "10.0.0.11", "10.0.0.12") },
			want: Decision{Refuse{
				"Exhausted IP Pools", "Exhausted IP Pools: every address of p is taken or reserved; position 1 in the queue", 1,
			}, WhyExhausted},
		},
		"an older claim is served first": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) { s.Pool.Free, s.Ahead = taken("10.0.0.10"), 2 },
			want: Decision{Refuse{
				"Exhausted IP Pools", "Exhausted IP Pools: every address of p is taken or reserved; position 3 in the queue", 3,
			}, WhyExhausted},
		},
		"a claim is served where there is one for every older claim, too": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) { s.Pool.Free, s.Ahead = taken("10.0.0.10"), 1 }, want: made("10.0.0.11", WhyChosen),
		},
		"the address that a claim had before is taken again": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) { s.Claim.Bound = "p-10-0-0-12" }, want: made("10.0.0.12", WhyRestored),
		},
		"also one that the pool gives only on request": {
			given: func(s *Snapshot, p *ipamv1.IPPoolSpec) {
				p.Pools[0].Start, p.Pools[0].End = nil, nil
				s.Claim.Bound = "p-10-0-0-1"
			},
			want: made("10.0.0.1", WhyRestored),
		},
		"the gateway is not taken over, whatever the annotation of the claim says": {
			given: func(s *Snapshot, p *ipamv1.IPPoolSpec) {
				p.Pools[0].Start, p.Pools[0].End = nil, nil
				s.Claim.Intended = netip.MustParseAddr("10.0.0.1")
			},
			want: made("10.0.0.2", WhyChosen),
		},
		"an address that was released before it was the gateway is not taken over": {
			given: func(s *Snapshot, p *ipamv1.IPPoolSpec) {
				p.Pools[0].Start, p.Pools[0].End = nil, nil
				s.Pool.Free, s.Kept = taken("10.0.0.1"), Address{Name: "p-10-0-0-1", UID: "u", IP: netip.MustParseAddr("10.0.0.1")}
			},
			want: made("10.0.0.2", WhyChosen),
		},
		"the address that a claim had before is not taken from another": {
			given: func(s *Snapshot, p *ipamv1.IPPoolSpec) {
				p.PreAllocations = map[string]ipamv1.IPAddressStr{"other": "10.0.0.10"}
				s.Claim.Bound, s.Pool.Free = "p-10-0-0-10", taken("10.0.0.11")
			},
			want: made("10.0.0.12", WhyChosen),
		},
		"an address that exists is adopted, whatever the pool says": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) {
				s.Owned = []Address{owned("p-1")}
				s.Pool.Deleting = true
			},
			want: Decision{Adopt{Address: owned("p-1")}, WhyFound},
		},
		"of two addresses the one in the status stays": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) {
				s.Owned = []Address{owned("p-1"), owned("p-2")}
				s.Claim.Bound = "p-2"
			},
			want: Decision{Adopt{Address: owned("p-2"), Surplus: []Address{owned("p-1")}}, WhyFound},
		},
		"a restored address stays, though the status names another": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) {
				restored := owned("p-2")
				restored.Unowned, restored.Restored = true, true
				s.Owned = []Address{owned("p-1"), restored, owned("p-3")}
				s.Claim.Bound = "p-3"
			},
			want: Decision{Adopt{
				Address: Address{Name: "p-2", UID: "uid-p-2", Unowned: true, Restored: true}, Surplus: []Address{owned("p-1"), owned("p-3")},
			}, WhyFound},
		},
		"an unowned address is adopted, though the status names it": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) {
				s.Owned = []Address{{Name: "p-1", UID: "u", Unowned: true}}
				s.Claim.Bound, s.Claim.Reported, s.Claim.Finalized = "p-1", true, true
			},
			want: Decision{Adopt{Address: Address{Name: "p-1", UID: "u", Unowned: true}}, WhyFound},
		},
		"a claim that is served is left alone": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) {
				s.Owned = []Address{owned("p-1")}
				s.Claim.Bound, s.Claim.Reported, s.Claim.Finalized = "p-1", true, true
			},
			want: Decision{Nothing{}, WhyServed},
		},
		"a paused claim waits, even with its release": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) { s.Hold, s.Claim.Deleting = HeldPaused, true }, want: Decision{Nothing{}, WhyPaused},
		},
		"a deleted claim waits for foreign finalizers": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) { s.Claim.Deleting, s.Claim.ForeignFinalizers = true, true },
			want:  Decision{Nothing{}, WhyForeignFinalizers},
		},
		"a deleted claim gives everything back, without a Cluster too": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) {
				s.Claim.Deleting, s.Hold = true, HeldClusterMissing
				s.Owned = []Address{owned("p-1"), owned("p-2")}
			},
			want: Decision{Release{Addresses: []Address{owned("p-1"), owned("p-2")}}, WhyDeleted},
		},
		"a claim without its Cluster waits": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) { s.Hold = HeldClusterMissing },
			want:  Decision{Refuse{Message: "the Cluster of the pool does not exist yet"}, WhyClusterNotFound},
		},
		"a claim of a kind that demands it is left alone without the Cluster": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) {
				s.Hold, s.Claim.NeedsCluster = HeldClusterMissing, true
				s.Owned = []Address{owned("p-1")}
			},
			want: Decision{Nothing{}, WhyClusterNotFound},
		},
		"a pool that is being deleted gives no address": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) { s.Pool.Deleting = true },
			want:  Decision{Refuse{Message: "IPPool p is being deleted"}, WhyPoolNotReady},
		},
		"a claim keeps the address that it has without a lock, also of a pool that is being deleted": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) {
				s.Claim.Held, s.Pool.Deleting, s.Pool.Finalized = netip.MustParseAddr("10.1.0.9"), true, false
			},
			want: Decision{Create{IP: netip.MustParseAddr("10.1.0.9"), Name: "p-10-1-0-9"}, WhyHeld},
		},
		"a claim keeps the address that it has without a lock, also without its pool": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) {
				s.Claim.Held, s.Pool.Found = netip.MustParseAddr("10.1.0.9"), false
			},
			want: Decision{Nothing{}, WhyHeld},
		},
		"a pool without its finalizer gives no address": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) { s.Pool.Finalized = false },
			want:  Decision{Refuse{Message: "IPPool p is not ready yet"}, WhyPoolNotReady},
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, Plan(snapshot(test.given)))
		})
	}
}

func TestRandomStaysInTheFirstEntryThatHasOne(t *testing.T) {
	seen := map[string]bool{}
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		s := snapshot(func(s *Snapshot, p *ipamv1.IPPoolSpec) {
			p.AllocationStrategy = ipamv1.RandomAllocation
			p.Pools = append(p.Pools, ipamv1.Pool{Start: ip("10.9.0.1"), End: ip("10.9.0.1")})
			s.Random = ipset.Number{Hi: random.Uint64(), Lo: random.Uint64()}
		})
		seen[Plan(s).Action.(Create).IP.String()] = true
	}
	assert.Equal(t, map[string]bool{"10.0.0.10": true, "10.0.0.11": true, "10.0.0.12": true}, seen)
}

// simulation is an API server that knows claims and addresses, and replicas that see them late.
type simulation struct {
	t        *testing.T
	random   *rand.Rand
	layout   *Layout
	holders  map[netip.Addr]string // the truth: the name of the object is the lock
	bound    map[string]netip.Addr // the truth: status of claims
	replicas []*replica
}

type replica struct {
	free  *Free
	knows map[netip.Addr]bool
}

// TestSeededInterleavings lets replicas with stale views serve and release claims in random order, and checks after every
// step that no address has two holders and no claim two addresses once everything is seen.
func TestSeededInterleavings(t *testing.T) {
	for seed := range uint64(200) {
		s := &simulation{t: t, random: rand.New(rand.NewPCG(seed, 5)), holders: map[netip.Addr]string{}, bound: map[string]netip.Addr{}}
		pool := spec(ipamv1.Pool{Start: ip("10.0.0.1"), End: ip("10.0.0.9")})
		pool.AllocationStrategy = []ipamv1.AllocationStrategy{ipamv1.RandomAllocation, ipamv1.SequentialAllocation}[seed%2]
		pool.PreAllocations = map[string]ipamv1.IPAddressStr{"c3": "10.0.0.5"}
		s.layout = Parse(&pool, ipamv1.RandomAllocation)
		for range 3 {
			s.replicas = append(s.replicas, &replica{free: NewFree(s.layout), knows: map[netip.Addr]bool{}})
		}
		for range 120 {
			s.step()
			s.check()
		}
		for _, r := range s.replicas {
			s.see(r, len(s.holders)+20)
		}
		for _, r := range s.replicas {
			for addr := range r.knows {
				require.Contains(t, s.holders, addr)
			}
			require.Len(t, r.knows, len(s.holders))
		}
	}
}

func (s *simulation) step() {
	r := s.replicas[s.random.IntN(len(s.replicas))]
	claim := fmt.Sprintf("c%d", s.random.IntN(14))
	switch s.random.IntN(4) {
	case 0:
		s.see(r, 2)
	case 1:
		if addr, ok := s.bound[claim]; ok {
			delete(s.bound, claim)
			delete(s.holders, addr)
		}
	default:
		s.serve(r, claim)
	}
}

// serve is what the executor does: plan, try to take the name, learn who has it, plan again.
func (s *simulation) serve(r *replica, claim string) {
	if _, ok := s.bound[claim]; ok {
		return
	}
	for range 50 {
		decision := Plan(Snapshot{
			Claim: Claim{Name: claim}, Pool: Pool{Name: "p", Found: true, Finalized: true, Free: r.free},
			Random: ipset.Number{Hi: s.random.Uint64(), Lo: s.random.Uint64()},
		})
		create, ok := decision.Action.(Create)
		if !ok {
			return
		}
		require.False(s.t, r.knows[create.IP], "the plan chose what this replica knows to be taken")
		r.knows[create.IP] = true
		r.free.Take(create.IP)
		if _, taken := s.holders[create.IP]; taken {
			continue
		}
		s.holders[create.IP] = claim
		s.bound[claim] = create.IP
		return
	}
	s.t.Fatal("the next candidate was never free")
}

// see lets a replica catch up by some events.
func (s *simulation) see(r *replica, n int) {
	for _, addr := range slices.SortedFunc(s.all(r), netip.Addr.Compare) {
		_, taken := s.holders[addr]
		switch {
		case n == 0:
			return
		case taken && !r.knows[addr]:
			r.knows[addr] = true
			r.free.Take(addr)
			n--
		case !taken && r.knows[addr]:
			delete(r.knows, addr)
			r.free.Release(addr)
			n--
		}
	}
}

func (s *simulation) all(r *replica) func(func(netip.Addr) bool) {
	return func(yield func(netip.Addr) bool) {
		for addr := range s.holders {
			if !yield(addr) {
				return
			}
		}
		for addr := range r.knows {
			if _, ok := s.holders[addr]; !ok && !yield(addr) {
				return
			}
		}
	}
}

func (s *simulation) check() {
	seen := map[string]netip.Addr{}
	for addr, claim := range s.holders {
		other, double := seen[claim]
		require.False(s.t, double, "%s has %s and %s", claim, addr, other)
		seen[claim] = addr
		require.True(s.t, s.layout.InBounds(addr))
		if owner, reserved := s.layout.ReservedFor(addr); reserved {
			require.Equal(s.t, owner, claim)
		}
		require.Equal(s.t, addr, s.bound[claim])
	}
	for _, r := range s.replicas {
		counts := r.free.Counts()
		require.GreaterOrEqual(s.t, counts.Free, int64(0))
		require.Equal(s.t, int64(len(r.knows)), counts.Used)
	}
}
