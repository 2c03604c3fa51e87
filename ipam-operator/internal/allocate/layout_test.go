// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

func ip(text string) *ipamv1.IPAddressStr { return new(ipamv1.IPAddressStr(text)) }

func subnet(text string) *ipamv1.IPSubnetStr { return new(ipamv1.IPSubnetStr(text)) }

func spec(entries ...ipamv1.Pool) ipamv1.IPPoolSpec {
	return ipamv1.IPPoolSpec{NamePrefix: "p", Pools: entries, AllocationStrategy: ipamv1.SequentialAllocation}
}

func ranges(l *Layout) []string {
	var out []string
	for i := range l.entries {
		for r := range l.entries[i].base.Ranges() {
			out = append(out, r.String())
		}
	}
	return out
}

func TestLayout(t *testing.T) {
	for name, test := range map[string]struct {
		spec     ipamv1.IPPoolSpec
		want     []string
		problems []string
	}{
		"a range lacks the gateway of the pool": {
			spec: func() ipamv1.IPPoolSpec {
				s := spec(ipamv1.Pool{Start: ip("10.0.0.1"), End: ip("10.0.0.3")})
				s.Gateway = ip("10.0.0.1")
				return s
			}(),
			want: []string{"10.0.0.2-10.0.0.3"},
		},
		"allocateReservedAddresses hands out network and broadcast, and no gateway": {
			spec: func() ipamv1.IPPoolSpec {
				s := spec(ipamv1.Pool{Start: ip("10.0.0.0"), Subnet: subnet("10.0.0.0/29"), Gateway: ip("10.0.0.1")},
					ipamv1.Pool{Start: ip("10.0.1.1"), End: ip("10.0.1.2"), Gateway: ip("10.0.0.5")})
				s.AllocateReservedAddresses = true
				return s
			}(),
			want: []string{"10.0.0.0", "10.0.0.2-10.0.0.4", "10.0.0.6-10.0.0.7", "10.0.1.1-10.0.1.2"},
		},
		"a gateway of the other family is left out and named": {
			spec: func() ipamv1.IPPoolSpec {
				s := spec(ipamv1.Pool{Start: ip("fd00::1"), End: ip("fd00::2")})
				s.Gateway = ip("10.0.0.1")
				return s
			}(),
			want:     []string{"fd00::1-fd00::2"},
			problems: []string{"pools[0]: gateway 10.0.0.1 is not of the family of fd00::1: write a gateway of that family into the entry"},
		},
		"the last address of all is one like others": {
			spec: func() ipamv1.IPPoolSpec {
				s := spec(ipamv1.Pool{Start: ip("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe")})
				s.PreAllocations = map[string]ipamv1.IPAddressStr{"a": "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}
				return s
			}(),
			want: []string{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"},
		},
		"a subnet begins behind the address that it states and lacks broadcast and gateway": {
			spec: spec(ipamv1.Pool{Subnet: subnet("192.168.0.10/28"), Gateway: ip("192.168.0.12")}),
			want: []string{"192.168.0.11", "192.168.0.13-192.168.0.14"},
		},
		"start without end goes to the end of the subnet": {
			spec: spec(ipamv1.Pool{Start: ip("192.168.0.250"), Subnet: subnet("192.168.0.0/24")}),
			want: []string{"192.168.0.250-192.168.0.254"},
		},
		"start alone goes as far as addresses go": {
			spec: spec(ipamv1.Pool{Start: ip("255.255.255.254")}), want: []string{"255.255.255.254-255.255.255.255"},
		},
		"entries that overlap hand an address out once": {
			spec: spec(ipamv1.Pool{Start: ip("10.0.0.1"), End: ip("10.0.0.5")}, ipamv1.Pool{Start: ip("10.0.0.3"), End: ip("10.0.0.8")}),
			want: []string{"10.0.0.1-10.0.0.5", "10.0.0.6-10.0.0.8"},
		},
		"excluded addresses are left out, however they are written": {
			spec: func() ipamv1.IPPoolSpec {
				s := spec(ipamv1.Pool{Start: ip("10.0.0.0"), End: ip("10.0.0.31")}, ipamv1.Pool{Start: ip("fd00::"), End: ip("fd00::3")})
				s.ExcludedAddresses = []ipamv1.AddressSpan{"10.0.0.0/28", "10.0.0.20-10.0.0.29", "fd00:0::0001", "nonsense"}
				return s
			}(),
			want:     []string{"10.0.0.16-10.0.0.19", "10.0.0.30-10.0.0.31", "fd00::", "fd00::2-fd00::3"},
			problems: []string{`excludedAddresses[3]: "nonsense" is not a valid IP address`},
		},
		"a preallocated address is reserved, in whatever spelling": {
			spec: func() ipamv1.IPPoolSpec {
				s := spec(ipamv1.Pool{Start: ip("fd00::1"), End: ip("fd00::3")})
				s.PreAllocations = map[string]ipamv1.IPAddressStr{"a": "fd00::0002", "b": "fd00:0::2", "c": "fd01::1"}
				return s
			}(),
			want: []string{"fd00::1", "fd00::3"},
			problems: []string{
				"preAllocations[b]: fd00::2 is already pre-allocated to claim a", "preAllocations[c]: fd01::1 is out of bounds of the pools given",
			},
		},
		"an entry that cannot be used stops no other": {
			spec: spec(ipamv1.Pool{Start: ip("10.0.0.9"), End: ip("10.0.0.1")}, ipamv1.Pool{End: ip("10.0.0.1")},
				ipamv1.Pool{Start: ip("10.0.0.1"), End: ip("fd00::1")}, ipamv1.Pool{Start: ip("10.0.0.1"), End: ip("10.0.0.1"), Prefix: 64},
				ipamv1.Pool{Start: ip("10.0.0.7"), End: ip("10.0.0.7")}),
			want: []string{"10.0.0.7"},
			problems: []string{
				"pools[0]: start 10.0.0.9 is greater than end 10.0.0.1", "pools[1]: an entry with neither start nor subnet has no addresses",
				"pools[2]: start 10.0.0.1 and end fd00::1 are not of the same family", "pools[3]: prefix 64 is too long for 10.0.0.1",
			},
		},
		"a point-to-point network has no network and no broadcast address": {
			spec: spec(ipamv1.Pool{Start: ip("10.0.0.0"), Subnet: subnet("10.0.0.0/31")}), want: []string{"10.0.0.0-10.0.0.1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := Parse(&test.spec, ipamv1.RandomAllocation)
			assert.Equal(t, test.want, ranges(l))
			assert.Equal(t, test.problems, l.Problems)
		})
	}
}

func TestAWholeNetworkCostsNoMoreThanASmallOne(t *testing.T) {
	s := spec(ipamv1.Pool{Subnet: subnet("fd00::/64")})
	s.PreAllocations = map[string]ipamv1.IPAddressStr{"far": "fd00::ffff:ffff:ffff:fff0"}
	l := Parse(&s, ipamv1.RandomAllocation)
	assert.Empty(t, l.Problems)
	assert.Equal(t, []string{"fd00::1-fd00::ffff:ffff:ffff:ffef", "fd00::ffff:ffff:ffff:fff1-fd00::ffff:ffff:ffff:ffff"}, ranges(l))
	assert.Equal(t, int64(9223372036854775807), l.Total())
}

func TestNames(t *testing.T) {
	for addr, want := range map[string]string{
		"192.168.0.10": "p-192-168-0-10", "fd00::5": "p-fd00--5", "fd00::": "p-fd00", "::ffff:1.2.3.4": "p-1-2-3-4", "FD00:0::AB": "p-fd00--ab", "::1": "p---1",
	} {
		parsed, err := ParseAddr(addr)
		require.NoError(t, err)
		name := AddressName("p", parsed)
		assert.Equal(t, want, name)
		prefix, ok := PrefixOfName(name, parsed)
		assert.True(t, ok)
		assert.Equal(t, "p", prefix)
		back, ok := addressOfName("p", name)
		assert.True(t, ok, name)
		assert.Equal(t, parsed, back)
	}
	_, ok := addressOfName("p", "other-10-0-0-1")
	assert.False(t, ok)
}

func TestTallyAndFreeAgree(t *testing.T) {
	s := spec(ipamv1.Pool{Subnet: subnet("10.0.0.0/28"), Gateway: ip("10.0.0.1")})
	s.PreAllocations = map[string]ipamv1.IPAddressStr{"a": "10.0.0.2"}
	l := Parse(&s, ipamv1.RandomAllocation)
	free, used := NewFree(l), map[netip.Addr]struct{}{}
	assert.Equal(t, Counts{Total: 13, Used: 0, Free: 12}, free.Counts())
	for _, addr := range []string{"10.0.0.2", "10.0.0.5", "10.0.0.1", "10.9.9.9"} {
		parsed := netip.MustParseAddr(addr)
		free.Take(parsed)
		used[parsed] = struct{}{}
		assert.Equal(t, free.Counts(), Tally(l, used, nil, nil))
	}
	assert.Equal(t, Counts{Total: 13, Used: 4, Free: 11, OutOfRange: 1}, free.Counts())
}

func TestInUseMeansInsideTheRange(t *testing.T) {
	s := spec(ipamv1.Pool{Start: ip("10.0.0.10"), End: ip("10.0.0.19"), Subnet: subnet("10.0.0.0/24")}, ipamv1.Pool{Subnet: subnet("10.1.0.4/24")})
	s.PreAllocations = map[string]ipamv1.IPAddressStr{"a": "10.0.0.200", "b": "10.9.0.1"}
	l := Parse(&s, ipamv1.RandomAllocation)
	used := map[netip.Addr]struct{}{}
	for addr, in := range map[string]bool{
		"10.0.0.10": true, "10.0.0.19": true, "10.0.0.9": false, "10.0.0.20": false, "10.0.0.200": true, "10.0.0.201": false, "10.9.0.1": false,
		"10.1.0.4": false, "10.1.0.5": true, "10.1.0.255": true,
	} {
		parsed := netip.MustParseAddr(addr)
		assert.Equal(t, in, l.InBounds(parsed), addr)
		used[parsed] = struct{}{}
	}
	counts := Tally(l, used, nil, nil)
	assert.Equal(t, int64(5), counts.OutOfRange)
	assert.LessOrEqual(t, counts.Total-counts.Free, counts.Used-counts.OutOfRange)
}

func TestPrefixComesFromTheSubnet(t *testing.T) {
	s := spec(ipamv1.Pool{Subnet: subnet("10.0.0.0/22")}, ipamv1.Pool{Start: ip("10.9.0.1"), End: ip("10.9.0.2")},
		ipamv1.Pool{Subnet: subnet("fd00::/64"), Prefix: 56})
	l := Parse(&s, ipamv1.RandomAllocation)
	for addr, want := range map[string]int{"10.0.0.5": 22, "10.9.0.1": 0, "fd00::5": 56} {
		network, ok := l.NetworkOf(netip.MustParseAddr(addr), 0)
		require.True(t, ok)
		assert.Equal(t, want, network.Prefix, addr)
	}
}

// BenchmarkParse is the figure ipam.parse: 1,000 ranges and 10,000 preallocations.
func BenchmarkParse(b *testing.B) {
	s := spec()
	s.PreAllocations = map[string]ipamv1.IPAddressStr{}
	for i := range 1000 {
		s.Pools = append(s.Pools, ipamv1.Pool{
			Start: ip(fmt.Sprintf("10.%d.%d.1", i/250, i%250)), End: ip(fmt.Sprintf("10.%d.%d.240", i/250, i%250)),
			Subnet: subnet(fmt.Sprintf("10.%d.%d.0/24", i/250, i%250)), Gateway: ip(fmt.Sprintf("10.%d.%d.254", i/250, i%250)),
		})
		for j := range 10 {
			s.PreAllocations[fmt.Sprintf("claim-%d-%d", i, j)] = ipamv1.IPAddressStr(fmt.Sprintf("10.%d.%d.%d", i/250, i%250, 10+j))
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		Parse(&s, ipamv1.RandomAllocation)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("10.0.0.1", "10.0.0.9", "10.0.0.0/24", "10.0.0.2-10.0.0.3", 24)
	f.Add("fd00::", "fd00::9", "fd00::/64", "fd00::/127", 64)
	f.Add("", "::ffff:1.2.3.4", "1.2.3.4/0", "-", -1)
	f.Fuzz(func(t *testing.T, start, end, network, excluded string, prefix int) {
		optional := func(text string) *ipamv1.IPAddressStr {
			if text == "" {
				return nil
			}
			return ip(text)
		}
		entry := ipamv1.Pool{Start: optional(start), End: optional(end), Prefix: prefix, Gateway: optional(start)}
		if network != "" {
			entry.Subnet = subnet(network)
		}
		s := spec(entry, ipamv1.Pool{Start: ip("10.0.0.1"), End: ip("10.0.0.3")})
		s.ExcludedAddresses = []ipamv1.AddressSpan{ipamv1.AddressSpan(excluded)}
		s.PreAllocations = map[string]ipamv1.IPAddressStr{"a": ipamv1.IPAddressStr(end)}
		l := Parse(&s, ipamv1.RandomAllocation)
		free := NewFree(l)
		for range 10 {
			addr, ok := free.choose(randomNumber, 0)
			if !ok {
				break
			}
			require.True(t, l.InBounds(addr), "%s is out of bounds", addr)
			require.False(t, l.isExcluded(addr))
			require.NotEqual(t, l.reserved["a"], addr)
			free.Take(addr)
			require.False(t, free.Choosable(addr))
		}
	})
}

func TestAddressesOfOtherSystemsAreNeitherUsedNorFree(t *testing.T) {
	layout := Parse(&ipamv1.IPPoolSpec{Pools: []ipamv1.Pool{{
		Start: new(ipamv1.IPAddressStr("10.0.0.1")), End: new(ipamv1.IPAddressStr("10.0.0.40")),
	}}}, ipamv1.SequentialAllocation)
	used := map[netip.Addr]struct{}{netip.MustParseAddr("10.0.0.2"): {}, netip.MustParseAddr("10.0.0.3"): {}, netip.MustParseAddr("10.0.0.33"): {}}
	external := []netip.Prefix{
		netip.MustParsePrefix("10.0.0.3/32"), netip.MustParsePrefix("10.0.0.32/28"), netip.MustParsePrefix("192.0.2.0/24"),
	}
	counts := Tally(layout, used, nil, external)
	assert.Equal(t, Counts{Total: 40, Used: 3, Free: 29, External: 8}, counts, "two of the ten that others have are in use here, too")
	assert.Equal(t, counts.Total, counts.Used+counts.Free+counts.External)
	assert.Equal(t, counts, Tally(layout, used, nil, append(external, external...)), "what is said twice counts once")
}
