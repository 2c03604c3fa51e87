// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// Bounds of what is taken over from a report, which any client on the inspection network can send.
const (
	maxText  = 256
	maxNICs  = 64
	maxDisks = 128
	maxFlags = 512
	maxVLANs = 64
)

type rawReport struct {
	Inventory *rawInventory `json:"inventory"`
	// PluginData stands beside the inventory where Ironic keeps it.
	PluginData *rawPlugin `json:"plugin_data"`
	// The flat form has the same keys at the top.
	rawPlugin
}

type rawPlugin struct {
	AutoDiscovered bool                       `json:"auto_discovered"`
	BootInterface  text                       `json:"boot_interface"`
	Error          json.RawMessage            `json:"error"`
	AllInterfaces  map[string]rawPXE          `json:"all_interfaces"`
	ParsedLLDP     map[string]json.RawMessage `json:"parsed_lldp"`
	IPMIAddress    text                       `json:"ipmi_address"`
}

type rawPXE struct {
	PXEEnabled bool `json:"pxe_enabled"`
	PXE        bool `json:"pxe"`
	// LLDP is where ironic-inspector puts what the switch says; Ironic puts it into parsed_lldp.
	LLDP json.RawMessage `json:"lldp_processed"`
}

type rawLLDP struct {
	SwitchID   text      `json:"switch_chassis_id"`
	PortID     text      `json:"switch_port_id"`
	SystemName text      `json:"switch_system_name"`
	VLANs      []rawVLAN `json:"switch_port_vlans"`
	Untagged   number    `json:"switch_port_untagged_vlan_id"`
}

type rawVLAN struct {
	ID   number `json:"id"`
	Name text   `json:"name"`
}

type rawInventory struct {
	Interfaces []rawNIC  `json:"interfaces"`
	Disks      []rawDisk `json:"disks"`
	CPU        struct {
		Model     text   `json:"model_name"`
		Frequency number `json:"frequency"`
		Count     number `json:"count"`
		Arch      text   `json:"architecture"`
		Flags     []text `json:"flags"`
	} `json:"cpu"`
	Memory struct {
		PhysicalMB number `json:"physical_mb"`
	} `json:"memory"`
	BMCAddress   text `json:"bmc_address"`
	BMCv6Address text `json:"bmc_v6address"`
	SystemVendor struct {
		Product      text `json:"product_name"`
		Serial       text `json:"serial_number"`
		Manufacturer text `json:"manufacturer"`
		Firmware     struct {
			Vendor  text `json:"vendor"`
			Version text `json:"version"`
			Date    text `json:"build_date"`
		} `json:"firmware"`
	} `json:"system_vendor"`
	Boot struct {
		PXEInterface text `json:"pxe_interface"`
	} `json:"boot"`
	Hostname text `json:"hostname"`
}

type rawNIC struct {
	Name    text   `json:"name"`
	MAC     text   `json:"mac_address"`
	IPv4    text   `json:"ipv4_address"`
	IPv6    text   `json:"ipv6_address"`
	Carrier bool   `json:"has_carrier"`
	Vendor  text   `json:"vendor"`
	Product text   `json:"product"`
	Mbps    number `json:"speed_mbps"`
	PCI     text   `json:"pci_address"`
}

type rawDisk struct {
	Name         text   `json:"name"`
	ByPath       text   `json:"by_path"`
	Model        text   `json:"model"`
	Vendor       text   `json:"vendor"`
	Serial       text   `json:"serial"`
	WWN          text   `json:"wwn"`
	WWNVendor    text   `json:"wwn_vendor_extension"`
	WWNExtension text   `json:"wwn_with_extension"`
	HCTL         text   `json:"hctl"`
	Size         number `json:"size"`
	Rotational   bool   `json:"rotational"`
}

// text is a string of a report; null, numbers and the like are read as far as they can be.
type text string

