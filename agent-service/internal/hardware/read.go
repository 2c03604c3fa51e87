// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// Bounds of what is kept of an inventory. Larger values are cut and flagged.
const (
	MaxBytes      = 512 << 10
	MaxReadBytes  = 32 << 20
	maxDisks      = 512
	maxInterfaces = 256
	maxRoutes     = 256
	maxTargets    = 64
	maxAddresses  = 64
	// maxText is of one text, in bytes, where nothing else is said.
	maxText = 256
	// maxPath is of what names something that has to be found again.
	maxPath = 1024
)

// Read parses the output of an inventory step and bounds it. It returns the JSON to keep and its summary. An error says
// what cannot be read; a large inventory is none.
func Read(output string, now time.Time) ([]byte, Summary, error) {
	if len(output) > MaxReadBytes {
		return nil, Summary{}, fmt.Errorf("the inventory has %d bytes, more than %d can be read", len(output), MaxReadBytes)
	}
	var inventory Inventory
	if err := json.Unmarshal([]byte(output), &inventory); err != nil {
		return nil, Summary{}, fmt.Errorf("reading the inventory: %w", err)
	}
	kept := []byte(output)
	disks, fixed := len(inventory.Disks), inventory.fixed() // before lists are cut
	if cut := inventory.bound(len(output)); cut || len(kept) > MaxBytes {
		var err error
		if kept, err = json.Marshal(inventory); err != nil {
			return nil, Summary{}, fmt.Errorf("writing the inventory: %w", err)
		}
		if len(kept) > MaxBytes {
			if kept, err = json.Marshal(inventory.frame(len(kept))); err != nil {
				return nil, Summary{}, fmt.Errorf("writing the inventory: %w", err)
			}
		}
	}
	summary := inventory.summary(now)
	summary.DiskCount, summary.FixedDisks = disks, &fixed
	summary.Hash = hash(inventory, kept)
	return kept, summary, nil
}

// hash leaves out what differs in each report of a machine that stays as it is: its clock, the frequency at which its processor happens to run, and what smartctl
// says of its disks, which are counters, temperatures and the time of day. Of these only a test that a disk does not pass is news.
func hash(inventory Inventory, kept []byte) string {
	differs := inventory.Timestamp != 0 || inventory.CPU.Frequency != 0
	inventory.Timestamp, inventory.CPU.Frequency = 0, 0
	inventory.Disks = slices.Clone(inventory.Disks)
	for i := range inventory.Disks {
		disk := &inventory.Disks[i]
		differs = differs || disk.Smart != ""
		if strings.Contains(disk.Smart, notPassed) {
			disk.Smart = notPassed
		} else {
			disk.Smart = ""
		}
	}
	if differs {
		if without, err := json.Marshal(inventory); err == nil {
			kept = without
		}
	}
	sum := sha256.Sum256(kept)
	return hex.EncodeToString(sum[:16])
}

// notPassed is what the output of "smartctl --json=c" has where the disk, or a test of it, fails.
const notPassed = `"passed":false`

// bound cuts lists that are too long and says so in Truncation.
func (i *Inventory) bound(size int) bool {
	var reasons []string
	if n := len(i.Disks); n > maxDisks {
		// Those that can be installed to are worth more than the others.
		slices.SortStableFunc(i.Disks, func(a, b Disk) int { return cmp.Compare(rank(a), rank(b)) })
		i.Disks = i.Disks[:maxDisks]
		reasons = append(reasons, fmt.Sprintf("%d of %d disks are shown", maxDisks, n))
	}
	if n := len(i.Interfaces); n > maxInterfaces {
		i.Interfaces = i.Interfaces[:maxInterfaces]
		reasons = append(reasons, fmt.Sprintf("%d of %d interfaces are shown", maxInterfaces, n))
	}
	if n := len(i.Routes); n > maxRoutes {
		i.Routes = i.Routes[:maxRoutes]
		reasons = append(reasons, fmt.Sprintf("%d of %d routes are shown", maxRoutes, n))
	}
	if len(reasons) == 0 {
		if size <= MaxBytes {
			return false
		}
		for n := range i.Disks {
			i.Disks[n].Smart = ""
		}
		i.Boot.CommandLine = bounded(i.Boot.CommandLine, maxPath)
		reasons = append(reasons, "details of disks are left out")
	}
	if i.Truncation == nil {
		i.Truncation = &Truncation{Type: "partial"}
	}
	i.Truncation.Reasons = append(i.Truncation.Reasons, reasons...)
	return true
}

func rank(d Disk) int {
	if d.InstallationEligibility.Eligible {
		return 0
	}
	return 1
}

