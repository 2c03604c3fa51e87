// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Metal3DataTemplateSpec says what the files of a machine look like.
//
// +kubebuilder:validation:XValidation:rule="(has(self.clusterName) ? self.clusterName : 'unset') == (has(oldSelf.clusterName) ? oldSelf.clusterName : 'unset')",message="clusterName cannot be modified; create another template"
// +kubebuilder:validation:XValidation:rule="has(self.metaData) == has(oldSelf.metaData) && (!has(self.metaData) || self.metaData == oldSelf.metaData)",message="metaData cannot be modified; create another template"
// +kubebuilder:validation:XValidation:rule="has(self.networkData) == has(oldSelf.networkData) && (!has(self.networkData) || self.networkData == oldSelf.networkData)",message="networkData cannot be modified; create another template"
type Metal3DataTemplateSpec struct {
	// clusterName is the Cluster that the template belongs to. It cannot be modified.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	ClusterName string `json:"clusterName,omitempty"`
	// templateReference is handed on to the Metal3Data.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	TemplateReference string `json:"templateReference,omitempty"`
	// metaData is rendered into a Secret. It cannot be modified.
	// +optional
	MetaData *MetaData `json:"metaData,omitempty"`
	// networkData is rendered into a Secret. It cannot be modified.
	// +optional
	NetworkData *NetworkData `json:"networkData,omitempty"`
}

// Metal3DataTemplateStatus says who has which index.
type Metal3DataTemplateStatus struct {
	// indexes maps the name of a claim to its index.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=4096
	Indexes map[string]int `json:"indexes,omitempty"`
	// lastUpdated is when indexes changed.
	// +optional
	LastUpdated *metav1.Time `json:"lastUpdated,omitempty"`
}

// Metal3DataTemplate says what metadata and network data of machines look like.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="muster.io/crds=network-data"
// +kubebuilder:resource:path=metal3datatemplates,scope=Namespaced,categories=cluster-api;muster,shortName=m3dt;m3datatemplate;m3datatemplates;metal3dt;metal3datatemplate
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta1=v1beta1"
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move="
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=`.metadata.labels.cluster\.x-k8s\.io/cluster-name`,description="Cluster that the template belongs to"
// +kubebuilder:printcolumn:name="Updated",type="date",JSONPath=`.status.lastUpdated`,description="When an index was given or taken back"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
type Metal3DataTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what the files look like.
	// +optional
	Spec Metal3DataTemplateSpec `json:"spec,omitempty"`
	// status says who has which index.
	// +optional
	Status Metal3DataTemplateStatus `json:"status,omitempty"`
}

// Metal3DataTemplateList is a list of templates.
//
// +kubebuilder:object:root=true
type Metal3DataTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the templates.
	Items []Metal3DataTemplate `json:"items"`
}