// UnmarshalJSON accepts any JSON value; what is not text or a number is empty.
func (t *text) UnmarshalJSON(data []byte) error {
	if n := len(data); n >= 2 && data[0] == '"' && !bytes.ContainsRune(data, '\\') { // most are plain: the decoder has checked them
		*t = text(clean(string(data[1 : n-1])))
		return nil
	}
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		var n json.Number
		if json.Unmarshal(data, &n) != nil {
			*t = ""
			return nil //nolint:nilerr // an odd value in a report is no reason to lose the rest of it
		}
		s = n.String()
	}
	*t = text(clean(s))
	return nil
}

// number is a number of a report, which may be written as text.
type number float64

// UnmarshalJSON accepts any JSON value; what is not a number is 0.
func (n *number) UnmarshalJSON(data []byte) error {
	f, err := strconv.ParseFloat(strings.Trim(string(data), `"`), 64)
	if err != nil || math.IsNaN(f) || f < 0 || f > 1<<60 {
		f = 0
	}
	*n = number(f)
	return nil
}

// clean bounds a reported string and removes what does not belong in names, logs and terminals.
func clean(s string) string {
	if plain(s) {
		s = strings.TrimSpace(s)
		return s[:min(len(s), maxText-utf8.UTFMax+1)]
	}
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	s = strings.TrimSpace(s)
	for i := range s {
		if i > maxText-utf8.UTFMax {
			return s[:i]
		}
	}
	return s
}

// plain reports whether a string consists of printable ASCII.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// ParseReport reads what a machine said of itself: {"inventory": …, "plugin_data": …}, or the flat form in which the keys of
// plugin_data stand beside inventory. It fails only on what is not JSON or has no inventory.
func ParseReport(data []byte) (*Report, error) {
	var raw rawReport
	if err := json.Unmarshal(data, &raw); err != nil {
		if odd, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return nil, fmt.Errorf("reading the inventory: the value of %s is a %s, which it cannot be", odd.Field, odd.Value)
		}
		return nil, fmt.Errorf("reading the inventory: %w", err)
	}
	if raw.Inventory == nil {
		return nil, fmt.Errorf("reading the inventory: the key inventory is missing")
	}
	plugin := &raw.rawPlugin
	if raw.PluginData != nil {
		plugin = raw.PluginData
	}
	r := &Report{AutoDiscovered: plugin.AutoDiscovered}
	if e := string(plugin.Error); e != "" && e != "null" && e != `""` {
		r.Failed = clean(strings.Trim(e, `"`))
	}
	r.fill(raw.Inventory, plugin)
	r.fit()
	return r, nil
}

func (r *Report) fill(in *rawInventory, plugin *rawPlugin) {
	hw := &r.Hardware
	hw.Hostname = string(in.Hostname)
	hw.SystemVendor = metal3v1.HardwareSystemVendor{
		Manufacturer: string(in.SystemVendor.Manufacturer), ProductName: string(in.SystemVendor.Product),
		SerialNumber: string(in.SystemVendor.Serial),
	}
	fw := in.SystemVendor.Firmware
	hw.Firmware.BIOS = metal3v1.BIOS{Date: string(fw.Date), Vendor: string(fw.Vendor), Version: string(fw.Version)}
	hw.RAMMebibytes = int(in.Memory.PhysicalMB)
	hw.CPU = metal3v1.CPU{
		Arch: string(in.CPU.Arch), Model: string(in.CPU.Model), Count: int(in.CPU.Count),
		ClockMegahertz: math.Round(float64(in.CPU.Frequency)),
	}
	flags := in.CPU.Flags[:r.bound("CPU flags", len(in.CPU.Flags), maxFlags)]
	for _, f := range flags {
		hw.CPU.Flags = append(hw.CPU.Flags, string(f))
	}
	slices.Sort(hw.CPU.Flags)
	r.fillNICs(in.Interfaces[:r.bound("network interfaces", len(in.Interfaces), maxNICs)], plugin)
	for _, d := range in.Disks[:r.bound("disks", len(in.Disks), maxDisks)] {
		hw.Storage = append(hw.Storage, storage(d))
	}
	r.BootMAC = usable(string(in.Boot.PXEInterface))
	if r.BootMAC == "" {
		r.BootMAC = usable(string(plugin.BootInterface))
	}
	for _, address := range []text{in.BMCAddress, in.BMCv6Address, plugin.IPMIAddress} {
		if ip, err := netip.ParseAddr(string(address)); err == nil && !ip.IsUnspecified() && r.BMCAddress == "" {
			r.BMCAddress = ip.String()
		}
	}
}

