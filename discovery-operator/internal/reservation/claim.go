// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package reservation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// Claim is what decides whether a host may act on a node.
type Claim struct {
	Host inventory.Ref
	UID  string
	// BootMAC is the host's, in lower case, and Ironic the endpoint that it names; both may be empty.
	BootMAC, Ironic string
	// BMC is the key of the management controller that the host names, and Recorded the node in its status.
	BMC, Recorded string
	// Node and Ports are as Ironic says.
	Node  inventory.Node
	Ports []inventory.Port
	// Reservations are those of the host's boot MAC and of all MACs of the node, by MAC.
	Reservations map[string]Reservation
}

// ClaimOf is the claim of a host, without what Ironic and reservations say.
func ClaimOf(h *metal3v1.BareMetalHost) Claim {
	c := Claim{
		Host: inventory.Ref{Namespace: h.Namespace, Name: h.Name}, UID: string(h.UID), BootMAC: strings.ToLower(h.Spec.BootMACAddress),
		Ironic: h.Annotations[metal3v1.IronicAnnotation], Recorded: h.Status.Provisioning.ID,
	}
	if h.Spec.BMC != nil {
		c.BMC = inventory.BMCKey(h.Spec.BMC.Address)
	}
	return c
}

// Right is what a host may do with a node.
type Right string

// Rights.
const (
	// None: the node is not the host's.
	None Right = ""
	// Named: the node has the host's name, which only the operator that manages the host, or an administrator of Ironic, gives it.
	Named Right = "named"
	// Unrecorded: the host's reservation does not name the node yet, and may.
	Unrecorded Right = "unrecorded"
	// Unreserved: no host has reserved the boot MAC, and this one may.
	Unreserved Right = "unreserved"
	// Held: the host's reservation names the node.
	Held Right = "held"
)

// Mine reports whether a reservation is the host's.
func (c Claim) Mine() bool {
	r := c.Reservations[c.BootMAC]
	return c.BootMAC != "" && r.Host == c.Host && !r.Ignored
}

// Names reports whether a reservation names both the host and the node.
func (r Reservation) Names(c Claim, node string) bool {
	return r.MAC == c.BootMAC && r.Host == c.Host && !r.Ignored && (r.UID == "" || r.UID == c.UID) && r.Node == node && node != "" && r.Ironic == c.Ironic
}

// Judge says what a host may do with a node, and if nothing, why. A host may act on a node that has a port with the host's boot MAC,
// when the host has reserved that MAC and no other host another one of the node, and on a node that has its name, unless all that it says is of another machine.
func (c Claim) Judge() (right Right, why string) {
	own := c.Reservations[c.BootMAC]
	held := own.Names(c, c.Node.UUID)
	switch {
	case c.Node.Name == c.Host.Namespace+"~"+c.Host.Name && !held && c.elsewhere():
		return None, fmt.Sprintf("node %s has the name of this host, and the ports and the management controller %s of another machine: another cluster may have a host of this name. "+
			"Rename the host, or remove the name of the node in Ironic", c.Node.UUID, c.Node.BMC)
	case c.Node.Name == c.Host.Namespace+"~"+c.Host.Name:
		return c.named(held), ""
	case c.Node.Name != "":
		return None, fmt.Sprintf("node %s has the name %s, which is not this host's", c.Node.UUID, c.Node.Name)
	case c.BootMAC == "":
		return None, fmt.Sprintf("the host has no spec.bootMACAddress by which node %s could be its own", c.Node.UUID)
	case !held && !c.hasPort():
		return None, fmt.Sprintf("node %s has no port with the host's boot MAC %s", c.Node.UUID, c.BootMAC)
	}
	for _, r := range c.others() {
		if !held || r.Node == c.Node.UUID && r.Ironic == c.Ironic && r.before(own) {
			return None, fmt.Sprintf("MAC %s of node %s is reserved for host %s", r.MAC, c.Node.UUID, r.Host)
		}
	}
	switch {
	case held:
		return Held, ""
	case c.Mine():
		return Unrecorded, ""
	default:
		return Unreserved, ""
	}
}

// named is the right to a node that has the host's name. Its reservation can say so too, once there is a port to recognise it by.
func (c Claim) named(held bool) Right {
	own, reserved := c.Reservations[c.BootMAC]
	switch {
	case held:
		return Held
	case !c.hasPort():
		return Named
	case c.Mine():
		return Unrecorded
	case !reserved || own.Ignored:
		return Unreserved
	default:
		return Named
	}
}

// elsewhere reports whether a node that is not recorded for the host is one of another machine. Two clusters that share an Ironic may have hosts of one name. A host without
// boot MAC is known by its management controller alone.
func (c Claim) elsewhere() bool {
	return c.Recorded != c.Node.UUID && (c.BootMAC != "" || c.BMC != "") && len(c.Ports) > 0 && !c.hasPort() && c.Node.BMC != "" && system(c.Node.BMC) != system(c.BMC)
}

// system is the key of a management controller without the root of its service, which names no system: Ironic is told none then.
func system(bmc string) string { return strings.TrimSuffix(bmc, "/redfish/v1") }

func (c Claim) hasPort() bool {
	return slices.ContainsFunc(c.Ports, func(p inventory.Port) bool { return p.MAC == c.BootMAC })
}

// others are the reservations of the node's MACs, and of the host's, that other hosts have.
func (c Claim) others() []Reservation {
	var out []Reservation
	for _, r := range c.Reservations {
		if r.Host != c.Host && !r.Ignored {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Reservation) int { return strings.Compare(a.MAC, b.MAC) })
	return out
}

// before orders reservations of one node: the older one counts.
func (r Reservation) before(other Reservation) bool {
	return cmp.Or(r.Made.Compare(other.Made), strings.Compare(r.MAC, other.MAC)) < 0
}
