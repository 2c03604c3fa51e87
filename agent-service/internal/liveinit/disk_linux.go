// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package liveinit

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// diskAt is where the installed disk is mounted.
	diskAt        = "/boot"
	firstBootPath = diskAt + "/ignition/config.ign"
	// reportedPath says that an earlier boot has reported.
	reportedPath = diskAt + "/ignition/reported"
)

// installed is true for a system that runs from its disk.
func installed() bool {
	line, err := os.ReadFile("/proc/cmdline")
	return err == nil && slices.Contains(strings.Fields(string(line)), Installed)
}

// disk mounts the file system that an installed system has its first-boot data on.
func disk() error {
	if !installed() {
		return nil
	}
	name := ""
	for deadline := time.Now().Add(addressPatience); name == ""; {
		if time.Now().After(deadline) {
			return fmt.Errorf("there is no partition %q", Label)
		}
		if name = Partition(Devices, Label); name == "" {
			time.Sleep(100 * time.Millisecond) //nolint:forbidigo // the kernel brings disks when it finds them
		}
	}
	if err := os.MkdirAll(diskAt, 0o755); err != nil { //nolint:gosec // world-readable
		return err
	}
	if err := unix.Mount("/dev/"+name, diskAt, "vfat", unix.MS_SYNCHRONOUS, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", name, err)
	}
	return nil
}

// Devices is where the kernel lists disks and their partitions.
const Devices = "/sys/class/block"

// Partition is the device of a partition with the given name, below Devices, on a disk that an image of this kind was written to; empty while there is none. Disks of other systems have
// partitions of the same names: those of CoreOS are boot and root.
func Partition(devices, label string) string {
	for _, name := range named(devices, label) {
		if Beside(devices, name, CoreLabel) != "" {
			return name
		}
	}
	return ""
}

// Beside is the device of the partition with the given name on the disk that another partition is on; empty where there is none.
func Beside(devices, partition, label string) string {
	target, err := filepath.EvalSymlinks(filepath.Join(devices, partition))
	if err != nil {
		return ""
	}
	if found := named(filepath.Dir(target), label); len(found) > 0 {
		return found[0]
	}
	return ""
}

// named are the partitions with a name, of those that have a directory in dir.
func named(dir, label string) (names []string) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		facts, err := os.ReadFile(filepath.Join(dir, entry.Name(), "uevent"))
		if err == nil && slices.Contains(strings.Split(string(facts), "\n"), "PARTNAME="+label) {
			names = append(names, entry.Name())
		}
	}
	return names
}
