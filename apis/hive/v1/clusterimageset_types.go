// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterImageSetSpec says which release clusters are installed with.
type ClusterImageSetSpec struct {
	// releaseImage is the pull spec of the release that clusters with this image set get. Hosted clusters, which are built from the
	// binaries that the operator brings, keep it as information.
	// +kubebuilder:validation:MaxLength=1024
	// +required
	ReleaseImage string `json:"releaseImage"`
}

// ClusterImageSetStatus has no fields.
type ClusterImageSetStatus struct{}

// ClusterImageSet gives a release a name that pools and clusters refer to.
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="muster.io/crds=clusters"
// +kubebuilder:resource:path=clusterimagesets,scope=Cluster,shortName=imgset,categories=muster
// +kubebuilder:printcolumn:name="Release",type=string,JSONPath=`.spec.releaseImage`,description="Release image that clusters get"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
type ClusterImageSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which release clusters are installed with.
	// +optional
	Spec ClusterImageSetSpec `json:"spec,omitempty"`

	// status has no fields.
	// +optional
	Status ClusterImageSetStatus `json:"status,omitempty"`
}

// ClusterImageSetList is a list of ClusterImageSets.
// +kubebuilder:object:root=true
type ClusterImageSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the ClusterImageSets.
	Items []ClusterImageSet `json:"items"`
}