// frame is what is left of an inventory that is too large even when its lists are cut: no lists, and texts of a length that is usual.
func (i *Inventory) frame(size int) Inventory {
	*i = Inventory{
		Hostname: bounded(i.Hostname, maxText), BMCAddress: bounded(i.BMCAddress, maxText), BMCV6Address: bounded(i.BMCV6Address, maxText),
		Boot: Boot{CurrentBootMode: bounded(i.Boot.CurrentBootMode, maxText), SecureBootState: bounded(i.Boot.SecureBootState, maxText)},
		CPU: CPU{
			Architecture: bounded(i.CPU.Architecture, maxText), Count: i.CPU.Count, Frequency: i.CPU.Frequency, ModelName: bounded(i.CPU.ModelName, maxText),
		},
		Memory: Memory{PhysicalBytes: i.Memory.PhysicalBytes, UsableBytes: i.Memory.UsableBytes},
		SystemVendor: SystemVendor{
			Manufacturer: bounded(i.SystemVendor.Manufacturer, maxText), ProductName: bounded(i.SystemVendor.ProductName, maxText),
			SerialNumber: bounded(i.SystemVendor.SerialNumber, maxText), Virtual: i.SystemVendor.Virtual,
		},
		TPMVersion: bounded(i.TPMVersion, maxText), Timestamp: i.Timestamp,
		Truncation: &Truncation{Type: "full", Reasons: []string{fmt.Sprintf("the inventory has %d bytes, %d are kept", size, MaxBytes)}},
	}
	return *i
}

func (i *Inventory) summary(now time.Time) Summary {
	s := Summary{
		Hostname: bounded(i.Hostname, 253), CPUArchitecture: Architecture(bounded(i.CPU.Architecture, 32)), CPUCount: i.CPU.Count, MemoryBytes: max(i.Memory.PhysicalBytes, i.Memory.UsableBytes),
		DiskCount: len(i.Disks), Manufacturer: bounded(i.SystemVendor.Manufacturer, 128), ProductName: bounded(i.SystemVendor.ProductName, 128),
		SerialNumber: bounded(i.SystemVendor.SerialNumber, 128), Virtual: i.SystemVendor.Virtual,
	}
	if i.Timestamp != 0 {
		// Below half a minute it is the time on the way, and would make each report another one.
		if skew := i.Timestamp - now.Unix(); skew > 30 || skew < -30 {
			s.ClockSkewSeconds = skew / 60 * 60
		}
	}
	for _, n := range i.Interfaces {
		if n.MACAddress != "" && len(s.MACAddresses) < maxAddresses {
			s.MACAddresses = append(s.MACAddresses, strings.ToLower(bounded(n.MACAddress, maxText)))
		}
		for _, address := range slices.Concat(n.IPV4Addresses, n.IPV6Addresses) {
			if len(s.Addresses) < maxAddresses {
				s.Addresses = append(s.Addresses, bounded(address, maxText))
			}
		}
	}
	s.DefaultRoute = slices.ContainsFunc(i.Routes, func(r Route) bool { return r.Destination == "0.0.0.0" || r.Destination == "::" })
	s.Targets = i.targets()
	for _, d := range i.Disks {
		if d.Fixed() && len(s.Fixed) < maxTargets {
			s.Fixed = append(s.Fixed, d.bounded().Identity())
		}
	}
	if i.Truncation != nil {
		s.Truncation = bounded(i.Truncation.Type, maxText)
	}
	return s
}

// fixed is how many disks are part of the machine.
func (i *Inventory) fixed() (number int) {
	for _, d := range i.Disks {
		if d.Fixed() {
			number++
		}
	}
	return number
}

func bounded(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "")
	}
	return s
}

// targets are the disks that can be installed to: fast and small first.
func (i *Inventory) targets() []Target {
	disks := slices.DeleteFunc(slices.Clone(i.Disks), func(d Disk) bool {
		return !d.InstallationEligibility.Eligible || d.IsInstallationMedia
	})
	slices.SortStableFunc(disks, func(a, b Disk) int {
		return cmp.Or(cmp.Compare(rotational(a), rotational(b)), cmp.Compare(a.SizeBytes, b.SizeBytes), cmp.Compare(a.Name, b.Name))
	})
	if len(disks) > maxTargets {
		disks = disks[:maxTargets]
	}
	var targets []Target
	for _, d := range disks {
		device := d.Path
		if device == "" {
			device = path.Join("/dev", d.Name)
		}
		targets = append(targets, Target{ID: bounded(cmp.Or(d.ID, d.ByID, device), maxPath), Path: bounded(device, maxPath), SizeBytes: d.SizeBytes, ISCSIAddress: iscsiAddress(d), Identity: d.bounded().Identity()})
	}
	return targets
}

// bounded is the disk with an identity of bounded length.
func (d Disk) bounded() Disk {
	d.Serial, d.WWN, d.ID, d.ByID = bounded(d.Serial, maxText), bounded(d.WWN, maxText), bounded(d.ID, maxPath), bounded(d.ByID, maxPath)
	return d
}

// iscsiAddress is of the interface that a disk is reached through, empty for disks in the machine.
func iscsiAddress(d Disk) string {
	var session struct {
		Address string `json:"host_ip_address"`
	}
	if json.Unmarshal(d.ISCSI, &session) != nil {
		return ""
	}
	return bounded(session.Address, 64)
}

func rotational(d Disk) int {
	if strings.EqualFold(d.DriveType, "HDD") {
		return 1
	}
	return 0
}
