// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"context"
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jaypipes/ghw"

	"github.com/muster-io/muster/agent-service/internal/hardware"
)

// minimumDisk is the smallest disk that an operating system fits onto.
const minimumDisk = 1 << 20 * 64

// Inventory is what the machine has. A value that one source lacks comes from the next, or is left out.
func (m *Real) Inventory(_ context.Context) (*hardware.Inventory, error) {
	name, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	return &hardware.Inventory{
		Hostname: name, Boot: m.boot(content("/proc/cmdline")), CPU: processors(), Memory: memory(), Disks: m.withUnitSerials(m.disks()), Interfaces: m.interfaces(), Routes: routes(), SystemVendor: m.vendor(),
		TPMVersion: m.tpm(), Timestamp: time.Now().Unix(),
	}, nil
}

// boot is how the machine was started, with the kernel's command line.
func (m *Real) boot(line string) hardware.Boot {
	boot := hardware.Boot{CurrentBootMode: "bios", CommandLine: string(withoutToken([]byte(line)))} // users see it
	if _, err := os.Stat(filepath.Join(m.Sys, "firmware/efi")); err == nil {
		boot.CurrentBootMode = "uefi"
	}
	return boot
}

func processors() hardware.CPU {
	found := hardware.CPU{Architecture: hardware.Architecture(runtime.GOARCH), Count: int64(runtime.NumCPU())}
	if info, err := ghw.CPU(ghw.WithDisableWarnings(), ghw.WithDisableTools()); err == nil && len(info.Processors) > 0 {
		found.ModelName, found.Flags = info.Processors[0].Model, info.Processors[0].Capabilities
		if info.TotalHardwareThreads > 0 {
			found.Count = int64(info.TotalHardwareThreads)
		}
	}
	return found
}

func memory() hardware.Memory {
	found := hardware.Memory{PhysicalBytesMethod: "meminfo"}
	for line := range strings.Lines(content("/proc/meminfo")) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			found.UsableBytes = kib << 10
		}
	}
	found.PhysicalBytes = found.UsableBytes
	if info, err := ghw.Memory(ghw.WithDisableWarnings(), ghw.WithDisableTools()); err == nil && info.TotalPhysicalBytes > found.UsableBytes {
		found.PhysicalBytes, found.PhysicalBytesMethod = info.TotalPhysicalBytes, "ghw"
	}
	return found
}

// disks reads /sys, and takes from ghw what only udev knows.
func (m *Real) disks() []hardware.Disk {
	entries, err := os.ReadDir(filepath.Join(m.Sys, "block"))
	if err != nil {
		return nil
	}
	known := map[string]*ghw.Disk{}
	if info, err := ghw.Block(ghw.WithDisableWarnings(), ghw.WithDisableTools()); err == nil {
		for _, disk := range info.Disks {
			known[disk.Name] = disk
		}
	}
	var found []hardware.Disk
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, "loop") || strings.HasPrefix(name, "ram") || strings.HasPrefix(name, "zram") || strings.HasPrefix(name, "dm-") || strings.HasPrefix(name, "fd") {
			continue
		}
		found = append(found, m.disk(name, known[name]))
	}
	return found
}

// withUnitSerials adds serial numbers that disks report by themselves, where no other source has one: without udev these are all that SATA and SAS disks have. They are no
// part of the fingerprint, which agents have made without them.
func (m *Real) withUnitSerials(disks []hardware.Disk) []hardware.Disk {
	for i := range disks {
		if disks[i].Serial != "" {
			continue
		}
		page := content(filepath.Join(m.Sys, "block", disks[i].Name, "device/vpd_pg80"))
		const header = 4
		if len(page) > header {
			disks[i].Serial = strings.TrimSpace(strings.Trim(page[header:], "\x00"))
			disks[i].HasUUID = disks[i].HasUUID || disks[i].Serial != ""
		}
	}
	return disks
}

