// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MachineState says how a machine that is not a host stands.
// +kubebuilder:validation:Enum=Waiting;Refused
type MachineState string

// States of machines that are not hosts.
const (
	// MachineWaiting becomes a host by itself, or when what is named is lifted.
	MachineWaiting MachineState = "Waiting"
	// MachineRefused does not become a host.
	MachineRefused MachineState = "Refused"
)

// DiscoveredMachineSpec says which machine it is, and why it is not a host.
type DiscoveredMachineSpec struct {
	// discovery is the BareMetalHostDiscovery, in the same namespace, for which the machine waits or that refuses it.
	// +kubebuilder:validation:MaxLength=63
	Discovery string `json:"discovery"`
	// node is the UUID of the node in Ironic.
	// +kubebuilder:validation:MaxLength=64
	Node string `json:"node"`
	// bootMAC of the machine, if it is known.
	// +kubebuilder:validation:MaxLength=17
	// +optional
	BootMAC string `json:"bootMAC,omitempty"`
	// hostName is what the host would be called, if it is known.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	HostName string `json:"hostName,omitempty"`
	// state is Waiting or Refused.
	State MachineState `json:"state"`
	// reason is one word out of a closed set, as in the status of the BareMetalHostDiscovery.
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message says what is missing or in the way.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
	// since is when the machine was first seen to wait, or to be refused for this reason.
	Since metav1.Time `json:"since"`
}

// DiscoveredMachine is a machine that Ironic knows and that is not a host, with the reason. Discovery writes and deletes it.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:metadata:labels="muster.io/crds=discovery-operator"
// +kubebuilder:resource:path=discoveredmachines,shortName=dmachine,categories=muster
// +kubebuilder:printcolumn:name="Discovery",type="string",JSONPath=".spec.discovery",description="The BareMetalHostDiscovery that would make the host"
// +kubebuilder:printcolumn:name="Boot MAC",type="string",JSONPath=".spec.bootMAC",description="Boot MAC of the machine"
// +kubebuilder:printcolumn:name="Host",type="string",JSONPath=".spec.hostName",description="What the host would be called"
// +kubebuilder:printcolumn:name="State",type="string",JSONPath=".spec.state",description="Waiting or Refused"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".spec.reason",description="Why it is not a host"
// +kubebuilder:printcolumn:name="Since",type="date",JSONPath=".spec.since",description="Time since it waits, or is refused for this reason"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".spec.message",description="What is missing or in the way",priority=1
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since the object was made",priority=1
type DiscoveredMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which machine it is, and why it is not a host.
	Spec DiscoveredMachineSpec `json:"spec"`
}

// DiscoveredMachineList is a list of DiscoveredMachine.
//
// +kubebuilder:object:root=true
type DiscoveredMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DiscoveredMachine `json:"items"`
}
