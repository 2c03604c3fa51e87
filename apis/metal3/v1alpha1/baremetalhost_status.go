// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// OperationalStatus is a host's health in one word.
// +kubebuilder:validation:Enum="";OK;discovered;error;delayed;detached;servicing
type OperationalStatus string

// Values of OperationalStatus.
const (
	OperationalStatusOK         OperationalStatus = "OK"
	OperationalStatusDiscovered OperationalStatus = "discovered"
	OperationalStatusError      OperationalStatus = "error"
	OperationalStatusDelayed    OperationalStatus = "delayed"
	OperationalStatusDetached   OperationalStatus = "detached"
	OperationalStatusServicing  OperationalStatus = "servicing"
)

// ErrorType says which step went wrong.
// +kubebuilder:validation:Enum=provisioned registration error;registration error;inspection error;preparation error;provisioning error;power management error;servicing error
type ErrorType string

// Values of ErrorType.
const (
	ProvisionedRegistrationError ErrorType = "provisioned registration error"
	RegistrationError            ErrorType = "registration error"
	InspectionError              ErrorType = "inspection error"
	PreparationError             ErrorType = "preparation error"
	ProvisioningError            ErrorType = "provisioning error"
	PowerManagementError         ErrorType = "power management error"
	ServicingError               ErrorType = "servicing error"
)

// ProvisioningState is where a host is in its life.
// +kubebuilder:validation:MaxLength=256
type ProvisioningState string

// States of a host. Other operators know all of these but StateDiscovered and StateImporting, which therefore never
// leave an operator that shares a cluster with another one.
const (
	StateNone                  ProvisioningState = ""
	StateUnmanaged             ProvisioningState = "unmanaged"
	StateDiscovered            ProvisioningState = "discovered"
	StateImporting             ProvisioningState = "importing"
	StateRegistering           ProvisioningState = "registering"
	StateMatchProfile          ProvisioningState = "match profile"
	StatePreparing             ProvisioningState = "preparing"
	StateReady                 ProvisioningState = "ready"
	StateAvailable             ProvisioningState = "available"
	StateProvisioning          ProvisioningState = "provisioning"
	StateProvisioned           ProvisioningState = "provisioned"
	StateExternallyProvisioned ProvisioningState = "externally provisioned"
	StateDeprovisioning        ProvisioningState = "deprovisioning"
	StateInspecting            ProvisioningState = "inspecting"
	StatePoweringOffBefore     ProvisioningState = "powering off before delete"
	StateDeleting              ProvisioningState = "deleting"
)

// CredentialsStatus records credentials that were tried.
type CredentialsStatus struct {
	// credentials is the Secret.
	// +optional
	Reference *corev1.SecretReference `json:"credentials,omitempty"`
	// credentialsVersion is the Secret's resourceVersion.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Version string `json:"credentialsVersion,omitempty"`
}

// OperationMetric is when an operation began and ended. Unset times are null.
type OperationMetric struct {
	// start of the operation.
	// +nullable
	// +optional
	Start *metav1.Time `json:"start,omitempty"`
	// end of the operation.
	// +nullable
	// +optional
	End *metav1.Time `json:"end,omitempty"`
}

// OperationHistory is when the last operation of each kind ran.
type OperationHistory struct {
	// register is the registration.
	// +optional
	Register OperationMetric `json:"register,omitempty"`
	// inspect is the inspection.
	// +optional
	Inspect OperationMetric `json:"inspect,omitempty"`
	// provision is the installation.
	// +optional
	Provision OperationMetric `json:"provision,omitempty"`
	// deprovision is the removal.
	// +optional
	Deprovision OperationMetric `json:"deprovision,omitempty"`
}

// ProvisionStatus says where a host is in its life and what it was given.
type ProvisionStatus struct {
	// state is where the host is in its life.
	State ProvisioningState `json:"state"`
	// ID is the UUID of the host's node in Ironic.
	// +kubebuilder:validation:MaxLength=256
	ID string `json:"ID"`
	// image is what was written to the disk.
	// +optional
	Image *Image `json:"image,omitempty"`
	// rootDeviceHints chose the disk.
	// +optional
	RootDeviceHints *RootDeviceHints `json:"rootDeviceHints,omitempty"`
	// bootMode is how the machine boots.
	// +kubebuilder:validation:Enum=UEFI;UEFISecureBoot;legacy
	// +optional
	BootMode string `json:"bootMode,omitempty"`
	// raid is the RAID configuration; it is kept as it is.
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	RAID *runtime.RawExtension `json:"raid,omitempty"`
	// firmware is the firmware configuration; it is kept as it is.
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Firmware *runtime.RawExtension `json:"firmware,omitempty"`
	// customDeploy is how the machine was installed, if not by an image.
	// +optional
	CustomDeploy *CustomDeploy `json:"customDeploy,omitempty"`
}

