// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"strings"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// Node is what a list of Ironic's nodes says of one machine.
type Node struct {
	// UUID identifies the node for as long as it exists. A machine that is discovered again gets another one.
	UUID string
	// Name is empty for a discovered node, and "<namespace>~<name>" for one that an operator has taken over.
	Name string
	// BMC is the key of the management controller that the node has, see BMCKey; empty where it has none, or was not read.
	BMC string
	// Driver is the hardware type; discovered nodes have one that does nothing.
	Driver string
	// State is the provision state, "enroll" after discovery.
	State string
	// LastError is what Ironic last reported, empty if nothing.
	LastError string
	// Instance is the UUID of what occupies the node, empty if nothing.
	Instance string
	// Locked says that Ironic works on the node.
	Locked bool
	// Inspected is when Ironic last ended an inspection of the machine, as RFC 3339 in UTC; empty for one that was discovered and not inspected since.
	Inspected string
}

// Port is one network interface of a node.
type Port struct {
	UUID string
	// Node is the UUID of the node.
	Node string
	// MAC is in lower case.
	MAC string
	// PXE says that the machine booted from this interface, or may.
	PXE bool
}

// Report is what a machine said of itself during inspection. Strings are bounded and free of control characters.
type Report struct {
	Hardware metal3v1.HardwareDetails
	// BootMAC is the interface that the machine says it booted from, in lower case; empty when it does not say.
	BootMAC string
	// CarrierMAC is the first interface with a link, FirstMAC the first interface; empty when there is none.
	CarrierMAC, FirstMAC string
	// MACs are all usable MACs, in lower case, in the order of the interfaces.
	MACs []string
	// BMCAddress is the address of the management controller as the machine says, empty when it does not.
	BMCAddress string
	// AutoDiscovered says that the node was made by discovery, not by hand.
	AutoDiscovered bool
	// Failed is what inspection itself complained about, empty when it succeeded.
	Failed string
	// Cut names what was left out because it was too long or too much.
	Cut []string
}

// Provision states of nodes that matter here.
const (
	NodeEnroll     = "enroll"
	NodeVerifying  = "verifying"
	NodeManageable = "manageable"
	NodeAvailable  = "available"
)

// idle reports whether a node in this state is unused.
func idle(state string) bool {
	switch state {
	case NodeEnroll, NodeVerifying, NodeManageable, NodeAvailable, "inspecting", "inspect wait", "inspect failed":
		return true
	default:
		return false
	}
}

// NormalMAC returns the MAC in lower case with colons; also a MAC written "01-aa-bb-…" with a leading hardware type or
// with dashes is understood. It returns "" for what is not a MAC.
func NormalMAC(s string) string {
	s = strings.ToLower(strings.ReplaceAll(s, "-", ":"))
	if len(s) == len("01:aa:bb:cc:dd:ee:ff") {
		s = s[3:]
	}
	if len(s) != 17 {
		return ""
	}
	for i := range len(s) {
		colon, hex := i%3 == 2, strings.IndexByte("0123456789abcdef", s[i]) >= 0
		if colon != (s[i] == ':') || !colon && !hex {
			return ""
		}
	}
	return s
}

// dockMACs are known to stand in many machines at once: factory defaults of adapters and boards.
var dockMACs = map[string]bool{
	"00:00:00:00:00:01": true,
	"00:11:22:33:44:55": true,
	"00:e0:4c:68:00:01": true,
	"00:e0:4c:36:00:01": true,
	"aa:bb:cc:dd:ee:ff": true,
	"de:ad:be:ef:00:00": true,
	"88:88:88:88:87:88": true,
}

// UsableMAC reports whether a normal MAC can identify a machine: not all zero, not a group address, not a known
// factory default.
func UsableMAC(mac string) bool {
	if mac == "" || mac == "00:00:00:00:00:00" || dockMACs[mac] {
		return false
	}
	return strings.IndexByte("02468ace", mac[1]) >= 0
}
