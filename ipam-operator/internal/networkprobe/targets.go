// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package networkprobe is an inventory of the addresses that answer on the network: it probes the subnets that it is given, and serves what answers by the contract of
// docs/inventory.md. Addresses that the operator has given are left out.
package networkprobe

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

// Limits of what is probed. They bound the memory and the length of a round.
const (
	// maxHostBits is how many bits of a subnet can differ: 4,096 addresses, an IPv4 subnet of /20.
	maxHostBits = 12
	// maxAddresses is how many addresses all subnets have together.
	maxAddresses = 1 << 16
)

// Subnet is a range of addresses to probe.
type Subnet struct {
	// Pool whose addresses these are; empty for all pools.
	Pool types.NamespacedName
	// Prefix is the addresses.
	Prefix netip.Prefix
}

// isOf reports whether the subnet has addresses of a pool.
func (s Subnet) isOf(pool types.NamespacedName) bool { return s.Pool.Name == "" || s.Pool == pool }

// Subnets are those of the flag --subnet. It implements flag.Value.
type Subnets []Subnet

// String implements flag.Value.
func (s *Subnets) String() string {
	out := make([]string, 0, len(*s))
	for _, subnet := range *s {
		if subnet.Pool.Name != "" {
			out = append(out, subnet.Pool.String()+"="+subnet.Prefix.String())
			continue
		}
		out = append(out, subnet.Prefix.String())
	}
	return strings.Join(out, ",")
}

// Set implements flag.Value. It adds a subnet in the form 10.0.0.0/24, or namespace/pool=10.0.0.0/24.
func (s *Subnets) Set(text string) error {
	var subnet Subnet
	if of, prefix, ok := strings.Cut(text, "="); ok {
		namespace, name, ok := strings.Cut(of, "/")
		if !ok || namespace == "" || name == "" {
			return fmt.Errorf("%s: write namespace/pool=10.0.0.0/24", text)
		}
		subnet.Pool, text = types.NamespacedName{Namespace: namespace, Name: name}, prefix
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return fmt.Errorf("%s: write a subnet such as 10.0.0.0/24", text)
	}
	if bits := prefix.Addr().BitLen() - prefix.Bits(); bits > maxHostBits {
		return fmt.Errorf("%s has too many addresses: write subnets of /%d or longer", prefix, prefix.Addr().BitLen()-maxHostBits)
	}
	subnet.Prefix = prefix.Masked()
	*s = append(*s, subnet)
	return nil
}

// Validate reports what is wrong with all subnets together.
func (s Subnets) Validate() error {
	if len(s) == 0 {
		return errors.New("write the subnets to probe: --subnet 10.0.0.0/24")
	}
	if n := len(s.addresses()); n > maxAddresses {
		return fmt.Errorf("the subnets have %d addresses: write at most %d", n, maxAddresses)
	}
	return nil
}

// addresses are the addresses of all subnets, each once, in order. Network and broadcast of an IPv4 subnet are not probed: many machines answer the latter.
func (s Subnets) addresses() []netip.Addr {
	seen := map[netip.Addr]bool{}
	for _, subnet := range s {
		last := lastOf(subnet.Prefix)
		for addr := subnet.Prefix.Addr(); addr.IsValid() && subnet.Prefix.Contains(addr) && len(seen) <= maxAddresses; addr = addr.Next() {
			if isOrdinary := subnet.Prefix.Bits() >= addr.BitLen()-1 || addr != subnet.Prefix.Addr() && addr != last; isOrdinary || addr.Is6() {
				seen[addr] = true
			}
		}
	}
	out := make([]netip.Addr, 0, len(seen))
	for addr := range seen {
		out = append(out, addr)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// lastOf is the last address of a prefix.
func lastOf(prefix netip.Prefix) netip.Addr {
	bytes := prefix.Addr().AsSlice()
	for bit := prefix.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}

// parseGiven reads the address or the prefix that was given.
func parseGiven(address string, prefixLength int) (netip.Prefix, error) {
	addr, err := allocate.ParseAddr(address)
	if err != nil {
		return netip.Prefix{}, err
	}
	if prefixLength == 0 {
		prefixLength = addr.BitLen()
	}
	prefix, err := addr.Prefix(prefixLength)
	if err != nil {
		return prefix, fmt.Errorf("reading the prefix length %d of %s: %w", prefixLength, address, err)
	}
	return prefix, nil
}
