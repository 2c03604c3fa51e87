// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package addresstest gives tests addresses of the machine that they run on.
package addresstest

import (
	"net"
	"net/netip"
)

// Reachable returns an IPv4 address of this machine that other machines reach; "" if it has none but loopback.
func Reachable() string {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	for _, address := range addresses {
		prefix, err := netip.ParsePrefix(address.String())
		if err == nil && prefix.Addr().Is4() && prefix.Addr().IsGlobalUnicast() {
			return prefix.Addr().String()
		}
	}
	return ""
}
