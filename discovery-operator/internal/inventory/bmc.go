// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"net/netip"
	"net/url"
	"strings"
)

// BMCURL writes the address of a management controller as a URL. An address without scheme is one of IPMI, with or without port. The slashes after a scheme can be missing, as
// in ipmi:192.0.2.1:623.
func BMCURL(address string) string {
	if strings.Contains(address, "://") {
		return address
	}
	if ip, err := netip.ParseAddr(address); err == nil && ip.Is6() {
		address = "[" + address + "]"
	}
	if u, err := url.Parse(address); err == nil && u.Opaque != "" && strings.Trim(u.Opaque, "0123456789/") != "" { // digits are the port of a host
		return strings.Replace(address, ":", "://", 1)
	}
	return "ipmi://" + address
}

// NormalBMC returns the host of a management controller's address as an identity: a bare IP, or a URL such as
// redfish+https://192.0.2.1:8443/redfish/v1/Systems/1. Loopback and link-local addresses identify nothing.
func NormalBMC(address string) string {
	host := address
	if _, err := netip.ParseAddr(address); err != nil {
		u, err := url.Parse(BMCURL(address))
		if err != nil {
			return ""
		}
		host = strings.ToLower(u.Hostname())
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case err != nil && host == "localhost":
		return ""
	case err != nil:
		return host
	case ip.IsUnspecified(), ip.IsLoopback(), ip.IsLinkLocalUnicast():
		return ""
	default:
		return ip.String()
	}
}

// BMCKey is the address of a management controller without its scheme, which says how to speak to it and not which one it is. Port and path belong to it:
// several machines can be behind one host. It is empty where the address identifies nothing.
func BMCKey(address string) string {
	u, err := url.Parse(BMCURL(address))
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
