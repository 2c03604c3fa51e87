// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// IPAddressStr is an IPv4 or IPv6 address in text form, without a zone.
//
// +kubebuilder:validation:MaxLength=45
// +kubebuilder:validation:Pattern=`((^((([0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])\.){3}([0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5]))$)|(^(([0-9a-fA-F]{1,4}:){7,7}[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,7}:|([0-9a-fA-F]{1,4}:){1,6}:[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,5}(:[0-9a-fA-F]{1,4}){1,2}|([0-9a-fA-F]{1,4}:){1,4}(:[0-9a-fA-F]{1,4}){1,3}|([0-9a-fA-F]{1,4}:){1,3}(:[0-9a-fA-F]{1,4}){1,4}|([0-9a-fA-F]{1,4}:){1,2}(:[0-9a-fA-F]{1,4}){1,5}|[0-9a-fA-F]{1,4}:((:[0-9a-fA-F]{1,4}){1,6})|:((:[0-9a-fA-F]{1,4}){1,7}|:))$))`
type IPAddressStr string

// IPSubnetStr is an address and a prefix length: the host part counts, as the range of a pool entry starts behind it.
//
// +kubebuilder:validation:MaxLength=49
// +kubebuilder:validation:Pattern=`((^((([0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])\.){3}([0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5]))/([0-9]|[1-2][0-9]|3[0-2])$)|(^(([0-9a-fA-F]{1,4}:){7,7}[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,7}:|([0-9a-fA-F]{1,4}:){1,6}:[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,5}(:[0-9a-fA-F]{1,4}){1,2}|([0-9a-fA-F]{1,4}:){1,4}(:[0-9a-fA-F]{1,4}){1,3}|([0-9a-fA-F]{1,4}:){1,3}(:[0-9a-fA-F]{1,4}){1,4}|([0-9a-fA-F]{1,4}:){1,2}(:[0-9a-fA-F]{1,4}){1,5}|[0-9a-fA-F]{1,4}:((:[0-9a-fA-F]{1,4}){1,6})|:((:[0-9a-fA-F]{1,4}){1,7}|:))/([0-9]|[0-9][0-9]|1[0-1][0-9]|12[0-8])$))`
type IPSubnetStr string

// ObjectReference names another object. The name counts, and where stated the namespace; the other fields are there
// because objects in the field have them.
//
// +structType=atomic
type ObjectReference struct {
	// kind of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`
	// namespace of the object. Empty: that of the object that holds the reference.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// name of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// uid of the object. Used where an IPAddress names a claim of another namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	UID string `json:"uid,omitempty"`
	// apiVersion of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion,omitempty"`
	// resourceVersion of the object. Not used.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// fieldPath is a part of the object. Not used.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	FieldPath string `json:"fieldPath,omitempty"`
}

// PoolReference names an IPPool.
//
// +structType=atomic
type PoolReference struct {
	// namespace of the pool. Empty: that of the object that holds the reference.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// name of the pool.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}
