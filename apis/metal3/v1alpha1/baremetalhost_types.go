// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// BMCDetails says where a machine's management controller is and which Secret opens it.
type BMCDetails struct {
	// address is the management controller's URL, for example redfish://192.0.2.1/redfish/v1/Systems/1.
	// Empty means that the host has no management controller.
	// +kubebuilder:validation:MaxLength=4096
	Address string `json:"address"`
	// credentialsName is the Secret in the host's namespace with the keys username and password.
	// Empty means that there are no credentials.
	// +kubebuilder:validation:MaxLength=253
	CredentialsName string `json:"credentialsName"`
	// disableCertificateVerification accepts any certificate of the management controller.
	// +optional
	DisableCertificateVerification bool `json:"disableCertificateVerification,omitempty"`
}

// Image is what is written to a machine's disk.
type Image struct {
	// url is where the image is.
	// +kubebuilder:validation:MaxLength=4096
	URL string `json:"url"`
	// checksum of the image, or where it can be read.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Checksum string `json:"checksum,omitempty"`
	// checksumType is the algorithm of the checksum.
	// +kubebuilder:validation:Enum=md5;sha256;sha512;auto
	// +optional
	ChecksumType string `json:"checksumType,omitempty"`
	// format of the image; with live-iso nothing is written to a disk.
	// +kubebuilder:validation:Enum=raw;qcow2;vdi;vmdk;live-iso
	// +optional
	DiskFormat *string `json:"format,omitempty"`
	// ociAuthSecretName is the Secret that opens an OCI registry.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	OCIAuthSecretName *string `json:"ociAuthSecretName,omitempty"`
}

// CustomDeploy names a way to install a machine that is not an image.
type CustomDeploy struct {
	// method is understood by the ramdisk that installs the machine.
	// +kubebuilder:validation:MaxLength=4096
	Method string `json:"method"`
}

// RootDeviceHints chooses the disk to install to.
type RootDeviceHints struct {
	// deviceName is a name of the device, for example /dev/vda.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	DeviceName string `json:"deviceName,omitempty"`
	// hctl is the SCSI location of the device.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	HCTL string `json:"hctl,omitempty"`
	// model is a part of the model's name.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Model string `json:"model,omitempty"`
	// vendor is a part of the maker's name.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Vendor string `json:"vendor,omitempty"`
	// serialNumber is the disk's serial number.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	SerialNumber string `json:"serialNumber,omitempty"`
	// minSizeGigabytes is the least capacity in GB.
	// +kubebuilder:validation:Minimum=0
	// +optional
	MinSizeGigabytes int `json:"minSizeGigabytes,omitempty"`
	// wwn is the World Wide Name.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	WWN string `json:"wwn,omitempty"`
	// wwnWithExtension is the World Wide Name with its extension.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	WWNWithExtension string `json:"wwnWithExtension,omitempty"`
	// wwnVendorExtension is the maker's extension of the World Wide Name.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	WWNVendorExtension string `json:"wwnVendorExtension,omitempty"`
	// rotational chooses disks with or without moving parts.
	// +optional
	Rotational *bool `json:"rotational,omitempty"`
}

// TaintEffect is what a taint does to pods that do not tolerate it, for example NoSchedule.
// +kubebuilder:validation:MaxLength=256
type TaintEffect string

// Taint is put on the node that the host becomes.
type Taint struct {
	// key of the taint.
	// +kubebuilder:validation:MaxLength=4096
	Key string `json:"key"`
	// value of the taint.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Value string `json:"value,omitempty"`
	// effect on pods that do not tolerate the taint.
	Effect TaintEffect `json:"effect"`
	// timeAdded is when the taint was added.
	// +optional
	TimeAdded *metav1.Time `json:"timeAdded,omitempty"`
}

// InspectionMode says how a host is inspected.
// +kubebuilder:validation:Enum=disabled;agent;fast
type InspectionMode string

// Ways of inspecting a host.
const (
	InspectionDisabled InspectionMode = "disabled"
	InspectionAgent    InspectionMode = "agent"
	InspectionFast     InspectionMode = "fast"
)

// BareMetalHostSpec is what a user wants of a machine. Fields that are not listed are kept as they are.
//
// +kubebuilder:pruning:PreserveUnknownFields
type BareMetalHostSpec struct {
	// taints for the node that the host becomes.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	// +optional
	Taints []Taint `json:"taints,omitempty"`
	// bmc says where the management controller is. Absent, or with empty strings, the host has none.
	// +optional
	BMC *BMCDetails `json:"bmc,omitempty"`
	// raid is the RAID configuration; it is kept as it is.
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	RAID *runtime.RawExtension `json:"raid,omitempty"`
	// firmware is the wanted firmware configuration; it is kept as it is.
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Firmware *runtime.RawExtension `json:"firmware,omitempty"`
	// hardwareProfile is not used any more.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	HardwareProfile string `json:"hardwareProfile,omitempty"`
	// rootDeviceHints choose the disk to install to.
	// +optional
	RootDeviceHints *RootDeviceHints `json:"rootDeviceHints,omitempty"`
	// bootMode is how the machine boots.
	// +kubebuilder:validation:Enum=UEFI;UEFISecureBoot;legacy
	// +optional
	BootMode string `json:"bootMode,omitempty"`
	// bootMACAddress is the MAC of the interface that the machine boots from. It cannot be changed once set.
	// +kubebuilder:validation:Pattern=`[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}`
	// +optional
	BootMACAddress string `json:"bootMACAddress,omitempty"`
	// online says whether the machine should have power. It has no effect on a host without credentials.
	Online bool `json:"online"`
	// consumerRef names who uses the host.
	// +optional
	ConsumerRef *corev1.ObjectReference `json:"consumerRef,omitempty"`
	// image is what is written to the disk.
	// +optional
	Image *Image `json:"image,omitempty"`
	// userData is the Secret with the machine's configuration.
	// +optional
	UserData *corev1.SecretReference `json:"userData,omitempty"`
	// preprovisioningNetworkDataName is the Secret with the network configuration of the ramdisk.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	PreprovisioningNetworkDataName string `json:"preprovisioningNetworkDataName,omitempty"`
	// networkData is the Secret with the network configuration of the installed system.
	// +optional
	NetworkData *corev1.SecretReference `json:"networkData,omitempty"`
	// metaData is the Secret with the metadata of the installed system.
	// +optional
	MetaData *corev1.SecretReference `json:"metaData,omitempty"`
	// description is free text.
	// +kubebuilder:validation:MaxLength=65536
	// +optional
	Description string `json:"description,omitempty"`
	// externallyProvisioned says that something else installed the machine.
	// +optional
	ExternallyProvisioned bool `json:"externallyProvisioned,omitempty"`
	// automatedCleaningMode says what is wiped between two uses.
	// +kubebuilder:validation:Enum=metadata;disabled
	// +kubebuilder:default=metadata
	// +optional
	AutomatedCleaningMode string `json:"automatedCleaningMode,omitempty"`
	// customDeploy installs the machine in another way than by an image.
	// +optional
	CustomDeploy *CustomDeploy `json:"customDeploy,omitempty"`
	// architecture is the instruction set, as the kernel names it.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Architecture string `json:"architecture,omitempty"`
	// disablePowerOff replaces each power-off by a reboot.
	// +optional
	DisablePowerOff bool `json:"disablePowerOff,omitempty"`
	// inspectionMode says how the host is inspected, or that it is not.
	// +optional
	InspectionMode InspectionMode `json:"inspectionMode,omitempty"`
}
