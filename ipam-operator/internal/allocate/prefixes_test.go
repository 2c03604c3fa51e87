// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/ipset"
)

func delegating(network string, bits int) ipamv1.Pool {
	return ipamv1.Pool{Subnet: subnet(network), AllocationPrefixLength: bits}
}

func TestPlanForAPrefix(t *testing.T) {
	for name, test := range map[string]struct {
		given func(*Snapshot, *ipamv1.IPPoolSpec)
		taken []netip.Prefix
		want  string // the first address of the prefix
		says  string
	}{
		"the first /64 of a /48":                   {want: "fd00::"},
		"the next one":                             {taken: prefixes("fd00::/64"), want: "fd00:0:0:1::"},
		"a single address takes the /64 it is in":  {taken: prefixes("fd00::5/128", "fd00:0:0:1::/66"), want: "fd00:0:0:2::"},
		"a shorter prefix takes all that it holds": {taken: prefixes("fd00::/63"), want: "fd00:0:0:2::"},
		"a /28 out of a /20": {given: func(s *Snapshot, p *ipamv1.IPPoolSpec) {
			p.Pools, s.Claim.PrefixLength = []ipamv1.Pool{delegating("10.0.16.0/20", 28)}, 28
		}, taken: prefixes("10.0.16.0/28", "10.0.16.17/32"), want: "10.0.16.32"},
		"a gateway is in no prefix": {given: func(_ *Snapshot, p *ipamv1.IPPoolSpec) { p.Pools[0].Gateway = ip("fd00::1") }, want: "fd00:0:0:1::"},
		"nor is what is excluded": {given: func(_ *Snapshot, p *ipamv1.IPPoolSpec) {
			p.ExcludedAddresses = []ipamv1.AddressSpan{"fd00::/64", "fd00:0:0:1::7"}
		}, want: "fd00:0:0:2::"},
		"nor what an earlier entry has": {given: func(_ *Snapshot, p *ipamv1.IPPoolSpec) {
			p.Pools = append([]ipamv1.Pool{{Start: ip("fd00::1"), End: ip("fd00::9")}}, p.Pools...)
		}, want: "fd00:0:0:1::"},
		"only whole prefixes": {given: func(_ *Snapshot, p *ipamv1.IPPoolSpec) {
			p.Pools[0].Start, p.Pools[0].End = ip("fd00::1"), ip("fd00:0:0:2::")
		}, want: "fd00:0:0:1::"},
		"one that it asks for": {given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) { s.Claim.Requested = "fd00:0:0:7::" }, want: "fd00:0:0:7::"},
		"one that it asks for and that is taken in part": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) { s.Claim.Requested = "fd00:0:0:7::" }, taken: prefixes("fd00:0:0:7::9/128"),
			says: "Requested IP not available: fd00:0:0:7:: is taken",
		},
		"one that begins nowhere": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) { s.Claim.Requested = "fd00:0:0:7::1" },
			says:  "Requested IP not available: fd00:0:0:7::1 begins no prefix of an entry of IPPool p with allocationPrefixLength 64",
		},
		"one that is preallocated to it": {given: func(_ *Snapshot, p *ipamv1.IPPoolSpec) {
			p.PreAllocations = map[string]ipamv1.IPAddressStr{"c": "fd00:0:0:9::"}
		}, want: "fd00:0:0:9::"},
		"none that is preallocated to another": {given: func(_ *Snapshot, p *ipamv1.IPPoolSpec) {
			p.PreAllocations = map[string]ipamv1.IPAddressStr{"other": "fd00::"}
		}, want: "fd00:0:0:1::"},
		"a length that the pool does not have": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) { s.Claim.PrefixLength = 56 },
			says:  "No prefixes of this length: no entry of IPPool p has allocationPrefixLength 56",
		},
		"no address where there are prefixes only": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) { s.Claim.PrefixLength = 0 },
			says:  "Exhausted IP Pools: every address of p is taken or reserved; position 1 in the queue",
		},
		"none is left": {
			given: func(_ *Snapshot, p *ipamv1.IPPoolSpec) { p.Pools[0].Subnet = subnet("fd00::/63") }, taken: prefixes("fd00::/64", "fd00:0:0:1::8/128"),
			says: "Exhausted IP Pools: every prefix of the length 64 of p is taken or reserved; position 1 in the queue",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshot(func(s *Snapshot, p *ipamv1.IPPoolSpec) {
				p.Pools, p.AllocationStrategy, s.Claim.PrefixLength = []ipamv1.Pool{delegating("fd00::/48", 64)}, ipamv1.SequentialAllocation, 64
				if test.given != nil {
					test.given(s, p)
				}
			})
			require.Empty(t, s.Pool.Free.Layout.Problems)
			for _, taken := range test.taken {
				occupy(s.Pool.Free, taken)
			}
			switch action := Plan(s).Action.(type) {
			case Create:
				assert.Equal(t, test.want, action.IP.String())
				assert.Equal(t, s.Claim.PrefixLength, action.PrefixLength)
				assert.Equal(t, s.Claim.PrefixLength, action.Network.Prefix)
			case Refuse:
				assert.Equal(t, test.says, action.Message)
			default:
				assert.Fail(t, "neither", "%#v", action)
			}
		})
	}
}

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// lengthOf is the length under which a prefix is taken: that of a single address is zero.
func lengthOf(p netip.Prefix) int {
	if p.IsSingleIP() {
		return 0
	}
	return p.Bits()
}

func occupy(f *Free, p netip.Prefix) { f.Occupy(p.Addr(), lengthOf(p)) }

// TestPrefixesNeverOverlap hands out and takes back addresses and prefixes at random, also such that the layout would not hand out: nothing that is chosen touches
// anything that is taken, and when everything is back, everything is free.
func TestPrefixesNeverOverlap(t *testing.T) {
	s := spec(ipamv1.Pool{Start: ip("10.0.0.1"), End: ip("10.0.0.40")}, delegating("10.0.0.0/25", 29), delegating("10.0.0.128/26", 28), ipamv1.Pool{Subnet: subnet("10.0.0.192/27")})
	s.ExcludedAddresses = []ipamv1.AddressSpan{"10.0.0.90"}
	layout := Parse(&s, ipamv1.RandomAllocation)
	require.Empty(t, layout.Problems)
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 7))
		free, all := NewFree(layout), NewFree(layout).Counts()
		var taken []netip.Prefix
		for range 300 {
			if len(taken) > 0 && random.IntN(5) < 2 {
				at := random.IntN(len(taken))
				free.Vacate(taken[at].Addr(), lengthOf(taken[at]))
				taken = append(taken[:at], taken[at+1:]...)
				continue
			}
			bits := []int{0, 28, 29}[random.IntN(3)]
			if random.IntN(8) == 0 { // another client made it
				foreign := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(256))}), 26+random.IntN(7)).Masked()
				occupy(free, foreign)
				taken = append(taken, foreign)
				continue
			}
			addr, ok := free.choose(ipset.Number{Lo: random.Uint64()}, bits)
			if !ok {
				continue
			}
			chosen := netip.PrefixFrom(addr, 32)
			if bits != 0 {
				chosen = netip.PrefixFrom(addr, bits)
				require.Equal(t, chosen.Masked(), chosen)
			}
			for _, other := range taken {
				require.False(t, other.Overlaps(chosen), "%s touches %s", chosen, other)
			}
			occupy(free, chosen)
			taken = append(taken, chosen)
		}
		for _, prefix := range taken {
			free.Vacate(prefix.Addr(), lengthOf(prefix))
		}
		require.Equal(t, all, free.Counts(), "seed %d", seed)
	}
}
