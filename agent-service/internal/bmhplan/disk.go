// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package bmhplan

import (
	"cmp"
	"slices"
	"strings"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// gigabyte is that of minSizeGigabytes.
const gigabyte = 1_000_000_000

// disk chooses the disk that the machine is installed to by the hints of the host, as soon as the machine has reported its disks. A disk that a user chose on the
// Agent stays.
func disk(host *metal3v1.BareMetalHost, agent *agentv1.Agent, d Decision) Decision {
	hints := host.Spec.RootDeviceHints
	if hints == nil || *hints == (metal3v1.RootDeviceHints{}) || agent.Spec.InstallationDiskID != "" || agent.Spec.InstallationDiskPath != "" || len(agent.Status.Inventory.Disks) == 0 {
		return d
	}
	for i := range agent.Status.Inventory.Disks {
		if one := &agent.Status.Inventory.Disks[i]; one.InstallationEligibility.Eligible && fits(hints, one) {
			agent.Spec.InstallationDiskID = one.ID
			return d
		}
	}
	return d.because(ReasonNoSuchDisk, "no disk of Agent %s that can be installed to matches spec.rootDeviceHints", agent.Name)
}

// fits says whether a disk is as all hints say. Model and vendor may be parts of the names.
func fits(h *metal3v1.RootDeviceHints, d *agentv1.Disk) bool {
	is := func(hint string, values ...string) bool { return hint == "" || slices.Contains(values, hint) }
	rotational := strings.EqualFold(d.DriveType, "HDD")
	return is(h.DeviceName, d.Path, d.ByPath, d.ByID, "/dev/"+d.Name) && is(h.HCTL, d.Hctl) && strings.Contains(d.Model, h.Model) && strings.Contains(d.Vendor, h.Vendor) &&
		is(h.SerialNumber, d.Serial) && is(cmp.Or(h.WWNWithExtension, h.WWN), d.Wwn) && d.SizeBytes >= int64(h.MinSizeGigabytes)*gigabyte &&
		(h.Rotational == nil || *h.Rotational == rotational)
}
