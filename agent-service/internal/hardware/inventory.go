// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hardware is what an agent reports of its machine: the JSON on the wire, and a summary of it.
package hardware

import "encoding/json"

// Architecture is what the interface calls an architecture that may have the name that Go gives it; names that are the same, or not known, stay.
func Architecture(name string) string {
	switch name {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	default:
		return name
	}
}

// Mixed is the architecture of clusters that take machines of every one.
const Mixed = "multi"

// Fits says whether a machine of an architecture can be in a cluster of one. An unknown architecture fits.
func Fits(machine, cluster string) bool {
	return machine == "" || cluster == "" || cluster == Mixed || Architecture(machine) == Architecture(cluster)
}

// Inventory is the JSON of the output of an inventory step.
type Inventory struct {
	Hostname     string       `json:"hostname"`
	BMCAddress   string       `json:"bmc_address,omitempty"`
	BMCV6Address string       `json:"bmc_v6address,omitempty"`
	Boot         Boot         `json:"boot"`
	CPU          CPU          `json:"cpu"`
	Memory       Memory       `json:"memory"`
	Disks        []Disk       `json:"disks"`
	Interfaces   []Interface  `json:"interfaces"`
	GPUs         []GPU        `json:"gpus,omitempty"`
	Routes       []Route      `json:"routes,omitempty"`
	SystemVendor SystemVendor `json:"system_vendor"`
	TPMVersion   string       `json:"tpm_version,omitempty"`
	// Timestamp is the machine's clock when it reported, in seconds since 1970.
	Timestamp  int64       `json:"timestamp,omitempty"`
	Truncation *Truncation `json:"truncation,omitempty"`
}

// Boot is how the machine was booted.
type Boot struct {
	// CurrentBootMode is bios or uefi.
	CurrentBootMode string `json:"current_boot_mode,omitempty"`
	PXEInterface    string `json:"pxe_interface,omitempty"`
	CommandLine     string `json:"command_line,omitempty"`
	SecureBootState string `json:"secure_boot_state,omitempty"`
}

// CPU is all processors together.
type CPU struct {
	Architecture string `json:"architecture"`
	// Count is of logical processors.
	Count     int64    `json:"count"`
	Flags     []string `json:"flags,omitempty"`
	Frequency float64  `json:"frequency,omitempty"`
	ModelName string   `json:"model_name,omitempty"`
}

// Memory is in bytes.
type Memory struct {
	PhysicalBytes       int64  `json:"physical_bytes"`
	UsableBytes         int64  `json:"usable_bytes"`
	PhysicalBytesMethod string `json:"physical_bytes_method,omitempty"`
}

// Disk is a block device.
type Disk struct {
	ID                  string          `json:"id,omitempty"`
	Name                string          `json:"name"`
	Path                string          `json:"path,omitempty"`
	ByID                string          `json:"by_id,omitempty"`
	ByPath              string          `json:"by_path,omitempty"`
	DriveType           string          `json:"drive_type,omitempty"`
	SizeBytes           int64           `json:"size_bytes"`
	Serial              string          `json:"serial,omitempty"`
	WWN                 string          `json:"wwn,omitempty"`
	Model               string          `json:"model,omitempty"`
	Vendor              string          `json:"vendor,omitempty"`
	HCTL                string          `json:"hctl,omitempty"`
	Bootable            bool            `json:"bootable,omitempty"`
	Removable           bool            `json:"removable,omitempty"`
	HasUUID             bool            `json:"has_uuid,omitempty"`
	Holders             string          `json:"holders,omitempty"`
	IsInstallationMedia bool            `json:"is_installation_media,omitempty"`
	Smart               string          `json:"smart,omitempty"`
	IOPerf              json.RawMessage `json:"io_perf,omitempty"`
	ISCSI               json.RawMessage `json:"iscsi,omitempty"`
	// Remote says that the disk is reached over a network.
	Remote                  bool        `json:"remote,omitempty"`
	InstallationEligibility Eligibility `json:"installation_eligibility"`
}

// Eligibility says whether a disk can be installed to.
type Eligibility struct {
	Eligible           bool     `json:"eligible"`
	NotEligibleReasons []string `json:"not_eligible_reasons,omitempty"`
}

