// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// NMStateInterface says which interface of the machine a name in the configuration means.
type NMStateInterface struct {
	// name of the interface as the configuration calls it.
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name"`
	// macAddress of the interface.
	// +kubebuilder:validation:Pattern=`^([0-9A-Fa-f]{2}[:]){5}([0-9A-Fa-f]{2})$`
	MacAddress string `json:"macAddress"`
}

// NMStateConfigSpec is the static network of one machine.
type NMStateConfigSpec struct {
	// interfaces say which machine the configuration is for, and which interface a name means. A machine that has any of the addresses takes it.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Interfaces []NMStateInterface `json:"interfaces,omitempty"`
	// config is in the language of nmstate.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	NetConfig *runtime.RawExtension `json:"config,omitempty"`
}

// NMStateConfig is the static network of one machine. InfraEnvs choose them by label.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="muster.io/crds=agent-service"
// +kubebuilder:resource:path=nmstateconfigs,shortName=nmsc,categories=muster
// +kubebuilder:printcolumn:name="MAC",type="string",JSONPath=".spec.interfaces[0].macAddress",description="Address of the first interface"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since the object was made"
type NMStateConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the static network of one machine.
	// +optional
	Spec NMStateConfigSpec `json:"spec,omitempty"`
}

// NMStateConfigList is a list of NMStateConfig.
//
// +kubebuilder:object:root=true
type NMStateConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NMStateConfig `json:"items"`
}
