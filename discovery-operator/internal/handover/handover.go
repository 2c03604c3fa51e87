// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package handover decides, for a host that discovery holds, whether the operator that manages hosts may have it, and what
// becomes of its node when it is deleted. The package is pure.
package handover

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// Step is what is next for a host. The set is closed.
type Step interface{ isStep() }

// Leave says that the host is not discovery's business.
type Leave struct{}

// Clean says that the host is being deleted and its node goes first, unless Keep.
type Clean struct {
	Node string
	Keep bool
}

// Wait says that the host stays held, and why.
type Wait struct{ Reason, Message string }

// Switch says that the node gets the driver of the host's management controller, and the host is released after that.
type Switch struct {
	Node, Driver string
	// Boot are the boot interfaces that the address asks for, empty for the driver's own choice.
	Boot []string
	// Secret in the namespace of the host has to exist.
	Secret string
}

// TakeBack says that the host was managed here, and is in a state that only this operator knows, or in which the driver of its node is still
// to be switched: it becomes what it was before. Hold says that discovery made the host and holds it again.
type TakeBack struct{ Hold bool }

func (Leave) isStep()    {}
func (Clean) isStep()    {}
func (Wait) isStep()     {}
func (Switch) isStep()   {}
func (TakeBack) isStep() {}

// drivers by the scheme of a management controller's address, without +http and +https.
var drivers = map[string]string{
	"ipmi": "ipmi", "libvirt": "ipmi",
	"redfish": "redfish", "redfish-virtualmedia": "redfish", "redfish-uefihttp": "redfish",
	"ilo5-redfish": "redfish", "ilo5-virtualmedia": "redfish",
	"idrac-redfish": "idrac", "idrac-virtualmedia": "idrac",
}

// Driver returns Ironic's driver for the address of a management controller; false when there is none.
func Driver(address string) (string, bool) {
	driver, ok := drivers[scheme(address)]
	return driver, ok
}

// boots are Ironic's boot interfaces, the preferred ones first, by the scheme of an address that says how the machine boots. Without one of them the machine boots from the
// network, as the driver does by itself.
var boots = map[string][]string{
	"redfish-virtualmedia": {"redfish-virtual-media"}, "ilo5-virtualmedia": {"redfish-virtual-media"},
	"idrac-virtualmedia": {"idrac-redfish-virtual-media", "redfish-virtual-media"}, "redfish-uefihttp": {"redfish-https"},
}

// scheme is that of the address of a management controller, without +http and +https.
func scheme(address string) string {
	scheme, _, _ := strings.Cut(inventory.BMCURL(address), "://")
	scheme, _, _ = strings.Cut(strings.ToLower(scheme), "+")
	return scheme
}

// Boot returns Ironic's boot interfaces that the address of a management controller asks for, one of which will do; none where the driver chooses.
func Boot(address string) []string { return boots[scheme(address)] }

// nodeOf is the node that is recorded for a host.
func nodeOf(h *metal3v1.BareMetalHost) string {
	if h.Status.Provisioning.ID != "" {
		return h.Status.Provisioning.ID
	}
	return h.Annotations[metal3v1.NodeAnnotation]
}

// First is what a new host waits for: for a user's approval if that is wanted, then for credentials.
func First(approval bool) Wait {
	if approval {
		return Wait{metal3v1.ReasonWaitingForApproval,
			`The host is held until the annotation ` + metal3v1.ApprovedAnnotation + ` is set to "true".`}
	}
	return Wait{metal3v1.ReasonWaitingForCredentials,
		"The host has no power control. Set spec.bmc.address and spec.bmc.credentialsName to have it managed."}
}

// rebootWanted reports whether a user asked for a reboot.
func rebootWanted(h *metal3v1.BareMetalHost) bool {
	for key := range h.Annotations {
		if key == metal3v1.RebootAnnotation || strings.HasPrefix(key, metal3v1.RebootAnnotation+"/") {
			return true
		}
	}
	return false
}

