// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

// ObjectReference names another object. The name counts; the other fields are there because objects in the field have them.
//
// +structType=atomic
type ObjectReference struct {
	// kind of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`
	// namespace of the object. Empty: that of the object that holds the reference.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Namespace string `json:"namespace,omitempty"`
	// name of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// uid of the object. Not used.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	UID string `json:"uid,omitempty"`
	// apiVersion of the object. Not used.
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

// SecretReference names a Secret.
//
// +structType=atomic
type SecretReference struct {
	// name of the Secret.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// namespace of the Secret, which is that of the object that holds the reference.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Namespace string `json:"namespace,omitempty"`
}

// PoolReference names a pool of addresses. Without apiGroup and kind it is an IPPool of ipam.metal3.io.
//
// +structType=atomic
type PoolReference struct {
	// apiGroup of the pool.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	APIGroup string `json:"apiGroup,omitempty"`
	// kind of the pool.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`
	// name of the pool, in the namespace of the template.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// MachineObject is an object that belongs to a machine: the Machine of Cluster API, its Metal3Machine, or its BareMetalHost.
//
// +kubebuilder:validation:Enum=machine;metal3machine;baremetalhost
type MachineObject string

// Objects that belong to a machine.
const (
	// MachineObjectMachine is the Machine of Cluster API.
	MachineObjectMachine MachineObject = "machine"
	// MachineObjectMetal3Machine is the Metal3Machine.
	MachineObjectMetal3Machine MachineObject = "metal3machine"
	// MachineObjectHost is the BareMetalHost.
	MachineObjectHost MachineObject = "baremetalhost"
)

// AnnotationReference is the value of an annotation.
type AnnotationReference struct {
	// object that has the annotation.
	// +required
	Object MachineObject `json:"object"`
	// annotation is its key.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Annotation string `json:"annotation"`
}
