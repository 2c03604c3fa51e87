// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// HardwareDetails is what inspection found in a machine. Everything in it is what the machine said about itself.
type HardwareDetails struct {
	// systemVendor identifies the machine as its firmware does.
	// +optional
	SystemVendor HardwareSystemVendor `json:"systemVendor,omitempty"`
	// firmware is the version of the machine's firmware.
	// +optional
	Firmware Firmware `json:"firmware,omitempty"`
	// ramMebibytes is the installed memory in MiB.
	// +optional
	RAMMebibytes int `json:"ramMebibytes,omitempty"`
	// nics has one entry per address of a network interface; an interface without address has one entry too.
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	// +optional
	NIC []NIC `json:"nics,omitempty"`
	// storage lists the disks.
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	// +optional
	Storage []Storage `json:"storage,omitempty"`
	// cpu describes all processors together.
	// +optional
	CPU CPU `json:"cpu,omitempty"`
	// hostname is the name that the machine gave itself while it was inspected.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Hostname string `json:"hostname,omitempty"`
}

// HardwareSystemVendor identifies a machine as its firmware does.
type HardwareSystemVendor struct {
	// manufacturer is the maker's name.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Manufacturer string `json:"manufacturer,omitempty"`
	// productName is the model.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	ProductName string `json:"productName,omitempty"`
	// serialNumber is the serial number of the machine. Many machines report a placeholder.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	SerialNumber string `json:"serialNumber,omitempty"`
}

// Firmware holds the versions of a machine's firmware.
type Firmware struct {
	// bios is the firmware that boots the machine.
	// +optional
	BIOS BIOS `json:"bios,omitempty"`
}

// BIOS is the firmware that boots a machine.
type BIOS struct {
	// date is the build date in the maker's own form.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Date string `json:"date,omitempty"`
	// vendor made the firmware.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Vendor string `json:"vendor,omitempty"`
	// version is the version in the maker's own form.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Version string `json:"version,omitempty"`
}

// CPU describes all processors of a machine together.
type CPU struct {
	// arch is the instruction set, as the kernel names it (x86_64, aarch64).
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Arch string `json:"arch,omitempty"`
	// model is the processor's name.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Model string `json:"model,omitempty"`
	// clockMegahertz is the clock frequency in MHz.
	// +kubebuilder:validation:Format=double
	// +optional
	ClockMegahertz float64 `json:"clockMegahertz,omitempty"`
	// flags are the features of the processor, sorted.
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=atomic
	// +optional
	Flags []string `json:"flags,omitempty"`
	// count is the number of logical processors.
	// +optional
	Count int `json:"count,omitempty"`
}

// NIC is one address of a network interface, or the interface when it has no address.
type NIC struct {
	// name is the kernel's name of the interface, for example eno1.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Name string `json:"name,omitempty"`
	// model is the vendor and product identifier.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Model string `json:"model,omitempty"`
	// mac is the hardware address.
	// +kubebuilder:validation:Pattern=`[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}`
	// +optional
	MAC string `json:"mac,omitempty"`
	// pciAddress is where the interface sits on the bus.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	PCIAddress string `json:"pciAddress,omitempty"`
	// ip is an IPv4 or IPv6 address that the interface had during inspection.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	IP string `json:"ip,omitempty"`
	// lldp is what the switch at the other end says of itself.
	// +optional
	LLDP *LLDP `json:"lldp,omitempty"`
	// speedGbps is the speed in gigabits per second.
	// +optional
	SpeedGbps int `json:"speedGbps,omitempty"`
	// vlans lists the VLANs that the switch offers on the port.
	// +kubebuilder:validation:MaxItems=4096
	// +listType=atomic
	// +optional
	VLANs []VLAN `json:"vlans,omitempty"`
	// vlanId is the untagged VLAN.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4094
	// +optional
	VLANID int32 `json:"vlanId,omitempty"`
	// pxe says whether the machine booted from this interface.
	// +optional
	PXE bool `json:"pxe,omitempty"`
}

// LLDP is what the switch at the other end of a cable says of itself.
type LLDP struct {
	// switchID is the chassis identifier of the switch.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	SwitchID string `json:"switchID,omitempty"`
	// portID is the port of the switch.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	PortID string `json:"portID,omitempty"`
	// switchSystemName is the name of the switch.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	SwitchSystemName string `json:"switchSystemName,omitempty"`
}

// VLAN is a VLAN that a switch offers.
type VLAN struct {
	// id is the VLAN's number.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4094
	// +optional
	ID int32 `json:"id,omitempty"`
	// name is the VLAN's name on the switch.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Name string `json:"name,omitempty"`
}

// DiskType is the kind of a disk.
// +kubebuilder:validation:Enum=HDD;SSD;NVME
type DiskType string

// Kinds of disks.
const (
	DiskHDD  DiskType = "HDD"
	DiskSSD  DiskType = "SSD"
	DiskNVME DiskType = "NVME"
)

// Storage is one disk.
type Storage struct {
	// name is the most stable name of the device; prefer the path on the bus.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Name string `json:"name,omitempty"`
	// alternateNames are further names of the device.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	// +optional
	AlternateNames []string `json:"alternateNames,omitempty"`
	// rotational says whether the disk has moving parts.
	// +optional
	Rotational bool `json:"rotational,omitempty"`
	// type is the kind of disk.
	// +optional
	Type DiskType `json:"type,omitempty"`
	// sizeBytes is the capacity in bytes.
	// +optional
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// vendor made the disk.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Vendor string `json:"vendor,omitempty"`
	// model of the disk.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Model string `json:"model,omitempty"`
	// serialNumber of the disk.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	SerialNumber string `json:"serialNumber,omitempty"`
	// wwn is the World Wide Name.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	WWN string `json:"wwn,omitempty"`
	// wwnVendorExtension is the maker's extension of the World Wide Name.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	WWNVendorExtension string `json:"wwnVendorExtension,omitempty"`
	// wwnWithExtension is the World Wide Name with its extension.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	WWNWithExtension string `json:"wwnWithExtension,omitempty"`
	// hctl is the SCSI location of the device.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	HCTL string `json:"hctl,omitempty"`
}
