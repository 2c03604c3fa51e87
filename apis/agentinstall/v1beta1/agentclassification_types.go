// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AgentClassificationSpec says which Agents get which label.
//
// +kubebuilder:validation:XValidation:rule="self.labelKey == oldSelf.labelKey && self.labelValue == oldSelf.labelValue",message="labelKey and labelValue cannot be changed: make another AgentClassification and delete this one"
type AgentClassificationSpec struct {
	// labelKey is the part of the label's key after "agentclassification.agent-install.openshift.io/".
	// +kubebuilder:validation:MaxLength=63
	LabelKey string `json:"labelKey"`
	// labelValue is the value of the label on Agents that match.
	// +kubebuilder:validation:MaxLength=63
	LabelValue string `json:"labelValue"`
	// query is a jq expression over the inventory that is true for Agents that match, such as .cpu.count >= 16.
	// +kubebuilder:validation:MaxLength=16384
	Query string `json:"query"`
}

// AgentClassificationStatus says how many Agents match.
type AgentClassificationStatus struct {
	// matchedCount is how many Agents match.
	// +optional
	MatchedCount int `json:"matchedCount,omitempty"`
	// errorCount is for how many Agents the query failed.
	// +optional
	ErrorCount int `json:"errorCount,omitempty"`
	// conditions: QueryErrors.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`
}

// AgentClassification labels the Agents of its namespace by their hardware.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="muster.io/crds=agent-service"
// +kubebuilder:resource:path=agentclassifications,shortName=acl,categories=muster
// +kubebuilder:printcolumn:name="Matched",type="integer",JSONPath=".status.matchedCount",description="Agents that match"
// +kubebuilder:printcolumn:name="Errors",type="integer",JSONPath=".status.errorCount",description="Agents for which the query failed"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since the object was made"
type AgentClassification struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which Agents get which label.
	// +optional
	Spec AgentClassificationSpec `json:"spec,omitempty"`
	// status says how many Agents match.
	// +optional
	Status AgentClassificationStatus `json:"status,omitempty"`
}

// AgentClassificationList is a list of AgentClassification.
//
// +kubebuilder:object:root=true
type AgentClassificationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AgentClassification `json:"items"`
}
