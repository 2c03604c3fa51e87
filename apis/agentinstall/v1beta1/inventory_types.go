// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Boot is how the machine was booted.
type Boot struct {
	// currentBootMode is bios or uefi.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	CurrentBootMode string `json:"currentBootMode,omitempty"`
	// pxeInterface is the interface that the machine booted from, if any.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	PXEInterface string `json:"pxeInterface,omitempty"`
	// deviceType is the kind of device that the machine booted from.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	DeviceType string `json:"deviceType,omitempty"`
}

// CPU is all processors together.
type CPU struct {
	// count of logical processors.
	// +optional
	Count int64 `json:"count,omitempty"`
	// clockMegahertz is the frequency in MHz.
	// +optional
	ClockMegahertz int64 `json:"clockMegahertz,omitempty"`
	// flags that the processors report.
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	// +optional
	Flags []string `json:"flags,omitempty"`
	// modelName that the processors report.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	ModelName string `json:"modelName,omitempty"`
	// architecture such as x86_64.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Architecture string `json:"architecture,omitempty"`
}

// Memory is the memory of the machine.
type Memory struct {
	// physicalBytes that are built in.
	// +optional
	PhysicalBytes int64 `json:"physicalBytes,omitempty"`
	// usableBytes that the system can use.
	// +optional
	UsableBytes int64 `json:"usableBytes,omitempty"`
}

// IOPerf is how fast a disk is.
type IOPerf struct {
	// syncDurationMilliseconds is the 99th percentile of the duration of fsync.
	// +optional
	SyncDurationMilliseconds int64 `json:"syncDurationMilliseconds,omitempty"`
}

// InstallationEligibility says whether a disk can be installed to.
type InstallationEligibility struct {
	// eligible is true where it can.
	// +optional
	Eligible bool `json:"eligible,omitempty"`
	// notEligibleReasons say why it cannot.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	NotEligibleReasons []string `json:"notEligibleReasons"`
}

// Disk is a block device.
type Disk struct {
	// id names the disk for good: installation_disk_id takes it.
	// +kubebuilder:validation:MaxLength=1024
	ID string `json:"id"`
	// byID is the path below /dev/disk/by-id.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	ByID string `json:"byID,omitempty"`
	// byPath is the path below /dev/disk/by-path.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	ByPath string `json:"byPath,omitempty"`
	// driveType is HDD, SSD, NVMe and so on.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	DriveType string `json:"driveType,omitempty"`
	// hctl is the SCSI address.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Hctl string `json:"hctl,omitempty"`
	// model that the disk reports.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Model string `json:"model,omitempty"`
	// name of the device in this boot, such as sda.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Name string `json:"name,omitempty"`
	// path of the device in this boot, such as /dev/sda.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Path string `json:"path,omitempty"`
	// serial that the disk reports.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Serial string `json:"serial,omitempty"`
	// vendor that the disk reports.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Vendor string `json:"vendor,omitempty"`
	// wwn is the world wide name.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Wwn string `json:"wwn,omitempty"`
	// smart is what the disk says of its health.
	// +kubebuilder:validation:MaxLength=65536
	// +optional
	Smart string `json:"smart,omitempty"`
	// bootable is true where the disk has a boot sector.
	// +optional
	Bootable bool `json:"bootable,omitempty"`
	// sizeBytes is the capacity.
	// +optional
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// installationEligibility says whether the disk can be installed to.
	// +optional
	InstallationEligibility InstallationEligibility `json:"installationEligibility,omitempty,omitzero"`
	// ioPerf is how fast the disk is.
	// +optional
	IoPerf IOPerf `json:"ioPerf,omitempty,omitzero"`
}

// GPU is a graphics or compute card.
type GPU struct {
	// address on the bus.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Address string `json:"address,omitempty"`
	// deviceID of the device.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	DeviceID string `json:"deviceID,omitempty"`
	// name of the product.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Name string `json:"name,omitempty"`
	// vendor is the name of the maker.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Vendor string `json:"vendor,omitempty"`
	// vendorID of the maker.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	VendorID string `json:"vendorID,omitempty"`
}

// Interface is a network interface.
type Interface struct {
	// name in this boot.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Name string `json:"name,omitempty"`
	// macAddress of the interface.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	MacAddress string `json:"macAddress,omitempty"`
	// ipV4Addresses with prefix length.
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	IPV4Addresses []string `json:"ipV4Addresses"`
	// ipV6Addresses with prefix length.
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	IPV6Addresses []string `json:"ipV6Addresses"`
	// flags such as up and broadcast.
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	Flags []string `json:"flags"`
	// hasCarrier is true where there is a link.
	// +optional
	HasCarrier bool `json:"hasCarrier,omitempty"`
	// mtu is the largest packet in bytes.
	// +optional
	Mtu int64 `json:"mtu,omitempty"`
	// speedMbps of the link.
	// +optional
	SpeedMbps int64 `json:"speedMbps,omitempty"`
	// biosDevName by the firmware.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	BiosDevName string `json:"biosDevName,omitempty"`
	// clientID for DHCP.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	ClientID string `json:"clientID,omitempty"`
	// product of the interface.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Product string `json:"product,omitempty"`
	// vendor of the interface.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Vendor string `json:"vendor,omitempty"`
}

// SystemVendor is what the firmware says of the machine.
type SystemVendor struct {
	// manufacturer of the machine.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Manufacturer string `json:"manufacturer,omitempty"`
	// productName of the machine.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	ProductName string `json:"productName,omitempty"`
	// serialNumber of the machine.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	SerialNumber string `json:"serialNumber,omitempty"`
	// virtual is true for virtual machines.
	// +optional
	Virtual bool `json:"virtual,omitempty"`
}

// HostInventory is what a machine is made of, as its agent reports it.
type HostInventory struct {
	// hostname that the machine gave itself.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Hostname string `json:"hostname,omitempty"`
	// bmcAddress is the IPv4 address of its management controller.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	BmcAddress string `json:"bmcAddress,omitempty"`
	// bmcV6Address is the IPv6 address of its management controller.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	BmcV6Address string `json:"bmcV6Address,omitempty"`
	// reportTime is when this was reported.
	// +optional
	ReportTime *metav1.Time `json:"reportTime,omitempty"`
	// boot is how the machine was booted.
	// +optional
	Boot Boot `json:"boot,omitempty,omitzero"`
	// cpu is all processors together.
	// +optional
	CPU CPU `json:"cpu,omitempty,omitzero"`
	// memory of the machine.
	// +optional
	Memory Memory `json:"memory,omitempty,omitzero"`
	// disks of the machine.
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	// +optional
	Disks []Disk `json:"disks,omitempty"`
	// gpus of the machine.
	// +kubebuilder:validation:MaxItems=128
	// +listType=atomic
	// +optional
	Gpus []GPU `json:"gpus,omitempty"`
	// interfaces of the machine.
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	// +optional
	Interfaces []Interface `json:"interfaces,omitempty"`
	// systemVendor is what the firmware says.
	// +optional
	SystemVendor SystemVendor `json:"systemVendor,omitempty,omitzero"`
}
