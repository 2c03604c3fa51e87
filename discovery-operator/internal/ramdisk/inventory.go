// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ramdisk

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-io/muster/discovery-operator/internal/ramdisk/disk"
)

// report is what is posted to Ironic or its inspector. Unknown members of a report that is read from a file are kept.
type report struct {
	members map[string]any
	macs    []string
}

// inventory is the hardware, as ironic-python-agent reports it.
type inventory struct {
	Hostname string      `json:"hostname"`
	Vendor   vendor      `json:"system_vendor"`
	CPU      cpu         `json:"cpu"`
	Memory   memory      `json:"memory"`
	Boot     boot        `json:"boot"`
	BMC      *string     `json:"bmc_address"`
	BMCv6    *string     `json:"bmc_v6address"`
	NICs     []nic       `json:"interfaces"`
	Disks    []disk.Disk `json:"disks"`
}

type vendor struct {
	Manufacturer string   `json:"manufacturer"`
	Product      string   `json:"product_name"`
	Serial       string   `json:"serial_number"`
	Firmware     firmware `json:"firmware"`
}

type firmware struct {
	Vendor  string `json:"vendor"`
	Version string `json:"version"`
	Date    string `json:"build_date"`
}

type cpu struct {
	Model        string   `json:"model_name"`
	Frequency    string   `json:"frequency"`
	Count        int      `json:"count"`
	Architecture string   `json:"architecture"`
	Flags        []string `json:"flags"`
}

type memory struct {
	Total    int64 `json:"total"`
	Physical int64 `json:"physical_mb"`
}

type boot struct {
	Mode string `json:"current_boot_mode"`
	PXE  string `json:"pxe_interface,omitempty"`
}

type nic struct {
	Name    string  `json:"name"`
	MAC     string  `json:"mac_address"`
	Carrier bool    `json:"has_carrier"`
	IPv4    *string `json:"ipv4_address"`
	IPv6    *string `json:"ipv6_address"`
	LLDP    any     `json:"lldp"`
	Vendor  string  `json:"vendor"`
	Product string  `json:"product"`
	Speed   *int    `json:"speed_mbps"`
	PCI     string  `json:"pci_address"`
	Driver  string  `json:"driver"`
}

// disks are those of the machine, or the files in their place.
func (o Options) disks() ([]disk.Disk, error) {
	if !o.emulated() {
		return disk.Running.Disks()
	}
	found := make([]disk.Disk, 0, len(o.Files))
	for _, path := range o.Files {
		d, err := disk.File(path)
		if err != nil {
			return nil, err
		}
		found = append(found, d)
	}
	return found, nil
}

// collect reads what the machine is.
func (o Options) collect() (report, error) {
	disks, err := o.disks()
	if err != nil {
		return report{}, err
	}
	r := report{members: map[string]any{"configuration": map[string]any{"collectors": []string{"default"}, "managers": []any{}}, "error": nil}}
	if o.Inventory != "" {
		return o.stated(disks)
	}
	i := machine{"/proc", "/sys"}.inventory(o.BootMAC)
	i.Disks = disks
	for _, n := range i.NICs {
		r.macs = append(r.macs, n.MAC)
	}
	r.members["inventory"] = i
	r.root(disks)
	if o.BootMAC != "" {
		r.members["boot_interface"] = "01-" + strings.ReplaceAll(o.BootMAC, ":", "-")
	}
	if len(r.macs) == 0 {
		return r, errors.New("the machine has no network card")
	}
	return r, nil
}

// root adds the disk that is chosen without hints.
func (r report) root(disks []disk.Disk) {
	if d, err := disk.Root(disks, nil); err == nil {
		r.members["root_disk"] = d
	}
}

// stated reads a report from a file, and puts the disks into it.
func (o Options) stated(disks []disk.Disk) (report, error) {
	text, err := os.ReadFile(o.Inventory)
	if err != nil {
		return report{}, fmt.Errorf("reading the report: %w", err)
	}
	var r report
	var seen struct {
		Inventory struct {
			NICs []struct {
				MAC string `json:"mac_address"`
			} `json:"interfaces"`
		} `json:"inventory"`
	}
	if err := errors.Join(json.Unmarshal(text, &r.members), json.Unmarshal(text, &seen)); err != nil {
		return report{}, fmt.Errorf("reading the report %s: %w", o.Inventory, err)
	}
	for _, n := range seen.Inventory.NICs {
		r.macs = append(r.macs, n.MAC)
	}
	parts, ok := r.members["inventory"].(map[string]any)
	if !ok || len(r.macs) == 0 {
		return report{}, fmt.Errorf("the report %s has no network card", o.Inventory)
	}
	if len(disks) > 0 {
		parts["disks"] = disks
		delete(r.members, "root_disk")
		r.root(disks)
	}
	return r, nil
}

