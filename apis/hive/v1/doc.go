// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1 holds the kinds of hive.openshift.io/v1 that Muster serves: ClusterPool, ClusterClaim, ClusterDeployment and
// ClusterImageSet, with their condition types, reasons, labels, annotations and finalizers.
//
// Names on the wire are those of Hive, which users have in manifests, scripts and clients; fields were only added.
// Of ClusterDeployment the part is modelled that pools, claims, power and installation need. The rest is preserved by the API server and is
// unknown here, so a ClusterDeployment is never written with an update of a decoded object, only by server-side apply or by patch.
//
// +kubebuilder:object:generate=true
// +groupName=hive.openshift.io
package v1
