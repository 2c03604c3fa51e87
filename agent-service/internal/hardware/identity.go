// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"fmt"
	"slices"
	"strings"
)

// byID is where systems with udev have names of disks that stay the same. Other names, such as /dev/sda and those of by-path, may be of another disk after each boot.
const byID = "/dev/disk/by-id/"

// DiskIdentity tells a disk from all others, wherever it is plugged in and whatever it is called.
type DiskIdentity struct {
	// Serial is what the disk reports; without one the disk has no identity.
	Serial string `json:"serial"`
	// WWN is the worldwide name, empty where the disk has none.
	WWN string `json:"wwn,omitempty"`
	// ID is the name below /dev/disk/by-id, empty where the system makes none.
	ID        string `json:"id,omitempty"`
	SizeBytes int64  `json:"size_bytes"`
}

// Identity of a disk that was reported. Names that may be of another disk after a boot are not part of it.
func (d Disk) Identity() DiskIdentity {
	identity := DiskIdentity{Serial: strings.TrimSpace(d.Serial), WWN: strings.TrimSpace(d.WWN), SizeBytes: d.SizeBytes}
	for _, name := range []string{d.ID, d.ByID} {
		if strings.HasPrefix(name, byID) {
			identity.ID = name
			break
		}
	}
	return identity
}

// unfixed are what names of devices begin with that are no disks of the machine: made of others, in its memory, of media, or reached over a network.
var unfixed = []string{"loop", "ram", "zram", "md", "dm-", "bcache", "sr", "fd", "nbd", "rbd", "drbd"}

// Fixed says that a disk is part of the machine. The one that the running system was booted from, one that can be pulled out, and one that is reached over a network are not.
func (d Disk) Fixed() bool {
	session := len(d.ISCSI) > 0 && string(d.ISCSI) != "null"
	return !d.Removable && !d.IsInstallationMedia && !d.Remote && !session && !strings.EqualFold(d.DriveType, "ODD") &&
		!slices.ContainsFunc(unfixed, func(prefix string) bool { return strings.HasPrefix(d.Name, prefix) })
}

// Complete says whether a disk can be found again by its identity.
func (i DiskIdentity) Complete() bool { return i.Serial != "" && i.SizeBytes > 0 }

// Is says whether a disk is the one that was recorded. A name that was recorded has to be the same; where the system that recorded made none, there is none to compare.
func (i DiskIdentity) Is(recorded DiskIdentity) bool {
	return recorded.Complete() && i.Serial == recorded.Serial && i.WWN == recorded.WWN && i.SizeBytes == recorded.SizeBytes && (recorded.ID == "" || i.ID == recorded.ID)
}

// String names the disk in messages.
func (i DiskIdentity) String() string {
	if i.Serial == "" {
		return fmt.Sprintf("disk of %d bytes without a serial number", i.SizeBytes)
	}
	return "disk with serial number " + i.Serial
}
