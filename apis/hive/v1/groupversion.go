// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of the kinds in this package.
const GroupName = "hive.openshift.io"

var (
	// GroupVersion is the group and version of the kinds in this package.
	GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1"}

	// SchemeGroupVersion is GroupVersion under the name that generated code looks for.
	SchemeGroupVersion = GroupVersion

	// SchemeBuilder collects the functions that add this package's kinds to a scheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds this package's kinds to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

// Resource qualifies a resource name of this group, for errors of the API machinery.
func Resource(resource string) schema.GroupResource {
	return GroupVersion.WithResource(resource).GroupResource()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&ClusterPool{}, &ClusterPoolList{},
		&ClusterClaim{}, &ClusterClaimList{},
		&ClusterDeployment{}, &ClusterDeploymentList{},
		&ClusterImageSet{}, &ClusterImageSetList{},
		&MachinePool{}, &MachinePoolList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
