// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Metal3DataSpec says whose data it is, and where it lies.
//
// +kubebuilder:validation:XValidation:rule="(has(self.index) ? self.index : 0) == (has(oldSelf.index) ? oldSelf.index : 0)",message="index cannot be modified"
// +kubebuilder:validation:XValidation:rule="self.template == oldSelf.template",message="template cannot be modified"
// +kubebuilder:validation:XValidation:rule="self.claim == oldSelf.claim",message="claim cannot be modified"
type Metal3DataSpec struct {
	// index is the number of the data in its template. It cannot be modified.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Index int `json:"index,omitempty"`
	// templateReference of the template.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	TemplateReference string `json:"templateReference,omitempty"`
	// metaData is the Secret with the metadata.
	// +optional
	MetaData *SecretReference `json:"metaData,omitempty"`
	// networkData is the Secret with the network data.
	// +optional
	NetworkData *SecretReference `json:"networkData,omitempty"`
	// claim is the Metal3DataClaim. It cannot be modified.
	// +required
	Claim ObjectReference `json:"claim"`
	// template is the Metal3DataTemplate. It cannot be modified.
	// +required
	Template ObjectReference `json:"template"`
}

// Metal3DataStatus says how far the data is.
type Metal3DataStatus struct {
	// ready says that the Secrets are there.
	// +optional
	Ready bool `json:"ready,omitempty"`
	// errorMessage says why they are not.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	ErrorMessage *string `json:"errorMessage,omitempty"`
}

// Metal3Data is the rendered data of one machine. Its name is that of the template, a dash and the index, so that an index is
// given to one claim only.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="muster.io/crds=network-data"
// +kubebuilder:resource:path=metal3datas,scope=Namespaced,categories=cluster-api;muster,shortName=m3d;m3data;m3datas;metal3d;metal3data
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta1=v1beta1"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:printcolumn:name="Claim",type="string",JSONPath=`.spec.claim.name`,description="Whose data it is"
// +kubebuilder:printcolumn:name="Index",type="integer",JSONPath=`.spec.index`,description="Number of the data in its template"
// +kubebuilder:printcolumn:name="Ready",type="boolean",JSONPath=`.status.ready`,description="Whether the Secrets are there"
// +kubebuilder:printcolumn:name="Error",type="string",JSONPath=`.status.errorMessage`,description="Why they are not"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
type Metal3Data struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says whose data it is, and where it lies.
	// +optional
	Spec Metal3DataSpec `json:"spec,omitempty"`
	// status says how far the data is.
	// +optional
	Status Metal3DataStatus `json:"status,omitempty"`
}

// Metal3DataList is a list of data.
//
// +kubebuilder:object:root=true
type Metal3DataList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the data.
	Items []Metal3Data `json:"items"`
}
