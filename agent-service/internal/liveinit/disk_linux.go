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

// Partition is the device of a partition with the given name, below Devices; empty while there is none.
func Partition(devices, label string) string {
	found, _ := filepath.Glob(filepath.Join(devices, "*", "uevent"))
	for _, path := range found {
		facts, err := os.ReadFile(path)
		if err == nil && slices.Contains(strings.Split(string(facts), "\n"), "PARTNAME="+label) {
			return filepath.Base(filepath.Dir(path))
		}
	}
	return ""
}
