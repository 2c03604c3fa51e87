// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// HardwareDataSpec holds what inspection found in a machine.
type HardwareDataSpec struct {
	// hardware is what inspection found.
	// +optional
	HardwareDetails *HardwareDetails `json:"hardware,omitempty"`
}

// HardwareData keeps the hardware of the BareMetalHost of the same name and namespace.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:metadata:labels="muster.io/crds=hosts"
// +kubebuilder:resource:path=hardwaredata,shortName=hd,categories=muster
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since the object was made"
type HardwareData struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what inspection found.
	// +optional
	Spec HardwareDataSpec `json:"spec,omitempty"`
}

// HardwareDataList is a list of HardwareData.
//
// +kubebuilder:object:root=true
type HardwareDataList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HardwareData `json:"items"`
}
