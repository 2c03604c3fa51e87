// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// Labels and annotations of the objects of hosted clusters.
const (
	// Label on every object: the UID of the ClusterDeployment.
	Label = "hosted.muster.io/uid"
	// NameAnnotation on the Secret and the StatefulSet: the name of the ClusterDeployment, which may be longer than a label.
	NameAnnotation = "hosted.muster.io/cluster-deployment"
	// imagesAnnotation on the StatefulSet: the images that the cluster was started with, as the operator asked for them. Admission may have replaced them in the template.
	imagesAnnotation = "hosted.muster.io/images"
	// exposureAnnotation on the Service: the exposure that it and its route were made for. Without it a route of any exposure may be there.
	exposureAnnotation = "hosted.muster.io/exposure"
	// FieldOwner owns what is applied.
	FieldOwner = "pool-operator/hosted"
)

// objectName is the name of all objects of a cluster.
func objectName(ref provision.ClusterRef) string { return ref.ObjectName() }

func podName(ref provision.ClusterRef) string    { return objectName(ref) + "-0" }
func volumeName(ref provision.ClusterRef) string { return dataVolume + "-" + podName(ref) }

func key(ref provision.ClusterRef, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: ref.Namespace, Name: name}
}

func labelsOf(ref provision.ClusterRef) map[string]string {
	return map[string]string{
		Label:                          string(ref.UID),
		"app.kubernetes.io/name":       "hosted-cluster",
		"app.kubernetes.io/managed-by": "pool-operator",
	}
}