// bound limits the length of a list, and notes what was cut.
func (r *Report) bound(what string, n, limit int) int {
	if n <= limit {
		return n
	}
	if note := fmt.Sprintf("%s from number %d on", what, limit+1); !slices.Contains(r.Cut, note) {
		r.Cut = append(r.Cut, note)
	}
	return limit
}

func usable(s string) string {
	if mac := NormalMAC(s); UsableMAC(mac) {
		return mac
	}
	return ""
}

func (r *Report) fillNICs(nics []rawNIC, plugin *rawPlugin) {
	for i := range nics {
		n := &nics[i]
		mac := NormalMAC(string(n.MAC))
		if UsableMAC(mac) {
			if !slices.Contains(r.MACs, mac) {
				r.MACs = append(r.MACs, mac)
			}
			if r.FirstMAC == "" {
				r.FirstMAC = mac
			}
			if n.Carrier && r.CarrierMAC == "" {
				r.CarrierMAC = mac
			}
		}
		if mac == "" {
			continue
		}
		nic := metal3v1.NIC{
			Name: string(n.Name), MAC: mac, PCIAddress: string(n.PCI), SpeedGbps: int(n.Mbps) / 1000,
			Model: strings.TrimSpace(string(n.Vendor) + " " + string(n.Product)),
		}
		pxe := plugin.AllInterfaces[string(n.Name)]
		nic.PXE = pxe.PXEEnabled || pxe.PXE
		if said := plugin.ParsedLLDP[string(n.Name)]; said != nil {
			r.lldp(&nic, said)
		} else {
			r.lldp(&nic, pxe.LLDP)
		}
		addressed := false
		for _, address := range []text{n.IPv4, n.IPv6} {
			if ip, err := netip.ParseAddr(string(address)); err == nil {
				nic.IP, addressed = ip.String(), true
				r.Hardware.NIC = append(r.Hardware.NIC, nic)
			}
		}
		if !addressed {
			r.Hardware.NIC = append(r.Hardware.NIC, nic)
		}
	}
}

func (r *Report) lldp(nic *metal3v1.NIC, data json.RawMessage) {
	var raw rawLLDP
	if data == nil || json.Unmarshal(data, &raw) != nil {
		return
	}
	if raw.SwitchID != "" || raw.PortID != "" || raw.SystemName != "" {
		nic.LLDP = &metal3v1.LLDP{
			SwitchID: string(raw.SwitchID), PortID: string(raw.PortID), SwitchSystemName: string(raw.SystemName),
		}
	}
	for _, v := range raw.VLANs[:r.bound("VLANs of a network interface", len(raw.VLANs), maxVLANs)] {
		if v.ID <= 4094 {
			nic.VLANs = append(nic.VLANs, metal3v1.VLAN{ID: int32(v.ID), Name: string(v.Name)})
		}
	}
	if raw.Untagged <= 4094 {
		nic.VLANID = int32(raw.Untagged)
	}
}

func storage(d rawDisk) metal3v1.Storage {
	s := metal3v1.Storage{
		Name: string(d.Name), Rotational: d.Rotational, SizeBytes: int64(d.Size), Vendor: string(d.Vendor), Model: string(d.Model),
		SerialNumber: string(d.Serial), WWN: string(d.WWN), WWNVendorExtension: string(d.WWNVendor),
		WWNWithExtension: string(d.WWNExtension), HCTL: string(d.HCTL), Type: metal3v1.DiskSSD,
	}
	if d.Name != "" {
		s.AlternateNames = append(s.AlternateNames, string(d.Name))
	}
	if d.ByPath != "" {
		s.Name = string(d.ByPath)
		s.AlternateNames = append(s.AlternateNames, string(d.ByPath))
	}
	switch {
	case d.Rotational:
		s.Type = metal3v1.DiskHDD
	case strings.HasPrefix(string(d.Name), "/dev/nvme"):
		s.Type = metal3v1.DiskNVME
	}
	return s
}
