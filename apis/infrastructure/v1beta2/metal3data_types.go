// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
)

// Metal3Data is the rendered data of one machine. Its name is that of the template, a dash and the index, so that an index is
// given to one claim only.
//
// +genclient
// +kubebuilder:object:root=true
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
	Spec infrav1.Metal3DataSpec `json:"spec,omitempty"`
	// status says how far the data is.
	// +optional
	Status infrav1.Metal3DataStatus `json:"status,omitempty"`
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
