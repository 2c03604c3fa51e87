// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"slices"
	"time"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// settleTime is how long ports may come in after the node. A machine whose boot interface has a port is whole after it even
// if other interfaces have none, because Ironic can be configured not to make ports for all.
const settleTime = 30 * time.Second

// PatienceTime is how long Ironic may answer that it has no inventory of a machine, or no port for its boot interface, before the discovery of the
// machine counts as failed. It runs from answer to answer: a machine that is not asked about waits.
const PatienceTime = 5 * time.Minute

// BootRule says how the boot MAC was found.
type BootRule string

// Rules, the most trustworthy first.
const (
	// BootReported: the machine said which interface it booted from.
	BootReported BootRule = "reported"
	// BootPort: Ironic marks one port for booting.
	BootPort BootRule = "pxe-port"
	// BootCarrier: the first interface with a link.
	BootCarrier BootRule = "first-with-carrier"
	// BootFirst: the first interface.
	BootFirst BootRule = "first"
)

// bootMAC chooses the MAC that identifies the machine.
func bootMAC(m *Machine) (string, BootRule) {
	if m.Report.BootMAC != "" {
		return m.Report.BootMAC, BootReported
	}
	for _, p := range m.Ports {
		if p.PXE && UsableMAC(p.MAC) {
			return p.MAC, BootPort
		}
	}
	if m.Report.CarrierMAC != "" {
		return m.Report.CarrierMAC, BootCarrier
	}
	return m.Report.FirstMAC, BootFirst
}

// incomplete says why a machine cannot be judged yet, or never will be; ok means that its data is whole.
func incomplete(m *Machine) (v Verdict, ok bool) {
	v = Verdict{Node: m.Node.UUID, Waiting: true}
	switch {
	case m.Report == nil && len(m.Ports) == 0 && m.Node.LastError != "":
		return failed(v, "Ironic could not take the machine in: "+m.Node.LastError), false
	case m.Unreadable != "":
		return failed(v, "the inventory of the node cannot be read: "+m.Unreadable), false
	case m.Report == nil && m.MissingLast.Sub(m.Missing) >= PatienceTime:
		return failed(v, "Ironic has no inventory of the node; a node made by hand has to be inspected first"), false
	case m.Report == nil && len(m.Ports) == 0:
		v.Reason, v.Message = metal3v1.WaitingForPorts, "Ironic has made no port for the node yet"
		return v, false
	case !m.Read():
		v.Reason, v.Message = metal3v1.WaitingForReading, "the inventory of the node is still to be read"
		return v, false
	case m.Report == nil:
		v.Reason, v.Message = metal3v1.WaitingForInventory, "Ironic has no inventory of the node yet"
		return v, false
	case m.Report.Failed != "":
		return failed(v, "the machine reported an error: "+m.Report.Failed), false
	case len(m.Report.MACs) == 0:
		v.Waiting, v.Reason = false, metal3v1.RefusedMACUnusable
		v.Message = "no interface has a MAC that can identify the machine"
		return v, false
	}
	return portless(v, m)
}

// portless says whether a machine with a report lacks ports.
func portless(v Verdict, m *Machine) (Verdict, bool) {
	age := m.PortsRead.Sub(m.FirstSeen)
	boot, _ := bootMAC(m)
	v.BootMAC = boot
	var missing []string
	for _, mac := range m.Report.MACs {
		if !hasPort(m, mac) {
			missing = append(missing, mac)
		}
	}
	switch {
	case (len(missing) == 0 || age >= settleTime) && hasPort(m, boot):
		return v, true
	case age >= PatienceTime:
		return failed(v, fmt.Sprintf("Ironic made no port for the boot interface %s", boot)), false
	case len(missing) == 0:
		v.Reason, v.Message = metal3v1.WaitingForPorts, fmt.Sprintf("the boot interface %s has no port yet", boot)
	default:
		v.Reason, v.Message = metal3v1.WaitingForPorts, fmt.Sprintf("%d of %d interfaces have no port yet", len(missing), len(m.Report.MACs))
	}
	return v, false
}

func failed(v Verdict, message string) Verdict {
	v.Waiting, v.Reason, v.Message = false, metal3v1.RefusedDiscoveryFailed, message
	return v
}

func hasPort(m *Machine, mac string) bool {
	return slices.ContainsFunc(m.Ports, func(p Port) bool { return p.MAC == mac })
}