// Interface is a network interface.
type Interface struct {
	Name       string `json:"name"`
	MACAddress string `json:"mac_address"`
	// IPV4Addresses and IPV6Addresses have a prefix length: 192.0.2.7/24.
	IPV4Addresses []string `json:"ipv4_addresses"`
	IPV6Addresses []string `json:"ipv6_addresses"`
	MTU           int64    `json:"mtu,omitempty"`
	Flags         []string `json:"flags,omitempty"`
	HasCarrier    bool     `json:"has_carrier,omitempty"`
	SpeedMbps     int64    `json:"speed_mbps,omitempty"`
	Type          string   `json:"type,omitempty"`
	Vendor        string   `json:"vendor,omitempty"`
	Product       string   `json:"product,omitempty"`
	BIOSDevName   string   `json:"biosdevname,omitempty"`
	ClientID      string   `json:"client_id,omitempty"`
}

// GPU is a graphics or compute card.
type GPU struct {
	Address  string `json:"address,omitempty"`
	DeviceID string `json:"device_id,omitempty"`
	Name     string `json:"name,omitempty"`
	Vendor   string `json:"vendor,omitempty"`
	VendorID string `json:"vendor_id,omitempty"`
}

// Route is an entry of the routing table.
type Route struct {
	// Destination is 0.0.0.0 or :: for a default route.
	Destination string `json:"destination"`
	Gateway     string `json:"gateway,omitempty"`
	Interface   string `json:"interface,omitempty"`
	Family      int32  `json:"family,omitempty"`
	Metric      int32  `json:"metric,omitempty"`
}

// SystemVendor is what the firmware says.
type SystemVendor struct {
	Manufacturer string `json:"manufacturer,omitempty"`
	ProductName  string `json:"product_name,omitempty"`
	SerialNumber string `json:"serial_number,omitempty"`
	Virtual      bool   `json:"virtual,omitempty"`
}

// Truncation says that lists were cut because the inventory was too large.
type Truncation struct {
	// Type is partial (lists were cut) or full (nothing is left but the frame).
	Type    string   `json:"type"`
	Reasons []string `json:"reasons,omitempty"`
}

// Summary is what is asked for often, kept with the host.
type Summary struct {
	Hostname        string   `json:"hostname,omitempty"`
	CPUArchitecture string   `json:"cpuArchitecture,omitempty"`
	CPUCount        int64    `json:"cpuCount,omitempty"`
	MemoryBytes     int64    `json:"memoryBytes,omitempty"`
	DiskCount       int      `json:"diskCount,omitempty"`
	MACAddresses    []string `json:"macAddresses,omitempty"`
	Manufacturer    string   `json:"manufacturer,omitempty"`
	ProductName     string   `json:"productName,omitempty"`
	SerialNumber    string   `json:"serialNumber,omitempty"`
	Virtual         bool     `json:"virtual,omitempty"`
	// Addresses are of all interfaces, with prefix length, at most 64.
	Addresses    []string `json:"addresses,omitempty"`
	DefaultRoute bool     `json:"defaultRoute,omitempty"`
	// Targets are disks that can be installed to, the best first, at most 64.
	Targets []Target `json:"targets,omitempty"`
	// Fixed are the disks that are part of the machine, whether they can be installed to or not, at most 64. FixedDisks is how many there are, nil in what an earlier version kept.
	Fixed      []DiskIdentity `json:"fixed,omitempty"`
	FixedDisks *int           `json:"fixedDisks,omitempty"`
	// Truncation is partial or full where lists were cut.
	Truncation string `json:"truncation,omitempty"`
	// ClockSkewSeconds is how far the machine's clock is ahead of the service's.
	ClockSkewSeconds int64 `json:"clockSkewSeconds,omitempty"`
	// Hash is of the stored inventory, empty before the first one: classification runs when it changes.
	Hash string `json:"hash,omitempty"`
}

// Target is a disk that can be installed to.
type Target struct {
	ID        string `json:"id,omitempty"`
	Path      string `json:"path"`
	SizeBytes int64  `json:"sizeBytes"`
	// ISCSIAddress is of the interface that the disk is reached through, empty for disks in the machine.
	ISCSIAddress string `json:"iscsiAddress,omitempty"`
	// Identity tells the disk from all others.
	Identity DiskIdentity `json:"identity,omitzero"`
}
