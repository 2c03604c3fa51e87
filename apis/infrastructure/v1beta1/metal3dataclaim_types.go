// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Metal3DataClaimSpec says which template is to be rendered.
type Metal3DataClaimSpec struct {
	// template is the Metal3DataTemplate, in the namespace of the claim. It cannot be modified.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.name) && size(self.name) > 0",message="template.name must name a Metal3DataTemplate"
	// +kubebuilder:validation:XValidation:rule="(has(self.name) ? self.name : '') == (has(oldSelf.name) ? oldSelf.name : '')",message="template cannot be modified; create another claim"
	Template ObjectReference `json:"template"`
}

// Metal3DataClaimStatus says what the claim has got.
type Metal3DataClaimStatus struct {
	// renderedData is the Metal3Data of the claim.
	// +optional
	RenderedData *ObjectReference `json:"renderedData,omitempty"`
	// errorMessage says why there is none.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	ErrorMessage *string `json:"errorMessage,omitempty"`
}

// Metal3DataClaim asks for the rendered data of the Metal3Machine that owns the claim.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="muster.io/crds=network-data"
// +kubebuilder:resource:path=metal3dataclaims,scope=Namespaced,categories=cluster-api;muster,shortName=m3dc;m3dataclaim;m3dataclaims;metal3dc;metal3dataclaim
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta1=v1beta1"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:printcolumn:name="Template",type="string",JSONPath=`.spec.template.name`,description="What is rendered"
// +kubebuilder:printcolumn:name="Data",type="string",JSONPath=`.status.renderedData.name`,description="The Metal3Data of the claim"
// +kubebuilder:printcolumn:name="Error",type="string",JSONPath=`.status.errorMessage`,description="Why there is none"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
type Metal3DataClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which template is to be rendered.
	// +optional
	Spec Metal3DataClaimSpec `json:"spec,omitempty"`
	// status says what the claim has got.
	// +optional
	Status Metal3DataClaimStatus `json:"status,omitempty"`
}

// Metal3DataClaimList is a list of claims.
//
// +kubebuilder:object:root=true
type Metal3DataClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the claims.
	Items []Metal3DataClaim `json:"items"`
}
