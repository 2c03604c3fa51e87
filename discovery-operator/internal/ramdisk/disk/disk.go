// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package disk finds the disks of a machine, chooses one by Ironic's root device hints, writes images and config drives to it, and erases disks. A disk
// that is in use is neither written nor erased.
package disk

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Disk is one disk of a machine, in the form of Ironic's inventory.
type Disk struct {
	// Name is the path of the device, such as /dev/sda.
	Name   string `json:"name"`
	ByPath string `json:"by_path"`
	// Size is in bytes.
	Size       int64  `json:"size"`
	Model      string `json:"model"`
	Vendor     string `json:"vendor"`
	Serial     string `json:"serial"`
	Rotational bool   `json:"rotational"`
	WWN        string `json:"wwn"`
	// WWNWithExtension and WWNVendorExtension are empty: the kernel tells the WWN only.
	WWNWithExtension   string `json:"wwn_with_extension"`
	WWNVendorExtension string `json:"wwn_vendor_extension"`
	HCTL               string `json:"hctl"`
	// Sector is the size in bytes of a logical sector.
	Sector int64 `json:"logical_sectors"`

	system System
}

// System is where the kernel lists what it has.
type System struct {
	// Sys, Proc and Dev are /sys, /proc and /dev.
	Sys, Proc, Dev string
}

// Running is the system that this process runs in.
var Running = System{"/sys", "/proc", "/dev"}

// aside are the beginnings of names of block devices that are no disks of the machine, or are made of other disks.
var aside = []string{"loop", "ram", "zram", "sr", "fd", "dm-", "md", "nbd"}

// Disks lists the disks of the machine that can be written, by name. Media that can be removed are left out.
func (s System) Disks() ([]Disk, error) {
	entries, err := os.ReadDir(filepath.Join(s.Sys, "block"))
	if err != nil {
		return nil, fmt.Errorf("listing disks: %w", err)
	}
	var found []Disk
	for _, e := range entries {
		at := filepath.Join(s.Sys, "block", e.Name())
		if slices.ContainsFunc(aside, func(p string) bool { return strings.HasPrefix(e.Name(), p) }) || is(at, "removable") || is(at, "ro") {
			continue
		}
		sectors, err := strconv.ParseInt(fact(at, "size"), 10, 64)
		if err != nil || sectors == 0 {
			continue
		}
		d := Disk{
			Name: filepath.Join(s.Dev, e.Name()), Size: sectors * 512, Rotational: is(at, "queue/rotational"), Model: fact(at, "device/model"),
			Vendor: fact(at, "device/vendor"), Serial: serial(at), WWN: cmp.Or(fact(at, "device/wwid"), fact(at, "wwid")), Sector: 512, system: s,
		}
		if n, err := strconv.ParseInt(fact(at, "queue/logical_block_size"), 10, 64); err == nil && n > 0 {
			d.Sector = n
		}
		if target, err := os.Readlink(filepath.Join(at, "device")); err == nil && strings.Count(filepath.Base(target), ":") == 3 {
			d.HCTL = filepath.Base(target)
		}
		d.WWN = strings.TrimPrefix(d.WWN, "naa.")
		found = append(found, d)
	}
	return found, nil
}

// fact reads a file of the kernel; what is not there is empty.
func fact(dir, name string) string {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.Trim(string(text), "\x00"))
}

func is(dir, name string) bool { return fact(dir, name) == "1" }

// serial is the serial number of a disk: of virtio and NVMe, or the page 0x80 of SCSI, which has four bytes before it.
func serial(at string) string {
	if s := cmp.Or(fact(at, "serial"), fact(at, "device/serial")); s != "" {
		return s
	}
	page, err := os.ReadFile(filepath.Join(at, "device", "vpd_pg80"))
	if err != nil || len(page) <= 4 {
		return ""
	}
	return strings.TrimSpace(strings.Trim(string(page[4:]), "\x00"))
}

// File is a regular file in the place of a disk.
func File(path string) (Disk, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return Disk{}, fmt.Errorf("using a file as a disk: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return Disk{}, fmt.Errorf("using a file as a disk: %w", err)
	}
	if !info.Mode().IsRegular() {
		return Disk{}, fmt.Errorf("%s is used as a disk, and is no regular file", path)
	}
	return Disk{Name: path, Size: info.Size(), Model: "file", Sector: 512, system: Running}, nil
}

// open opens a disk for writing, unless it is in use. The kernel refuses it, too, for what it knows of.
func (d Disk) open() (*os.File, error) {
	if err := d.unused(); err != nil {
		return nil, err
	}
	flags := os.O_RDWR
	if info, err := os.Stat(d.Name); err == nil && info.Mode()&os.ModeDevice != 0 {
		flags |= os.O_EXCL
	}
	f, err := os.OpenFile(d.Name, flags, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the disk %s for writing: %w", d.Name, err)
	}
	return f, nil
}

// unused fails with a sentence where a file system or swap space of the disk is mounted, or another device is made of it.
func (d Disk) unused() error {
	name := filepath.Base(d.Name)
	at := filepath.Join(d.system.Sys, "class", "block", name)
	devices := map[string]string{}
	parts, _ := filepath.Glob(filepath.Join(at, "*", "partition"))
	for _, dir := range append([]string{at}, dirs(parts)...) {
		if number := fact(dir, "dev"); number != "" {
			devices[number] = filepath.Base(dir)
		}
		if holders, err := os.ReadDir(filepath.Join(dir, "holders")); err == nil && len(holders) > 0 {
			return fmt.Errorf("the disk %s is in use: %s is made of %s", d.Name, holders[0].Name(), filepath.Base(dir))
		}
	}
	mounts, err := os.ReadFile(filepath.Join(d.system.Proc, "self", "mountinfo"))
	if err != nil {
		return fmt.Errorf("looking for mounted disks: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if device, ok := devices[fields[2]]; ok {
			return fmt.Errorf("the disk %s is in use: %s is mounted at %s", d.Name, device, fields[4])
		}
	}
	swaps, err := os.ReadFile(filepath.Join(d.system.Proc, "swaps"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("looking for swap space: %w", err)
	}
	for line := range strings.Lines(string(swaps)) {
		path, _, _ := strings.Cut(line, " ")
		for _, device := range devices {
			if path == filepath.Join(d.system.Dev, device) {
				return fmt.Errorf("the disk %s is in use: %s is swap space", d.Name, device)
			}
		}
	}
	return nil
}

func dirs(paths []string) []string {
	out := make([]string, 0, len(paths))
	for _, p := range paths {
		out = append(out, filepath.Dir(p))
	}
	return out
}
