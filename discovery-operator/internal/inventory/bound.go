// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"encoding/json"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// maxHardware bounds the hardware of one machine as JSON. The annotations of an object, in which statuses move between clusters, may have 256 KiB, and
// the store refuses objects of more than 1.5 MB for ever.
const maxHardware = 192 << 10

// fewParts is how many network interfaces, disks and VLANs of an interface are left of a report that is much too large.
const fewParts = 16

// cuts leave out what is least needed, one after the other, until the hardware fits. The last ones leave less than the bound, whatever was reported.
var cuts = []struct {
	name string
	cut  func(*metal3v1.HardwareDetails)
}{
	{"VLANs of network interfaces from the 17th on", func(h *metal3v1.HardwareDetails) {
		for i := range h.NIC {
			h.NIC[i].VLANs = h.NIC[i].VLANs[:min(len(h.NIC[i].VLANs), fewParts)]
		}
	}},
	{"CPU flags", func(h *metal3v1.HardwareDetails) { h.CPU.Flags = nil }},
	{"alternate names of disks", func(h *metal3v1.HardwareDetails) {
		for i := range h.Storage {
			h.Storage[i].AlternateNames = nil
		}
	}},
	{"VLANs of network interfaces", func(h *metal3v1.HardwareDetails) {
		for i := range h.NIC {
			h.NIC[i].VLANs = nil
		}
	}},
	{"vendor, model and identifiers of disks but name and serial number", func(h *metal3v1.HardwareDetails) {
		for i := range h.Storage {
			s := &h.Storage[i]
			*s = metal3v1.Storage{Name: s.Name, Rotational: s.Rotational, SizeBytes: s.SizeBytes, SerialNumber: s.SerialNumber, Type: s.Type}
		}
	}},
	{"model and LLDP of network interfaces", func(h *metal3v1.HardwareDetails) {
		for i := range h.NIC {
			h.NIC[i].Model, h.NIC[i].LLDP = "", nil
		}
	}},
	{"disks from the 17th on", func(h *metal3v1.HardwareDetails) { h.Storage = h.Storage[:min(len(h.Storage), fewParts)] }},
	{"network interfaces from the 17th on", func(h *metal3v1.HardwareDetails) { h.NIC = h.NIC[:min(len(h.NIC), fewParts)] }},
}

// fit cuts the hardware until it fits into an object, and notes what was cut.
func (r *Report) fit() {
	for _, c := range cuts {
		data, err := json.Marshal(r.Hardware)
		if err == nil && len(data) <= maxHardware {
			return
		}
		c.cut(&r.Hardware)
		r.Cut = append(r.Cut, c.name)
	}
}
