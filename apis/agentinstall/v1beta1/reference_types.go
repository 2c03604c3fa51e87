// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

// ClusterReference names a ClusterDeployment.
type ClusterReference struct {
	// name of the ClusterDeployment.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Name string `json:"name,omitempty"`
	// namespace of the ClusterDeployment; empty means that of the object that refers to it.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// SecretReference names a Secret in the same namespace.
// +structType=atomic
type SecretReference struct {
	// name of the Secret.
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Name string `json:"name,omitempty"`
}

// ConfigMapReference names a ConfigMap.
type ConfigMapReference struct {
	// name of the ConfigMap.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// namespace of the ConfigMap. Only that of the object that refers to it is read.
	// +kubebuilder:validation:MaxLength=253
	Namespace string `json:"namespace"`
}

// TokenReference names a Secret with a token.
type TokenReference struct {
	// name of the Secret with the key ignition-token.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// namespace of the Secret. Only the Agent's own is read.
	// +kubebuilder:validation:MaxLength=253
	Namespace string `json:"namespace"`
}
