// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AgentReservationSpec says how many free machines are reserved, and which.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec cannot be changed: create another AgentReservation and delete this one"
type AgentReservationSpec struct {
	// count is how many machines are reserved: all of them, or none.
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 1000",message="write a count from 1 to 1000"
	// +required
	Count int32 `json:"count"`
	// agentSelector selects Agents of the namespace by their labels. Unset, or empty, it selects all.
	// +optional
	AgentSelector metav1.LabelSelector `json:"agentSelector,omitempty"`
	// minimum is what a machine has at least.
	// +optional
	Minimum *AgentMinimum `json:"minimum,omitempty"`
	// spreadBy is the key of a label of Agents, such as topology.example.com/rack: the next machine comes from the value of which the reservation has the fewest.
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')`,message="write the key of a label, such as 'topology.example.com/rack'"
	// +kubebuilder:validation:MaxLength=317
	// +optional
	SpreadBy string `json:"spreadBy,omitempty"`
	// duration is how long machines that are not bound stay reserved, counted from the moment when all are reserved. A duration such as 30m, of 1m to 24h. Unset means 15m.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}[hms])+$') && duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="write a duration of hours, minutes and seconds from 1m to 24h, such as '30m' or '1h30m'"
	// +optional
	Duration *metav1.Duration `json:"duration,omitempty"`
}

// AgentMinimum is the least hardware that a machine has. Fields that are not set are not compared.
type AgentMinimum struct {
	// cpuCores is how many logical processors a machine has at least.
	// +kubebuilder:validation:Minimum=0
	// +optional
	CPUCores int64 `json:"cpuCores,omitempty"`
	// memoryGiB is how much memory a machine has at least, in GiB.
	// +kubebuilder:validation:Minimum=0
	// +optional
	MemoryGiB int64 `json:"memoryGiB,omitempty"`
	// diskGB is how large the largest disk is at least that can be installed to, in GB (10^9 bytes).
	// +kubebuilder:validation:Minimum=0
	// +optional
	DiskGB int64 `json:"diskGB,omitempty"`
}

// AgentReservationStatus says which machines are reserved, and until when.
type AgentReservationStatus struct {
	// reserved is how many machines are reserved now: those that were bound, or are gone, do not count.
	// +optional
	Reserved int32 `json:"reserved,omitempty"`
	// reservedUntil is when the reservation ends.
	// +optional
	ReservedUntil *metav1.Time `json:"reservedUntil,omitempty"`
	// agents are the names of all Agents that were reserved together.
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=atomic
	// +optional
	Agents []string `json:"agents,omitempty"`
	// conditions: Ready.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`
}

// AgentReservation reserves free machines of its namespace: all that it asks for, or none.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="muster.io/crds=agent-service"
// +kubebuilder:resource:path=agentreservations,shortName=ares,categories=muster
// +kubebuilder:printcolumn:name="Count",type="integer",JSONPath=".spec.count",description="Machines that are wanted"
// +kubebuilder:printcolumn:name="Reserved",type="integer",JSONPath=".status.reserved",description="Machines that are reserved now"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status",description="Whether all machines were reserved"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason",description="Why, or why not"
// +kubebuilder:printcolumn:name="Until",type="string",JSONPath=".status.reservedUntil",description="When the reservation ends"
// +kubebuilder:printcolumn:name="Message",type="string",priority=1,JSONPath=".status.conditions[?(@.type=='Ready')].message",description="The reason in a sentence"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since the object was made"
type AgentReservation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says how many free machines are reserved, and which.
	// +required
	Spec AgentReservationSpec `json:"spec"`
	// status says which machines are reserved, and until when.
	// +optional
	// +kubebuilder:default={conditions: {{type: "Ready", status: "Unknown", reason: "Initialized", message: "agent-service has not looked at the object yet"}}}
	Status AgentReservationStatus `json:"status,omitempty"`
}

// AgentReservationList is a list of AgentReservation.
//
// +kubebuilder:object:root=true
type AgentReservationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AgentReservation `json:"items"`
}