// machine is where the kernel says what the machine is.
type machine struct{ proc, sys string }

func (m machine) fact(path ...string) string {
	text, err := os.ReadFile(filepath.Join(append([]string{m.sys}, path...)...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func (m machine) inventory(bootMAC string) inventory {
	dmi := func(name string) string { return m.fact("class", "dmi", "id", name) }
	i := inventory{
		Vendor: vendor{dmi("sys_vendor"), dmi("product_name"), dmi("product_serial"), firmware{dmi("bios_vendor"), dmi("bios_version"), dmi("bios_date")}},
		CPU:    m.cpu(), Memory: m.memory(), Boot: boot{Mode: "bios", PXE: bootMAC}, NICs: m.nics(),
	}
	i.Hostname, _ = os.Hostname()
	if _, err := os.Stat(filepath.Join(m.sys, "firmware", "efi")); err == nil {
		i.Boot.Mode = "uefi"
	}
	return i
}

func (m machine) cpu() cpu {
	c := cpu{Architecture: map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH], Flags: []string{}}
	f, err := os.Open(filepath.Join(m.proc, "cpuinfo"))
	if err != nil {
		return c
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "processor":
			c.Count++
		case "model name":
			c.Model = value
		case "cpu MHz":
			c.Frequency = value
		case "flags", "Features":
			c.Flags = strings.Fields(value)
		}
	}
	return c
}

func (m machine) memory() memory {
	var out memory
	text, _ := os.ReadFile(filepath.Join(m.proc, "meminfo"))
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(f[1], 10, 64)
			out.Total, out.Physical = kib<<10, kib>>10
		}
	}
	tables, _ := os.ReadFile(filepath.Join(m.sys, "firmware", "dmi", "tables", "DMI"))
	if physical := memoryMiB(tables); physical > 0 {
		out.Physical = int64(physical)
	}
	return out
}

// nics are the network cards that are devices.
func (m machine) nics() []nic {
	entries, _ := os.ReadDir(filepath.Join(m.sys, "class", "net"))
	out := []nic{}
	for _, e := range entries {
		device, err := filepath.EvalSymlinks(filepath.Join(m.sys, "class", "net", e.Name(), "device"))
		mac := m.fact("class", "net", e.Name(), "address")
		if err != nil || len(mac) != len("00:00:00:00:00:00") {
			continue
		}
		n := nic{Name: e.Name(), MAC: mac, Carrier: m.fact("class", "net", e.Name(), "carrier") == "1"}
		n.Vendor, n.Product = m.fact("class", "net", e.Name(), "device", "vendor"), m.fact("class", "net", e.Name(), "device", "device")
		if speed, err := strconv.Atoi(m.fact("class", "net", e.Name(), "speed")); err == nil && speed > 0 {
			n.Speed = &speed
		}
		if driver, err := os.Readlink(filepath.Join(device, "driver")); err == nil {
			n.Driver = filepath.Base(driver)
		}
		for ; device != "/" && n.PCI == ""; device = filepath.Dir(device) {
			if name := filepath.Base(device); strings.Count(name, ":") == 2 && strings.Contains(name, ".") {
				n.PCI = name
			}
		}
		n.IPv4, n.IPv6 = addresses(e.Name())
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b nic) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// addresses are the first global addresses of an interface.
func addresses(name string) (v4, v6 *string) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil, nil
	}
	all, _ := i.Addrs()
	for _, a := range all {
		prefix, ok := a.(*net.IPNet)
		if !ok || !prefix.IP.IsGlobalUnicast() {
			continue
		}
		text := prefix.IP.String()
		if prefix.IP.To4() != nil && v4 == nil {
			v4 = &text
		} else if prefix.IP.To4() == nil && v6 == nil {
			v6 = &text
		}
	}
	return v4, v6
}