// managedHere reports whether this operator managed the host when it still managed hosts, and did not get far with it.
func managedHere(h *metal3v1.BareMetalHost) bool {
	c := meta.FindStatusCondition(h.Status.Conditions, metal3v1.ConditionHandedOver)
	if c == nil || c.Reason != metal3v1.ReasonManagedHere || h.DeletionTimestamp != nil {
		return false
	}
	switch h.Status.Provisioning.State {
	case metal3v1.StateUnmanaged, metal3v1.StateDiscovered, metal3v1.StateImporting:
		return true
	default:
		return false
	}
}

// Next says what is next for a host.
func Next(h *metal3v1.BareMetalHost) Step {
	if managedHere(h) {
		return TakeBack{Hold: h.Labels[metal3v1.DiscoveredByLabel] != ""}
	}
	held := false
	for _, f := range h.Finalizers {
		held = held || f == metal3v1.DiscoveryFinalizer
	}
	switch {
	case !held, h.Labels[metal3v1.DiscoveredByLabel] == "" && h.DeletionTimestamp == nil:
		return Leave{}
	case h.DeletionTimestamp != nil: // also of a host that lost its label: only this operator removes the finalizer
		return Clean{Node: nodeOf(h), Keep: h.Annotations[metal3v1.KeepNodeAnnotation] == "true"}
	}
	if value, paused := h.Annotations[metal3v1.PausedAnnotation]; !h.HasStatus() || paused && value != metal3v1.DiscoveryPausedValue {
		// Without status the next pass of discovery writes one; a user's pause is theirs to remove.
		return Leave{}
	}
	if h.Labels[metal3v1.ApprovalLabel] == "pending" && h.Annotations[metal3v1.ApprovedAnnotation] != "true" {
		return First(true)
	}
	if !h.HasPowerControl() {
		w := First(false)
		if rebootWanted(h) {
			w.Reason = metal3v1.ReasonRebootNotPossible
			w.Message = "A reboot was asked for and is not done. " + w.Message
		}
		return w
	}
	driver, ok := Driver(h.Spec.BMC.Address)
	if !ok {
		scheme, _, _ := strings.Cut(inventory.BMCURL(h.Spec.BMC.Address), "://")
		return Wait{metal3v1.ReasonBMCUnsupported, fmt.Sprintf("No driver is known for the scheme %q of spec.bmc.address.", scheme)}
	}
	return Switch{Node: nodeOf(h), Driver: driver, Boot: Boot(h.Spec.BMC.Address), Secret: h.Spec.BMC.CredentialsName}
}

// Ready says whether a node, as it was read back, may be handed over with a host; if not, why.
func Ready(n inventory.Node, h *metal3v1.BareMetalHost, driver string) (Wait, bool) {
	switch {
	case n.UUID != nodeOf(h):
		return Wait{metal3v1.ReasonNodeMoved, "Ironic answered with another node than the one recorded."}, false
	case n.Name != "" && n.Name != h.Namespace+"~"+h.Name:
		return Wait{metal3v1.ReasonNodeMoved, fmt.Sprintf(
			"The node has the name %s, which is not this host's: another client works with it. Remove the name in Ironic to have the host handed over.",
			n.Name)}, false
	case n.Instance != "" || !movable(n.State):
		return Wait{metal3v1.ReasonNodeMoved, fmt.Sprintf(
			"The node is %s, it has to be enroll, manageable or available: another client works with it. Bring it back in Ironic to have the host handed over.",
			n.State)}, false
	case n.Driver != driver:
		return Wait{metal3v1.ReasonDriverSwitching, fmt.Sprintf("The node has driver %s, it has to be %s.", n.Driver, driver)}, false
	}
	return Wait{}, true
}

// movable reports whether the driver of a node can be switched in a state, and another operator goes on from it.
func movable(state string) bool {
	return state == inventory.NodeEnroll || state == inventory.NodeManageable || state == inventory.NodeAvailable
}

// Deletable says whether the node of a deleted host may be deleted, and if not, why.
func Deletable(n inventory.Node, h *metal3v1.BareMetalHost) (why string, ok bool) {
	switch {
	case n.Instance != "":
		return "something occupies it", false
	case n.Name != "" && n.Name != h.Namespace+"~"+h.Name:
		return "it has a name that is not this host's", false
	case n.State != inventory.NodeEnroll:
		return "it is " + n.State + ", not enroll", false
	}
	return "", true
}