// BareMetalHostStatus is what is known of a machine. Fields that are not listed are kept as they are.
//
// +kubebuilder:pruning:PreserveUnknownFields
type BareMetalHostStatus struct {
	// operationalStatus is the health in one word; discovered means that the host has no credentials yet.
	OperationalStatus OperationalStatus `json:"operationalStatus"`
	// errorType says which step went wrong.
	// +optional
	ErrorType ErrorType `json:"errorType,omitempty"`
	// lastUpdated is when this status was last written. A host without it has no status.
	// +optional
	LastUpdated *metav1.Time `json:"lastUpdated,omitempty"`
	// hardwareProfile is not used any more.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	HardwareProfile string `json:"hardwareProfile,omitempty"`
	// hardware is what inspection found. HardwareData of the same name is its newer home.
	// +optional
	HardwareDetails *HardwareDetails `json:"hardware,omitempty"`
	// provisioning says where the host is in its life.
	Provisioning ProvisionStatus `json:"provisioning"`
	// goodCredentials were accepted by the management controller.
	// +optional
	GoodCredentials CredentialsStatus `json:"goodCredentials,omitempty"`
	// triedCredentials were sent to the management controller last.
	// +optional
	TriedCredentials CredentialsStatus `json:"triedCredentials,omitempty"`
	// errorMessage explains errorType.
	// +kubebuilder:validation:MaxLength=65536
	ErrorMessage string `json:"errorMessage"`
	// poweredOn says whether the machine has power, as its management controller says.
	PoweredOn bool `json:"poweredOn"`
	// operationHistory is when the last operation of each kind ran.
	// +optional
	OperationHistory OperationHistory `json:"operationHistory,omitempty"`
	// errorCount is how often the present step has failed.
	// +kubebuilder:default:=0
	ErrorCount int `json:"errorCount"`
	// provisioningFailCount is how often provisioning has failed.
	// +kubebuilder:default:=0
	ProvisioningFailCount int `json:"provisioningFailCount"`
	// lastAttemptedImage is the image that was written last.
	// +optional
	LastAttemptedImage *Image `json:"lastAttemptedImage,omitempty"`
	// conditions explain the state. Ready is the summary.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BareMetalHost is a machine.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="muster.io/crds=hosts"
// +kubebuilder:resource:path=baremetalhosts,shortName=bmh;bmhost,categories=muster
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.operationalStatus",description="Operational status",priority=1
// +kubebuilder:printcolumn:name="State",type="string",JSONPath=".status.provisioning.state",description="Provisioning status"
// +kubebuilder:printcolumn:name="Consumer",type="string",JSONPath=".spec.consumerRef.name",description="Consumer using this host"
// +kubebuilder:printcolumn:name="BMC",type="string",JSONPath=".spec.bmc.address",description="Address of management controller",priority=1
// +kubebuilder:printcolumn:name="Hardware_Profile",type="string",JSONPath=".status.hardwareProfile",description="Not used any more",priority=1
// +kubebuilder:printcolumn:name="Online",type="string",JSONPath=".spec.online",description="Whether the host is online or not"
// +kubebuilder:printcolumn:name="Error",type="string",JSONPath=".status.errorType",description="Type of the most recent error"
// +kubebuilder:printcolumn:name="Approval",type="string",JSONPath=".metadata.labels.discovery\\.metal3\\.io/approval",description="Whether a discovered host was approved",priority=1
// +kubebuilder:printcolumn:name="Held",type="string",JSONPath=".metadata.annotations.baremetalhost\\.metal3\\.io/paused",description="Who pauses the host",priority=1
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since the host was made"
type BareMetalHost struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what a user wants of the machine.
	// +optional
	Spec BareMetalHostSpec `json:"spec,omitempty"`
	// status is what is known of the machine.
	// +optional
	Status BareMetalHostStatus `json:"status,omitempty"`
}

// BareMetalHostList is a list of BareMetalHost.
//
// +kubebuilder:object:root=true
type BareMetalHostList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BareMetalHost `json:"items"`
}