func (m *Real) disk(name string, known *ghw.Disk) hardware.Disk {
	at := filepath.Join(m.Sys, "block", name)
	sectors, _ := strconv.ParseInt(content(filepath.Join(at, "size")), 10, 64)
	disk := hardware.Disk{
		Name: name, Path: "/dev/" + name, SizeBytes: sectors * 512, DriveType: "SSD", Removable: content(filepath.Join(at, "removable")) == "1",
		Model: content(filepath.Join(at, "device/model")), Vendor: content(filepath.Join(at, "device/vendor")),
		Serial: first(content(filepath.Join(at, "device/serial")), content(filepath.Join(at, "serial"))),
		WWN:    first(content(filepath.Join(at, "device/wwid")), content(filepath.Join(at, "wwid"))),
	}
	if content(filepath.Join(at, "queue/rotational")) == "1" {
		disk.DriveType = "HDD"
	}
	if strings.HasPrefix(name, "sr") {
		disk.DriveType = "ODD"
	}
	if known != nil {
		disk.Model, disk.Vendor = first(disk.Model, described(known.Model)), first(disk.Vendor, described(known.Vendor))
		disk.Serial, disk.WWN = first(disk.Serial, described(known.SerialNumber)), first(disk.WWN, described(known.WWN))
	}
	disk.ByPath, disk.ByID = link("/dev/disk/by-path", name), link("/dev/disk/by-id", name)
	disk.ID = first(disk.ByID, disk.ByPath, disk.Path)
	disk.HasUUID = disk.WWN != "" || disk.Serial != ""
	holders, _ := os.ReadDir(filepath.Join(at, "holders"))
	for _, holder := range holders {
		disk.Holders = strings.TrimPrefix(disk.Holders+","+holder.Name(), ",")
	}
	disk.Remote = remote(at)
	disk.IsInstallationMedia = m.mounted(name, content("/proc/self/mounts"))
	disk.InstallationEligibility = eligible(disk, content(filepath.Join(at, "ro")) == "1")
	return disk
}

// remote says that the kernel reaches a disk over a network: by iSCSI, Fibre Channel, or NVMe over fabrics.
func remote(at string) bool {
	device, err := filepath.EvalSymlinks(at)
	if err != nil {
		return false
	}
	for element := range strings.SplitSeq(device, "/") {
		number, session := strings.CutPrefix(element, "session")
		if _, err := strconv.Atoi(number); session && err == nil || strings.HasPrefix(element, "rport-") {
			return true
		}
	}
	direct, _ := filepath.Glob(filepath.Join(at, "device/transport"))
	paths, _ := filepath.Glob(filepath.Join(at, "device/nvme*/transport"))
	return slices.ContainsFunc(append(direct, paths...), func(file string) bool {
		return slices.Contains([]string{"tcp", "rdma", "fc", "loop"}, content(file))
	})
}

// Reasons why a disk cannot be installed to.
const (
	tooSmall = "the disk is too small"
	inUse    = "the disk is in use"
)

func eligible(disk hardware.Disk, readOnly bool) hardware.Eligibility {
	var reasons []string
	for reason, is := range map[string]bool{
		"the disk is removable": disk.Removable, "the disk is optical": disk.DriveType == "ODD", tooSmall: disk.SizeBytes < minimumDisk,
		"the disk is read only": readOnly, inUse: disk.IsInstallationMedia || disk.Holders != "",
	} {
		if is {
			reasons = append(reasons, reason)
		}
	}
	slices.Sort(reasons)
	return hardware.Eligibility{Eligible: len(reasons) == 0, NotEligibleReasons: reasons}
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// described is what ghw says, without its word for nothing.
func described(value string) string {
	if value == "unknown" {
		return ""
	}
	return value
}

// link is the stable name of a device among the links that udev makes, the same one each time.
func link(directory, name string) string {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return ""
	}
	for _, entry := range entries {
		if to, err := os.Readlink(filepath.Join(directory, entry.Name())); err == nil && filepath.Base(to) == name {
			return filepath.Join(directory, entry.Name())
		}
	}
	return ""
}

// mounted is true for a disk of which something is mounted: the one that the system runs from.
func (m *Real) mounted(disk, mounts string) bool {
	for line := range strings.Lines(mounts) {
		device, _, _ := strings.Cut(line, " ")
		if to, err := filepath.EvalSymlinks(device); err == nil {
			device = to
		}
		if name, is := strings.CutPrefix(device, "/dev/"); is && m.on(disk, name) {
			return true
		}
	}
	return false
}

