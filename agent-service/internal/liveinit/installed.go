// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package liveinit

const (
	// Installed is the argument of the kernel by which a system knows that it runs from a disk that was installed.
	Installed = "muster.installed"
	// Label is of the partition, and of its file system, that takes the first-boot data, as in CoreOS.
	Label = "boot"
	// CoreLabel is of the partition with the boot loader for BIOS, which disks of other systems do not have beside one that is named Label.
	CoreLabel = "core"
)
