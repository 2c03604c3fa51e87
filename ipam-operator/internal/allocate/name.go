// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"net/netip"
	"strings"
)

var dashes = strings.NewReplacer(":", "-", ".", "-")

// AddressName is the name of the IPAddress object of an address: the lock that one claim can have. The address is in
// canonical text form, with dashes for dots and colons, and dashes at the end are cut.
func AddressName(namePrefix string, addr netip.Addr) string {
	return strings.TrimRight(namePrefix+"-"+dashes.Replace(addr.Unmap().String()), "-")
}

// PrefixOfName is the namePrefix that gives an address this name; false means that the name was made otherwise.
func PrefixOfName(name string, addr netip.Addr) (string, bool) {
	return strings.CutSuffix(name, strings.TrimRight("-"+dashes.Replace(addr.Unmap().String()), "-"))
}

// addressOfName is the address in a name that AddressName made. The form with dashes may stand for two addresses; the
// answer is then one of them, whose name is the one asked for.
func addressOfName(namePrefix, name string) (netip.Addr, bool) {
	rest, ok := strings.CutPrefix(name, namePrefix+"-")
	if !ok {
		return netip.Addr{}, false
	}
	colons := strings.ReplaceAll(rest, "-", ":")
	for _, text := range []string{strings.ReplaceAll(rest, "-", "."), colons, colons + "::", colons + ":"} {
		if addr, err := ParseAddr(text); err == nil && AddressName(namePrefix, addr) == name {
			return addr, true
		}
	}
	return netip.Addr{}, false
}
