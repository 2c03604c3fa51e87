// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipset

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func span(first, last string) Range { return Range{First: addr(first), Last: addr(last)} }

func text(s *Set) []string {
	var out []string
	for r := range s.Ranges() {
		out = append(out, r.String())
	}
	return out
}

func TestSet(t *testing.T) {
	for name, test := range map[string]struct {
		set  *Set
		do   func(*Set)
		want []string
	}{
		"ranges that overlap or touch are one": {
			set: New(span("10.0.0.1", "10.0.0.5"), span("10.0.0.6", "10.0.0.9"), span("10.0.0.3", "10.0.0.12")), do: func(*Set) {},
			want: []string{"10.0.0.1-10.0.0.12"},
		},
		"taking an address in the middle divides a range": {
			set: New(span("10.0.0.1", "10.0.0.5")), do: func(s *Set) { s.Take(addr("10.0.0.3")) },
			want: []string{"10.0.0.1-10.0.0.2", "10.0.0.4-10.0.0.5"},
		},
		"releasing it makes the range whole": {
			set: New(span("10.0.0.1", "10.0.0.2"), span("10.0.0.4", "10.0.0.5")), do: func(s *Set) { s.Release(addr("10.0.0.3")) },
			want: []string{"10.0.0.1-10.0.0.5"},
		},
		"a removed range leaves what lies around it": {
			set: New(span("fd00::", "fd00::ff")), do: func(s *Set) { s.Remove(span("fd00::10", "fd00::1f")) },
			want: []string{"fd00::-fd00::f", "fd00::20-fd00::ff"},
		},
		"the last address of all can be taken": {
			set:  New(span("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")),
			do:   func(s *Set) { s.Take(addr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")) },
			want: []string{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"},
		},
		"the last address of all can be taken where it stands alone": {
			set: New(span("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")),
			do:  func(s *Set) { s.Take(addr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")) },
		},
		"the first address of all can be taken": {
			set: New(span("::", "::2")), do: func(s *Set) { s.Take(addr("::")) }, want: []string{"::1-::2"},
		},
		"an IPv6 range lacks the block of IPv4-mapped addresses": {
			set: New(span("::fffe:ffff:fffe", "::1:0:0:1")), do: func(*Set) {},
			want: []string{"::fffe:ffff:fffe-::fffe:ffff:ffff", "::1:0:0:0-::1:0:0:1"},
		},
		"removing an IPv6 range leaves IPv4 addresses alone": {
			set: New(span("0.0.0.0", "255.255.255.255")), do: func(s *Set) { s.Remove(span("::", "ffff::")) },
			want: []string{"0.0.0.0-255.255.255.255"},
		},
		"families that touch as numbers stay apart": {
			set: New(span("::", "ffff::"), span("0.0.0.0", "0.0.0.1")), do: func(*Set) {},
			want: []string{"::-::fffe:ffff:ffff", "0.0.0.0-0.0.0.1", "::1:0:0:0-ffff::"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.do(test.set)
			assert.Equal(t, test.want, text(test.set))
		})
	}
}

func TestCount(t *testing.T) {
	assert.Equal(t, int64(65536), New(PrefixRange(netip.MustParsePrefix("10.0.0.0/16"))).Count().Int64())
	assert.Equal(t, Number{Hi: 1}, New(PrefixRange(netip.MustParsePrefix("fd00::/64"))).Count())
	assert.Equal(t, int64(math.MaxInt64), New(PrefixRange(netip.MustParsePrefix("fd00::/64"))).Count().Int64())
	assert.Equal(t, int64(0), new(Set).Count().Int64())
}

func TestEmptySet(t *testing.T) {
	var s Set
	_, ok := s.First()
	assert.False(t, ok)
	_, ok = s.Pick(Number{Lo: 7})
	assert.False(t, ok)
	assert.False(t, s.Take(addr("10.0.0.1")))
	assert.False(t, s.Contains(netip.Addr{}))
}

func TestPickReachesEveryAddress(t *testing.T) {
	s := New(span("10.0.0.1", "10.0.0.3"), span("10.0.0.7", "10.0.0.7"), span("fd00::", "fd00::1"))
	seen := map[netip.Addr]bool{}
	for i := range uint64(6) {
		got, ok := s.Pick(Number{Lo: i})
		require.True(t, ok)
		seen[got] = true
	}
	assert.Len(t, seen, 6)
	for a := range seen {
		assert.True(t, s.Contains(a))
	}
}

func TestModulo(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		n := Number{random.Uint64(), random.Uint64()}
		m := Number{random.Uint64() >> random.UintN(64), random.Uint64()}
		rem := n.modulo(m)
		require.True(t, rem.less(m), "%v mod %v = %v", n, m, rem)
		if m.Hi == 0 {
			continue
		}
		for !n.less(m) && n.minus(rem).Hi/m.Hi < 1000 {
			n = n.minus(m)
			if n.less(m) {
				require.Equal(t, n, rem)
			}
		}
	}
}

// checkTree asserts what the tree promises: order, gaps between neighbours, heap order and counts.
func checkTree(t *testing.T, s *Set) {
	t.Helper()
	var previous *interval
	s.root.walk(func(i interval) bool {
		require.False(t, i.last.less(i.first))
		if previous != nil {
			require.True(t, previous.last.less(i.first), "neighbours overlap")
			require.False(t, previous.last.precedes(i.first), "neighbours touch")
		}
		previous = &i
		return true
	})
	var check func(n *node) Number
	check = func(n *node) Number {
		if n == nil {
			return Number{}
		}
		for _, child := range []*node{n.left, n.right} {
			require.True(t, child == nil || child.priority <= n.priority)
		}
		require.Equal(t, check(n.left).Plus(n.size()).Plus(check(n.right)), n.count)
		return n.count
	}
	check(s.root)
}

// FuzzAgainstModel compares a set with a plain list of booleans over 256 addresses.
func FuzzAgainstModel(f *testing.F) {
	f.Add([]byte{0, 1, 9, 1, 3, 4, 2, 4, 0, 3, 4, 0})
	f.Add([]byte{0, 0, 255, 1, 0, 0, 1, 255, 255, 0, 0, 255})
	f.Add([]byte{0, 10, 20, 0, 30, 40, 0, 15, 35, 1, 12, 50, 3, 13, 0})
	f.Fuzz(func(t *testing.T, ops []byte) {
		at := func(b byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, b}) }
		var model [256]bool
		s := New()
		for ; len(ops) >= 3; ops = ops[3:] {
			lo, hi := min(ops[1], ops[2]), max(ops[1], ops[2])
			switch ops[0] % 4 {
			case 0:
				s.Add(Range{at(lo), at(hi)})
				for i := int(lo); i <= int(hi); i++ {
					model[i] = true
				}
			case 1:
				s.Remove(Range{at(lo), at(hi)})
				for i := int(lo); i <= int(hi); i++ {
					model[i] = false
				}
			case 2:
				require.Equal(t, model[ops[1]], s.Take(at(ops[1])))
				model[ops[1]] = false
			case 3:
				require.Equal(t, !model[ops[1]], s.Release(at(ops[1])))
				model[ops[1]] = true
			}
			checkTree(t, s)
		}
		var want []netip.Addr
		for i, in := range model {
			require.Equal(t, in, s.Contains(at(byte(i))))
			if in {
				want = append(want, at(byte(i)))
			}
		}
		require.Equal(t, int64(len(want)), s.Count().Int64())
		for rank, a := range want {
			got, ok := s.Pick(Number{Lo: uint64(rank)})
			require.True(t, ok)
			require.Equal(t, a, got)
		}
	})
}

// FuzzEnds compares a set with a plain list of booleans over windows at both ends of the number line and at both ends of the block of
// IPv4-mapped addresses. Ranges go across windows.
func FuzzEnds(f *testing.F) {
	const window = 16
	var line []netip.Addr
	for _, first := range []Number{
		{}, {Lo: mapped.first.Lo - window}, mapped.first, {Lo: mapped.last.Lo - window + 1}, mapped.last.next(),
		{Hi: greatest.Hi, Lo: greatest.Lo - window + 1},
	} {
		for i := range uint64(window) {
			line = append(line, first.Plus(Number{Lo: i}).addr())
		}
	}
	f.Add([]byte{0, 0, 95, 2, 95, 0, 2, 0, 0, 3, 95, 0})
	f.Add([]byte{0, 80, 95, 1, 95, 95, 0, 0, 0, 1, 0, 95})
	f.Add([]byte{0, 32, 40, 0, 0, 95, 1, 20, 70, 3, 31, 0, 3, 32, 0})
	f.Fuzz(func(t *testing.T, ops []byte) {
		model := make([]bool, len(line))
		s := New()
		set := func(lo, hi int, in bool) {
			for i := lo; i <= hi; i++ {
				if line[i].Is4() == line[lo].Is4() {
					model[i] = in
				}
			}
		}
		for ; len(ops) >= 3; ops = ops[3:] {
			lo, hi := int(ops[1])%len(line), int(ops[2])%len(line)
			if lo, hi = min(lo, hi), max(lo, hi); line[lo].Is4() != line[hi].Is4() {
				hi = lo
			}
			switch ops[0] % 4 {
			case 0:
				s.Add(Range{line[lo], line[hi]})
				set(lo, hi, true)
			case 1:
				s.Remove(Range{line[lo], line[hi]})
				set(lo, hi, false)
			case 2:
				require.Equal(t, model[lo], s.Take(line[lo]))
				model[lo] = false
			case 3:
				require.Equal(t, !model[lo], s.Release(line[lo]))
				model[lo] = true
			}
			checkTree(t, s)
			lacks := New(s.Without(Range{line[lo], line[hi]})...)
			for i, in := range model {
				require.Equal(t, in, s.Contains(line[i]), "%s", line[i])
				inside := i >= lo && i <= hi && line[i].Is4() == line[lo].Is4()
				require.Equal(t, inside && !in, lacks.Contains(line[i]), "%s is lacking", line[i])
			}
			if first, ok := s.First(); ok {
				require.True(t, s.Contains(first))
			}
		}
	})
}

func TestSeededSequences(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		s := New(PrefixRange(netip.MustParsePrefix("fd00::/64")))
		var taken []netip.Addr
		for range 500 {
			if len(taken) > 0 && random.IntN(3) == 0 {
				i := random.IntN(len(taken))
				require.True(t, s.Release(taken[i]))
				taken = slices.Delete(taken, i, i+1)
				continue
			}
			a, ok := s.Pick(Number{random.Uint64(), random.Uint64()})
			require.True(t, ok)
			require.True(t, s.Take(a))
			require.NotContains(t, taken, a)
			taken = append(taken, a)
		}
		checkTree(t, s)
		require.Equal(t, Number{Hi: 1}.minus(Number{Lo: uint64(len(taken))}), s.Count())
	}
}

// BenchmarkPick is the figure ipam.pick: choosing an address when so many are taken.
func BenchmarkPick(b *testing.B) {
	atEverySize(b, func(b *testing.B, _ *rand.Rand, pick func() netip.Addr, _ *Set, _ []netip.Addr) {
		for b.Loop() {
			pick()
		}
	})
}

// BenchmarkTurnover chooses and takes an address and gives back another one.
func BenchmarkTurnover(b *testing.B) {
	atEverySize(b, func(b *testing.B, random *rand.Rand, pick func() netip.Addr, s *Set, taken []netip.Addr) {
		for b.Loop() {
			a := pick()
			s.Take(a)
			i := random.IntN(len(taken))
			s.Release(taken[i])
			taken[i] = a
		}
	})
}

func atEverySize(b *testing.B, run func(*testing.B, *rand.Rand, func() netip.Addr, *Set, []netip.Addr)) {
	for _, size := range []struct {
		network string
		taken   int
	}{
		{"10.0.0.0/16", 100}, {"10.0.0.0/16", 1000}, {"10.0.0.0/16", 10000}, {"10.0.0.0/16", 65000},
		{"fd00::/64", 100}, {"fd00::/64", 65000}, {"10.0.0.0/24", 100},
	} {
		for _, strategy := range []string{"random", "sequential"} {
			b.Run(fmt.Sprintf("%s/taken=%d/%s", size.network, size.taken, strategy), func(b *testing.B) {
				random := rand.New(rand.NewPCG(1, 2))
				s := New(PrefixRange(netip.MustParsePrefix(size.network)))
				pick := func() (a netip.Addr) {
					if strategy == "sequential" {
						a, _ = s.First()
					} else {
						a, _ = s.Pick(Number{random.Uint64(), random.Uint64()})
					}
					return a
				}
				taken := make([]netip.Addr, 0, size.taken)
				for range size.taken {
					a := pick()
					s.Take(a)
					taken = append(taken, a)
				}
				b.ReportAllocs()
				run(b, random, pick, s, taken)
			})
		}
	}
}
