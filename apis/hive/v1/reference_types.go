// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

// LocalObjectReference names an object in the same namespace.
// +structType=atomic
type LocalObjectReference struct {
	// name of the object.
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Name string `json:"name,omitempty"`
}

// ClusterImageSetReference names a ClusterImageSet.
type ClusterImageSetReference struct {
	// name of the ClusterImageSet.
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}
