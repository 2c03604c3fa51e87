// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "agent-install.openshift.io", Version: "v1beta1"}

// SchemeGroupVersion is GroupVersion under the name that generated code expects.
var SchemeGroupVersion = GroupVersion

var (
	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	// AddToScheme adds the kinds of this package to a scheme.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&InfraEnv{}, &InfraEnvList{},
		&Agent{}, &AgentList{},
		&NMStateConfig{}, &NMStateConfigList{},
		&AgentClassification{}, &AgentClassificationList{},
		&AgentReservation{}, &AgentReservationList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// Resource returns a name of this group as a resource of the group.
func Resource(resource string) schema.GroupResource {
	return GroupVersion.WithResource(resource).GroupResource()
}