// on is true for a device that is a disk, a partition of it, or made on top of them.
func (m *Real) on(disk, device string) bool {
	if _, err := os.Stat(filepath.Join(m.Sys, "block", disk, device, "partition")); device == disk || err == nil {
		return true
	}
	below, _ := os.ReadDir(filepath.Join(m.Sys, "class/block", device, "slaves"))
	return slices.ContainsFunc(below, func(d os.DirEntry) bool { return m.on(disk, d.Name()) })
}

func (m *Real) interfaces() []hardware.Interface {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil
	}
	var found []hardware.Interface
	for _, i := range interfaces {
		if len(i.HardwareAddr) == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		at := filepath.Join(m.Sys, "class/net", i.Name)
		nic := hardware.Interface{
			Name: i.Name, MACAddress: m.permanent(i), MTU: int64(i.MTU), Flags: strings.Split(i.Flags.String(), "|"), Type: "physical",
			HasCarrier: content(filepath.Join(at, "carrier")) == "1", Vendor: content(filepath.Join(at, "device/vendor")), Product: content(filepath.Join(at, "device/device")),
			IPV4Addresses: []string{}, IPV6Addresses: []string{},
		}
		if _, err := os.Stat(filepath.Join(at, "device")); err != nil {
			nic.Type = "virtual"
		}
		nic.SpeedMbps, _ = strconv.ParseInt(content(filepath.Join(at, "speed")), 10, 64)
		addresses, _ := i.Addrs()
		for _, a := range addresses {
			if network, ok := a.(*net.IPNet); ok && network.IP.To4() != nil {
				nic.IPV4Addresses = append(nic.IPV4Addresses, a.String())
			} else if ok && !network.IP.IsLinkLocalUnicast() {
				nic.IPV6Addresses = append(nic.IPV6Addresses, a.String())
			}
		}
		found = append(found, nic)
	}
	return found
}

// The families of addresses, as the kernel numbers them.
const (
	familyIPv4 = 2
	familyIPv6 = 10
)

func routes() []hardware.Route {
	var found []hardware.Route
	lines := bufio.NewScanner(strings.NewReader(content("/proc/net/route")))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 8 || fields[0] == "Iface" {
			continue
		}
		metric, _ := strconv.ParseInt(fields[6], 10, 32)
		found = append(found, hardware.Route{Interface: fields[0], Destination: address(fields[1], true), Gateway: address(fields[2], true), Family: familyIPv4, Metric: int32(metric)})
	}
	lines = bufio.NewScanner(strings.NewReader(content("/proc/net/ipv6_route")))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || fields[9] == "lo" || fields[1] != "00" {
			continue
		}
		metric, _ := strconv.ParseInt(fields[5], 16, 32)
		found = append(found, hardware.Route{Interface: fields[9], Destination: address(fields[0], false), Gateway: address(fields[4], false), Family: familyIPv6, Metric: int32(metric)})
	}
	return found
}

// address reads the kernel's hexadecimal form, which has IPv4 backwards.
func address(text string, backwards bool) string {
	raw, err := hex.DecodeString(text)
	if err != nil {
		return ""
	}
	if backwards {
		slices.Reverse(raw)
	}
	return net.IP(raw).String()
}

func (m *Real) vendor() hardware.SystemVendor {
	vendor := hardware.SystemVendor{Manufacturer: m.dmi("sys_vendor"), ProductName: m.dmi("product_name"), SerialNumber: m.dmi("product_serial")}
	if info, err := ghw.Product(ghw.WithDisableWarnings(), ghw.WithDisableTools()); err == nil {
		vendor.Manufacturer, vendor.ProductName = first(vendor.Manufacturer, described(info.Vendor)), first(vendor.ProductName, described(info.Name))
	}
	vendor.Virtual = strings.Contains(content("/proc/cpuinfo"), " hypervisor")
	return vendor
}

func (m *Real) tpm() string {
	switch content(filepath.Join(m.Sys, "class/tpm/tpm0/tpm_version_major")) {
	case "1":
		return "1.2"
	case "2":
		return "2.0"
	}
	return "none"
}
