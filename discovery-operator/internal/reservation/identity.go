// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package reservation

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"net/url"
	"strings"
)

const bmcPrefix = "bmc-"

// BMCKey is the address of a management controller without its scheme, which says how to speak to it and not which one it is. Port and path belong to it:
// several machines can be behind one host. It is empty where the address identifies nothing.
func BMCKey(address string) string {
	if _, err := netip.ParseAddr(address); err == nil && strings.Contains(address, ":") {
		address = "[" + address + "]"
	}
	if !strings.Contains(address, "://") {
		address = "ipmi://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return ""
	}
	path := strings.TrimRight(u.Path, "/")
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && u.Port() == "" && path == "" && (ip.IsLoopback() || ip.IsUnspecified()) {
		return ""
	}
	host := strings.ToLower(u.Host)
	if u.Scheme == "ipmi" {
		host = strings.TrimSuffix(host, ":623")
	}
	return host + path
}

// LeaseName is the name of the Lease that reserves the identity: one identity, one name, and the API server lets one be created.
func (r Reservation) LeaseName() string {
	if r.BMC == "" {
		return Name(r.MAC)
	}
	sum := sha256.Sum256([]byte(r.BMC))
	return bmcPrefix + hex.EncodeToString(sum[:16])
}

// Identity names what is reserved, for people.
func (r Reservation) Identity() string {
	if r.BMC == "" {
		return "MAC " + r.MAC
	}
	return "management controller " + r.BMC
}
