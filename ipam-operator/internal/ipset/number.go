// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipset

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
)

// Number is an unsigned 128-bit integer: an address in its 16-byte form, or a count of addresses.
type Number struct{ Hi, Lo uint64 }

// greatest is the number of the all-ones IPv6 address.
var greatest = Number{Hi: math.MaxUint64, Lo: math.MaxUint64}

// mapped is the block ::ffff:0:0/96. Its numbers stand for the IPv4 addresses; no IPv6 address has one of them.
var mapped = interval{Number{Lo: 0xffff_0000_0000}, Number{Lo: 0xffff_ffff_ffff}}

// numberOf returns an address as a number; IPv4 addresses are in their IPv6-mapped form.
func numberOf(addr netip.Addr) Number {
	raw := addr.As16()
	return Number{Hi: binary.BigEndian.Uint64(raw[:8]), Lo: binary.BigEndian.Uint64(raw[8:])}
}

// addr is the address that a number stands for; mapped addresses are IPv4.
func (n Number) addr() netip.Addr {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], n.Hi)
	binary.BigEndian.PutUint64(raw[8:], n.Lo)
	return netip.AddrFrom16(raw).Unmap()
}

// Int64 returns the number, or math.MaxInt64 for any greater one.
func (n Number) Int64() int64 {
	if n.Hi != 0 || n.Lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(n.Lo)
}

// IsZero reports whether the number is zero.
func (n Number) IsZero() bool { return n.Hi == 0 && n.Lo == 0 }

// Plus adds two numbers. Where the sum does not fit it is the greatest number: a count of all of ::/0.
func (n Number) Plus(other Number) Number {
	lo, carry := bits.Add64(n.Lo, other.Lo, 0)
	hi, over := bits.Add64(n.Hi, other.Hi, carry)
	if over != 0 {
		return greatest
	}
	return Number{Hi: hi, Lo: lo}
}

func (n Number) minus(other Number) Number {
	lo, borrow := bits.Sub64(n.Lo, other.Lo, 0)
	hi, _ := bits.Sub64(n.Hi, other.Hi, borrow)
	return Number{Hi: hi, Lo: lo}
}

func (n Number) less(other Number) bool {
	return n.Hi < other.Hi || n.Hi == other.Hi && n.Lo < other.Lo
}

// ShiftRight divides the number by a power of two.
func (n Number) ShiftRight(bits int) Number {
	if bits >= 64 {
		return Number{Lo: n.Hi >> (bits - 64)}
	}
	return Number{Hi: n.Hi >> bits, Lo: n.Lo>>bits | n.Hi<<(64-bits)}
}

// next is the number after n; n is not the greatest.
func (n Number) next() Number { return n.Plus(Number{Lo: 1}) }

// precedes reports whether other is the number right after n and stands for an address of the same family.
func (n Number) precedes(other Number) bool {
	return n != greatest && n.next() == other && n != mapped.last && other != mapped.first
}

func (n Number) previous() Number { return n.minus(Number{Lo: 1}) }

// modulo is n % m for a positive m. It is exact and takes at most one step per bit.
func (n Number) modulo(m Number) Number {
	if m.Hi == 0 {
		_, rem := bits.Div64(n.Hi%m.Lo, n.Lo, m.Lo)
		return Number{Lo: rem}
	}
	shift := bits.LeadingZeros64(m.Hi)
	for ; shift >= 0; shift-- {
		part := Number{Hi: m.Hi<<shift | m.Lo>>(64-shift), Lo: m.Lo << shift}
		if !n.less(part) {
			n = n.minus(part)
		}
	}
	return n
}
